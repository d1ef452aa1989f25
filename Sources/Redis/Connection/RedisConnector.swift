import Glibc
import NIOCore
import NIOPosix
import Sockets
import TLS

/// Makes connections: resolves the name, connects, logs in.
struct RedisConnector {
    let eventLoop: any EventLoop
    let configuration: RedisClientConfiguration
    private let tls: Renewable<TLSContext>?

    /// - Parameter address: the address in errors.
    /// - Throws: `.connect` if TLS cannot be set up on this machine.
    init(
        usesTLS: Bool, address: String, eventLoop: any EventLoop, configuration: RedisClientConfiguration
    ) throws(RedisError) {
        self.eventLoop = eventLoop
        self.configuration = configuration
        tls = usesTLS ? try Self.context(configuration, address: address) : nil
    }

    private static func context(
        _ configuration: RedisClientConfiguration, address: String
    ) throws(RedisError) -> Renewable<TLSContext> {
        if let given = configuration.tls { return given }
        do throws(TLSError) {
            return Renewable(try TLSContext.client(TLSClientConfiguration()))
        } catch {
            throw .connect(address: address, reason: error.description)
        }
    }

    /// Connects. Resolves the name and reads the files of the password and the certificates each time, so that failovers by DNS, new
    /// passwords and new certificates take effect. Another thread reads the files, because the file system may be remote.
    ///
    /// - Parameters:
    ///   - timeout: the timeout for connecting, and again for logging in.
    ///   - completion: called on the event loop with a connection that is ready, or with the reason for the failure.
    func connect(
        to endpoint: RedisEndpoint, timeout: TimeAmount,
        completion: @escaping (Result<RedisConnection, RedisError>) -> Void
    ) {
        eventLoop.preconditionInEventLoop()
        guard endpoint.access.passwordFile != nil || tls?.sources.isEmpty == false else {
            return connect(to: endpoint, tls?.current, timeout: timeout, completion: completion)
        }
        NIOThreadPool.singleton.runIfActive(eventLoop: eventLoop) { [tls] in
            Result { () throws(RedisError) in (try endpoint.withPasswordRead(), tls?.current) }
        }.assumeIsolated().whenComplete { result in
            switch result {
            case .success(.success((let endpoint, let context))):
                connect(to: endpoint, context, timeout: timeout, completion: completion)
            case .success(.failure(let error)): completion(.failure(error))
            case .failure(let error):
                completion(.failure(.connect(address: endpoint.address, reason: "its secrets were not read: \(error)")))
            }
        }
    }

    /// - Parameter endpoint: the endpoint with the password from its file.
    private func connect(
        to endpoint: RedisEndpoint, _ context: TLSContext?, timeout: TimeAmount,
        completion: @escaping (Result<RedisConnection, RedisError>) -> Void
    ) {
        let completion = NIOLoopBound(completion, eventLoop: eventLoop)
        let steps = NIOLoopBound(
            RedisHandshake(endpoint: endpoint, clientName: configuration.clientName), eventLoop: eventLoop)
        open(endpoint, context, timeout: timeout).assumeIsolated().whenComplete { result in
            switch result {
            case .success(let connection):
                let address = connection.remoteAddress
                run(steps.value, on: connection, timeout: timeout) { result in
                    AddressMemory.shared.note(result, at: address)
                    guard case .failure(.connect) = result, connection.ended != nil, tls == nil else {
                        return completion.value(result.mapError { Self.naming(address, of: endpoint, in: $0) })
                    }
                    // A server with too many clients sends an error and closes, without reading. Because commands were sent, the kernel may
                    // have dropped that error. So a new connection, which sends nothing, reads the error.
                    greeting(of: endpoint).assumeIsolated().whenSuccess { greeting in
                        let error = RedisHandshake.refused(greeting, address: endpoint.address)
                        completion.value(
                            (error.map { .failure($0) } ?? result)
                                .mapError { Self.naming(address, of: endpoint, in: $0) })
                    }
                }
            case .failure(let error):
                completion.value(.failure(connectError(for: error, address: endpoint.address)))
            }
        }
    }

