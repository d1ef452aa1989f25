import NIOCore
import NIOEmbedded
import TLS
import TestSupport
import Testing

@Suite("Hostile peers")
struct HostilePeerTests {
    private func activeChannel(_ handler: TLSHandler) throws -> (EmbeddedChannel, EventRecorder) {
        let channel = EmbeddedChannel()
        let events = EventRecorder()
        try channel.pipeline.syncOperations.addHandlers([handler, events])
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        return (channel, events)
    }

    @Test("that speak HTTP to a server are named in the error and disconnected")
    func plainHTTP() throws {
        let (channel, events) = try activeChannel(TLSHandler(server: TestCertificates.server()))
        channel.pipeline.fireChannelRead(ByteBuffer(string: "GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        #expect(events.tlsErrors.map(\.kind) == [.handshakeFailed(reason: "http request")])
        #expect(events.errors.count == 1)
        #expect(!channel.isActive)
    }

    @Test("that answer a client without TLS are reported as ports without TLS")
    func plainServer() throws {
        let (channel, events) = try activeChannel(TLSHandler(client: TestCertificates.client(), host: "localhost"))
        let write = channel.eventLoop.makePromise(of: Void.self)
        channel.writeAndFlush(ByteBuffer(string: "x"), promise: write)
        channel.pipeline.fireChannelRead(ByteBuffer(string: "-ERR unknown command\r\n"))
        let error = try #require(events.tlsErrors.first)
        #expect(error.kind == .handshakeFailed(reason: "wrong version number"))
        #expect(error.description.contains("TLS with localhost") && error.description.contains("TLS port"))
        #expect(throws: error) { try write.futureResult.wait() }
    }

    @Test("that send random bytes cause at most one error, and never data", arguments: 0..<200)
    func noise(seed: Int) throws {
        var state = UInt64(seed) &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        func next() -> UInt8 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return UInt8(truncatingIfNeeded: state >> 33)
        }
        let isServer = seed % 2 == 0
        let (channel, events) = try activeChannel(
            isServer
                ? TLSHandler(server: TestCertificates.server())
                : TLSHandler(client: TestCertificates.client(), host: "localhost"))
        // Half of the inputs start like a handshake record, so that more of them is parsed.
        var bytes: [UInt8] = seed % 4 < 2 ? [22, 3, 3, 0, 200, isServer ? 1 : 2, 0, 0, 196, 3, 3] : []
        bytes += (0..<600).map { _ in next() }
        for chunk in [bytes[..<40], bytes[40...]] {
            channel.pipeline.fireChannelRead(ByteBuffer(bytes: chunk))
            channel.pipeline.fireChannelReadComplete()
        }
        #expect(events.errors.count <= 1)
        #expect(events.tlsErrors.count == events.errors.count)
        #expect(events.received.readableBytes == 0)
        #expect(events.handshake == nil)
    }

    @Test("that change a byte in transit are detected", arguments: [0, 3, 5, 20, 200])
    func tampering(offset: Int) throws {
        let pair = try EmbeddedPair()
        try pair.connect()
        pair.client.writeAndFlush(ByteBuffer(repeating: 1, count: 300), promise: nil)
        var ciphertext = try #require(try pair.client.readOutbound(as: ByteBuffer.self))
        let byte = try #require(ciphertext.getInteger(at: offset, as: UInt8.self))
        ciphertext.setInteger(byte ^ 0x40, at: offset)
        pair.server.pipeline.fireChannelRead(ciphertext)
        let error = try #require(pair.serverEvents.tlsErrors.first)
        guard case .protocolViolation = error.kind else {
            Issue.record("\(error)")
            return
        }
        #expect(pair.serverEvents.errors.count == 1)
        #expect(pair.serverEvents.received.readableBytes == 0)
        // The other side must receive the alert. Closing at once with unread data would reset the connection, and the alert would be lost.
        #expect(pair.server.isActive)
        try pair.carryToClient()
        guard case .alert? = pair.clientEvents.tlsErrors.first?.kind else {
            Issue.record("\(pair.clientEvents.errors)")
            return
        }
    }

    @Test("that fail on one connection leave the others of the thread alone")
    func neighbours() throws {
        let pair = try EmbeddedPair()
        try pair.connect()
        let (channel, _) = try activeChannel(TLSHandler(server: TestCertificates.server()))
        channel.pipeline.fireChannelRead(ByteBuffer(string: "GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        pair.client.writeAndFlush(ByteBuffer(string: "unharmed"), promise: nil)
        try pair.exchange()
        #expect(String(buffer: pair.serverEvents.received) == "unharmed")
        #expect(pair.clientEvents.errors.isEmpty && pair.serverEvents.errors.isEmpty)
    }
}
