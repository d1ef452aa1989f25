import NIOCore
import NIOPosix
import Sockets
import Synchronization
import TLS
import TestSupport
import Testing

/// A client of the gateway or of the feedback service, over TLS.
final class BinaryClient: LoopBound {
    /// The end of a connection, as the client sees it.
    struct Ending: Sendable {
        var bytes: [UInt8]
        var errors: [any Error]
        /// True if the server sent close_notify.
        var isClean: Bool { errors.isEmpty }
    }

    private let channel: any Channel
    private let record: Record

    /// - Parameters:
    ///   - identity: the test certificate to present; nil for none.
    ///   - reads: false to read nothing after the handshake. The server can then send only what fits into the small receive buffer.
    static func connect(_ port: Int?, identity: String? = "client", reads: Bool = true) async throws -> BinaryClient {
        var configuration = TLSClientConfiguration()
        configuration.trust = .file(try TestCertificates.path("ca.pem"))
        configuration.identity = try identity.map(TestCertificates.identity)
        return try await connect(port, try TLSContext.client(configuration), reads: reads)
    }

    static func connect(_ port: Int?, _ context: TLSContext, reads: Bool = true) async throws -> BinaryClient {
        let port = try #require(port)
        let loop = MultiThreadedEventLoopGroup.singleton.any()
        let handshake = loop.makePromise(of: Void.self)
        let record = Record()
        let bootstrap = ClientBootstrap(group: loop)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.socketOption(.so_rcvbuf), value: 128 * 1024)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([
                        TLSHandler(client: context, host: "127.0.0.1"), Collector(record, handshake, reads: reads),
                    ])
                }
            }
        do {
            let channel = try await bootstrap.connect(host: "127.0.0.1", port: port).get()
            try await handshake.futureResult.get()
            return BinaryClient(channel, record)
        } catch {
            // Without a connection, no handler fails the promise.
            handshake.fail(error)
            throw error
        }
    }

    private init(_ channel: any Channel, _ record: Record) {
        self.channel = channel
        self.record = record
    }

    var received: [UInt8] { record.ending.withLock { $0.bytes } }
    var isOpen: Bool { channel.isActive }

    /// Sends bytes, and waits until the kernel has accepted them.
    func send(_ bytes: [UInt8]) async throws { try await channel.writeAndFlush(ByteBuffer(bytes: bytes)).get() }

    /// Waits until the connection has ended.
    func ending() async throws -> Ending {
        try await eventually("the server ends the connection") { !self.channel.isActive }
        try await channel.closeFuture.get()
        return record.ending.withLock { $0 }
    }

    /// Closes without close_notify and without reading the received bytes.
    func drop() async throws {
        try await channel.pipeline.context(handlerType: TLSHandler.self).flatMap { $0.close() }.get()
    }

    func close() async throws {
        guard channel.isActive else { return }
        channel.close(promise: nil)
        try await channel.closeFuture.get()
    }
}

/// The event loop writes a client's observations, and the test reads them.
private final class Record: Sendable {
    let ending = Mutex(BinaryClient.Ending(bytes: [], errors: []))
}

private final class Collector: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let record: Record
    private let handshake: EventLoopPromise<Void>
    private let reads: Bool

    init(_ record: Record, _ handshake: EventLoopPromise<Void>, reads: Bool) {
        self.record = record
        self.handshake = handshake
        self.reads = reads
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is TLSHandshakeCompleted {
            if !reads {
                do {
                    try context.channel.syncOptions?.setOption(.autoRead, value: false)
                } catch {
                    handshake.fail(error)
                }
            }
            handshake.succeed()
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = Array(buffer: unwrapInboundIn(data))
        record.ending.withLock { $0.bytes += bytes }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        handshake.fail(error)
        record.ending.withLock { $0.errors.append(error) }
    }

    func channelInactive(context: ChannelHandlerContext) {
        handshake.fail(ChannelError.eof)
        context.fireChannelInactive()
    }
}