    private func open(
        _ endpoint: RedisEndpoint, _ tls: TLSContext?, timeout: TimeAmount
    ) -> EventLoopFuture<RedisConnection> {
        let (address, location) = (endpoint.address, endpoint.location)
        let bootstrap = ClientBootstrap(group: eventLoop)
            .connectTimeout(timeout)
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
                AddressMemory.shared.connect(on: eventLoop) { resolver in
                    bootstrap.resolver(resolver)
                        .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                        .channelOption(.tcpOption(.keepaliveIdle), value: 15)
                        .channelOption(.tcpOption(.keepaliveInterval), value: 5)
                        .channelOption(.tcpOption(.keepaliveCount), value: 3)
                        .connect(host: host, port: port)
                }
            case .unixSocket(let path):
                bootstrap.connect(unixDomainSocketPath: path)
            }
        return channel.flatMapThrowing { channel in
            let handler = try channel.pipeline.syncOperations.handler(type: RedisChannelHandler.self)
            guard let connection = handler.connection else { throw ChannelError.alreadyClosed }
            return connection
        }
    }

    /// The time to wait for the line that explains a refused connection.
    private static let greetingTime = TimeAmount.milliseconds(300)

    /// Connects without sending anything, and returns the first line that the server sends; empty if it sends none.
    private func greeting(of endpoint: RedisEndpoint) -> EventLoopFuture<String> {
        let line = eventLoop.makePromise(of: String.self)
        let bootstrap = ClientBootstrap(group: eventLoop)
            .resolver(SystemResolver(on: eventLoop))
            .connectTimeout(Self.greetingTime)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(GreetingHandler(line: line))
                }
            }
        let channel =
            switch endpoint.location {
            case .host(let host, let port): bootstrap.connect(host: host, port: port)
            case .unixSocket(let path): bootstrap.connect(unixDomainSocketPath: path)
            }
        channel.whenFailure { _ in line.succeed("") }
        channel.whenSuccess { channel in
            let timeout = channel.eventLoop.scheduleTask(in: Self.greetingTime) { channel.close(promise: nil) }
            channel.closeFuture.whenComplete { _ in timeout.cancel() }
        }
        return line.futureResult
    }

    /// Sends all steps in one write, so that they cost one round trip.
    private func run(
        _ handshake: RedisHandshake, on connection: RedisConnection, timeout: TimeAmount,
        completion: @escaping (Result<RedisConnection, RedisError>) -> Void
    ) {
        var handshake = handshake
        // The server may have sent an error and closed the connection before the first command.
        if let ended = connection.ended, case .failed(let error) = handshake.receive(.failure(ended)) {
            completion(.failure(error))
            return
        }
        var isSettled = false
        for (_, command) in handshake.commands {
            connection.send(command, timeout: timeout) { result in
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

    private func connectError(for error: any Error, address: String) -> RedisError {
        if let error = error as? RedisError { return error }
        return .connect(address: address, reason: RedisError.reason(of: error))
    }

    /// Adds the address of the attempt to an error.
    private static func naming(
        _ address: SocketAddress?, of endpoint: RedisEndpoint, in error: RedisError
    ) -> RedisError {
        guard case .connect(let place, let reason) = error, case .host(let host, _) = endpoint.location else {
            return error
        }
        return .connect(address: place, reason: reason + ConnectFailure.place(address, of: host))
    }
}

/// Reads the first line that a server sends, and closes the connection.
private final class GreetingHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let line: EventLoopPromise<String>
    private var text = ""

    init(line: EventLoopPromise<String>) { self.line = line }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        text += String(decoding: unwrapInboundIn(data).readableBytesView.prefix(512), as: UTF8.self)
        if text.contains("\n") || text.utf8.count >= 512 { context.close(promise: nil) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    func handlerRemoved(context: ChannelHandlerContext) {
        line.succeed(String(text.prefix { $0 != "\r" && $0 != "\n" && $0 != "\r\n" }))
    }
}

/// With these options, the kernel closes a connection to a lost server within 30 s, even during a long blocking wait.
extension NIOBSDSocket.Option {
    /// The seconds of silence before the first probe.
    static let keepaliveIdle = NIOBSDSocket.Option(rawValue: TCP_KEEPIDLE)
    /// The seconds between probes.
    static let keepaliveInterval = NIOBSDSocket.Option(rawValue: TCP_KEEPINTVL)
    /// The number of unanswered probes after which the connection is closed.
    static let keepaliveCount = NIOBSDSocket.Option(rawValue: TCP_KEEPCNT)
}
