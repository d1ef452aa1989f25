/// Why a connection to APNs could not be made or did not last.
public enum APNSConnectionError: Error, Sendable, CustomStringConvertible {
    /// No TCP connection.
    case cannotConnect(APNSEndpoint, String)
    /// TLS is up, but the server did not choose HTTP/2.
    case noHTTP2(APNSEndpoint, offered: String?)
    /// The server has stopped answering.
    case unresponsive(APNSEndpoint, String)
    /// What came is not HTTP/2.
    case protocolViolation(APNSEndpoint, String)
    /// The server closed the connection.
    case closedByPeer(APNSEndpoint, whileConnecting: Bool, reason: String?)
    /// We closed it.
    case shutdown(APNSEndpoint)

    static func closedByPeer(_ endpoint: APNSEndpoint, phase: HTTP2ConnectionState.Phase) -> APNSConnectionError {
        switch phase {
        case .connecting: .closedByPeer(endpoint, whileConnecting: true, reason: nil)
        case .draining(let reason): .closedByPeer(endpoint, whileConnecting: false, reason: reason)
        default: .closedByPeer(endpoint, whileConnecting: false, reason: nil)
        }
    }

    /// What is wrong, where, and what to look at.
    public var description: String {
        switch self {
        case .cannotConnect(let endpoint, let why):
            "cannot connect to \(endpoint): \(why); is the address right, and may this host reach it?"
        case .noHTTP2(let endpoint, let offered):
            "\(endpoint) did not agree to HTTP/2 (ALPN gave \(offered ?? "nothing")); is it an APNs endpoint?"
        case .unresponsive(let endpoint, let why): "\(endpoint) does not respond: \(why)"
        case .protocolViolation(let endpoint, let why): "\(endpoint) broke the HTTP/2 protocol: \(why)"
        case .closedByPeer(let endpoint, true, _):
            "\(endpoint) closed the connection before it was set up; it may not accept the certificate"
        case .closedByPeer(let endpoint, false, let reason):
            "\(endpoint) closed the connection\(reason.map { " (\($0))" } ?? "")"
        case .shutdown(let endpoint): "the connection to \(endpoint) was shut down"
        }
    }
}
