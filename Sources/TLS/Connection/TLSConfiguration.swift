/// The trusted certificate authorities.
public enum TLSTrust: Sendable, Equatable {
    /// The system's, from OpenSSL's default locations (including `SSL_CERT_FILE` and `SSL_CERT_DIR`).
    case system
    /// Only the certificates of a PEM or DER file. It can contain an intermediate certificate, or the peer's own.
    case file(String)
    /// Only the certificates of a PEM text, or one in DER; `name` identifies it in errors.
    case pem([UInt8], name: String = "the CA PEM given")
}

public struct TLSClientConfiguration: Sendable {
    /// The authorities that can vouch for the server's identity.
    public var trust: TLSTrust = .system
    /// The client's certificate, for servers that request one.
    public var identity: TLSIdentity?
    /// The protocols to offer through ALPN, most preferred first; empty to offer none.
    public var applicationProtocols: [String] = []

    /// Creates a configuration that verifies servers with the system's authorities.
    public init() {}
}

public struct TLSServerConfiguration: Sendable {
    public enum ClientCertificates: Sendable {
        /// Does not request a certificate.
        case ignored
        /// Requests a certificate and verifies it; accepts clients without one.
        case requested(TLSTrust)
        /// Requests a certificate and verifies it; refuses clients without one.
        case required(TLSTrust)
        /// Requests a certificate, accepts any or none, and reports the error of verification in
        /// ``TLSPeerCertificate/refusal``. Without authorities, every certificate has an error.
        case reported(TLSTrust?)
    }

    public var identity: TLSIdentity
    /// The protocols to accept through ALPN, most preferred first. A client that offers only other protocols is refused. A client that
    /// offers none is accepted.
    public var applicationProtocols: [String] = []
    public var clientCertificates: ClientCertificates = .ignored

    /// Creates a configuration that accepts any client.
    public init(identity: TLSIdentity) {
        self.identity = identity
    }
}
