import NIOCore
import NIOEmbedded
import TLS
import TestSupport
import Testing

@Suite("Closing", .timeLimit(.minutes(10)))
struct ClosingTests {
    @Test("is clean on both sides, and loses nothing that was flushed before")
    func clean() async throws {
        let bytes = ByteBuffer(repeating: 5, count: 3_000_000)
        try await withServer(TestCertificates.server()) { server in
            let client = try await SocketClient.connect(TestCertificates.client(), port: server.port)
            client.channel.writeAndFlush(bytes, promise: nil)
            _ = try await client.handshake.get()
            try await client.channel.close()
            let seen = try await client.end.get()
            #expect(seen.errors.isEmpty)
            let other = try await server.nextOutcome()
            #expect(other.errors.isEmpty)
            #expect(other.received == bytes)
        }
    }

    @Test("by the server reaches the client after the server's last data, although the client was writing")
    func byServer() async throws {
        let answer = ByteBuffer(repeating: 6, count: 500_000)
        try await withServer(
            TestCertificates.server(),
            behaviour: .init(onHandshake: { channel in
                channel.writeAndFlush(answer, promise: nil)
                channel.close(promise: nil)
            })
        ) { server in
            let client = try await SocketClient.connect(
                TestCertificates.client(), port: server.port,
                behaviour: .init(onHandshake: { channel in
                    channel.writeAndFlush(ByteBuffer(repeating: 7, count: 100_000), promise: nil)
                }))
            let seen = try await client.end.get()
            #expect(seen.errors.isEmpty)
            #expect(seen.received == answer)
        }
    }

    @Test("does not wait forever for the peer")
    func timeout() throws {
        let pair = try EmbeddedPair()
        try pair.connect()
        let promise = pair.client.eventLoop.makePromise(of: Void.self)
        pair.client.close(promise: promise)
        let again = pair.client.eventLoop.makePromise(of: Void.self)
        pair.client.close(promise: again)
        #expect(pair.client.isActive)
        pair.client.embeddedEventLoop.advanceTime(by: .milliseconds(999))
        #expect(pair.client.isActive)
        pair.client.embeddedEventLoop.advanceTime(by: .milliseconds(1))
        try promise.futureResult.wait()
        try again.futureResult.wait()
        #expect(pair.clientEvents.isInactive)
        #expect(pair.clientEvents.errors.isEmpty)
    }

    @Test("does not wait for a peer that keeps sending")
    func flood() throws {
        let pair = try EmbeddedPair()
        try pair.connect()
        pair.client.close(promise: nil)
        pair.server.writeAndFlush(ByteBuffer(repeating: 1, count: 1_000_000), promise: nil)
        try pair.carryToClient()
        #expect(pair.client.isActive)
        pair.server.writeAndFlush(ByteBuffer(repeating: 1, count: 100_000), promise: nil)
        try pair.carryToClient()
        #expect(pair.clientEvents.isInactive)
        #expect(pair.clientEvents.received.readableBytes == 0)
        #expect(pair.clientEvents.errors.isEmpty)
    }

    @Test("after a failure does not wait for a peer that keeps sending")
    func floodAfterFailure() throws {
        let pair = try EmbeddedPair()
        try pair.connect()
        // Not a TLS record.
        pair.client.pipeline.fireChannelRead(ByteBuffer(repeating: 0xFF, count: 100))
        #expect(pair.clientEvents.errors.count == 1)
        #expect(pair.client.isActive)
        pair.client.pipeline.fireChannelRead(ByteBuffer(repeating: 0xFF, count: 2_000_000))
        #expect(pair.clientEvents.isInactive)
        #expect(pair.clientEvents.errors.count == 1)
    }

