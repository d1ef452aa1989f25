import APNS
import COpenSSL

/// A generated private key on the curve P-256.
///
/// Unchecked because of the pointer. Safe because the key never changes after `init`: OpenSSL then allows its use by several threads at
/// once (openssl-threads(7)).
final class P256Key: @unchecked Sendable {
    let pointer: OpaquePointer

    init() throws(SimulatorError) {
        ERR_clear_error()
        guard let context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nil) else {
            throw SimulatorError(openSSL: "make a key")
        }
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        guard EVP_PKEY_keygen_init(context) == 1,
            EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1,
            EVP_PKEY_keygen(context, &key) == 1, let key
        else { throw SimulatorError(openSSL: "make a key") }
        pointer = key
    }

    deinit { EVP_PKEY_free(pointer) }

    /// Returns the key as PKCS#8 in PEM, without a passphrase: the form of Apple's `.p8` files.
    func pem() throws(SimulatorError) -> [UInt8] {
        try memoryText("write a key") { PEM_write_bio_PKCS8PrivateKey($0, pointer, nil, nil, 0, nil, nil) == 1 }
    }
}

func memoryText(
    _ what: String, _ write: (OpaquePointer) -> Bool
) throws(SimulatorError) -> [UInt8] {
    guard let bio = BIO_new(BIO_s_mem()) else { throw SimulatorError(openSSL: what) }
    defer { BIO_free(bio) }
    guard write(bio) else { throw SimulatorError(openSSL: what) }
    var bytes = [UInt8](repeating: 0, count: BIO_ctrl_pending(bio))
    var count = 0
    guard BIO_read_ex(bio, &bytes, bytes.count, &count) == 1 else { throw SimulatorError(openSSL: what) }
    return Array(bytes.prefix(count))
}

/// A certificate signed by an authority or by itself.
///
/// Unchecked because of the pointer. Safe because the certificate never changes after `init`, and OpenSSL locks its own caches.
final class IssuedCertificate: @unchecked Sendable {
    private static let days: Int32 = 3650

    private let pointer: OpaquePointer

    /// - Parameters:
    ///   - subject: the attributes of the subject in order, each with OpenSSL's number and the value.
    ///   - extensions: extensions that OpenSSL knows, each with its number and the value as in OpenSSL's configuration files.
    ///   - ownExtensions: extensions that OpenSSL does not know, each with the object identifier and the value in DER.
    ///   - issuer: the authority and its key; nil for an authority's own certificate.
    ///   - now: seconds since 1970. The certificate is valid from one day earlier, for clients whose clock is behind.
    init(
        subject: [(attribute: Int32, value: String)], extensions: [(identifier: Int32, value: String)],
        ownExtensions: [(oid: String, der: [UInt8])] = [], key: P256Key,
        issuer: (certificate: IssuedCertificate, key: P256Key)?, now: Int
    ) throws(SimulatorError) {
        ERR_clear_error()
        guard let certificate = X509_new() else { throw SimulatorError(openSSL: "make a certificate") }
        pointer = certificate
        let issuerPointer = issuer?.certificate.pointer ?? certificate
        guard X509_set_version(certificate, 2) == 1, setSerialNumber(), setSubject(subject),
            X509_set_issuer_name(certificate, X509_get_subject_name(issuerPointer)) == 1,
            X509_set_pubkey(certificate, key.pointer) == 1,
            ASN1_TIME_adj(X509_getm_notBefore(certificate), time_t(now), -1, 0) != nil,
            ASN1_TIME_adj(X509_getm_notAfter(certificate), time_t(now), Self.days, 0) != nil
        else { throw SimulatorError(openSSL: "fill in a certificate") }
        for (identifier, value) in extensions {
            guard add(identifier, value, issuer: issuerPointer) else {
                throw SimulatorError(openSSL: "add '\(value)' to a certificate")
            }
        }
        for (oid, der) in ownExtensions {
            guard add(oid, der) else { throw SimulatorError(openSSL: "add \(oid) to a certificate") }
        }
        guard X509_sign(certificate, (issuer?.key ?? key).pointer, EVP_sha256()) > 0 else {
            throw SimulatorError(openSSL: "sign a certificate")
        }
    }

