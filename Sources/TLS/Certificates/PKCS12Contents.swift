import COpenSSL

/// The keys and certificates of a PKCS#12 file, in forms that belong to no OpenSSL library context.
///
/// `PKCS12_parse` would do most of this, but in OpenSSL 3.0 not for files without a checksum.
struct PKCS12Contents {
    private(set) var keys: [ExportedKey] = []
    /// In DER.
    private(set) var certificates: [[UInt8]] = []

    /// Bags can be nested, but files use only a few levels.
    private static let maximumDepth = 8

    /// Decrypts all contents of the file; nil if that fails, with the reason in OpenSSL's queue.
    init?(_ file: OpaquePointer, passphrase: String?) {
        guard let safes = PKCS12_unpack_authsafes(file) else { return nil }
        defer {
            while let safe = OPENSSL_sk_pop(safes) { PKCS7_free(safe.assumingMemoryBound(to: PKCS7.self)) }
            OPENSSL_sk_free(safes)
        }
        for index in 0..<max(OPENSSL_sk_num(safes), 0) {
            guard let safe = OPENSSL_sk_value(safes, index)?.assumingMemoryBound(to: PKCS7.self) else { continue }
            let bags: OpaquePointer?
            switch OBJ_obj2nid(safe.pointee.type) {
            case NID_pkcs7_data: bags = PKCS12_unpack_p7data(safe)
            case NID_pkcs7_encrypted:
                bags = PKCS12_unpack_p7encdata(safe, passphrase, passphrase == nil ? 0 : -1)
            default: continue
            }
            guard let bags else { return nil }
            defer {
                while let bag = OPENSSL_sk_pop(bags) { PKCS12_SAFEBAG_free(OpaquePointer(bag)) }
                OPENSSL_sk_free(bags)
            }
            guard take(bags, passphrase, depth: 0) else { return nil }
        }
    }

    private mutating func take(_ bags: OpaquePointer, _ passphrase: String?, depth: Int) -> Bool {
        guard depth < Self.maximumDepth else { return true }
        for index in 0..<max(OPENSSL_sk_num(bags), 0) {
            guard let bag = OPENSSL_sk_value(bags, index).map({ OpaquePointer($0) }) else { continue }
            switch PKCS12_SAFEBAG_get_nid(bag) {
            case NID_keyBag:
                guard let plain = PKCS12_SAFEBAG_get0_p8inf(bag), take(key: plain) else { return false }
            case NID_pkcs8ShroudedKeyBag:
                guard let plain = PKCS12_decrypt_skey(bag, passphrase, passphrase == nil ? 0 : -1) else { return false }
                defer { PKCS8_PRIV_KEY_INFO_free(plain) }
                guard take(key: plain) else { return false }
            case NID_certBag where PKCS12_SAFEBAG_get_bag_nid(bag) == NID_x509Certificate:
                guard let certificate = PKCS12_SAFEBAG_get1_cert(bag) else { return false }
                defer { X509_free(certificate) }
                guard let der = DERCertificate.write(certificate) else { return false }
                certificates.append(der)
            case NID_safeContentsBag:
                guard let inner = PKCS12_SAFEBAG_get0_safes(bag), take(inner, passphrase, depth: depth + 1)
                else { return false }
            default: continue
            }
        }
        return true
    }

    private mutating func take(key plain: OpaquePointer) -> Bool {
        guard let key = EVP_PKCS82PKEY(plain) else { return false }
        defer { EVP_PKEY_free(key) }
        guard let exported = ExportedKey(key) else { return false }
        keys.append(exported)
        return true
    }
}
