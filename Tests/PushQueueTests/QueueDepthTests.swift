import Logging
import NIOCore
import NIOPosix
import Redis
import TestSupport
import Testing

@testable import PushQueue

@Suite("The depth of a queue")
struct QueueDepthTests {
    @Test("counts waiting jobs with those of the inbox, retries, and the claims of every lane with a lease")
    func counts() async throws {
        let server = try RedisServer()
        let keys = try QueueKeys(prefix: "push", queue: "depth")
        let redis = try server.connect()
        for job in ["1", "2", "3"] { try redis.run("RPUSH", keys.jobs, job) }
        try redis.run("ZADD", keys.retry, "1", "a", "2", "b")
        try redis.run("ZADD", keys.workers, "1", "one", "2", "two", "3", "idle")
        try redis.run("HSET", keys.claimed("one"), "1", "x", "2", "y")
        try redis.run("HSET", keys.claimed("two"), "1", "x")
        try redis.run("RPUSH", keys.inbox, "z")
        try redis.run("HSET", keys.claimed("nobody"), "1", "x")

        let depth = try await read(server, keys)
        #expect(depth == QueueDepth(jobs: 4, retries: 2, claims: 3))
        #expect(depth.total == 9)
    }

    @Test("is nothing where nothing is")
    func empty() async throws {
        let depth = try await read(try RedisServer(), try QueueKeys())
        #expect(depth.total == 0)
    }

    @Test("says so when a key is not what it should be")
    func wrongType() async throws {
        let server = try RedisServer()
        let keys = try QueueKeys()
        try server.run("SET", keys.retry, "not a sorted set")
        let error = await #expect(throws: RedisError.self) { try await read(server, keys) }
        #expect(error.map { "\($0)".contains("WRONGTYPE") } == true)
    }

    private func read(_ server: RedisServer, _ keys: QueueKeys) async throws -> QueueDepth {
        let client = RedisClient(
            endpoint: try RedisEndpoint(url: server.url), eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            logger: Logger(label: "depth", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
        do {
            try await client.waitUntilReady(timeout: .seconds(10))
            let depth = try await QueueDepth.read(client, keys)
            try await client.close().get()
            return depth
        } catch {
            try? await client.close().get()
            throw error
        }
    }
}