    deinit { X509_free(pointer) }

    func pem() throws(SimulatorError) -> [UInt8] {
        try memoryText("write a certificate") { PEM_write_bio_X509($0, pointer) == 1 }
    }

    // RFC 5280 §4.1.2.2: positive, at most 20 bytes, and unique within an authority.
    private func setSerialNumber() -> Bool {
        guard let number = BN_new() else { return false }
        defer { BN_free(number) }
        return BN_rand(number, 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1
            && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(pointer)) != nil
    }

    private func setSubject(_ parts: [(attribute: Int32, value: String)]) -> Bool {
        let name = X509_get_subject_name(pointer)
        return parts.allSatisfy { attribute, value in
            let bytes = Array(value.utf8)
            // UTF-8, because OpenSSL's own string types limit common names to 64 characters, and a bundle identifier can be longer.
            return X509_NAME_add_entry_by_NID(name, attribute, V_ASN1_UTF8STRING, bytes, Int32(bytes.count), -1, 0) == 1
        }
    }

    private func add(_ identifier: Int32, _ value: String, issuer: OpaquePointer) -> Bool {
        var context = X509V3_CTX()
        X509V3_set_ctx(&context, issuer, pointer, nil, nil, 0)
        guard let made = X509V3_EXT_conf_nid(nil, &context, identifier, value) else { return false }
        defer { X509_EXTENSION_free(made) }
        return X509_add_ext(pointer, made, -1) == 1
    }

    private func add(_ oid: String, _ der: [UInt8]) -> Bool {
        guard let object = OBJ_txt2obj(oid, 1), let value = ASN1_OCTET_STRING_new() else { return false }
        defer {
            ASN1_OBJECT_free(object)
            ASN1_OCTET_STRING_free(value)
        }
        guard ASN1_OCTET_STRING_set(value, der, Int32(der.count)) == 1,
            let made = X509_EXTENSION_create_by_OBJ(nil, object, 0, value)
        else { return false }
        defer { X509_EXTENSION_free(made) }
        return X509_add_ext(pointer, made, -1) == 1
    }
}

/// The extensions of Apple's push certificates. See `APNSCertificate` for the sources.
enum PushCertificateExtensions {
    private typealias Extension = APNSCertificate.Extension

    private static let null: [UInt8] = [0x05, 0x00]
    private static let utf8String: UInt8 = 0x0C
    private static let sequence: UInt8 = 0x30

    /// Returns the extensions of a certificate for an app in both environments. Values are in DER.
    static func make(bundleID: String, otherTopics: [String] = []) -> [(oid: String, der: [UInt8])] {
        let derived = [
            (bundleID, "app"), (bundleID + ".voip", "voip"), (bundleID + ".complication", "complication"),
        ]
        let list = (derived + otherTopics.map { ($0, "app") }).flatMap { topic, type in
            element(utf8String, Array(topic.utf8)) + element(sequence, element(utf8String, Array(type.utf8)))
        }
        return [
            (Extension.development, null), (Extension.production, null), (Extension.topics, element(sequence, list)),
        ]
    }

    /// Encodes tag, length and contents (X.690 §8.1).
    private static func element(_ tag: UInt8, _ contents: [UInt8]) -> [UInt8] {
        guard contents.count > 127 else { return [tag, UInt8(contents.count)] + contents }
        var length: [UInt8] = []
        var rest = contents.count
        while rest > 0 {
            length.insert(UInt8(rest & 0xFF), at: 0)
            rest >>= 8
        }
        return [tag, 0x80 | UInt8(length.count)] + length + contents
    }
}
