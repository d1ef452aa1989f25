import TLS

/// What the end of an HTTP/2 connection means.
extension APNSConnectionError {
    static func closedByPeer(_ endpoint: APNSEndpoint, _ state: HTTP2ConnectionState) -> APNSConnectionError {
        switch state.phase {
        case .connecting: .closedByPeer(endpoint, whileConnecting: true, reason: nil)
        case .awaitingSettings: .hungUp(endpoint, .beforeSettings)
        case .open where !state.hasAnswered && state.requests > 0: .hungUp(endpoint, .beforeAnswer)
        case .draining(let reason): .closedByPeer(endpoint, whileConnecting: false, reason: reason)
        case .open, .closed: .closedByPeer(endpoint, whileConnecting: false, reason: nil)
        }
    }

    /// What an error that ended the channel means: servers hang up in good order, by just closing, or by a reset.
    static func ended(_ endpoint: APNSEndpoint, _ state: HTTP2ConnectionState, by error: any Error) -> any Error {
        if error is APNSConnectionError { return error }
        if let error = error as? TLSError, error.kind != .truncated { return error }
        let closed = closedByPeer(endpoint, state)
        if case .hungUp = closed { return closed }
        if error is TLSError { return error }
        return broken(endpoint, whileConnecting: state.phase == .connecting, "\(error)")
    }
}
