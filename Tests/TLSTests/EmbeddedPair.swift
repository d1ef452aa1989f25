import NIOCore
import NIOEmbedded
import TLS
import TestSupport

/// A client and a server without sockets. Each one's ciphertext is carried to the other on request.
final class EmbeddedPair {
    let client: EmbeddedChannel
    let server: EmbeddedChannel
    let clientEvents = EventRecorder()
    let serverEvents = EventRecorder()
    /// The maximum size of a carried piece of ciphertext, in bytes.
    var pieceSize = Int.max
    /// All ciphertext that the client has sent.
    private(set) var sentByClient = ByteBuffer()
    /// The number of writes to the client's channel.
    private(set) var clientWrites = 0

    init(
        client clientContext: TLSContext? = nil, server serverContext: TLSContext? = nil, host: String = "localhost"
    ) throws {
        client = EmbeddedChannel()
        server = EmbeddedChannel()
        let clientHandler = TLSHandler(client: try clientContext ?? TestCertificates.client(), host: host)
        let serverHandler = TLSHandler(server: try serverContext ?? TestCertificates.server())
        try client.pipeline.syncOperations.addHandlers([clientHandler, clientEvents])
        try server.pipeline.syncOperations.addHandlers([serverHandler, serverEvents])
    }

    /// Connects client and server, and carries ciphertext until neither has more.
    func connect() throws {
        try server.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        try client.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        try exchange()
    }

    func exchange() throws { while try carryToServer() || carryToClient() {} }

    @discardableResult
    func carryToServer() throws -> Bool {
        var moved = false
        while let ciphertext = try client.readOutbound(as: ByteBuffer.self) {
            clientWrites += 1
            sentByClient.writeImmutableBuffer(ciphertext)
            try deliver(ciphertext, to: server)
            moved = true
        }
        return moved
    }

    @discardableResult
    func carryToClient() throws -> Bool {
        var moved = false
        while let ciphertext = try server.readOutbound(as: ByteBuffer.self) {
            try deliver(ciphertext, to: client)
            moved = true
        }
        return moved
    }

    func resetCounts() {
        clientWrites = 0
        sentByClient.clear()
    }

    private func deliver(_ ciphertext: ByteBuffer, to channel: EmbeddedChannel) throws {
        var rest = ciphertext
        while channel.isActive, let piece = rest.readSlice(length: min(pieceSize, rest.readableBytes)),
            piece.readableBytes > 0
        {
            channel.pipeline.fireChannelRead(piece)
            channel.pipeline.fireChannelReadComplete()
        }
    }
}

/// Records the events that reach the application.
final class EventRecorder: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private(set) var handshake: TLSHandshakeCompleted?
    private(set) var errors: [any Error] = []
    private(set) var received = ByteBuffer()
    private(set) var reads = 0
    private(set) var inputClosed = 0
    private(set) var isInactive = false

    var tlsErrors: [TLSError] { errors.compactMap { $0 as? TLSError } }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let event = event as? TLSHandshakeCompleted { handshake = event }
        if case .inputClosed? = event as? ChannelEvent { inputClosed += 1 }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        reads += 1
        received.writeImmutableBuffer(unwrapInboundIn(data))
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { errors.append(error) }

    func channelInactive(context: ChannelHandlerContext) {
        isInactive = true
        context.fireChannelInactive()
    }
}

/// Returns the lengths of the TLS records in a ciphertext, excluding their headers.
func recordLengths(_ ciphertext: ByteBuffer) -> [Int] {
    var rest = ciphertext
    var lengths: [Int] = []
    while let header = rest.readMultipleIntegers(as: (UInt8, UInt16, UInt16).self),
        rest.readSlice(length: Int(header.2)) != nil
    {
        lengths.append(Int(header.2))
    }
    return lengths
}
