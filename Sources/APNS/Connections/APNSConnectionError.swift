import TLS

public enum APNSConnectionError: Error, Sendable, CustomStringConvertible {
    /// The point at which the server closed a connection without an answer.
    public struct HangUp: Sendable, Equatable {
        /// The server's action, and the credential that it may not accept.
        let description: String

        public init(_ description: String) { self.description = description }

        /// The server closed the connection after TLS, before any HTTP/2. Servers do this if they do not accept the client certificate.
        public static let beforeSettings = HangUp(
            "set up TLS and closed the connection before any HTTP/2; it may not accept the client certificate")
        /// The server closed the connection after requests were sent, and answered none of them.
        public static let beforeAnswer = HangUp(
            "closed the connection at the first request, without an answer; "
                + "it may not accept the certificate or the key for this app and environment")
    }

    case cannotConnect(APNSEndpoint, String)
    case proxy(HTTPProxy, APNSEndpoint, String)
    case noHTTP2(APNSEndpoint, offered: String?)
    case unresponsive(APNSEndpoint, String)
    case protocolViolation(APNSEndpoint, String)
    /// The server sent too many bytes that belong to no answer.
    case flooded(APNSEndpoint, String)
    case closedByPeer(APNSEndpoint, whileConnecting: Bool, reason: String?)
    /// The server accepted the connection, and closed it without having answered any request.
    case hungUp(APNSEndpoint, HangUp)
    case broken(APNSEndpoint, whileConnecting: Bool, String)
    /// The pool closed the connection, which was replaced or no longer needed.
    case retired(APNSEndpoint, String)
    case shutdown(APNSEndpoint)

    /// True if the server broke the protocol or flooded the connection.
    public var isBreach: Bool {
        switch self {
        case .protocolViolation, .flooded: true
        default: false
        }
    }

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
        case .hungUp(let endpoint, let hangUp): "\(endpoint) \(hangUp.description)"
        case .broken(let endpoint, true, let why):
            "\(endpoint) closed the connection during the handshake: \(why); is it a TLS port, and is this host allowed to use it?"
        case .broken(let endpoint, false, let why): "the connection to \(endpoint) broke: \(why)"
        case .retired(let endpoint, let reason): "the connection to \(endpoint) was retired: \(reason)"
        case .shutdown(let endpoint): "the connection to \(endpoint) was shut down"
        }
    }
}

extension APNSConnectionError {
    /// A stable code for counters.
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

    public static func code(for error: any Error) -> String {
        switch error {
        case let error as APNSConnectionError: error.code
        case is TLSError: "TLS"
        default: "Other"
        }
    }
}
