import NIOCore
import NIOEmbedded
import TLS
import TestSupport
import Testing

@Suite("Records")
struct RecordTests {
    /// The overhead of a TLS 1.3 record: the content type and the authentication tag.
    private let overhead = 17
    private let largest = 16_384

    private func connectedPair() throws -> EmbeddedPair {
        let pair = try EmbeddedPair()
        try pair.connect()
        pair.resetCounts()
        return pair
    }

    @Test("of many small writes in one flush are few and full, and sent in one write")
    func joined() throws {
        let pair = try connectedPair()
        for number in 0..<1000 {
            pair.client.write(ByteBuffer(repeating: UInt8(truncatingIfNeeded: number), count: 37), promise: nil)
        }
        pair.client.flush()
        try pair.exchange()

        #expect(
            recordLengths(pair.sentByClient)
                == [largest + overhead, largest + overhead, 37_000 - 2 * largest + overhead])
        #expect(pair.clientWrites == 1)
        // The other side passes all records on in one read.
        #expect(pair.serverEvents.reads == 1)
        let expected = (0..<1000).flatMap { [UInt8](repeating: UInt8(truncatingIfNeeded: $0), count: 37) }
        #expect(Array(buffer: pair.serverEvents.received) == expected)
    }

    @Test(
        "are as few as the length allows, however it is written",
        arguments: [
            [1], [16_383], [16_384], [16_385], [100_000], [5, 50_000, 5], [16_384, 16_384], [16_383, 1], [1, 16_384],
            [32_768, 1, 32_768], [10, 0, 10], [0, 3], [40_000, 40_000, 40_000],
        ])
    func few(sizes: [Int]) throws {
        let pair = try connectedPair()
        var expected: [UInt8] = []
        for (index, size) in sizes.enumerated() {
            let bytes = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ index) }
            expected += bytes
            pair.client.write(ByteBuffer(bytes: bytes), promise: nil)
        }
        pair.client.flush()
        try pair.exchange()

        let records = (expected.count + largest - 1) / largest
        #expect(recordLengths(pair.sentByClient).count == records)
        #expect(recordLengths(pair.sentByClient).reduce(0, +) == expected.count + records * overhead)
        #expect(pair.clientWrites == 1)
        #expect(Array(buffer: pair.serverEvents.received) == expected)
    }

    @Test("of two flushes are two writes")
    func twoFlushes() throws {
        let pair = try connectedPair()
        pair.client.writeAndFlush(ByteBuffer(string: "one"), promise: nil)
        pair.client.writeAndFlush(ByteBuffer(string: "two"), promise: nil)
        try pair.exchange()
        #expect(pair.clientWrites == 2)
        #expect(String(buffer: pair.serverEvents.received) == "onetwo")
    }

    @Test("are not made for empty writes, whose promises are still fulfilled")
    func empty() throws {
        let pair = try connectedPair()
        let promise = pair.client.eventLoop.makePromise(of: Void.self)
        pair.client.writeAndFlush(ByteBuffer(), promise: promise)
        try promise.futureResult.wait()
        try pair.exchange()
        #expect(pair.sentByClient.readableBytes == 0)
        #expect(pair.serverEvents.reads == 0)
    }

    @Test("fulfil the promise of each write, flushed ones only")
    func promises() throws {
        let pair = try connectedPair()
        let promises = (0..<4).map { _ in pair.client.eventLoop.makePromise(of: Void.self) }
        for promise in promises.prefix(3) { pair.client.write(ByteBuffer(string: "x"), promise: promise) }
        pair.client.flush()
        pair.client.write(ByteBuffer(string: "y"), promise: promises[3])
        for promise in promises.prefix(3) { try promise.futureResult.wait() }
        try pair.exchange()
        #expect(String(buffer: pair.serverEvents.received) == "xxx")

        pair.client.close(promise: nil)
        #expect(throws: ChannelError.ioOnClosedChannel) { try promises[3].futureResult.wait() }
        #expect(throws: ChannelError.ioOnClosedChannel) {
            try pair.client.writeAndFlush(ByteBuffer(string: "z")).wait()
        }
    }

    @Test("may arrive in pieces of any size, the handshake's too", arguments: [1, 2, 5, 6, 100, 1447, 16_384, 16_406])
    func pieces(size: Int) throws {
        let pair = try EmbeddedPair()
        pair.pieceSize = size
        try pair.connect()
        let bytes = (0..<40_000).map { UInt8(truncatingIfNeeded: $0 / 7) }
        pair.client.writeAndFlush(ByteBuffer(bytes: bytes), promise: nil)
        pair.server.writeAndFlush(ByteBuffer(string: "answer"), promise: nil)
        try pair.exchange()
        #expect(Array(buffer: pair.serverEvents.received) == bytes)
        #expect(String(buffer: pair.clientEvents.received) == "answer")
        #expect(pair.serverEvents.errors.isEmpty && pair.clientEvents.errors.isEmpty)
    }
}

@Suite("Transfer", .timeLimit(.minutes(10)))
struct TransferTests {
    @Test("answers one read with data, however many packets are needed")
    func manualReads() async throws {
        let greeting = ByteBuffer(repeating: 9, count: 16_384)
        try await withServer(
            TestCertificates.server(), behaviour: .init(onHandshake: { $0.writeAndFlush(greeting, promise: nil) })
        ) { server in
            let client = try await SocketClient.connect(
                TestCertificates.client(), port: server.port,
                configure: {
                    $0.channelOption(.autoRead, value: false).channelOption(.maxMessagesPerRead, value: 1)
                        .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 1000))
                },
                behaviour: .init(closesAfter: greeting.readableBytes))
            _ = try await client.handshake.get()
            client.channel.read()
            let outcome = try await client.end.get()
            #expect(outcome.received == greeting)
        }
    }
}
