import Logging
import NIOCore
import NIOPosix
import Redis
import TestSupport
import Testing

@Suite("A client whose server becomes unavailable", .timeLimit(.minutes(10)))
struct RedisReconnectTests {
    @Test("reconnects after a restart, and logs two lines, and at debug each connection and each failed attempt")
    func restart() async throws {
        let server = try RedisServer()
        let log = RecordedLog()
        let states = States()
        try await withClient(server.url, logger: log.logger(at: .debug), prepare: states.record) { client in
            #expect(log.lines.map(\.event) == ["redis_connected"])
            server.kill()
            let error = await #expect(throws: RedisError.self) {
                while true { _ = try await client.call(RedisCommand("PING")) }
            }
            #expect(error?.description.contains("127.0.0.1:\(server.port)") == true)
            // Several attempts fail, but only the first is logged at info.
            try await eventually { states.failures.count >= 4 }
            try server.start()
            try await client.waitUntilReady(timeout: .minutes(3))
            let pong = try await client.call(RedisCommand("PING"))
            #expect(pong.root.string == "PONG")
        }
        let shown = log.lines.filter { $0.level >= .info }
        #expect(shown.map(\.event) == ["redis_lost", "redis_back"])
        #expect(shown.first?.text.contains("127.0.0.1:\(server.port)") == true)
        let attempts = log.lines.map(\.event).dropFirst().dropLast()
        #expect(Set(attempts) == ["redis_lost"] && attempts.count >= 4 && log.lines.last?.event == "redis_back")
        #expect(states.all.first == .ready && states.all.suffix(2) == [.ready, .closed])
    }

    @Test("detects a server that keeps the connection and answers nothing, and recovers with it")
    func halfOpen() async throws {
        let server = try RedisServer()
        var configuration = RedisClientConfiguration()
        configuration.commandTimeout = .milliseconds(300)
        configuration.connectTimeout = .milliseconds(300)
        let states = States()
        try await withClient(server.url, configuration, prepare: states.record) { client in
            server.pause()
            let error = await #expect(throws: RedisError.self) { _ = try await client.call(RedisCommand("PING")) }
            #expect(error == .timeout(address: "127.0.0.1:\(server.port)", after: .milliseconds(300)))
            // The kernel still accepts connections for the stopped server.
            try await eventually { states.failures.last?.description.contains("no answer within 300 ms") == true }
            server.resume()
            try await client.waitUntilReady(timeout: .minutes(3))
            let pong = try await client.call(RedisCommand("PING"))
            #expect(pong.root.string == "PONG")
        }
    }

    @Test("reports at once that there is no connection, and why")
    func refused() async throws {
        let server = try RedisServer()
        server.stop()
        let log = RecordedLog()
        let states = States()
        try await withClient(server.url, logger: log.logger(at: .info), waiting: false, prepare: states.record) {
            client in
            try await eventually { states.failures.count >= 3 }
            let address = "127.0.0.1:\(server.port)"
            #expect(states.failures.first == .connect(address: address, reason: "Connection refused"))
            let error = await #expect(throws: RedisError.self) { _ = try await client.call(RedisCommand("PING")) }
            let cause = "cannot connect to Redis at \(address): Connection refused"
            #expect(error?.description == "not connected to Redis at \(address): \(cause)")
            #expect(error?.mayHaveBeenExecuted == false)
        }
        #expect(log.lines.map(\.event) == ["redis_lost"])
    }

    @Test("reports that a name does not resolve")
    func unknownName() async throws {
        let error = try await failure(of: "redis://no-such-host.invalid")
        #expect(error.description.contains("\"no-such-host.invalid\" does not resolve"))
    }

    @Test("reports that the server is not Redis")
    func notRedis() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let web = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Greeter()) }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let port = try #require(web.localAddress?.port)
        let error = try await failure(of: "redis://127.0.0.1:\(port)")
        if case .protocolViolation = error {
            #expect(error.description.contains("check that it is a Redis server"))
        } else {
            Issue.record("\(error)")
        }
        try await web.close().get()
        try await group.shutdownGracefully()
    }
}

/// A server that speaks first, and not in the Redis protocol.
private final class Greeter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelActive(context: ChannelHandlerContext) {
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: "HTTP/1.1 400 Bad Request\r\n\r\n")), promise: nil)
    }
}
