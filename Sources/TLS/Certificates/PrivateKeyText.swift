import COpenSSL

/// A private key as files hold it: PEM or DER, in PKCS#8 or an older form, encrypted or not.
package struct PrivateKeyText {
    private let bytes: [UInt8]
    private let source: String
    /// Where to look for OpenSSL's legacy provider, if not where OpenSSL does.
    private let modules: String?

    /// - Parameter source: what to call it in an error: the file's path, or what it was given as.
    package init(_ bytes: [UInt8], source: String) {
        self.init(bytes, source: source, modules: nil)
    }

    init(_ bytes: [UInt8], source: String, modules: String?) {
        self.bytes = bytes
        self.source = source
        self.modules = modules
    }

    private enum Attempt {
        case read(OpaquePointer)
        case unsupportedAlgorithm
        case refused(TLSError)
    }

    /// Reads the first private key: an OpenSSL `EVP_PKEY`, which the caller owns.
    ///
    /// - Throws: `notPEM` for what holds no private key, `wrongPassphrase` for an encrypted one,
    ///   `legacyProviderMissing`.
    package func read(passphrase: String?) throws(TLSError) -> OpaquePointer {
        switch try attempt(passphrase) {
        case .read(let key): return key
        case .refused(let error): throw error
        case .unsupportedAlgorithm: break
        }
        let exported = try LegacyAlgorithms.with(for: source, modules: modules) { () throws(TLSError) in
            switch try attempt(passphrase) {
            case .read(let key):
                defer { EVP_PKEY_free(key) }
                return ExportedKey(key)
            case .refused(let error): throw error
            case .unsupportedAlgorithm:
                throw TLSError(
                    .notPEM(source: source, expected: "a private key encrypted in a way that OpenSSL knows"))
            }
        }
        guard let key = exported?.imported() else {
            throw TLSError(.notPEM(source: source, expected: "a private key that OpenSSL can use"))
        }
        return key
    }

    private func attempt(_ passphrase: String?) throws(TLSError) -> Attempt {
        let bio = try PEM(bytes: bytes, source: source).memoryBIO()
        defer { BIO_free(bio) }
        var request = PassphraseRequest(passphrase)
        ERR_clear_error()
        let key = withUnsafeMutablePointer(to: &request) { request in
            PEMText.isPEM(bytes)
                ? PEM_read_bio_PrivateKey(bio, nil, PassphraseRequest.answer, request)
                : plainDER() ?? d2i_PKCS8PrivateKey_bio(bio, nil, PassphraseRequest.answer, request)
        }
        let failure = OpenSSLFailure.take()
        if let key { return .read(key) }
        // OpenSSL's reasons differ with the kind of encryption; that it asked at all tells the cases apart.
        guard request.wasAsked else { return .refused(TLSError(.notPEM(source: source, expected: "a private key"))) }
        guard passphrase != nil, failure.isUnsupportedAlgorithm else {
            return .refused(TLSError(.wrongPassphrase(source: source, given: passphrase != nil)))
        }
        return .unsupportedAlgorithm
    }

    private func plainDER() -> OpaquePointer? {
        bytes.withUnsafeBufferPointer { bytes in
            var start = bytes.baseAddress
            return d2i_AutoPrivateKey(nil, &start, bytes.count)
        }
    }
}

/// A private key in its PKCS#8 form, which belongs to no OpenSSL library context.
///
/// OpenSSL overwrites it when it is freed.
final class ExportedKey {
    private let pointer: OpaquePointer

    /// Takes a copy; nil for a key that cannot be exported.
    init?(_ key: OpaquePointer) {
        guard let pointer = EVP_PKEY2PKCS8(key) else { return nil }
        self.pointer = pointer
    }

    deinit { PKCS8_PRIV_KEY_INFO_free(pointer) }

    /// The key in the thread's present library context. The caller owns it.
    func imported() -> OpaquePointer? { EVP_PKCS82PKEY(pointer) }
}
