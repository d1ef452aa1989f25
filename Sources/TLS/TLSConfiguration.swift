/// The trusted certificate authorities.
public enum TLSTrust: Sendable, Equatable {
    /// The system's, where OpenSSL looks for them (`SSL_CERT_FILE` and `SSL_CERT_DIR` included).
    case system
    /// Those of a PEM file, or that of a DER file, and no others. An intermediate or the peer's own certificate may be there too.
    case file(String)
    /// Those of a PEM text, or that of a DER certificate, and no others.
    case pem([UInt8])
}

/// How to connect as a client.
public struct TLSClientConfiguration: Sendable {
    /// The authorities that can vouch for the server's identity.
    public var trust: TLSTrust = .system
    /// True if the server's certificate and host name are verified. Without that, anyone on the path can read
    /// and change everything.
    public var verifiesServer = true
    /// The client's certificate, for servers that request one.
    public var identity: TLSIdentity?
    /// The protocols to offer through ALPN, the preferred first; nothing is offered if empty.
    public var applicationProtocols: [String] = []

    /// A client that verifies servers by the system's authorities.
    public init() {}
}

/// How to serve.
public struct TLSServerConfiguration: Sendable {
    /// The policy for client certificates.
    public enum ClientCertificates: Sendable {
        /// Does not request a certificate.
        case ignored
        /// Requests a certificate and verifies it; accepts clients without one.
        case requested(TLSTrust)
        /// Requests a certificate and verifies it; refuses clients without one.
        case required(TLSTrust)
        /// Requests a certificate, accepts any or none, and reports in ``TLSPeerCertificate/refusal`` why not. Without
        /// authorities there is a reason for every certificate.
        case reported(TLSTrust?)
    }

    /// The server's certificate.
    public var identity: TLSIdentity
    /// The protocols to accept through ALPN, the preferred first. A client that offers only others is refused; one that
    /// offers none is not.
    public var applicationProtocols: [String] = []
    /// The policy for client certificates.
    public var clientCertificates: ClientCertificates = .ignored

    /// A server that takes any client.
    public init(identity: TLSIdentity) {
        self.identity = identity
    }
}
