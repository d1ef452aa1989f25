import NIOCore

/// What the pools of both protocols do with a connection of theirs.
protocol PooledConnection: AnyObject {
    /// Whether it is not set up yet.
    var isConnecting: Bool { get }
    /// Ends it at once.
    func close(_ error: any Error)
}

extension PooledConnection {
    /// Gives it up if TLS takes longer than that. A proxy's answer has a limit of its own.
    /// - Returns: to be cancelled once it is set up.
    func limitHandshake(
        to timeout: TimeAmount, _ endpoint: APNSEndpoint, on eventLoop: any EventLoop
    ) -> Scheduled<Void> {
        eventLoop.assumeIsolated().scheduleTask(in: timeout) { [self] in
            guard isConnecting else { return }
            close(APNSConnectionError.unresponsive(endpoint, "TLS was not set up within \(timeout.inWords)"))
        }
    }
}

extension HTTP2Connection: PooledConnection {
    var isConnecting: Bool { state.phase == .connecting }
}

extension GatewayConnection: PooledConnection {
    var isConnecting: Bool { state.phase == .connecting }
}
