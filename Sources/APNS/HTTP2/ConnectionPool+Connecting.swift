import Logging
import NIOCore
import NIOPosix
import Sockets
import TLS

/// Making connections.
extension ConnectionPool {
    func open() {
        let connection = HTTP2Connection(
            id: ids.next(), endpoint: endpoint, maximumStreams: configuration.maximumStreams,
            firstStream: configuration.firstStream,
            limits: configuration.connectionLimits(jitter: Double.random(in: 0..<1)), owner: self)
        // A change of the credential while it connects makes it a connection of the old one.
        let (dialer, generation) = (configuration.dialer, generation)
        let bound = NIOLoopBound((self, connection), eventLoop: eventLoop)
        dialer.connect(on: eventLoop) {
            // A connection writes this much at a time. If twice that is unsent, the server is not reading.
            $0.channelOption(
                .writeBufferWaterMark,
                value: .init(low: HTTP2Connection.writeSize / 2, high: HTTP2Connection.writeSize * 2))
        }
        .assumeIsolated()
        .whenComplete { result in
            let (pool, connection) = bound.value
            switch result {
            case .success(let channel): pool.adopt(connection, on: channel, dialer, generation: generation)
            case .failure(let error):
                pool.connectionFailed(dialer.cannotConnect(error), wasConnecting: true)
                pool.finishClosing()
            }
        }
    }

    /// Starts HTTP/2 on a channel whose TCP connection is established. Not earlier, because several addresses of a host
    /// may be tried, each on its own channel, and the connection belongs to the one that succeeds.
    private func adopt(_ http2: HTTP2Connection, on channel: any Channel, _ dialer: Dialer, generation: Int) {
        let connection = PooledConnection(http2, generation: generation, address: channel.remoteAddress)
        http2.session.keepsUniqueIDs = keepsUniqueIDs
        connections.append(connection)
        do {
            try channel.pipeline.syncOperations.addHandler(http2)
            try dialer.secure(channel, onTLS: { [self] in limitHandshake(connection) })
        } catch {
            // The channel has closed already.
            channel.close(promise: nil)
            return http2.failed(dialer.cannotConnect(error))
        }
        if closed != nil { http2.close(APNSConnectionError.shutdown(endpoint)) }
    }

    private func limitHandshake(_ connection: PooledConnection) {
        connection.handshakeTimer = configuration.limitHandshake(of: connection.http2, on: eventLoop)
    }

    /// - Parameter address: the address that accepted a connection of TCP, if one did.
    func connectionFailed(_ error: any Error, at address: SocketAddress? = nil, wasConnecting: Bool) {
        failures.failed(error, at: address, wasConnecting: wasConnecting, &state, now: eventLoop.now)
        delegate?.transportChanged(self)
    }
}
