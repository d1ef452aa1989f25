import Glibc
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Sockets
import TLS
import TestSupport

/// A server whose script, from a test, handles each connection and frame. It records what it receives.
final class ScriptedPeer: LoopBound {
    enum Event: Sendable {
        /// TLS is set up.
        case connected
        case frame(HTTP2Frame)
    }

    /// Called on the connection's event loop.
    typealias Script = @Sendable (_ connection: PeerConnection, _ event: Event) -> Void

    struct Seen: Sendable {
        /// The number of accepted TCP connections.
        var connections = 0
        /// The number of connections that have ended.
        var ended = 0
        /// The number of bytes of floods that the system has accepted.
        var flooded = 0
        /// All frames of all connections, in the order of arrival.
        var frames: [HTTP2Frame] = []

        func frames(_ kind: HTTP2Frame.Kind) -> [HTTP2Frame] { frames.filter { $0.kind == kind } }
    }

    let port: Int
    let seen: NIOLockedValueBox<Seen>
    private let channel: any Channel
    private let connections: NIOLockedValueBox<[any Channel]>

    private init(channel: any Channel, seen: NIOLockedValueBox<Seen>, connections: NIOLockedValueBox<[any Channel]>) {
        self.channel = channel
        self.seen = seen
        self.connections = connections
        port = channel.port
    }

    /// The treatment of a TCP connection.
    enum Transport: Sendable { case tls, staysSilent, hangsUp }

    /// - Parameters:
    ///   - port: 0 to choose a free one.
    ///   - protocols: the protocols to accept through ALPN.
    ///   - sendBuffer: the size of the system's buffer for data to a client that does not read.
    static func start(
        host: String = "127.0.0.1", port: Int = 0, protocols: [String] = ["h2"], transport: Transport = .tls,
        sendBuffer: Int = 1 << 20, script: @escaping Script = { _, _ in }
    ) async throws -> ScriptedPeer {
        let context = try TestCertificates.server(protocols: protocols)
        let seen = NIOLockedValueBox(Seen())
        let connections = NIOLockedValueBox<[any Channel]>([])
        let channel = try await listen(
            host: host, port: port, { $0.childChannelOption(.socketOption(.so_sndbuf), value: .init(sendBuffer)) }
        ) { channel in
            let number = seen.withLockedValue { seen in
                seen.connections += 1
                return seen.connections
            }
            connections.withLockedValue { $0.append(channel) }
            channel.closeFuture.whenComplete { _ in seen.withLockedValue { $0.ended += 1 } }
            switch transport {
            case .tls:
                try channel.pipeline.syncOperations.addHandlers([
                    TLSHandler(server: context), PeerConnection(number: number, seen: seen, script: script),
                ])
            case .staysSilent: break
            case .hangsUp: try channel.pipeline.syncOperations.addHandler(HangingUp())
            }
        }
        return ScriptedPeer(channel: channel, seen: seen, connections: connections)
    }

    func count(_ kind: HTTP2Frame.Kind) -> Int { seen.withLockedValue { $0.frames(kind).count } }

    /// Runs an action on a connection, asynchronously. Connections are counted from 1.
    func on(_ number: Int, _ action: @escaping @Sendable (PeerConnection) -> Void) {
        let channel = connections.withLockedValue { $0[number - 1] }
        _ = channel.eventLoop.submit { action(try channel.pipeline.syncOperations.handler(type: PeerConnection.self)) }
    }

    func stop() async throws {
        try await channel.close()
        for connection in connections.withLockedValue({ $0 }) { connection.close(promise: nil) }
    }
}

/// Closes each connection that was accepted.
private final class HangingUp: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    func channelActive(context: ChannelHandlerContext) { context.close(promise: nil) }
}

