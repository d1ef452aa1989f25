import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Sockets
import TLS
import TestSupport

@testable import APNS
@testable import LegacyAPNS

/// A binary gateway whose script, from a test, handles each connection and item. It records what it receives. It knows commands 1 and 2,
/// and shares no code with the client.
final class ScriptedGateway: LoopBound {
    struct Item: Sendable, Equatable {
        /// Counted from 1, in the order of acceptance.
        var connection: Int
        /// The item's place on its connection, counted from 1.
        var place: Int
        /// The size of the item's frame in bytes.
        var size = 0
        var identifier: UInt32
        var token: [UInt8]
        var payload: String

        /// The number at the end of the token of ``Notification/example(_:payload:)``.
        var number: Int { token.suffix(4).reduce(0) { $0 << 8 | Int($1) } }
    }

    enum Event: Sendable {
        /// TLS is set up.
        case connected
        case item(Item)
    }

    /// Called on the connection's event loop.
    typealias Script = @Sendable (_ connection: GatewayPeer, _ event: Event) -> Void

    struct Seen: Sendable {
        var connections = 0
        var items: [Item] = []
        /// The lengths of all TLS records of application data, and of the end of TLS 1.3's handshake before them.
        var records: [Int] = []
    }

    let port: Int
    let seen: NIOLockedValueBox<Seen>
    private let channel: any Channel

    private init(channel: any Channel, seen: NIOLockedValueBox<Seen>) {
        self.channel = channel
        self.seen = seen
        port = channel.port
    }

    var items: [Item] { seen.withLockedValue { $0.items } }

    static func start(receiveBuffer: Int? = nil, script: @escaping Script = { _, _ in }) async throws -> ScriptedGateway
    {
        let context = try TestCertificates.server()
        let seen = NIOLockedValueBox(Seen())
        let channel = try await listen { bootstrap in
            // Accepted connections inherit the option, so that it applies from the first byte.
            receiveBuffer.map { bootstrap.serverChannelOption(.socketOption(.so_rcvbuf), value: .init($0)) }
                ?? bootstrap
        } setUp: { channel in
            let number = seen.withLockedValue { seen in
                seen.connections += 1
                return seen.connections
            }
            try channel.pipeline.syncOperations.addHandlers([
                RecordMeter(seen: seen), TLSHandler(server: context),
                GatewayPeer(number: number, seen: seen, script: script),
            ])
        }
        return ScriptedGateway(channel: channel, seen: seen)
    }

    func stop() async throws { try await channel.close() }
}

final class GatewayPeer: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let number: Int
    private let seen: NIOLockedValueBox<ScriptedGateway.Seen>
    private let script: ScriptedGateway.Script
    private var context: ChannelHandlerContext?
    private var input = ByteBuffer()
    private var places = 0
    private var hasStopped = false

    init(number: Int, seen: NIOLockedValueBox<ScriptedGateway.Seen>, script: @escaping ScriptedGateway.Script) {
        self.number = number
        self.seen = seen
        self.script = script
    }

    /// Sends an error packet, and closes. Nothing more is read.
    func answer(_ status: UInt8, _ identifier: UInt32, pieces: Int = 6) {
        hasStopped = true
        guard let context else { return }
        var packet = ByteBuffer()
        packet.writeMultipleIntegers(UInt8(8), status, identifier)
        while let piece = packet.readSlice(length: min(pieces, packet.readableBytes)), piece.readableBytes > 0 {
            context.writeAndFlush(wrapOutboundOut(piece), promise: nil)
        }
        context.close(promise: nil)
    }

    /// Drops input during a delay, sends an error packet byte by byte, and closes.
    func answer(_ status: UInt8, _ identifier: UInt32, after delay: TimeAmount) {
        hasStopped = true
        context?.eventLoop.assumeIsolated().scheduleTask(in: delay) { self.answer(status, identifier, pieces: 1) }
    }

    func send(_ bytes: [UInt8]) { context?.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil) }

    /// Closes with close_notify only.
    func close() {
        hasStopped = true
        context?.close(promise: nil)
    }

    func stopReading() {
        context?.channel.setOption(.autoRead, value: false).whenFailure { preconditionFailure("\($0)") }
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is TLSHandshakeCompleted { script(self, .connected) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        input.writeBuffer(&bytes)
        while !hasStopped {
            let before = input.readableBytes
            guard var item = read() else { return }
            item.size = before - input.readableBytes
            seen.withLockedValue { $0.items.append(item) }
            script(self, .item(item))
        }
    }

    private func read() -> ScriptedGateway.Item? {
        let start = input.readerIndex
        places += 1
        var item = ScriptedGateway.Item(connection: number, place: places, identifier: 0, token: [], payload: "")
        func field() -> [UInt8]? { input.readInteger(as: UInt16.self).flatMap { input.readBytes(length: Int($0)) } }
        switch input.readInteger(as: UInt8.self) {
        case 1:
            if let identifier = input.readInteger(as: UInt32.self), input.readInteger(as: UInt32.self) != nil,
                let token = field(), let payload = field()
            {
                (item.identifier, item.token) = (identifier, token)
                item.payload = String(decoding: payload, as: UTF8.self)
                return item
            }
        case 2:
            if let length = input.readInteger(as: UInt32.self), input.readableBytes >= Int(length) {
                let end = input.readerIndex + Int(length)
                while input.readerIndex < end, let kind = input.readInteger(as: UInt8.self), let bytes = field() {
                    switch kind {
                    case 1: item.token = bytes
                    case 2: item.payload = String(decoding: bytes, as: UTF8.self)
                    case 3: item.identifier = bytes.reduce(0) { $0 << 8 | UInt32($1) }
                    default: break
                    }
                }
                return item
            }
        default: break
        }
        input.moveReaderIndex(to: start)
        places -= 1
        return nil
    }
}

/// Records the lengths of arriving TLS records (RFC 8446 §5.1: type, version, length).
private final class RecordMeter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let seen: NIOLockedValueBox<ScriptedGateway.Seen>
    private var input = ByteBuffer()

    init(seen: NIOLockedValueBox<ScriptedGateway.Seen>) { self.seen = seen }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        input.writeBuffer(&bytes)
        while let length: UInt16 = input.getInteger(at: input.readerIndex + 3), input.readableBytes >= 5 + Int(length),
            let record = input.readSlice(length: 5 + Int(length))
        {
            guard record.getInteger(at: record.readerIndex) == UInt8(23) else { continue }
            seen.withLockedValue { $0.records.append(Int(length)) }
        }
        context.fireChannelRead(data)
    }
}
