import NIOCore
import NIOPosix
import TLS

/// Makes connections: resolves the name, connects, logs in.
struct RedisConnector {
    let endpoint: RedisEndpoint
    let eventLoop: any EventLoop
    let configuration: RedisClientConfiguration
    private let tls: TLSContext?

    /// - Throws: `.connect` when TLS cannot be set up on this machine.
    init(
        endpoint: RedisEndpoint, eventLoop: any EventLoop, configuration: RedisClientConfiguration
    ) throws(RedisError) {
        self.endpoint = endpoint
        self.eventLoop = eventLoop
        self.configuration = configuration
        tls = endpoint.usesTLS ? try Self.context(configuration, address: endpoint.address) : nil
    }

    private static func context(
        _ configuration: RedisClientConfiguration, address: String
    ) throws(RedisError) -> TLSContext {
        if let given = configuration.tls { return given }
        do throws(TLSError) {
            return try TLSContext.client(TLSClientConfiguration())
        } catch {
            throw .connect(address: address, reason: error.description)
        }
    }

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
        let (address, location, tls) = (endpoint.address, endpoint.location, self.tls)
        let bootstrap = ClientBootstrap(group: eventLoop)
            .connectTimeout(configuration.connectTimeout)
            .channelOption(.socketOption(.so_keepalive), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let tls, case .host(let host, _) = location {
                        try channel.pipeline.syncOperations.addHandler(TLSHandler(client: tls, host: host))
                    }
                    let connection = RedisConnection(channel: channel, address: address)
                    try channel.pipeline.syncOperations.addHandler(RedisChannelHandler(connection: connection))
                }
            }
        let channel =
            switch location {
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
