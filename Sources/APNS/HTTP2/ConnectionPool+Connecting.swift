import Logging
import NIOCore
import NIOPosix
import TLS

/// How a pool makes connections.
extension ConnectionPool {
    func open() {
        let connection: HTTP2Connection
        do {
            connection = try HTTP2Connection(
                id: nextID, endpoint: endpoint, maximumStreams: configuration.maximumStreams,
                firstStream: configuration.firstStream,
                limits: configuration.connectionLimits(jitter: Double.random(in: 0..<1)), owner: self)
        } catch {
            return connectionFailed(error, wasConnecting: true)
        }
        nextID += 1
        let proxy = configuration.proxy
        let bound = NIOLoopBound((self, connection), eventLoop: eventLoop)
        ClientBootstrap(group: eventLoop)
            .resolver(configuration.resolver)
            .connectTimeout(configuration.connectTimeout)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            // A second read that finds nothing costs as much as the first; if there is more, the loop comes back at once.
            .channelOption(.maxMessagesPerRead, value: 1)
            // A connection writes this much at a time; twice that is not read by a server that is alive.
            .channelOption(
                .writeBufferWaterMark,
                value: .init(low: HTTP2Connection.writeSize / 2, high: HTTP2Connection.writeSize * 2)
            )
            .connect(host: proxy?.host ?? endpoint.host, port: proxy?.port ?? endpoint.port)
            .assumeIsolated()
            .whenComplete { result in
                let (pool, connection) = bound.value
                switch result {
                case .success(let channel): pool.adopt(connection, on: channel, proxy: proxy)
                case .failure(let error):
                    pool.connectionFailed(pool.cannotConnect(proxy, error), wasConnecting: true)
                    pool.finishClosing()
                }
            }
    }

    private func cannotConnect(_ proxy: HTTPProxy?, _ error: any Error) -> APNSConnectionError {
        guard let proxy else { return .cannotConnect(endpoint, ConnectFailure.words(error)) }
        return .proxy(proxy, endpoint, "it cannot be reached: \(ConnectFailure.words(error))")
    }

    /// Takes over a channel on which TCP is set up. Not earlier: a host's addresses are tried one after the other or
    /// together, each on a channel of its own, and the connection belongs to the one that succeeds.
    private func adopt(_ connection: HTTP2Connection, on channel: any Channel, proxy: HTTPProxy?) {
        connections.append(connection)
        connection.notes.generation = generation
        let pipeline = channel.pipeline.syncOperations
        do {
            try pipeline.addHandler(connection)
            if let proxy {
                let tunnel = ProxyHandler(
                    proxy, to: endpoint, timeout: configuration.connectTimeout,
                    thenTLS: { [configuration, endpoint] in
                        TLSHandler(client: configuration.tls, host: endpoint.host)
                    },
                    onConnected: { [self] in limitHandshake(connection) })
                try pipeline.addHandler(tunnel, position: .first)
            } else {
                try pipeline.addHandler(TLSHandler(client: configuration.tls, host: endpoint.host), position: .first)
                limitHandshake(connection)
            }
        } catch {
            // The channel has closed already.
            channel.close(promise: nil)
            return connection.failed(cannotConnect(proxy, error))
        }
        if closed != nil { connection.close(APNSConnectionError.shutdown(endpoint)) }
    }

    private func limitHandshake(_ connection: HTTP2Connection) {
        let timeout = configuration.connectTimeout
        connection.notes.handshakeTimer = eventLoop.assumeIsolated().scheduleTask(in: timeout) { [endpoint] in
            guard connection.state.phase == .connecting else { return }
            connection.close(
                APNSConnectionError.unresponsive(endpoint, "TLS was not set up within \(timeout.inWords)"))
        }
    }

    func connectionFailed(_ error: any Error, wasConnecting: Bool) {
        let now = eventLoop.now
        let pause = state.failed(wasConnecting: wasConnecting, now: now, jitter: Double.random(in: 0..<1))
        lastFailure = error
        // One line an incident: the first failure, and then a reminder now and again.
        if state.failures == 1 || now - lastLogged > .seconds(60) {
            lastLogged = now
            logger.error(
                "no connection to APNs: \(error)",
                metadata: ["endpoint": "\(endpoint)", "failures": "\(state.failures)", "retry_in": "\(pause.inWords)"])
        }
        delegate?.connectionPoolChanged(self)
    }
}
