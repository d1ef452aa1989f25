import NIOCore
import NIOPosix

/// Makes connections: resolves the name, connects, logs in.
struct RedisConnector {
    let endpoint: RedisEndpoint
    let eventLoop: any EventLoop
    let configuration: RedisClientConfiguration

    /// Connects; the name is resolved anew each time, so a failover by DNS is followed.
    ///
    /// - Parameter completion: on the event loop, with a connection that is ready, or with the reason why there is none.
    func connect(completion: @escaping (Result<RedisConnection, RedisError>) -> Void) {
        eventLoop.preconditionInEventLoop()
        let completion = NIOLoopBound(completion, eventLoop: eventLoop)
        open().assumeIsolated().whenComplete { result in
            switch result {
            case .success(let connection): handshake(on: connection, completion: completion.value)
            case .failure(let error): completion.value(.failure(connectError(for: error)))
            }
        }
    }

    private func open() -> EventLoopFuture<RedisConnection> {
        if endpoint.usesTLS {
            return eventLoop.makeFailedFuture(
                RedisError.connect(
                    address: endpoint.address,
                    reason: "rediss:// (TLS) is not available in this build; use redis:// over a trusted network"))
        }
        let address = endpoint.address
        let bootstrap = ClientBootstrap(group: eventLoop)
            .connectTimeout(configuration.connectTimeout)
            .channelOption(.socketOption(.so_keepalive), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let connection = RedisConnection(channel: channel, address: address)
                    try channel.pipeline.syncOperations.addHandler(RedisChannelHandler(connection: connection))
                }
            }
        let channel =
            switch endpoint.location {
            case .host(let host, let port):
                bootstrap.channelOption(.socketOption(.tcp_nodelay), value: 1).connect(host: host, port: port)
            case .unixSocket(let path):
                bootstrap.connect(unixDomainSocketPath: path)
            }
        return channel.flatMapThrowing { channel in
            let handler = try channel.pipeline.syncOperations.handler(type: RedisChannelHandler.self)
            guard let connection = handler.connection else { throw ChannelError.alreadyClosed }
            return connection
        }
    }

    /// All steps leave in one write and cost one round trip.
    private func handshake(
        on connection: RedisConnection, completion: @escaping (Result<RedisConnection, RedisError>) -> Void
    ) {
        var handshake = RedisHandshake(endpoint: endpoint, clientName: configuration.clientName)
        // The server may have said something, and closed, before we came to say anything.
        if let ended = connection.ended, case .failed(let error) = handshake.receive(.failure(ended)) {
            completion(.failure(error))
            return
        }
        var isSettled = false
        for (_, command) in handshake.commands {
            connection.send(command, timeout: configuration.connectTimeout) { result in
                guard !isSettled else { return }
                switch handshake.receive(result) {
                case .proceed:
                    break
                case .ready:
                    isSettled = true
                    completion(.success(connection))
                case .failed(let error):
                    isSettled = true
                    connection.close()
                    completion(.failure(error))
                }
            }
        }
    }

    private func connectError(for error: any Error) -> RedisError {
        if let error = error as? RedisError { return error }
        return .connect(address: endpoint.address, reason: plainReason(of: error))
    }
}

/// What a person needs of an I/O error: without the system calls and descriptors that NIO's own descriptions hold.
func plainReason(of error: any Error) -> String {
    switch error {
    case let error as IOError:
        return String(cString: strerror(error.errnoCode))
    case let error as NIOConnectionError:
        if let refused = error.connectionErrors.first { return plainReason(of: refused.error) }
        return "the host name \"\(error.host)\" does not resolve; check it and the DNS"
    case ChannelError.connectTimeout(let after):
        return "no connection within \(after.inWords); check the address and the firewalls on the way"
    default:
        return String(describing: error)
    }
}
