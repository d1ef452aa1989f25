import Logging
import NIOCore
import NIOPosix
import Redis
import Synchronization
import TestSupport
import Testing

@testable import PushQueue

/// A separate queue in a server that all tests share, inspected with hiredis' own client.
final class TestQueue {
    static let server = Result { try RedisServer() }

    let keys: QueueKeys
    let sharedKeys: SharedKeys
    let redis: RedisTestConnection
    let client: RedisClient
    private var stamps: [String: Stamps] = [:]

    init(redis: RedisTestConnection, client: RedisClient) throws {
        let prefix = "test-\(UInt64.random(in: 0...UInt64.max))"
        keys = try QueueKeys(prefix: prefix, queue: "q")
        sharedKeys = SharedKeys(prefix: prefix)
        self.redis = redis
        self.client = client
    }

    func worker(
        _ name: String, _ limits: QueueLimits = QueueLimits(), clock: ClockSource = .server
    ) -> TestWorker {
        let known = stamps[name] ?? Stamps()
        stamps[name] = known
        return TestWorker(name, client: client, keys: keys, limits: limits, stamps: known, clock: clock)
    }

    func addInvalidTokens(_ tokens: [InvalidToken]) async throws {
        try await addInvalidTokensToSet(tokens, sharedKeys, on: client.topology)
    }

    func push(_ jobs: [String]) throws {
        for job in jobs { try redis.run("RPUSH", keys.jobs, job) }
    }

    func push(retry job: String, at score: Int64) throws { try redis.run("ZADD", keys.retry, "\(score)", job) }

    /// Ends the lease of a worker, as if it had expired long ago.
    func endLease(_ worker: String) throws { try redis.run("ZADD", keys.workers, "XX", "1", worker) }

    func jobs() throws -> [String] { try texts("LRANGE", keys.jobs, "0", "-1") }
    func inbox() throws -> [String] { try texts("LRANGE", keys.inbox, "0", "-1") }
    func retries() throws -> [String] { try texts("ZRANGE", keys.retry, "0", "-1") }
    func workers() throws -> [String] { try texts("ZRANGE", keys.workers, "0", "-1") }

    /// Returns the jobs of a lane's claims by their numbers, which must be unique.
    func claims(_ worker: String) throws -> [Int: String] {
        let flat = try texts("HGETALL", keys.claimed(worker))
        return try stride(from: 0, to: flat.count, by: 2).reduce(into: [:]) { claims, index in
            let number = try #require(ClaimID(field: flat[index])).number
            try #require(claims[number] == nil)
            claims[number] = flat[index + 1]
        }
    }

    /// Returns the dead letters, and then the cancelled jobs.
    func dead() throws -> [DeadLetter] {
        try [keys.dead, keys.cancelled].flatMap { try redis.run("ZRANGE", $0, "0", "-1").elements ?? [] }.compactMap {
            DeadLetter(member: ByteBuffer(bytes: $0.bytes))
        }
    }

    /// Returns the counters of all days, because a test can run past midnight.
    func stats() throws -> [String: Int] {
        var stats: [String: Int] = [:]
        for key in try texts("KEYS", keys.statsPrefix + "*") {
            let flat = try texts("HGETALL", key)
            for at in stride(from: 0, to: flat.count, by: 2) { stats[flat[at], default: 0] += Int(flat[at + 1])! }
        }
        return stats
    }

    /// Returns everything that the queue has in Redis except the ends of leases, to check that nothing has changed.
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
            // Redis returns them in any order.
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

/// The stamps of a lane's claims, so that tests can name a claim by its number.
final class Stamps: Sendable {
    @TaskLocal static var current: Stamps?
    private let known = Mutex<[Int: String]>([:])

    subscript(number: Int) -> ClaimID {
        ClaimID(number: number, stamp: known.withLock { $0[number] } ?? "unclaimed")
    }

    func learn(_ stamp: String, of numbers: Range<Int>) {
        known.withLock { known in for number in numbers { known[number] = stamp } }
    }

    static func id(_ number: Int) -> ClaimID { (current ?? Stamps())[number] }
}

/// A worker's connection to a queue, for a test's task.
struct TestWorker: Sendable {
    let name: String
    let stamps: Stamps
    private let queue: NIOLoopBoundBox<QueueConnection>
    private let eventLoop: any EventLoop

    init(
        _ name: String, client: RedisClient, keys: QueueKeys, limits: QueueLimits, stamps: Stamps = Stamps(),
        clock: ClockSource = .server
    ) {
        self.name = name
        self.stamps = stamps
        eventLoop = client.eventLoop
        queue = .makeBoxSendingValue(
            QueueConnection(client: client, keys: keys, worker: name, limits: limits, clock: clock),
            eventLoop: client.eventLoop)
    }

