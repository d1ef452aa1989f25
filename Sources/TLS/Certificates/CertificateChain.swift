import COpenSSL

enum CertificateChain {
    /// Puts a chain in order: a certificate, its issuer, the issuer's, and so on.
    ///
    /// Certificates that are no part of it are freed: a Keychain export may hold other identities' as well, which are
    /// nothing to send to a server.
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
