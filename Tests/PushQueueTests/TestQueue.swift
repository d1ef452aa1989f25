import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis
import TestSupport
import Testing

/// A queue of its own in a server that all tests share, looked at through hiredis' own client.
final class TestQueue {
    static let server = Result { try RedisServer() }

    let keys: QueueKeys
    let sharedKeys: SharedKeys
    let redis: RedisTestConnection
    let client: RedisClient

    init(redis: RedisTestConnection, client: RedisClient) throws {
        let prefix = "test-\(UInt64.random(in: 0...UInt64.max))"
        keys = try QueueKeys(prefix: prefix, queue: "q")
        sharedKeys = SharedKeys(prefix: prefix)
        self.redis = redis
        self.client = client
    }

    func worker(_ name: String, _ limits: QueueLimits = QueueLimits()) -> TestWorker {
        TestWorker(name, client: client, keys: keys, limits: limits)
    }

    func addInvalidTokens(_ tokens: [InvalidToken]) async throws {
        try await addInvalidTokensToSet(tokens, sharedKeys, on: client.topology)
    }

    func push(_ jobs: [String]) throws {
        for job in jobs { try redis.run("RPUSH", keys.jobs, job) }
    }

    func push(retry job: String, at score: Int64) throws { try redis.run("ZADD", keys.retry, "\(score)", job) }

    /// The lease of a worker has ended, as if it had not been heard of for long.
    func endLease(_ worker: String) throws { try redis.run("ZADD", keys.workers, "XX", "1", worker) }

    func jobs() throws -> [String] { try texts("LRANGE", keys.jobs, "0", "-1") }
    func inbox(_ worker: String) throws -> [String] { try texts("LRANGE", keys.inbox(worker), "0", "-1") }
    func retries() throws -> [String] { try texts("ZRANGE", keys.retry, "0", "-1") }
    func workers() throws -> [String] { try texts("ZRANGE", keys.workers, "0", "-1") }

    func claims(_ worker: String) throws -> [Int: String] {
        let flat = try texts("HGETALL", keys.claimed(worker))
        return stride(from: 0, to: flat.count, by: 2).reduce(into: [:]) { $0[Int(flat[$1])!] = flat[$1 + 1] }
    }

    func dead() throws -> [DeadLetter] {
        try (redis.run("ZRANGE", keys.dead, "0", "-1").elements ?? []).compactMap {
            DeadLetter(member: ByteBuffer(bytes: $0.bytes))
        }
    }

    /// The counters of all days: a test may run past midnight.
    func stats() throws -> [String: Int] {
        var stats: [String: Int] = [:]
        for key in try texts("KEYS", keys.statsPrefix + "*") {
            let flat = try texts("HGETALL", key)
            for at in stride(from: 0, to: flat.count, by: 2) { stats[flat[at], default: 0] += Int(flat[at + 1])! }
        }
        return stats
    }

    /// Everything that the queue has in Redis, to see that nothing has changed; but for the ends of leases.
    func everything() throws -> [String: RedisValue] {
        let names = try texts("KEYS", keys.jobs.dropLast(4) + "*")
        return try names.filter { $0 != keys.workers }.reduce(into: [:]) { $0[$1] = try value(of: $1) }
    }

    private func value(of key: String) throws -> RedisValue {
        switch try redis.run("TYPE", key).text {
        case "stream": return try redis.run("XRANGE", key, "-", "+")
        case "list": return try redis.run("LRANGE", key, "0", "-1")
        case "zset": return try redis.run("ZRANGE", key, "0", "-1", "WITHSCORES")
        case "hash":
            // In whatever order Redis has them at the moment.
            let flat = try redis.run("HGETALL", key).elements ?? []
            let fields = stride(from: 0, to: flat.count, by: 2).map { RedisValue.array([flat[$0], flat[$0 + 1]]) }
            return .array(fields.sorted { $0.elements?[0].text ?? "" < $1.elements?[0].text ?? "" })
        default: return try redis.run("GET", key)
        }
    }

