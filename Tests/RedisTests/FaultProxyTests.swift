import Foundation
import NIOCore
import TestSupport
import Testing

/// The proxy used by other tests and by `scripts/chaos`: each fault must look to a client as on a real network.
@Suite("A fault proxy", .timeLimit(.minutes(10)))
struct FaultProxyTests {
    private let redis: RedisServer
    private let proxy: FaultProxy

    init() async throws {
        redis = try RedisServer()
        proxy = try await FaultProxy(to: redis.port)
    }

    /// The longest wait for an answer that never comes, in seconds.
    private static let patience = 0.3

    /// Returns a connection through the proxy, which the proxy has accepted and the server has answered.
    private func connect(timeout: Double = 10) throws -> RedisTestConnection {
        let client = try RedisTestConnection(port: proxy.port, timeout: timeout)
        #expect(try client.run("PING") == .status("PONG"))
        return client
    }

    @Test("forwards data in both directions and in order, more than the sockets hold")
    func passes() async throws {
        let client = try connect()
        let large = [UInt8](repeating: UInt8(ascii: "x"), count: 8 << 20)
        try client.run([Array("SET".utf8), Array("key".utf8), large])
        #expect(try redis.run("STRLEN", "key") == .integer(large.count))
        #expect(try client.run("GET", "key").text?.utf8.count == large.count)
        #expect(try await proxy.connections == 1)
    }

    @Test("reports to either side that the other has closed")
    func closes() async throws {
        do { _ = try connect() }
        try await eventually("Redis has lost its client") {
            try redis.run("CLIENT", "LIST", "TYPE", "normal").text?.split(separator: "\n").count == 1
        }
        let client = try connect()
        #expect(try client.run("QUIT") == .status("OK"))
        #expect(throws: RedisServer.Failure.self) { try client.run("PING") }
        try await eventually("nothing is left") { try await proxy.connections == 0 }
    }

    @Test("cuts all connections, and accepts new ones", arguments: [false, true])
    func cuts(resets: Bool) async throws {
        let client = try connect()
        if resets { try await proxy.reset() } else { try await proxy.cut() }
        let failure = #expect(throws: RedisServer.Failure.self) { try client.run("PING") }
        // hiredis' words for ECONNRESET and for the end of the stream.
        let words = resets ? "reset" : "closed"
        #expect(failure.map { $0.description.contains(words) } == true)
        _ = try connect()
    }

    @Test("delays data, and keeps its order when it heals")
    func delays() async throws {
        let client = try connect()
        try await proxy.begin(.delay(.milliseconds(150)))
        let start = ContinuousClock.now
        #expect(try client.run("SET", "key", "1") == .status("OK"))
        #expect(ContinuousClock.now - start >= .milliseconds(300))
        try await proxy.heal()
        #expect(try client.run("GET", "key") == "1")
    }

    @Test("drops data silently, and resets connections with lost bytes when it heals")
    func blackHole() async throws {
        let old = try connect(timeout: Self.patience)
        let idle = try connect()
        try await proxy.begin(.blackHole)
        // Both clients wait for an answer until their timeout, without any error.
        let new = try RedisTestConnection(port: proxy.port, timeout: Self.patience)
        for client in [old, new] {
            let failure = #expect(throws: RedisServer.Failure.self) { try client.run("SET", "key", "1") }
            #expect(failure.map { !$0.description.contains("reset") && !$0.description.contains("closed") } == true)
        }
        try await proxy.heal()
        #expect(try idle.run("EXISTS", "key") == 0)
        _ = try connect()
        try await eventually("those that lost bytes are gone") { try await proxy.connections == 1 }
    }

    @Test("loses only answers, after the server has executed the commands")
    func noAnswers() async throws {
        let client = try connect(timeout: Self.patience)
        try await proxy.begin(.noAnswers)
        #expect(throws: RedisServer.Failure.self) { try client.run("SET", "key", "1") }
        #expect(try redis.run("GET", "key") == "1")
        try await proxy.heal()
        try await eventually("what has lost bytes is gone") { try await proxy.connections == 0 }
    }

    @Test("refuses new connections on the same port, repeatedly, and keeps old ones")
    func refuses() async throws {
        let client = try connect()
        for _ in 0..<3 {
            try await proxy.begin(.refusal)
            let failure = #expect(throws: RedisServer.Failure.self) { try RedisTestConnection(port: proxy.port) }
            #expect(failure.map { $0.description.contains("refused") } == true)
            #expect(try client.run("PING") == .status("PONG"))
            try await proxy.heal()
            _ = try connect()
        }
    }

    @Test("resets its clients while the server is unavailable, and serves them otherwise")
    func deadServer() async throws {
        redis.kill()
        #expect(throws: RedisServer.Failure.self) { try RedisTestConnection(port: proxy.port).run("PING") }
        try redis.start()
        _ = try connect()
    }
}
