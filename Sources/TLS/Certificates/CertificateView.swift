import COpenSSL
import Glibc
import PrintableText

/// A reader of an X509 that another owner keeps alive.
struct CertificateView {
    let pointer: OpaquePointer

    var commonName: String? { subjectText(NID_commonName) }

    /// The subject's user ID (OID 0.9.2342.19200300.100.1.1).
    var userID: String? { subjectText(NID_userId) }

    /// The certificate's name for messages.
    var label: String { commonName.map(printable) ?? "without a common name" }

    /// The start of validity in seconds since 1970; nil if the date cannot be read.
    var notBefore: Int64? { seconds(X509_get0_notBefore(pointer)) }

    /// The end of validity in seconds since 1970; nil if the date cannot be read.
    var notAfter: Int64? { seconds(X509_get0_notAfter(pointer)) }

    /// The hosts that the certificate is for: its alternative names or, if it has none, its common name.
    var hosts: [String] {
        let alternatives = alternativeNames
        return alternatives.isEmpty ? commonName.map { [printable($0)] } ?? [] : alternatives
    }

    /// - Parameter oid: the object identifier in numbers, because a name could mean several extensions.
    func extensionValue(_ oid: String) -> [UInt8]? {
        defer { ERR_clear_error() }
        guard let object = OBJ_txt2obj(oid, 1) else { return nil }
        defer { ASN1_OBJECT_free(object) }
        let index = X509_get_ext_by_OBJ(pointer, object, -1)
        guard index >= 0, let value = X509_EXTENSION_get_data(X509_get_ext(pointer, index)) else { return nil }
        return Array(UnsafeBufferPointer(start: ASN1_STRING_get0_data(value), count: Int(ASN1_STRING_length(value))))
    }

    /// The object identifiers of the extensions, in numbers.
    var extensionIdentifiers: [String] {
        (0..<max(X509_get_ext_count(pointer), 0)).compactMap { index in
            guard let object = X509_EXTENSION_get_object(X509_get_ext(pointer, index)) else { return nil }
            var text = [CChar](repeating: 0, count: 80)
            guard OBJ_obj2txt(&text, Int32(text.count), object, 1) > 0 else { return nil }
            return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        }
    }

    private var alternativeNames: [String] {
        guard let names = X509_get_ext_d2i(pointer, NID_subject_alt_name, nil, nil) else { return [] }
        let stack = OpaquePointer(names)
        defer { GENERAL_NAMES_free(stack) }
        return (0..<max(OPENSSL_sk_num(stack), 0)).compactMap { index in
            guard let entry = OPENSSL_sk_value(stack, index) else { return nil }
            var type: Int32 = 0
            guard let value = GENERAL_NAME_get0_value(entry.assumingMemoryBound(to: GENERAL_NAME.self), &type)
            else { return nil }
            let string = value.assumingMemoryBound(to: ASN1_STRING.self)
            switch type {
            case GEN_DNS: return text(string).map(printable)
            case GEN_IPADD: return address(string)
            default: return nil
            }
        }
    }

    private func subjectText(_ attribute: Int32) -> String? {
        guard let subject = X509_get_subject_name(pointer) else { return nil }
        let index = X509_NAME_get_index_by_NID(subject, attribute, -1)
        guard index >= 0, let entry = X509_NAME_get_entry(subject, index),
            let value = X509_NAME_ENTRY_get_data(entry)
        else { return nil }
        return text(value)
    }

    private func text(_ string: UnsafePointer<ASN1_STRING>) -> String? {
        var bytes: UnsafeMutablePointer<UInt8>?
        let count = ASN1_STRING_to_UTF8(&bytes, string)
        guard count >= 0, let bytes else {
            ERR_clear_error()
            return nil
        }
        defer { CRYPTO_free(bytes, nil, 0) }
        return String(decoding: UnsafeBufferPointer(start: bytes, count: Int(count)), as: UTF8.self)
    }

    private func address(_ string: UnsafePointer<ASN1_STRING>) -> String? {
        let family: Int32
        switch ASN1_STRING_length(string) {
        case 4: family = AF_INET
        case 16: family = AF_INET6
        default: return nil
        }
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        guard inet_ntop(family, ASN1_STRING_get0_data(string), &text, socklen_t(text.count)) != nil else { return nil }
        return text.withUnsafeBufferPointer { buffer in
            buffer.baseAddress.map { String(cString: $0) }
        }
    }

    private func seconds(_ time: UnsafePointer<ASN1_TIME>?) -> Int64? {
        var parts = tm()
        guard let time, ASN1_TIME_to_tm(time, &parts) == 1 else {
            ERR_clear_error()
            return nil
        }
        return Int64(timegm(&parts))
    }
}

/// The order of certificates in a chain.
enum CertificateChain {
    /// Returns the first key that belongs to a certificate, and the chain that begins with this certificate. If several certificates have
    /// the key, the chain begins with the one that is valid longest. Frees the other keys and certificates, or all of them if no key
    /// belongs to a certificate.
    /// - Parameter isChain: true if the certificates are in the order of a chain, provided that the first one has the key.
    static func matching(
        _ keys: [OpaquePointer], _ certificates: [OpaquePointer], isChain: Bool = false
    ) -> (chain: [OpaquePointer], key: OpaquePointer)? {
        defer { ERR_clear_error() }
        func belong(_ certificate: OpaquePointer, _ key: OpaquePointer) -> Bool {
            X509_check_private_key(certificate, key) == 1
        }
        for (index, key) in keys.enumerated() {
            let own = certificates.indices.filter { belong(certificates[$0], key) }
            guard let first = own.first else { continue }
            for (other, key) in keys.enumerated() where other != index { EVP_PKEY_free(key) }
            if isChain, first == 0, own.count == 1 { return (certificates, key) }
            let end = { (index: Int) in CertificateView(pointer: certificates[index]).notAfter ?? .min }
            let leaf = own.max { end($0) < end($1) } ?? first
            let others = certificates.indices.filter { $0 != leaf }.map { certificates[$0] }
            return (ordered(from: certificates[leaf], among: others), key)
        }
        keys.forEach(EVP_PKEY_free)
        certificates.forEach(X509_free)
        return nil
    }

    /// Puts a chain in order: a certificate, its issuer, the issuer's issuer, and so on.
    ///
    /// Certificates outside the chain are freed: a Keychain export may contain other identities' certificates, which must not be sent.
    static func ordered(from leaf: OpaquePointer, among others: [OpaquePointer]) -> [OpaquePointer] {
        defer { ERR_clear_error() }
        var chain = [leaf]
        var rest = others
        var last = leaf
        while let index = rest.firstIndex(where: { X509_check_issued($0, last) == X509_V_OK }) {
            last = rest.remove(at: index)
            chain.append(last)
        }
        rest.forEach(X509_free)
        return chain
    }
}

/// A certificate in DER form, as issued by Apple's developer site (`.cer`).
enum DERCertificate {
    /// Returns an `X509` that the caller owns; nil for other data.
    static func read(_ bytes: [UInt8]) -> OpaquePointer? {
        defer { ERR_clear_error() }
        return bytes.withUnsafeBufferPointer { bytes in
            var start = bytes.baseAddress
            return d2i_X509(nil, &start, bytes.count)
        }
    }

    static func write(_ certificate: OpaquePointer) -> [UInt8]? {
        var bytes: UnsafeMutablePointer<UInt8>?
        let count = i2d_X509(certificate, &bytes)
        guard count > 0, let bytes else { return nil }
        defer { CRYPTO_free(bytes, nil, 0) }
        return Array(UnsafeBufferPointer(start: bytes, count: Int(count)))
    }
}
