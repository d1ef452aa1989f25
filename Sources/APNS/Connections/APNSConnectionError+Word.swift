import TLS

extension APNSConnectionError {
    /// A stable word for counters: what of a connection went wrong.
    public var word: String {
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
    static func word(for error: any Error) -> String {
        switch error {
        case let error as APNSConnectionError: error.word
        case is TLSError: "TLS"
        default: "Other"
        }
    }
}
