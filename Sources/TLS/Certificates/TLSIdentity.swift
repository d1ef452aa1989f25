import COpenSSL

/// The identity of this side: a certificate chain, beginning with the own certificate, and its private key.
public struct TLSIdentity: Sendable {
    /// The start of the own certificate's validity, in seconds since 1970; nil if the date cannot be read.
    public var notBefore: Int64? { keyPair.leaf.notBefore }
    /// The end of the own certificate's validity, in seconds since 1970; nil if the date cannot be read.
    public var notAfter: Int64? { keyPair.leaf.notAfter }
    public var commonName: String? { keyPair.leaf.commonName }
    /// The subject's user ID (OID 0.9.2342.19200300.100.1.1), which holds the topic in APNs certificates.
    public var userID: String? { keyPair.leaf.userID }

    let keyPair: KeyPair

    public var validity: CertificateValidity { CertificateValidity(notBefore: notBefore, notAfter: notAfter) }

    /// Reads the chain and the key from PEM files, which can be the same file.
    /// - Throws: `unreadable`, `notPEM`, `wrongPassphrase`, or `keyMismatch`.
    public init(certificateFile: String, keyFile: String, passphrase: String? = nil) throws(TLSError) {
        try self.init(
            certificates: try PEM(file: certificateFile), key: try PEM(file: keyFile), passphrase: passphrase)
    }

    /// Reads a certificate file in any form: PEM, PKCS#12 or, if a key is given, a single certificate in DER (`.cer`).
    ///
    /// PKCS#12 files may be encrypted with the algorithms of macOS' Keychain (RC2, 3DES): OpenSSL's legacy provider is
    /// then loaded while the file is read.
    /// - Parameters:
    ///   - keyBytes: the private key in PEM or DER; nil if the first file contains it.
    ///   - passphrase: the passphrase of the PKCS#12 file or the private key. For PKCS#12, an empty one equals none.
    ///   - source: the name of the file in errors, such as its path.
    ///   - keySource: the name of the key's file in errors.
    /// - Throws: `notRecognised`, `notPEM`, `notPKCS12`, `wrongPassphrase`, `identityIncomplete`, `keyMismatch`,
    ///   `legacyProviderMissing`, or `invalidConfiguration` for a PKCS#12 file with a separate key.
    public init(
        bytes: [UInt8], keyBytes: [UInt8]? = nil, passphrase: String? = nil, source: String, keySource: String? = nil
    ) throws(TLSError) {
        let keySource = keySource ?? (keyBytes == nil ? source : "the key given")
        let file = PEM(bytes: bytes, source: source)
        if PEMText.isPEM(file.bytes) {
            try self.init(
                certificates: file, key: PEM(bytes: keyBytes ?? bytes, source: keySource), passphrase: passphrase)
        } else if let certificate = DERCertificate.read(file.bytes) {
            guard let keyBytes else {
                X509_free(certificate)
                throw TLSError(.identityIncomplete(source: source, missing: "private key"))
            }
            try self.init(
                chain: [certificate], key: PEM(bytes: keyBytes, source: keySource), passphrase: passphrase,
                source: source)
        } else if PKCS12File.isPKCS12(file.bytes) {
            guard keyBytes == nil else {
                throw TLSError(
                    .invalidConfiguration(
                        reason: "\(source) is a PKCS#12 file, which has its own key; omit \(keySource)"))
            }
            let (chain, key) = try PKCS12File(bytes: file.bytes, source: source).identity(passphrase: passphrase)
            self.init(KeyPair(chain: chain, privateKey: key))
        } else {
            // DER begins with the tag of a SEQUENCE. So the file may be a damaged PKCS#12 file.
            throw TLSError(
                file.bytes.first == 0x30
                    ? .notPKCS12(source: source, reason: "its outer structure is malformed")
                    : .notRecognised(source: source))
        }
    }

    private init(certificates: PEM, key: PEM, passphrase: String?) throws(TLSError) {
        try self.init(
            chain: try certificates.certificates(), key: key, passphrase: passphrase, source: certificates.source)
    }

    /// Takes ownership of the certificates, even if the key is refused.
    private init(chain: [OpaquePointer], key: PEM, passphrase: String?, source: String) throws(TLSError) {
        let keys: [OpaquePointer]
        do {
            keys = try key.privateKeys(passphrase: passphrase)
        } catch {
            chain.forEach(X509_free)
            throw error
        }
        guard let pair = CertificateChain.matching(keys, chain, isChain: true) else {
            throw TLSError(.keyMismatch(key: key.source, certificate: source))
        }
        self.init(KeyPair(chain: pair.chain, privateKey: pair.key))
    }

    private init(_ keyPair: KeyPair) {
        self.keyPair = keyPair
    }

    /// Returns an extension of the own certificate: its DER, without the OCTET STRING around it.
    /// - Parameter oid: the extension's object identifier in numbers, such as `1.2.840.113635.100.6.3.6`.
    /// - Returns: nil if the certificate has no such extension, or the text is not an object identifier.
    public func certificateExtension(_ oid: String) -> [UInt8]? { keyPair.leaf.extensionValue(oid) }
}

/// Keeps the certificates and the key alive.
///
/// Unchecked because of the pointers; safe because the pointers are set once. OpenSSL only reads the objects, or adds a
/// reference, which is atomic.
final class KeyPair: @unchecked Sendable {
    private let chain: [OpaquePointer]
    private let privateKey: OpaquePointer

    /// Takes ownership of the references. The chain has at least one certificate.
    init(chain: [OpaquePointer], privateKey: OpaquePointer) {
        self.chain = chain
        self.privateKey = privateKey
    }

    deinit {
        chain.forEach(X509_free)
        EVP_PKEY_free(privateKey)
    }

    var leaf: CertificateView { CertificateView(pointer: chain[0]) }

    func install(in context: OpaquePointer) throws(TLSError) {
        ERR_clear_error()
        var installed =
            SSL_CTX_use_certificate(context, chain[0]) == 1 && SSL_CTX_use_PrivateKey(context, privateKey) == 1
        for certificate in chain.dropFirst() where installed {
            installed = COpenSSL_SSL_CTX_add1_chain_cert(context, certificate) == 1
        }
        guard installed else {
            throw TLSError(
                .invalidConfiguration(
                    reason: "OpenSSL refuses the certificate (\(leaf.label)) or its key: \(OpenSSLFailure.take().text)"
                ))
        }
    }
}
