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

    private enum Attempt {
        case read(PKCS12Contents)
        case unsupportedAlgorithm
        case refused(TLSError)
    }

    /// Returns true if the bytes have the outer structure of a PKCS#12 file.
    static func isPKCS12(_ bytes: [UInt8]) -> Bool {
        guard let file = parse(bytes) else { return false }
        PKCS12_free(file)
        return true
    }

    /// Returns the chain, beginning with the own certificate, and the key. The caller owns them.
    ///
    /// - Parameter passphrase: files distinguish an empty one from none, but people do not: both are tried for either.
    /// - Throws: `notPKCS12`, `wrongPassphrase`, `identityIncomplete`, `keyMismatch`, `legacyProviderMissing`.
    func identity(passphrase: String?) throws(TLSError) -> (chain: [OpaquePointer], key: OpaquePointer) {
        switch attempt(passphrase) {
        case .read(let contents): return try identity(contents)
        case .refused(let error): throw error
        case .unsupportedAlgorithm: break
        }
        let contents = try LegacyAlgorithms.with(for: source, modules: modules) { () throws(TLSError) in
            switch attempt(passphrase) {
            case .read(let contents): return contents
            case .refused(let error): throw error
            case .unsupportedAlgorithm: throw unreadable("its encryption is not supported by OpenSSL")
            }
        }
        return try identity(contents)
    }

    private static func parse(_ bytes: [UInt8]) -> OpaquePointer? {
        defer { ERR_clear_error() }
        return bytes.withUnsafeBufferPointer { bytes in
            var start = bytes.baseAddress
            return d2i_PKCS12(nil, &start, bytes.count)
        }
    }

    private func attempt(_ passphrase: String?) -> Attempt {
        guard let file = Self.parse(bytes) else { return .refused(unreadable("its outer structure is malformed")) }
        defer { PKCS12_free(file) }
        let wrongPassphrase = TLSError(.wrongPassphrase(source: source, given: passphrase != nil))
        // OpenSSL reads a passphrase only up to a NUL, so it could accept a wrong one.
        guard passphrase?.utf8.contains(0) != true else { return .refused(wrongPassphrase) }
        let spellings = passphrase.map { $0.isEmpty ? [nil, $0] : [$0] } ?? [nil, ""]
        let hasChecksum = PKCS12_mac_present(file) == 1
        var problem = OpenSSLFailure.take()
        for spelling in spellings {
            ERR_clear_error()
            if hasChecksum, PKCS12_verify_mac(file, spelling, spelling == nil ? 0 : -1) != 1 {
                problem = OpenSSLFailure.take()
                if problem.isUnsupportedAlgorithm { return .unsupportedAlgorithm }
                continue
            }
            if let contents = PKCS12Contents(file, passphrase: spelling) { return .read(contents) }
            problem = OpenSSLFailure.take()
            if problem.isUnsupportedAlgorithm { return .unsupportedAlgorithm }
        }
        // OpenSSL does not report a wrong checksum as an error.
        let isWrongPassphrase = problem.isNone || problem.isWrongPassphrase
        return .refused(isWrongPassphrase ? wrongPassphrase : unreadable(problem.text))
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

    private func unreadable(_ reason: String) -> TLSError { TLSError(.notPKCS12(source: source, reason: reason)) }
}
