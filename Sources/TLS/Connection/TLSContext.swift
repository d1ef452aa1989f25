import COpenSSL

/// Settings, certificates and trusted authorities, loaded once and shared by all connections made with them.
///
/// Unchecked because of the `SSL_CTX`. Safe because the initialiser completes its configuration: OpenSSL allows several threads to make
/// connections from a context that no longer changes.
public final class TLSContext: @unchecked Sendable {
    let pointer: OpaquePointer
    /// The certificate of this side, if any.
    public let identity: TLSIdentity?
    private let protocols: ApplicationProtocols

    /// Creates a context for ``TLSHandler/init(client:host:closeTimeout:)``.
    /// - Throws: `unreadable` or `notPEM` for the trusted authorities, `invalidConfiguration`.
    public static func client(_ configuration: TLSClientConfiguration) throws(TLSError) -> TLSContext {
        let context = try TLSContext(
            TLS_client_method(), protocols: configuration.applicationProtocols, identity: configuration.identity)
        try context.protocols.offer(in: context.pointer)
        try context.trust(configuration.trust)
        SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER, rememberVerificationFailure)
        try configuration.identity?.keyPair.install(in: context.pointer)
        return context
    }

    /// Creates a context for ``TLSHandler/init(server:closeTimeout:)``.
    /// - Throws: `unreadable` or `notPEM` for the trusted authorities, `invalidConfiguration`.
    public static func server(_ configuration: TLSServerConfiguration) throws(TLSError) -> TLSContext {
        let context = try TLSContext(
            TLS_server_method(), protocols: configuration.applicationProtocols, identity: configuration.identity)
        context.protocols.select(in: context.pointer)
        // Clients do not resume sessions, and a ticket costs an encryption and a packet per handshake.
        SSL_CTX_set_num_tickets(context.pointer, 0)
        SSL_CTX_set_options(context.pointer, COpenSSL_SSL_OP_NO_TICKET)
        try configuration.identity.keyPair.install(in: context.pointer)
        switch configuration.clientCertificates {
        case .ignored:
            SSL_CTX_set_verify(context.pointer, SSL_VERIFY_NONE, nil)
        case .requested(let trust):
            try context.trust(trust)
            SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER, rememberVerificationFailure)
        case .required(let trust):
            try context.trust(trust)
            SSL_CTX_set_verify(
                context.pointer, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, rememberVerificationFailure)
        case .reported(let trust):
            if let trust { try context.trust(trust) }
            SSL_CTX_set_verify(context.pointer, SSL_VERIFY_PEER, overlookVerificationFailure)
        }
        return context
    }

    private init(_ method: OpaquePointer?, protocols: [String], identity: TLSIdentity?) throws(TLSError) {
        self.protocols = try ApplicationProtocols(protocols)
        self.identity = identity
        ERR_clear_error()
        guard let pointer = SSL_CTX_new(method) else {
            throw TLSError(.invalidConfiguration(reason: OpenSSLFailure.take().text))
        }
        self.pointer = pointer
        guard COpenSSL_SSL_CTX_set_min_proto_version(pointer, TLS1_2_VERSION) == 1 else {
            throw TLSError(.invalidConfiguration(reason: "OpenSSL refuses TLS 1.2 as the oldest version"))
        }
        SSL_CTX_set_options(pointer, COpenSSL_SSL_OP_NO_RENEGOTIATION | COpenSSL_SSL_OP_NO_COMPRESSION)
        COpenSSL_SSL_CTX_set_session_cache_mode(pointer, Int(SSL_SESS_CACHE_OFF))
        // Idle connections have no record buffers. The chain is sent as it is in the identity; OpenSSL must not build
        // one from the trusted authorities.
        COpenSSL_SSL_CTX_set_mode(
            pointer, Int(SSL_MODE_RELEASE_BUFFERS) | Int(SSL_MODE_AUTO_RETRY) | Int(SSL_MODE_NO_AUTO_CHAIN))
    }

    deinit { SSL_CTX_free(pointer) }

    private func trust(_ trust: TLSTrust) throws(TLSError) {
        switch trust {
        case .system:
            ERR_clear_error()
            guard SSL_CTX_set_default_verify_paths(pointer) == 1 else {
                throw TLSError(
                    .invalidConfiguration(
                        reason: "the system's CA certificates cannot be loaded: \(OpenSSLFailure.take().text)"))
            }
        case .file(let path): try self.trust(PEM(file: path))
        case .pem(let bytes, let name): try self.trust(PEM(bytes: bytes, source: name))
        }
    }

    private func trust(_ pem: PEM) throws(TLSError) {
        let certificates = try pem.certificates()
        defer { certificates.forEach(X509_free) }
        guard let store = SSL_CTX_get_cert_store(pointer) else { return }
        for certificate in certificates {
            ERR_clear_error()
            guard X509_STORE_add_cert(store, certificate) == 1, SSL_CTX_add_client_CA(pointer, certificate) == 1 else {
                throw TLSError(
                    .invalidConfiguration(
                        reason: "a certificate of \(pem.source) cannot be used: \(OpenSSLFailure.take().text)"))
            }
        }
        // A configured certificate is trusted even if it is not a self-signed root.
        X509_STORE_set_flags(store, UInt(X509_V_FLAG_PARTIAL_CHAIN))
    }
}
