import COpenSSL

/// The algorithms that OpenSSL 3 keeps apart in its legacy provider: RC2, DES and others that old files are encrypted
/// with, among them the PKCS#12 files of macOS' Keychain.
enum LegacyAlgorithms {
    /// Runs a body for which OpenSSL knows the old algorithms too.
    ///
    /// They live in a library context of their own, which this thread uses for as long as the body runs: no other
    /// thread and no connection gets to use them. What the body returns must not depend on that context any more, which
    /// is freed afterwards: keys and certificates have to leave it in their DER forms.
    ///
    /// - Parameters:
    ///   - source: what is being read, for the error.
    ///   - directory: where to look for the provider's module, instead of where OpenSSL looks.
    /// - Throws: `legacyProviderMissing`, and what the body throws.
    static func with<Result>(
        for source: String, modules directory: String? = nil, _ body: () throws(TLSError) -> Result
    ) throws(TLSError) -> Result {
        guard let context = OSSL_LIB_CTX_new() else {
            throw TLSError(.invalidConfiguration(reason: "out of memory reading \(source)"))
        }
        defer { OSSL_LIB_CTX_free(context) }
        ERR_clear_error()
        defer { ERR_clear_error() }
        if let directory { OSSL_PROVIDER_set_default_search_path(context, directory) }
        guard let legacy = OSSL_PROVIDER_load(context, "legacy") else {
            throw TLSError(.legacyProviderMissing(source: source))
        }
        defer { OSSL_PROVIDER_unload(legacy) }
        // A context that has any provider loaded by name no longer gets the default one by itself.
        guard let standard = OSSL_PROVIDER_load(context, "default") else {
            throw TLSError(.invalidConfiguration(reason: OpenSSLFailure.take().text))
        }
        defer { OSSL_PROVIDER_unload(standard) }
        let previous = OSSL_LIB_CTX_set0_default(context)
        defer { OSSL_LIB_CTX_set0_default(previous) }
        return try body()
    }
}
