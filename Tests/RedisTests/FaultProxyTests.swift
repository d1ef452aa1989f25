import Foundation
import NIOCore
import TestSupport
import Testing

/// The proxy used by other tests and by `scripts/chaos`: each fault must look to a client as on a real network.
@Suite("A fault proxy", .timeLimit(.minutes(1)))
struct FaultProxyTests {
    /// The longest wait for an answer that never comes, in seconds.
    private static let patience = 0.3

    @Test("forwards data in both directions and in order, more than the sockets hold")
    func passes() async throws {
        let redis = try RedisServer()
        let proxy = try await FaultProxy(to: redis.port)
        let client = try RedisTestConnection(port: proxy.port)
        #expect(try client.run("PING") == .status("PONG"))
        let large = [UInt8](repeating: UInt8(ascii: "x"), count: 8 << 20)
        try client.run([Array("SET".utf8), Array("key".utf8), large])
        #expect(try redis.run("STRLEN", "key") == .integer(large.count))
        #expect(try client.run("GET", "key").text?.utf8.count == large.count)
        #expect(try await proxy.connections == 1)
    }

    @Test("reports to either side that the other has closed")
    func closes() async throws {
        let redis = try RedisServer()
        let proxy = try await FaultProxy(to: redis.port)
        do {
            let client = try RedisTestConnection(port: proxy.port)
            #expect(try client.run("PING") == .status("PONG"))
        }
        try await eventually("Redis has lost its client") {
            try redis.run("CLIENT", "LIST", "TYPE", "normal").text?.split(separator: "\n").count == 1
        }
        let client = try RedisTestConnection(port: proxy.port)
        #expect(try client.run("QUIT") == .status("OK"))
        #expect(throws: RedisServer.Failure.self) { try client.run("PING") }
        try await eventually("nothing is left") { try await proxy.connections == 0 }
    }

    @Test("cuts all connections, and accepts new ones", arguments: [false, true])
    func cuts(resets: Bool) async throws {
        let redis = try RedisServer()
        let proxy = try await FaultProxy(to: redis.port)
        let client = try RedisTestConnection(port: proxy.port)
        #expect(try client.run("PING") == .status("PONG"))
        if resets { try await proxy.reset() } else { try await proxy.cut() }
        let failure = #expect(throws: RedisServer.Failure.self) { try client.run("PING") }
        // hiredis' words for ECONNRESET and for the end of the stream.
        let words = resets ? "reset" : "closed"
        #expect(failure.map { $0.description.contains(words) } == true)
        #expect(try RedisTestConnection(port: proxy.port).run("PING") == .status("PONG"))
    }

    @Test("delays data, and keeps its order when it heals")
    func delays() async throws {
        let redis = try RedisServer()
        let proxy = try await FaultProxy(to: redis.port)
        let client = try RedisTestConnection(port: proxy.port)
        try await proxy.begin(.delay(.milliseconds(150)))
        let start = ContinuousClock.now
        #expect(try client.run("SET", "key", "1") == .status("OK"))
        #expect(ContinuousClock.now - start >= .milliseconds(300))
        try await proxy.heal()
        #expect(try client.run("GET", "key") == "1")
    }

    @Test("drops data silently, and resets connections with lost bytes when it heals")
    func blackHole() async throws {
        let redis = try RedisServer()
        let proxy = try await FaultProxy(to: redis.port)
        let old = try RedisTestConnection(port: proxy.port, timeout: Self.patience)
        let idle = try RedisTestConnection(port: proxy.port)
        #expect(try old.run("PING") == .status("PONG"))
        #expect(try idle.run("PING") == .status("PONG"))
        try await proxy.begin(.blackHole)
        // Both wait for an answer until their timeout, without any error.
        let new = try RedisTestConnection(port: proxy.port, timeout: Self.patience)
        for client in [old, new] {
            let failure = #expect(throws: RedisServer.Failure.self) { try client.run("SET", "key", "1") }
            #expect(failure.map { !$0.description.contains("reset") && !$0.description.contains("closed") } == true)
        }
        try await proxy.heal()
        #expect(try idle.run("EXISTS", "key") == 0)
        #expect(try RedisTestConnection(port: proxy.port).run("PING") == .status("PONG"))
        try await eventually("those that lost bytes are gone") { try await proxy.connections == 1 }
    }

    @Test("loses only answers, after the server has executed the commands")
    func noAnswers() async throws {
        let redis = try RedisServer()
        let proxy = try await FaultProxy(to: redis.port)
        let client = try RedisTestConnection(port: proxy.port, timeout: Self.patience)
        #expect(try client.run("PING") == .status("PONG"))
        try await proxy.begin(.noAnswers)
        #expect(throws: RedisServer.Failure.self) { try client.run("SET", "key", "1") }
        #expect(try redis.run("GET", "key") == "1")
        try await proxy.heal()
        try await eventually("what has lost bytes is gone") { try await proxy.connections == 0 }
    }

    @Test("refuses new connections on the same port, repeatedly, and keeps old ones")
    func refuses() async throws {
        let redis = try RedisServer()
        let proxy = try await FaultProxy(to: redis.port)
        let client = try RedisTestConnection(port: proxy.port)
        // A connection that waits to be accepted does not count as old.
        #expect(try client.run("PING") == .status("PONG"))
        for _ in 0..<3 {
            try await proxy.begin(.refusal)
            let failure = #expect(throws: RedisServer.Failure.self) { try RedisTestConnection(port: proxy.port) }
            #expect(failure.map { $0.description.contains("refused") } == true)
            #expect(try client.run("PING") == .status("PONG"))
            try await proxy.heal()
            #expect(try RedisTestConnection(port: proxy.port).run("PING") == .status("PONG"))
        }
    }

    @Test("resets its clients while the server is unavailable, and serves them otherwise")
    func deadServer() async throws {
        let redis = try RedisServer()
        let proxy = try await FaultProxy(to: redis.port)
        redis.kill()
        #expect(throws: RedisServer.Failure.self) { try RedisTestConnection(port: proxy.port).run("PING") }
        try redis.start()
        #expect(try RedisTestConnection(port: proxy.port).run("PING") == .status("PONG"))
    }
}
