import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Sockets
import TLS

/// A feedback service over TLS on 127.0.0.1 (`localhost`). A script of the test handles each connection.
package final class FeedbackServer: LoopBound {
    /// Handles a connection after its TLS handshake, on the connection's event loop.
    package typealias Script = @Sendable (FeedbackPeer) -> Void

    package let port: Int
    private let channel: any Channel
    private let connections: NIOLockedValueBox<[FeedbackPeer]>

    /// - Parameters:
    ///   - authority: the authority of ``TestCertificates`` whose clients are accepted; `nil` if clients need no certificate.
    ///   - port: 0 for a free one.
    ///   - setsUpTLS: `false` for a server that accepts connections and never sends anything.
    ///   - sendBuffer: the most bytes that the system keeps for a client that does not read.
    package static func start(
        authority: String? = "ca", port: Int = 0, setsUpTLS: Bool = true, sendBuffer: Int = 1 << 20,
        script: @escaping Script
    ) async throws -> FeedbackServer {
        let context = try TestCertificates.server(
            clientCertificates: authority.map { .required(.file(try TestCertificates.path("\($0).pem"))) } ?? .ignored)
        let connections = NIOLockedValueBox<[FeedbackPeer]>([])
        let channel = try await listen(
            port: port, { $0.childChannelOption(.socketOption(.so_sndbuf), value: .init(sendBuffer)) }
        ) { channel in
            guard setsUpTLS else { return }
            let tls = TLSHandler(server: context)
            try channel.pipeline.syncOperations.addHandler(tls)
            let below = try channel.pipeline.syncOperations.context(handler: tls)
            let peer = FeedbackPeer(channel, below: NIOLoopBound(below, eventLoop: channel.eventLoop))
            connections.withLockedValue { $0.append(peer) }
            try channel.pipeline.syncOperations.addHandler(FeedbackPeerHandler(peer, script))
        }
        return FeedbackServer(channel: channel, connections: connections)
    }

    private init(channel: any Channel, connections: NIOLockedValueBox<[FeedbackPeer]>) {
        self.channel = channel
        self.connections = connections
        port = channel.port
    }

    /// All connections so far, with or without TLS.
    package var peers: [FeedbackPeer] { connections.withLockedValue { $0 } }

    package func stop() async throws {
        try await channel.close()
        for peer in peers { peer.close() }
    }

    /// Returns a record in the format of the protocol.
    /// - Parameter token: hex digits, two per byte.
    package static func tuple(_ seconds: UInt32, _ token: String) -> [UInt8] {
        let digits = Array(token.utf8)
        let bytes = stride(from: 0, to: digits.count - 1, by: 2).compactMap {
            UInt8(String(decoding: digits[$0...($0 + 1)], as: UTF8.self), radix: 16)
        }
        var buffer = ByteBuffer()
        buffer.writeInteger(seconds)
        buffer.writeInteger(UInt16(bytes.count))
        buffer.writeBytes(bytes)
        return Array(buffer.readableBytesView)
    }
}

/// A client's connection to a ``FeedbackServer``. Any thread can use it.
package final class FeedbackPeer: LoopBound {
    private let channel: any Channel
    private let below: NIOLoopBound<ChannelHandlerContext>
    private let counts = NIOLockedValueBox((isConnected: false, sent: 0, isClosed: false))

    init(_ channel: any Channel, below: NIOLoopBound<ChannelHandlerContext>) {
        self.channel = channel
        self.below = below
        channel.closeFuture.whenComplete { [counts] _ in counts.withLockedValue { $0.isClosed = true } }
    }

    /// True once TLS is set up and the client's certificate is accepted.
    package var isConnected: Bool { counts.withLockedValue { $0.isConnected } }
    /// The number of bytes that the system has accepted. If the client does not read, the system does not accept all bytes.
    package var sentBytes: Int { counts.withLockedValue { $0.sent } }
    package var isClosed: Bool { counts.withLockedValue { $0.isClosed } }

    func connected() { counts.withLockedValue { $0.isConnected = true } }

    /// Sends bytes in their own TLS record.
    package func send(_ bytes: some Collection<UInt8>) {
        let count = bytes.count
        channel.writeAndFlush(ByteBuffer(bytes: bytes)).whenSuccess { [counts] in
            counts.withLockedValue { $0.sent += count }
        }
    }

    /// Closes the connection with TLS' close_notify.
    package func close() { channel.close(promise: nil) }

    /// Sends everything, and closes the connection without TLS' close_notify, as Apple's servers did.
    package func hangUp() {
        // An immediate close would drop the bytes that the system has not accepted yet.
        channel.writeAndFlush(ByteBuffer()).whenComplete { _ in self.below.value.close(promise: nil) }
    }

    package func reset() {
        guard let options = channel as? any SocketOptionProvider else { preconditionFailure("no socket") }
        options.setSoLinger(linger(l_onoff: 1, l_linger: 0)).whenSuccess { self.below.value.close(promise: nil) }
    }

    /// Calls a function on the connection's event loop after some time.
    package func after(_ time: TimeAmount, _ body: @escaping @Sendable (FeedbackPeer) -> Void) {
        channel.eventLoop.scheduleTask(in: time) { body(self) }
    }
}

private final class FeedbackPeerHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let peer: FeedbackPeer
    private let script: FeedbackServer.Script

    init(_ peer: FeedbackPeer, _ script: @escaping FeedbackServer.Script) {
        self.peer = peer
        self.script = script
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is TLSHandshakeCompleted {
            peer.connected()
            script(peer)
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