    private func texts(_ command: String...) throws -> [String] {
        let reply = try redis.run(command.map { Array($0.utf8) })
        return try #require(reply.elements, "\(command[0]) of \(command[1])").map {
            String(decoding: $0.bytes, as: UTF8.self)
        }
    }
}

extension RedisValue {
    var bytes: [UInt8] {
        if case .bytes(let bytes) = self { return bytes }
        return Array((text ?? "").utf8)
    }
}

/// A worker's connection to a queue, from a test's task.
struct TestWorker: Sendable {
    let name: String
    private let queue: NIOLoopBoundBox<QueueConnection>
    private let eventLoop: any EventLoop

    init(_ name: String, client: RedisClient, keys: QueueKeys, limits: QueueLimits) {
        self.name = name
        eventLoop = client.eventLoop
        queue = .makeBoxSendingValue(
            QueueConnection(client: client, keys: keys, worker: name, limits: limits),
            eventLoop: client.eventLoop)
    }

    func claim(
        _ count: Int, first: Int = 1, join: Bool = true, telling news: WorkerNews? = nil
    ) async throws -> QueueConnection.Claimed {
        try await call { $0.claim(count: count, first: first, join: join, telling: news, completion: $1) }
    }

    @discardableResult
    func settle(_ fill: (inout Settlement) -> Void) async throws -> Int {
        var settlement = Settlement()
        fill(&settlement)
        return try await settle(settlement)
    }

    @discardableResult
    func settle(_ settlement: Settlement) async throws -> Int {
        try await settled(settlement).lost
    }

    func settled(_ settlement: Settlement) async throws -> QueueConnection.Settled {
        try await call { $0.settle(settlement, completion: $1) }
    }

    func reserve(_ reservations: [Reservation]) async throws -> [ReservationResult] {
        try await call { $0.reserve(reservations, completion: $1) }
    }

    @discardableResult
    func reap(_ other: String) async throws -> [Int]? {
        try await reaped(other).map { [$0.reclaimed, $0.poisoned] }
    }

    func reaped(_ other: String) async throws -> QueueConnection.Reaped? {
        try await call { $0.reap(other, completion: $1) }
    }

    @discardableResult
    func release(endOf process: String? = nil) async throws -> Int {
        try await call { $0.release(endOf: process, completion: $1) }
    }

    private func call<Value: Sendable>(
        _ body:
            @escaping @Sendable (
                QueueConnection, @escaping (Result<Value, QueueConnection.Failure>) -> Void
            ) -> Void
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            eventLoop.execute { body(queue.value) { continuation.resume(with: $0) } }
        }
    }
}

/// A queue, and a client for its workers that is closed when `body` ends.
func withQueue(on server: RedisServer? = nil, _ body: (TestQueue) async throws -> Void) async throws {
    let server = try server ?? TestQueue.server.get()
    let client = RedisClient(
        endpoint: try RedisEndpoint(url: server.url), eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
        logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    client.start()
    let result: Result<Void, any Error>
    do {
        try await client.waitUntilReady(timeout: .seconds(10))
        try await body(TestQueue(redis: server.connect(), client: client))
        result = .success(())
    } catch {
        result = .failure(error)
    }
    try await client.close().get()
    try result.get()
}

/// Adds tokens as a worker's lane does.
func addInvalidTokensToSet(_ tokens: [InvalidToken], _ keys: SharedKeys, on topology: RedisTopology) async throws {
    let loop = MultiThreadedEventLoopGroup.singleton.next()
    let client = RedisClient(
        topology: topology, key: keys.invalidTokens, eventLoop: loop,
        logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    client.start()
    try await client.waitUntilReady(timeout: .seconds(10))
    let result: Result<[InvalidTokenSet.Marking], QueueConnection.Failure> = await withCheckedContinuation {
        continuation in
        loop.execute { InvalidTokenSet(client: client, keys: keys).mark(tokens) { continuation.resume(returning: $0) } }
    }
    try await client.close().get()
    _ = try result.get()
}

extension ByteBuffer {
    var text: String { String(decoding: readableBytesView, as: UTF8.self) }
}

extension QueueConnection.Claimed {
    var texts: [String] { bodies.map(\.text) }
}
