import COpenSSL

/// A certificate with its private key and chain in one PKCS#12 file (`.p12`, `.pfx`; RFC 7292), as exported by macOS'
/// Keychain.
struct PKCS12File {
    private let bytes: [UInt8]
    private let source: String
    private let modules: String?

    /// - Parameters:
    ///   - source: the name in errors.
    ///   - modules: the directory of OpenSSL's legacy provider; nil for OpenSSL's default.
    init(bytes: [UInt8], source: String, modules: String? = nil) {
        self.bytes = bytes
        self.source = source
        self.modules = modules
    }

    /// Returns true if the bytes have the outer structure of a PKCS#12 file.
    static func isPKCS12(_ bytes: [UInt8]) -> Bool {
        guard let file = parse(bytes) else { return false }
        PKCS12_free(file)
        return true
    }

    /// Returns the chain, beginning with the own certificate, and the key. The caller owns them.
    /// - Parameter passphrase: files distinguish an empty passphrase from none, but people do not. So for nil and "", both are tried.
    /// - Throws: `notPKCS12`, `wrongPassphrase`, `identityIncomplete`, `keyMismatch`, `legacyProviderMissing`.
    func identity(passphrase: String?) throws(TLSError) -> (chain: [OpaquePointer], key: OpaquePointer) {
        let contents = try LegacyAlgorithms.read(
            source, modules: modules,
            unsupported: .notPKCS12(source: source, reason: "its encryption is not supported by OpenSSL")
        ) { () throws(TLSError) in try decrypted(passphrase) }
        return try identity(contents)
    }

    private static func parse(_ bytes: [UInt8]) -> OpaquePointer? {
        defer { ERR_clear_error() }
        return bytes.withUnsafeBufferPointer { bytes in
            var start = bytes.baseAddress
            return d2i_PKCS12(nil, &start, bytes.count)
        }
    }

    /// Returns nil if the algorithm of the encryption is missing.
    private func decrypted(_ passphrase: String?) throws(TLSError) -> PKCS12Contents? {
        guard let file = Self.parse(bytes) else {
            throw TLSError(.notPKCS12(source: source, reason: "its outer structure is malformed"))
        }
        defer { PKCS12_free(file) }
        let wrongPassphrase = TLSError(.wrongPassphrase(source: source, given: passphrase != nil))
        // OpenSSL reads a passphrase only up to a NUL, so it could accept a wrong one.
        guard passphrase?.utf8.contains(0) != true else { throw wrongPassphrase }
        let spellings = passphrase.map { $0.isEmpty ? [nil, $0] : [$0] } ?? [nil, ""]
        let hasChecksum = PKCS12_mac_present(file) == 1
        var problem = OpenSSLFailure.take()
        for spelling in spellings {
            ERR_clear_error()
            if hasChecksum, PKCS12_verify_mac(file, spelling, spelling == nil ? 0 : -1) != 1 {
                problem = OpenSSLFailure.take()
                if problem.isUnsupportedAlgorithm { return nil }
                continue
            }
            if let contents = PKCS12Contents(file, passphrase: spelling) { return contents }
            problem = OpenSSLFailure.take()
            if problem.isUnsupportedAlgorithm { return nil }
        }
        // OpenSSL does not report a wrong checksum as an error.
        if problem.isNone || problem.isWrongPassphrase { throw wrongPassphrase }
        throw TLSError(.notPKCS12(source: source, reason: problem.text))
    }

    private func identity(_ contents: PKCS12Contents) throws(TLSError) -> (chain: [OpaquePointer], key: OpaquePointer) {
        defer { ERR_clear_error() }
        guard !contents.keys.isEmpty else {
            throw TLSError(.identityIncomplete(source: source, missing: "private key"))
        }
        let certificates = contents.certificates.compactMap(DERCertificate.read)
        guard !certificates.isEmpty else {
            throw TLSError(.identityIncomplete(source: source, missing: "certificate"))
        }
        guard let pair = CertificateChain.matching(contents.keys.compactMap { $0.imported() }, certificates) else {
            throw TLSError(.keyMismatch(key: source, certificate: source))
        }
        return pair
    }
}