    @Test("ends as soon as the peer answers, whatever data it sent before")
    func answered() throws {
        let pair = try EmbeddedPair()
        try pair.connect()
        pair.server.writeAndFlush(ByteBuffer(string: "too late"), promise: nil)
        let promise = pair.client.eventLoop.makePromise(of: Void.self)
        pair.client.close(promise: promise)
        try pair.exchange()
        try promise.futureResult.wait()
        #expect(pair.clientEvents.received.readableBytes == 0)
        #expect(pair.clientEvents.errors.isEmpty)
        #expect(pair.serverEvents.errors.isEmpty)
        #expect(pair.serverEvents.isInactive)
    }

    @Test("before the handshake is over is immediate, and fails what was written")
    func duringHandshake() throws {
        let pair = try EmbeddedPair()
        try pair.client.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        let write = pair.client.eventLoop.makePromise(of: Void.self)
        pair.client.writeAndFlush(ByteBuffer(string: "x"), promise: write)
        try pair.client.close().wait()
        #expect(throws: ChannelError.ioOnClosedChannel) { try write.futureResult.wait() }
        #expect(pair.clientEvents.errors.isEmpty)
    }

    @Test("without close_notify is a truncation, reported once, after the data")
    func truncation() async throws {
        try await withServer(
            TestCertificates.server(),
            behaviour: .init(onHandshake: { channel in
                channel.writeAndFlush(ByteBuffer(string: "half an ans")).whenSuccess {
                    // Closes below the TLS handler, which then cannot send close_notify.
                    try? channel.pipeline.syncOperations.context(handlerType: TLSHandler.self).close(promise: nil)
                }
            })
        ) { server in
            let client = try await SocketClient.connect(TestCertificates.client(), port: server.port)
            let seen = try await client.end.get()
            #expect(seen.text == "half an ans")
            #expect(seen.errors.count == 1)
            #expect(seen.tlsErrors.map(\.kind) == [.truncated])
            #expect(seen.tlsErrors.first?.host == "localhost")
            #expect(seen.tlsErrors.first?.description.contains("without the server's close_notify") == true)
        }
    }

    @Test("during the handshake is reported as such, and fails pending writes")
    func closedDuringHandshake() async throws {
        let listener = try await listen { $0.close(promise: nil) }
        let client = try await SocketClient.connect(TestCertificates.client(), port: listener.port)
        let seen = try await client.end.get()
        // If the ClientHello arrives too late, the kernel may report an end or a reset. Either must be reported once.
        #expect(seen.errors.count == 1)
        if let error = seen.tlsErrors.first { #expect(error.kind == .closedDuringHandshake) }
        try await listener.close()
    }

    @Test("of the peer's side alone leaves this side open, if the channel allows it")
    func halfClosure() async throws {
        try await withServer(
            TestCertificates.server(), halfClosure: true,
            behaviour: .init(onInputClosed: { channel in
                channel.writeAndFlush(ByteBuffer(string: "last answer"), promise: nil)
                channel.close(promise: nil)
            })
        ) { server in
            let client = try await SocketClient.connect(TestCertificates.client(), port: server.port)
            _ = try await client.handshake.get()
            try await client.channel.writeAndFlush(ByteBuffer(string: "last question"))
            try await client.channel.close(mode: .output)
            await #expect(throws: ChannelError.ioOnClosedChannel) {
                try await client.channel.writeAndFlush(ByteBuffer(string: "more"))
            }
            let seen = try await client.end.get()
            #expect(seen.text == "last answer")
            #expect(seen.errors.isEmpty)
            let other = try await server.nextOutcome()
            #expect(other.text == "last question")
            #expect(other.errors.isEmpty)
        }
    }

    @Test("of the peer's transport alone is a truncation too")
    func halfClosedTransport() throws {
        let pair = try EmbeddedPair()
        try pair.connect()
        pair.client.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(pair.clientEvents.tlsErrors.map(\.kind) == [.truncated])
        #expect(pair.clientEvents.isInactive)
    }

    @Test("of this side's input alone is not supported")
    func inputAlone() throws {
        let pair = try EmbeddedPair()
        try pair.connect()
        #expect(throws: ChannelError.operationUnsupported) { try pair.client.close(mode: .input).wait() }
        #expect(pair.client.isActive)
    }
}
