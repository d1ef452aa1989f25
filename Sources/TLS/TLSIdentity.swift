import COpenSSL

/// Who this side is: a certificate chain, the own certificate first, and its private key.
public struct TLSIdentity: Sendable {
    /// When the own certificate expires, in seconds since 1970.
    public let notAfter: Int64?
    /// The subject's common name.
    public let commonName: String?
    /// The subject's user ID (OID 0.9.2342.19200300.100.1.1), where APNs certificates carry the topic.
    public let userID: String?

    let keyPair: KeyPair

    /// Reads the chain and the key from PEM files, which may be one and the same.
    ///
    /// - Throws: `fileUnreadable`, `notPEM`, `wrongPassphrase`, or `keyMismatch`.
    public init(certificateFile: String, keyFile: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(
            certificates: try PEM(file: certificateFile), key: try PEM(file: keyFile), passphrase: passphrase)
    }

    /// Takes the chain and the key from PEM in memory.
    ///
    /// - Throws: `notPEM`, `wrongPassphrase`, or `keyMismatch`.
    public init(certificatePEM: [UInt8], keyPEM: [UInt8], passphrase: String? = nil) throws(TLSError) {
        try self.init(
            certificates: PEM(bytes: certificatePEM, source: "the certificate PEM given"),
            key: PEM(bytes: keyPEM, source: "the key PEM given"), passphrase: passphrase)
    }

    private init(certificates: PEM, key: PEM, passphrase: String?) throws(TLSError) {
        let chain = try certificates.certificates()
        let privateKey: OpaquePointer
        do {
            privateKey = try key.privateKey(passphrase: passphrase)
        } catch {
            chain.forEach(X509_free)
            throw error
        }
        self.keyPair = KeyPair(chain: chain, privateKey: privateKey)
        let matches = X509_check_private_key(chain[0], privateKey) == 1
        ERR_clear_error()
        guard matches else {
            throw TLSError(.keyMismatch(key: key.source, certificate: certificates.source))
        }
        let leaf = CertificateView(pointer: chain[0])
        self.notAfter = leaf.notAfter
        self.commonName = leaf.commonName
        self.userID = leaf.userID
    }
}

/// Keeps the certificates and the key alive.
///
/// Unchecked because of the pointers; safe because they are set once and only ever handed to OpenSSL calls that take
/// another reference, whose counts are atomic.
final class KeyPair: @unchecked Sendable {
    private let chain: [OpaquePointer]
    private let privateKey: OpaquePointer

    /// Takes over the references. The chain has at least one certificate.
    init(chain: [OpaquePointer], privateKey: OpaquePointer) {
        self.chain = chain
        self.privateKey = privateKey
    }

    deinit {
        chain.forEach(X509_free)
        EVP_PKEY_free(privateKey)
    }

    func install(in context: OpaquePointer) throws(TLSError) {
        ERR_clear_error()
        var installed =
            SSL_CTX_use_certificate(context, chain[0]) == 1 && SSL_CTX_use_PrivateKey(context, privateKey) == 1
        for certificate in chain.dropFirst() where installed {
            installed = COpenSSL_SSL_CTX_add1_chain_cert(context, certificate) == 1
        }
        guard installed else {
            let label = CertificateView(pointer: chain[0]).label
            throw TLSError(
                .invalidConfiguration(
                    reason: "OpenSSL refuses the certificate (\(label)) or its key: \(OpenSSLFailure.take().text)"))
        }
    }
}
