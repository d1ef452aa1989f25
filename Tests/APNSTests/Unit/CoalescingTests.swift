import NIOCore
import NIOEmbedded
import Testing

@testable import APNS

/// The channel has no socket, so that every write can be counted.
@Suite("A connection's writes")
struct CoalescingTests {
    private final class FlushCounter: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        var writes = 0
        var flushes = 0
        var reads = 0

        func read(context: ChannelHandlerContext) {
            reads += 1
            context.read()
        }

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            writes += 1
            context.write(data, promise: promise)
        }

        func flush(context: ChannelHandlerContext) {
            flushes += 1
            context.flush()
        }
    }

    private func withConnection(
        _ body: (HTTP2Connection, EmbeddedChannel, FlushCounter, RecordingOwner) throws -> Void
    ) throws {
        let owner = RecordingOwner()
        let counter = FlushCounter()
        let (connection, channel) = try HTTP2Connection.embedded(owner, below: [counter])
        (counter.writes, counter.flushes) = (0, 0)
        while try channel.readOutbound(as: ByteBuffer.self) != nil {}
        try body(connection, channel, counter, owner)
        _ = try? channel.finish()
        #expect(owner.closed == 1)
    }

    @Test("are one for 500 requests of one turn of the event loop")
    func oneWrite() throws {
        try withConnection { connection, channel, counter, _ in
            #expect((0..<500).allSatisfy { submit($0, to: connection) })
            #expect(counter.writes == 0)
            channel.embeddedEventLoop.run()
            #expect(counter.writes == 1)
            #expect(counter.flushes == 1)
            var bytes = try #require(try channel.readOutbound(as: ByteBuffer.self))
            var (headers, ends) = (0, 0)
            while let frame = HTTP2Frame.read(from: &bytes) {
                if frame.kind == .headers { headers += 1 }
                if frame.kind == .data, frame.endsStream { ends += 1 }
            }
            #expect(bytes.readableBytes == 0)
            #expect((headers, ends) == (500, 500))
        }
    }

    @Test("are one for everything that a single read causes")
    func oneRead() throws {
        try withConnection { connection, channel, counter, owner in
            submit(100, to: connection, on: channel)
            (counter.writes, counter.flushes) = (0, 0)
            let ping = HTTP2Frame(kind: .ping, payload: Array(repeating: 1, count: 8))
            var bytes = ByteBuffer()
            for number in 0..<100 {
                bytes.writeBytes(HTTP2Frame.answer(Int32(number * 2 + 1), status: 200).bytes)
                bytes.writeBytes(ping.bytes)
            }
            try channel.writeInbound(bytes)
            #expect(owner.completed.sorted() == (0..<100).map { UInt64($0) })
            #expect(counter.writes == 1)
            #expect(counter.flushes == 1)
        }
    }

    @Test("are read together while many are in flight and their answers come one by one")
    func reads() throws {
        try withConnection { connection, channel, counter, owner in
            submit(200, to: connection, on: channel)
            func read(answers: Range<Int>) throws -> Int {
                var bytes = ByteBuffer()
                for number in answers { bytes.writeBytes(HTTP2Frame.answer(Int32(number * 2 + 1), status: 200).bytes) }
                counter.reads = 0
                try channel.writeInbound(bytes)
                channel.pipeline.read()
                return counter.reads
            }
            try #expect(read(answers: 0..<1) == 0, "the next answers are waited for")
            channel.embeddedEventLoop.advanceTime(by: ReadPacing.pauses.lowerBound)
            #expect(counter.reads == 1)
            try #expect(read(answers: 1..<100) == 1, "many came: the next are not waited for")
            try #expect(read(answers: 100..<101) == 0)
            channel.pipeline.read()
            #expect(counter.reads == 1, "asked for again, by a write that failed")
            channel.embeddedEventLoop.advanceTime(by: ReadPacing.pauses.lowerBound)
            try #expect(read(answers: 101..<140) == 1, "few are in flight")
            #expect(owner.completed.count == 140)
        }
    }

    @Test("end the moment it is closed, and unwritten requests were not processed")
    func closed() throws {
        try withConnection { connection, channel, counter, owner in
            _ = submit(1, to: connection)
            connection.close(APNSConnectionError.shutdown(.sandbox))
            #expect(owner.completed == [1])
            #expect(connection.state.freeStreams == 0)
            #expect(!submit(2, to: connection))
            channel.embeddedEventLoop.run()
            #expect(counter.writes == 0)
        }
    }

    @Test("wait while the channel is not writable, and continue when it is")
    func unwritable() throws {
        try withConnection { connection, channel, counter, owner in
            setWritable(channel, false)
            #expect(connection.state.freeStreams == 0)
            setWritable(channel, true)
            channel.embeddedEventLoop.run()
            #expect(connection.state.freeStreams == 1000)
            for number in 0..<10 { _ = submit(number, to: connection) }
            setWritable(channel, false)
            channel.embeddedEventLoop.run()
            #expect(counter.writes == 0)
            #expect(owner.completed == [])
            setWritable(channel, true)
            channel.embeddedEventLoop.run()
            #expect(counter.writes == 1)
        }
    }

    @Test("of acknowledgements that the server does not read end with the connection, before they grow")
    func unreadAcknowledgements() throws {
        let ping = HTTP2Frame(kind: .ping, payload: Array(repeating: 1, count: 8)).bytes
        for frame in [ping, HTTP2Frame.settings().bytes] {
            try withConnection { connection, channel, counter, owner in
                _ = submit(1, to: connection)
                setWritable(channel, false)
                for _ in 0..<2000 where owner.closed == 0 { try channel.writeInbound(ByteBuffer(bytes: frame)) }
                #expect(owner.closed == 1)
                #expect(owner.completed == [1])
                #expect("\(owner.error, default: "none")".contains("floods the connection"))
                #expect(counter.writes == 0)
            }
        }
    }

    private func submit(_ number: Int, to connection: HTTP2Connection) -> Bool {
        connection.submit(.example(number), tag: UInt64(number), deadline: .distantFuture, authorization: nil)
    }

    private func submit(_ count: Int, to connection: HTTP2Connection, on channel: EmbeddedChannel) {
        for number in 0..<count { _ = submit(number, to: connection) }
        channel.embeddedEventLoop.run()
    }

    private func setWritable(_ channel: EmbeddedChannel, _ isWritable: Bool) {
        channel.isWritable = isWritable
        channel.pipeline.fireChannelWritabilityChanged()
    }
}

