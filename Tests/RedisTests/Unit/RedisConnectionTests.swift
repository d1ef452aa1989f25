import Foundation
import NIOCore
import NIOEmbedded
import Testing

@testable import Redis

@Suite("A connection")
struct RedisConnectionTests {
    let channel: EmbeddedChannel
    let connection: RedisConnection

    init() throws {
        channel = EmbeddedChannel()
        connection = RedisConnection(channel: channel, address: "cache:6379")
        try channel.pipeline.syncOperations.addHandler(RedisChannelHandler(connection: connection))
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 6379)).wait()
    }

    @Test("writes all commands of a tick at once, and those of the next tick in another write")
    func ticks() throws {
        for number in 1...100 { connection.send(RedisCommand("ECHO", "\(number)"), timeout: nil) { _ in } }
        #expect(try channel.readOutbound(as: ByteBuffer.self) == nil)
        channel.embeddedEventLoop.run()
        let first = try #require(try channel.readOutbound(as: ByteBuffer.self))
        #expect(String(buffer: first).components(separatedBy: "ECHO").count == 101)
        #expect(try channel.readOutbound(as: ByteBuffer.self) == nil)
        connection.send(RedisCommand("PING"), timeout: nil) { _ in }
        channel.embeddedEventLoop.run()
        #expect(try channel.readOutbound(as: ByteBuffer.self) == ByteBuffer(string: "*1\r\n$4\r\nPING\r\n"))
        #expect(connection.pending.count == 101)
    }

    @Test("assigns each answer to its command; an error is a failure, an error inside an array is not")
    func answers() throws {
        let results = Results()
        for name in ["a", "b", "c"] { connection.send(RedisCommand(name), timeout: nil) { results.add(name, $0) } }
        channel.embeddedEventLoop.run()
        try channel.writeInbound(ByteBuffer(string: ":1\r\n-ERR no\r\n*1\r\n"))
        #expect(results.texts == ["a: 1", "b: Redis answered: ERR no"])
        try channel.writeInbound(ByteBuffer(string: "-ERR inner\r\n"))
        #expect(results.texts.count == 3 && connection.pending.count == 0)
    }

    @Test("is closed when a command is not answered in time, and reports commands that may have been executed")
    func timeout() throws {
        let results = Results()
        var closed: RedisError?
        connection.onClose = { closed = $0 }
        connection.send(RedisCommand("a"), timeout: .seconds(5)) { results.add("a", $0) }
        channel.embeddedEventLoop.advanceTime(by: .seconds(4))
        connection.send(RedisCommand("b"), timeout: .seconds(5)) { results.add("b", $0) }
        channel.embeddedEventLoop.run()
        // An answer in time moves the timer to the next command.
        try channel.writeInbound(ByteBuffer(string: "+OK\r\n"))
        channel.embeddedEventLoop.advanceTime(by: .seconds(4))
        connection.send(RedisCommand("c"), timeout: nil) { results.add("c", $0) }
        #expect(results.texts == ["a: OK"])
        #expect(connection.isOpen)
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(closed == .timeout(address: "cache:6379", after: .seconds(5)))
        #expect(
            results.errors == [
                .timeout(address: "cache:6379", after: .seconds(5)),
                .connectionLost(address: "cache:6379", sent: true, reason: "a command was not answered within 5 s"),
            ])
        #expect(!channel.isActive)
    }

    @Test("applies a shorter limit after a longer one")
    func shorter() {
        let results = Results()
        connection.send(RedisCommand("a"), timeout: .seconds(60)) { results.add("a", $0) }
        connection.send(RedisCommand("b"), timeout: .seconds(1)) { results.add("b", $0) }
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(
            results.errors == [
                .connectionLost(address: "cache:6379", sent: true, reason: "a command was not answered within 1 s"),
                .timeout(address: "cache:6379", after: .seconds(1)),
            ])
    }

    @Test("fails written commands as possibly executed, and unwritten ones as not sent")
    func lost() throws {
        let results = Results()
        var order: [String] = []
        connection.onClose = { _ in order.append("closed") }
        connection.send(RedisCommand("a"), timeout: nil) {
            order.append("a")
            results.add("a", $0)
        }
        channel.embeddedEventLoop.run()
        connection.send(RedisCommand("b"), timeout: nil) { results.add("b", $0) }
        try channel.close().wait()
        #expect(results.errors.map(\.mayHaveBeenExecuted) == [true, false])
        #expect(order == ["closed", "a"])
        connection.send(RedisCommand("c"), timeout: nil) { results.add("c", $0) }
        #expect(results.errors.last == .notConnected(address: "cache:6379", reason: "the server closed the connection"))
    }

    @Test(
        "ends after bytes that are not a reply, and after an unexpected answer",
        arguments: ["HTTP/1.1 400\r\n", "+OK\r\n+OK\r\n"])
    func violation(bytes: String) throws {
        let results = Results()
        connection.send(RedisCommand("a"), timeout: nil) { results.add("a", $0) }
        channel.embeddedEventLoop.run()
        connection.send(RedisCommand("unsent"), timeout: nil) { results.add("unsent", $0) }
        var closed: RedisError?
        connection.onClose = { closed = $0 }
        try channel.writeInbound(ByteBuffer(string: bytes))
        #expect(closed?.description.contains("broke the Redis protocol") == true)
        #expect(results.errors.last?.mayHaveBeenExecuted == false)
        #expect(results.texts.count == 2)
        #expect(!channel.isActive)
    }

    @Test("ends with an unsolicited error of the server, such as too many clients")
    func unasked() throws {
        var closed: RedisError?
        connection.onClose = { closed = $0 }
        try channel.writeInbound(ByteBuffer(string: "-ERR max number of clients reached\r\n"))
        #expect(closed?.description.contains("Redis answered: ERR max number of clients reached") == true)
    }

    @Test("does not read received data after a completion closes it")
    func closedByCompletion() throws {
        let results = Results()
        connection.send(RedisCommand("a"), timeout: nil) {
            results.add("a", $0)
            self.connection.close()
        }
        connection.send(RedisCommand("b"), timeout: nil) { results.add("b", $0) }
        channel.embeddedEventLoop.run()
        try channel.writeInbound(ByteBuffer(string: "+1\r\n+2\r\n"))
        #expect(results.texts.first == "a: 1")
        #expect(results.errors.map(\.mayHaveBeenExecuted) == [true])
    }

    @Test("sends a completion's commands in the next write")
    func sendingFromCompletion() throws {
        connection.send(RedisCommand("a"), timeout: nil) { _ in
            self.connection.send(RedisCommand("b"), timeout: nil) { _ in }
        }
        channel.embeddedEventLoop.run()
        _ = try channel.readOutbound(as: ByteBuffer.self)
        try channel.writeInbound(ByteBuffer(string: "+1\r\n"))
        channel.embeddedEventLoop.run()
        #expect(try channel.readOutbound(as: ByteBuffer.self) == ByteBuffer(string: "*1\r\n$1\r\nb\r\n"))
    }
}

/// The results of completions, in order.
final class Results {
    private(set) var texts: [String] = []
    private(set) var errors: [RedisError] = []

    func add(_ name: String, _ result: Result<RESPReply, RedisError>) {
        switch result {
        case .success(let reply):
            texts.append("\(name): " + (reply.root.string ?? reply.root.integer.map { "\($0)" } ?? "\(reply)"))
        case .failure(let error):
            texts.append("\(name): \(error)")
            errors.append(error)
        }
    }
}
