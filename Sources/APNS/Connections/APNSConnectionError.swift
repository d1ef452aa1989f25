import TLS

/// Why a connection to APNs could not be made or did not last.
public enum APNSConnectionError: Error, Sendable, CustomStringConvertible {
    /// How far a connection had come when the server closed it without an answer.
    public enum HangUp: Sendable, Equatable {
        /// TLS was set up, and no HTTP/2 came: what a server does that does not accept the client certificate.
        case beforeSettings
        /// Requests were sent, and none was ever answered.
        case beforeAnswer
        /// The binary gateway set up TLS, and closed without an error packet before it had taken anything.
        case beforeConfirmation
    }

    /// No TCP connection.
    case cannotConnect(APNSEndpoint, String)
    /// The proxy could not be reached, or did not connect us.
    case proxy(HTTPProxy, APNSEndpoint, String)
    /// TLS is up, but the server did not choose HTTP/2.
    case noHTTP2(APNSEndpoint, offered: String?)
    /// The server has stopped answering.
    case unresponsive(APNSEndpoint, String)
    /// The received bytes are not HTTP/2, or not an error packet of the gateway.
    case protocolViolation(APNSEndpoint, String)
    /// More came than answers can account for.
    case flooded(APNSEndpoint, String)
    /// The server closed the connection.
    case closedByPeer(APNSEndpoint, whileConnecting: Bool, reason: String?)
    /// The server accepted the connection, and closed it without having answered anything.
    case hungUp(APNSEndpoint, HangUp)
    /// The network ended the connection.
    case broken(APNSEndpoint, whileConnecting: Bool, String)
    /// We closed it because another takes its place, or because it was not needed.
    case retired(APNSEndpoint, String)
    /// We closed it.
    case shutdown(APNSEndpoint)

    /// True if the server did something that none does which means well.
    var isBreach: Bool {
        switch self {
        case .protocolViolation, .flooded: true
        default: false
        }
    }

    /// The problem, its place, and what to check.
    public var description: String {
        switch self {
        case .cannotConnect(let endpoint, let why):
            "cannot connect to \(endpoint): \(why)"
        case .proxy(let proxy, let endpoint, let why): "cannot connect to \(endpoint) through \(proxy): \(why)"
        case .noHTTP2(let endpoint, let offered):
            "\(endpoint) did not agree to HTTP/2 (ALPN gave \(offered ?? "nothing")); is it an APNs endpoint?"
        case .unresponsive(let endpoint, let why): "\(endpoint) does not respond: \(why)"
        case .protocolViolation(let endpoint, let why): "\(endpoint) broke the protocol: \(why)"
        case .flooded(let endpoint, let why): "\(endpoint) floods the connection: \(why)"
        case .closedByPeer(let endpoint, true, _):
            "\(endpoint) closed the connection before it was set up; it may not accept the certificate"
        case .closedByPeer(let endpoint, false, let reason):
            "\(endpoint) closed the connection\(reason.map { " (\($0))" } ?? "")"
        case .hungUp(let endpoint, .beforeSettings):
            "\(endpoint) set up TLS and closed the connection before any HTTP/2; "
                + "it may not accept the client certificate"
        case .hungUp(let endpoint, .beforeAnswer):
            "\(endpoint) closed the connection at the first request, without an answer; "
                + "it may not accept the certificate or the key for this app and environment"
        case .hungUp(let endpoint, .beforeConfirmation):
            "\(endpoint) set up TLS and closed the connection without an answer; "
                + "it may not accept the client certificate for this environment"
        case .broken(let endpoint, true, let why):
            "\(endpoint) closed the connection during the handshake: \(why); is it a TLS port, and is this host allowed to use it?"
        case .broken(let endpoint, false, let why): "the connection to \(endpoint) broke: \(why)"
        case .retired(let endpoint, let reason): "the connection to \(endpoint) was retired: \(reason)"
        case .shutdown(let endpoint): "the connection to \(endpoint) was shut down"
        }
    }
}

extension APNSConnectionError {
    /// A stable word for counters: what of a connection went wrong.
    public var code: String {
        switch self {
        case .cannotConnect: "CannotConnect"
        case .proxy: "Proxy"
        case .noHTTP2: "NoHTTP2"
        case .unresponsive: "Unresponsive"
        case .protocolViolation: "ProtocolViolation"
        case .flooded: "Flooded"
        case .closedByPeer: "ClosedByPeer"
        case .hungUp: "HungUp"
        case .broken: "Broken"
        case .retired: "Retired"
        case .shutdown: "Shutdown"
        }
    }

    /// The same for whatever a connection can fail of.
    static func code(for error: any Error) -> String {
        switch error {
        case let error as APNSConnectionError: error.code
        case is TLSError: "TLS"
        default: "Other"
        }
    }
}