@Suite("The pause before a read")
struct ReadPacingTests {
    @Test("is zero while few requests are in flight, however few answers come")
    func few() {
        var pacing = ReadPacing()
        for answers in 1..<100 {
            pacing.hasRead(answers: answers, inFlight: ReadPacing.minimumInFlight - 1)
            #expect(pacing.pause == .zero)
        }
    }

    @Test("settles at one answer per read for four requests in flight", arguments: [(500, 20.0), (100, 5.0)])
    func settles(inFlight: Int, milliseconds: Double) {
        var pacing = ReadPacing()
        var (answers, longest) = (0.0, 0.0)
        for _ in 0..<1000 {
            // The read itself takes at least 0.01 ms.
            let pause = max(0.01, Double(pacing.pause.nanoseconds) / 1e6)
            longest = max(longest, pause)
            answers += pause * Double(inFlight) / milliseconds
            pacing.hasRead(answers: Int(answers), inFlight: inFlight)
        }
        let perRead = Double(pacing.pause.nanoseconds) / 1e6 * Double(inFlight) / milliseconds
        #expect(longest <= 4)
        #expect((Double(inFlight) / 8...Double(inFlight) / 2).contains(perRead), "\(perRead) answers")
    }

    @Test("is zero if answers arrive as fast as they are read")
    func fast() {
        var pacing = ReadPacing()
        for read in 1...100 { pacing.hasRead(answers: read * 300, inFlight: 500) }
        #expect(pacing.pause == .zero)
    }

    @Test("ends soon when answers arrive faster than before")
    func faster() {
        var pacing = ReadPacing()
        for read in 1...100 { pacing.hasRead(answers: read, inFlight: 500) }
        #expect(pacing.pause == ReadPacing.pauses.upperBound)
        for read in 1...6 { pacing.hasRead(answers: 100 + read * 300, inFlight: 500) }
        #expect(pacing.pause == .zero)
    }
}