final class PeerConnection: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Counted from 1, in the order of acceptance.
    let number: Int
    /// The streams that the script has recorded.
    var streams: [Int32] = []

    private let seen: NIOLockedValueBox<ScriptedPeer.Seen>
    private let script: ScriptedPeer.Script
    private let decoder = HeaderDecoder()
    private var context: ChannelHandlerContext?
    private var input = ByteBuffer()
    private var hasPreface = false

    init(number: Int, seen: NIOLockedValueBox<ScriptedPeer.Seen>, script: @escaping ScriptedPeer.Script) {
        self.number = number
        self.seen = seen
        self.script = script
    }

    func send(_ frames: HTTP2Frame...) { send(bytes: frames.flatMap(\.bytes)) }

    func send(bytes: [UInt8]) {
        guard let context else { return }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
    }

    /// Sends each byte in a separate TLS record and packet.
    func sendBytewise(_ frames: HTTP2Frame...) { for byte in frames.flatMap(\.bytes) { send(bytes: [byte]) } }

    /// Sends the same bytes again and again, as fast as possible, until the connection ends.
    func flood(_ bytes: [UInt8]) {
        guard let context else { return }
        let sent = context.eventLoop.makePromise(of: Void.self)
        sent.futureResult.assumeIsolated().whenSuccess {
            self.seen.withLockedValue { $0.flooded += bytes.count }
            // Runs later, because the write may complete at once, a thousand times in a row.
            context.eventLoop.assumeIsolated().execute { self.flood(bytes) }
        }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: sent)
    }

    func stopReading() {
        context?.channel.setOption(.autoRead, value: false).whenFailure { preconditionFailure("\($0)") }
    }

    func goOnReading() {
        context?.channel.setOption(.autoRead, value: true).whenFailure { preconditionFailure("\($0)") }
    }

    var eventLoop: (any EventLoop)? { context?.eventLoop }

    /// Closes TCP without a message of TLS.
    func hangUp() {
        guard let pipeline = context?.pipeline.syncOperations else { return }
        do {
            try pipeline.context(handlerType: TLSHandler.self).close(promise: nil)
        } catch {
            preconditionFailure("\(error)")
        }
    }

    /// Ends TCP with a reset, without a message of TLS.
    func reset() {
        guard let context, let socket = context.channel as? any SocketOptionProvider else { return }
        socket.setSoLinger(linger(l_onoff: 1, l_linger: 0)).assumeIsolated().whenComplete { _ in self.hangUp() }
    }

    /// Closes properly, with close_notify.
    func close() { context?.close(promise: nil) }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is TLSHandshakeCompleted { script(self, .connected) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        input.writeBuffer(&bytes)
        if !hasPreface {
            guard input.readableBytes >= 24 else { return }
            input.moveReaderIndex(forwardBy: 24)
            hasPreface = true
        }
        while var frame = HTTP2Frame.read(from: &input) {
            frame.connection = number
            if frame.kind == .headers { frame.headers = (try? decoder.decode(frame.payload)) ?? [] }
            seen.withLockedValue { $0.frames.append(frame) }
            script(self, .frame(frame))
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

/// Sends SETTINGS with a limit of streams, and calls a function for each complete request.
/// - Parameter onlyFirst: true if later connections answer all requests.
func handling(
    streams: UInt32 = 10, onlyFirst: Bool = false,
    _ request: @escaping @Sendable (PeerConnection, HTTP2Frame) -> Void = { _, _ in }
) -> ScriptedPeer.Script {
    { connection, event in
        if onlyFirst, connection.number > 1 { return answersAll(connection, event) }
        switch event {
        case .connected: connection.send(.settings(maximumStreams: streams))
        case .frame(let frame): if frame.endsStream, frame.kind == .data { request(connection, frame) }
        }
    }
}

func withPeer(
    protocols: [String] = ["h2"], transport: ScriptedPeer.Transport = .tls, sendBuffer: Int = 1 << 20,
    script: @escaping ScriptedPeer.Script = { _, _ in },
    _ body: (ScriptedPeer) async throws -> Void
) async throws {
    let peer = try await ScriptedPeer.start(
        protocols: protocols, transport: transport, sendBuffer: sendBuffer, script: script)
    try await running({ try await body(peer) }, thenAlways: peer.stop)
}
