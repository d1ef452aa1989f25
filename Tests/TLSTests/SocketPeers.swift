import NIOCore
import NIOPosix
import Sockets
import TLS
import TestSupport

/// The events that an application sees on a connection.
struct Outcome: Sendable {
    var handshake: TLSHandshakeCompleted?
    var errors: [any Error] = []
    var received = ByteBuffer()

    var text: String { String(buffer: received) }
    var tlsErrors: [TLSError] { errors.compactMap { $0 as? TLSError } }
}

/// The application's end of a connection: records events, and optionally echoes data.
final class Application: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    struct Behaviour: Sendable {
        var echoes = false
        /// Runs on the event loop when the handshake is complete.
        var onHandshake: (@Sendable (any Channel) -> Void)?
        /// Runs on the event loop when the peer has closed its side.
        var onInputClosed: (@Sendable (any Channel) -> Void)?
        /// Closes once this many bytes have been received.
        var closesAfter = Int.max
    }

    private let behaviour: Behaviour
    private let handshake: EventLoopPromise<TLSHandshakeCompleted>
    private let end: EventLoopPromise<Outcome>
    private var outcome = Outcome()
    private var deadline: Scheduled<Void>?

    struct Overdue: Error {}

    init(_ behaviour: Behaviour, handshake: EventLoopPromise<TLSHandshakeCompleted>, end: EventLoopPromise<Outcome>) {
        self.behaviour = behaviour
        self.handshake = handshake
        self.end = end
    }

    func handlerAdded(context: ChannelHandlerContext) {
        // A wait for a future cannot be cancelled, so a failing test would hang without a deadline.
        deadline = context.eventLoop.assumeIsolated().scheduleTask(in: .minutes(3)) {
            self.errorCaught(context: context, error: Overdue())
            context.close(promise: nil)
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent { behaviour.onInputClosed?(context.channel) }
        guard let event = event as? TLSHandshakeCompleted else { return context.fireUserInboundEventTriggered(event) }
        outcome.handshake = event
        handshake.succeed(event)
        behaviour.onHandshake?(context.channel)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        outcome.received.writeImmutableBuffer(unwrapInboundIn(data))
        if behaviour.echoes { context.write(data, promise: nil) }
        if outcome.received.readableBytes >= behaviour.closesAfter { context.close(promise: nil) }
    }

    func channelReadComplete(context: ChannelHandlerContext) { if behaviour.echoes { context.flush() } }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        outcome.errors.append(error)
        handshake.fail(error)
    }

    func channelInactive(context: ChannelHandlerContext) {
        deadline?.cancel()
        handshake.fail(ChannelError.eof)
        end.succeed(outcome)
        context.fireChannelInactive()
    }
}

/// A client connected to 127.0.0.1.
struct SocketClient: LoopBound {
    let channel: any Channel
    /// Fails with the first error.
    let handshake: EventLoopFuture<TLSHandshakeCompleted>
    let end: EventLoopFuture<Outcome>

    static func connect(
        _ context: TLSContext, port: Int, host: String = "localhost",
        configure: @Sendable (ClientBootstrap) -> ClientBootstrap = { $0 }, behaviour: Application.Behaviour = .init()
    ) async throws -> SocketClient {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let handshake = loop.makePromise(of: TLSHandshakeCompleted.self)
        let end = loop.makePromise(of: Outcome.self)
        let channel = try await configure(ClientBootstrap(group: loop))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([
                        TLSHandler(client: context, host: host, closeTimeout: .seconds(10)),
                        Application(behaviour, handshake: handshake, end: end),
                    ])
                }
            }
            .connect(host: "127.0.0.1", port: port).get()
        return SocketClient(channel: channel, handshake: handshake.futureResult, end: end.futureResult)
    }
}

/// A TLS server on a free port of 127.0.0.1.
struct SocketServer: LoopBound {
    let port: Int
    /// The results of the server's connections, in the order in which they ended.
    let outcomes: AsyncStream<Outcome>
    private let channel: any Channel

    static func start(
        _ context: TLSContext, halfClosure: Bool = false, behaviour: Application.Behaviour = .init()
    ) async throws -> SocketServer {
        let (outcomes, continuation) = AsyncStream.makeStream(of: Outcome.self)
        let channel = try await listen {
            $0.childChannelOption(.allowRemoteHalfClosure, value: halfClosure)
        } setUp: { channel in
            let handshake = channel.eventLoop.makePromise(of: TLSHandshakeCompleted.self)
            let end = channel.eventLoop.makePromise(of: Outcome.self)
            end.futureResult.whenSuccess { continuation.yield($0) }
            try channel.pipeline.syncOperations.addHandlers([
                TLSHandler(server: context, closeTimeout: .seconds(10)),
                Application(behaviour, handshake: handshake, end: end),
            ])
        }
        return SocketServer(port: channel.port, outcomes: outcomes, channel: channel)
    }

    /// Returns the result of the next connection that ends.
    func nextOutcome() async throws -> Outcome {
        var iterator = outcomes.makeAsyncIterator()
        guard let outcome = await iterator.next() else { throw ChannelError.eof }
        return outcome
    }

    func stop() async throws { try await channel.close() }
}

func withServer<Result>(
    _ context: TLSContext, halfClosure: Bool = false, behaviour: Application.Behaviour = .init(),
    _ body: (SocketServer) async throws -> Result
) async throws -> Result {
    let server = try await SocketServer.start(context, halfClosure: halfClosure, behaviour: behaviour)
    return try await running({ try await body(server) }, thenAlways: server.stop)
}