    @discardableResult
    func claim(
        _ count: Int, first: Int = 1, join: Bool = true, knownCommands: String = "",
        configuration: ConfigurationDigest? = nil, heartbeat: WorkerHeartbeat? = nil
    ) async throws -> QueueConnection.Claimed {
        let claimed = try await call {
            $0.claim(
                count: count, first: first, join: join, knownCommands: knownCommands,
                configuration: configuration, heartbeat: heartbeat,
                completion: $1)
        }
        stamps.learn(claimed.stamp, of: first..<first + claimed.bodies.count)
        return claimed
    }

    /// Returns a claim of this lane.
    func id(_ number: Int) -> ClaimID { stamps[number] }

    func filled(_ fill: (inout Settlement) -> Void) -> Settlement {
        Stamps.$current.withValue(stamps) {
            var settlement = Settlement()
            fill(&settlement)
            return settlement
        }
    }

    @discardableResult
    func settle(_ fill: (inout Settlement) -> Void) async throws -> Int {
        try await settle(filled(fill))
    }

    @discardableResult
    func settle(_ settlement: Settlement) async throws -> Int {
        try await settled(settlement).lost
    }

    func settled(_ settlement: Settlement) async throws -> QueueConnection.Settled {
        try await call { $0.settle(settlement, completion: $1) }
    }

    func reserve(_ reservations: [Reservation]) async throws -> [ReservationResult] {
        let results = try await call { $0.reserve(reservations, completion: $1) }
        for (reservation, result) in zip(reservations, results) where result == .granted {
            let claim = reservation.reservedClaim
            stamps.learn(claim.stamp, of: claim.number..<claim.number + 1)
        }
        return results
    }

    /// Returns the milliseconds until each job of a limited campaign can be sent.
    func limit(_ campaign: String, _ perSecond: Int, since: Int64, _ amounts: [Int]) async throws -> [Int] {
        try await call {
            $0.limit(campaign: campaign, perSecond: perSecond, since: since, amounts: amounts, completion: $1)
        }
    }

    /// - Returns: the numbers of jobs that went back and that became dead letters; `nil` if the lease had not expired.
    @discardableResult
    func reclaim(_ other: String) async throws -> [Int]? {
        var all: [Int]?
        while let counts = try await reclaimed(other) {
            all = [(all?[0] ?? 0) + counts.reclaimed, (all?[1] ?? 0) + counts.poisoned]
            if counts.left == 0 { break }
        }
        return all
    }

    func reclaimed(_ other: String) async throws -> QueueConnection.Reclaimed? {
        try await call { $0.reclaim(other, completion: $1) }
    }

    @discardableResult
    func release(
        of configuration: ConfigurationDigest = ConfigurationDigest(routing: [], rules: []),
        endOf process: String? = nil
    ) async throws -> Int {
        var all = 0
        while true {
            let released = try await call { $0.release(of: configuration, endOf: process, completion: $1) }
            all += released.released
            if released.left == 0 { return all }
        }
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

/// Runs `body` with a queue and a client for its workers, and closes the client afterwards.
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

/// Settlements of claims by their numbers, for the worker whose settlement is filled.
extension Settlement {
    mutating func end(_ number: Int, _ outcome: Outcome) { end(Stamps.id(number), outcome) }

    mutating func end(_ number: Int, _ outcome: Outcome, notifications: Int) {
        end(Stamps.id(number), outcome, notifications: notifications)
    }

    mutating func end(_ number: Int, _ outcome: Outcome, results: PackedResults) {
        end(Stamps.id(number), outcome, results: results)
    }

    mutating func endMixed(_ number: Int) { endMixed(Stamps.id(number)) }

    mutating func postpone(
        _ number: Int, _ postponement: Postponement, due: Due, head: ByteBuffer, reason: String?, original: Range<Int>
    ) {
        postpone(Stamps.id(number), postponement, due: due, head: head, reason: reason, original: original)
    }

    mutating func split(
        _ number: Int, prefix: ByteBuffer, pieces: [Range<Int>], cut: Range<Int>, original: Range<Int>,
        text: ByteBuffer? = nil
    ) {
        split(Stamps.id(number), prefix: prefix, pieces: pieces, cut: cut, original: original, text: text)
    }

    mutating func bury(
        _ number: Int, as outcome: Outcome = .dead, reason: String, attempts: Int, members: ByteBuffer,
        original: Range<Int>, settles: Bool = true
    ) {
        bury(
            Stamps.id(number), as: outcome, reason: reason, attempts: attempts, members: members, original: original,
            settles: settles)
    }
}

extension QueueConnection.Claimed {
    var texts: [String] { bodies.map(\.text) }
}
