import Logging
import NIOCore
import NIOPosix
import PushJob
import PushQueue
import Redis
import Sockets
import Synchronization
import TestSupport

/// Something in Redis that no test expects.
package struct UnexpectedContents: Error {
    let place: String

    init(_ place: String) { self.place = place }
}

/// A separate queue in a server that all tests share, inspected with hiredis' own client.
package final class TestQueue {
    package static let server = Result { try RedisServer() }

    package let keys: QueueKeys
    package let sharedKeys: SharedKeys
    package let redis: RedisTestConnection
    package let client: RedisClient
    private var stamps: [String: Stamps] = [:]

    package init(redis: RedisTestConnection, client: RedisClient) throws {
        let prefix = "test-\(UInt64.random(in: 0...UInt64.max))"
        keys = try QueueKeys(prefix: prefix, queue: "q")
        sharedKeys = SharedKeys(prefix: prefix)
        self.redis = redis
        self.client = client
    }

    /// - Parameter sender: the worker's client, if it is not that of the queue.
    package func worker(
        _ name: String, _ limits: QueueLimits = QueueLimits(), clock: ClockSource = .server,
        over sender: (any RedisSender & Sendable)? = nil
    ) -> TestWorker {
        let known = stamps[name] ?? Stamps()
        stamps[name] = known
        return TestWorker(name, client: sender ?? client, keys: keys, limits: limits, stamps: known, clock: clock)
    }

    package func addInvalidTokens(_ tokens: [InvalidToken]) async throws {
        try await client.addInvalidTokens(tokens, sharedKeys)
    }

    /// Asks for the turns of jobs of a limited campaign.
    /// - Returns: for each job 0 if it has its turn, or the milliseconds after which it asks again.
    package func limit(
        _ campaign: String, _ perSecond: Int, since: Int64, _ amounts: [Int], goFirst: Bool = false,
        clock: ClockSource = .server
    ) async throws -> [Int] {
        try await client.eventLoop.call { [client, sharedKeys] in
            SharedRates(client: client, keys: sharedKeys, clock: clock).take(
                amounts.map { .init(notifications: $0, goesFirst: goFirst) },
                of: .campaign(campaign, perSecond: perSecond, since: since), completion: $0)
        }
    }

    /// Adds the pause of a campaign by its guard to the audit log, as a worker does.
    package func record(_ stopped: StoppedCampaign) async throws {
        try await client.eventLoop.call { [client, sharedKeys] in
            GuardAudit(client: client, keys: sharedKeys).record(stopped, completion: $0)
        }
    }

    /// The set of invalid tokens, for a client other than the workers'.
    package func storedInvalidTokens() throws -> StoredInvalidTokens {
        StoredInvalidTokens(redis, sharedKeys.invalidTokens)
    }

    package func push(_ jobs: [String]) throws { for job in jobs { try redis.run("RPUSH", keys.jobs, job) } }

    /// Pushes a postponed job to the set that a settlement would use.
    package func push(retry job: String, at score: Int64) throws {
        let hasFailed = job.hasPrefix(#"{"apns_worker":1,"#) && job.contains(#","error":{"#)
        try redis.run("ZADD", hasFailed ? keys.failed : keys.retry, "\(score)", job)
    }

    /// Ends the lease of a worker, as if it had expired long ago.
    package func endLease(_ worker: String) throws { try redis.run("ZADD", keys.workers, "XX", "1", worker) }

    package func jobs() throws -> [String] { try texts("LRANGE", keys.jobs, "0", "-1") }
    package func inbox() throws -> [String] { try texts("LRANGE", keys.inbox, "0", "-1") }
    /// Returns the postponed jobs: those that have not failed, then the others.
    package func retries() throws -> [String] {
        try keys.postponed.flatMap { try texts("ZRANGE", $0, "0", "-1") }
    }
    package func workers() throws -> [String] { try texts("ZRANGE", keys.workers, "0", "-1") }

    /// Returns the jobs of a lane's claims by their numbers, which must be unique.
    package func claims(_ worker: String) throws -> [Int: String] {
        let flat = try texts("HGETALL", keys.claimed(worker))
        return try stride(from: 0, to: flat.count, by: 2).reduce(into: [:]) { claims, index in
            guard let number = ClaimID(field: flat[index])?.number,
                claims.updateValue(flat[index + 1], forKey: number) == nil
            else { throw UnexpectedContents("the claim \(flat[index])") }
        }
    }

    /// Returns the dead letters, and then the cancelled jobs.
    package func dead() throws -> [DeadLetter] {
        try [keys.dead, keys.cancelled].flatMap { try redis.run("ZRANGE", $0, "0", "-1").elements ?? [] }.compactMap {
            DeadLetter(member: ByteBuffer(bytes: $0.bytes))
        }
    }

    /// Returns the counters of all days, because a test can run past midnight.
    package func stats() throws -> [String: Int] {
        var stats: [String: Int] = [:]
        for key in try texts("KEYS", keys.statsPrefix + "*") {
            let flat = try texts("HGETALL", key)
            for at in stride(from: 0, to: flat.count, by: 2) { stats[flat[at], default: 0] += Int(flat[at + 1])! }
        }
        return stats
    }

    /// Returns everything that the queue has in Redis except the ends of leases, to check that nothing has changed.
    package func everything() throws -> [String: RedisValue] {
        let names = try texts("KEYS", keys.jobs.dropLast(4) + "*")
        return try names.filter { $0 != keys.workers }.reduce(into: [:]) { $0[$1] = try value(of: $1) }
    }

    private func value(of key: String) throws -> RedisValue {
        let value = try redis.value(of: key)
        guard try redis.run("TYPE", key).text == "hash", let flat = value.elements else { return value }
        // Redis returns them in any order.
        let fields = stride(from: 0, to: flat.count, by: 2).map { RedisValue.array([flat[$0], flat[$0 + 1]]) }
        return .array(fields.sorted { $0.elements?[0].text ?? "" < $1.elements?[0].text ?? "" })
    }

    package func texts(_ command: String...) throws -> [String] {
        let reply = try redis.run(command.map { Array($0.utf8) })
        guard let elements = reply.elements else { throw UnexpectedContents("\(command[0]) of \(command[1])") }
        return elements.map { String(decoding: $0.bytes, as: UTF8.self) }
    }
}

extension RedisValue {
    package var bytes: [UInt8] {
        if case .bytes(let bytes) = self { return bytes }
        return Array((text ?? "").utf8)
    }
}

/// The stamps of a lane's claims, so that tests can name a claim by its number.
package final class Stamps: Sendable {
    @TaskLocal package static var current: Stamps?
    private let known = Mutex<[Int: String]>([:])

    package subscript(number: Int) -> ClaimID {
        ClaimID(number: number, stamp: known.withLock { $0[number] } ?? "unclaimed")
    }

    package func learn(_ stamp: String, of numbers: Range<Int>) {
        known.withLock { known in for number in numbers { known[number] = stamp } }
    }

    package static func id(_ number: Int) -> ClaimID { (current ?? Stamps())[number] }
}

/// A worker's connection to a queue, for a test's task.
package struct TestWorker: LoopBound {
    package let name: String
    package let stamps: Stamps
    private let queue: NIOLoopBoundBox<QueueConnection>
    private let eventLoop: any EventLoop

    package init(
        _ name: String, client: any RedisSender & Sendable, keys: QueueKeys, limits: QueueLimits,
        stamps: Stamps = Stamps(),
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
    package func claim(
        _ count: Int, first: Int = 1, join: Bool = true, knownCommands: String = "",
        configuration: ConfigurationDigest? = nil, sort: Bool = false, heartbeat: WorkerHeartbeat? = nil
    ) async throws -> Claimed {
        let request = ClaimRequest(
            count: count, first: first, join: join, knownCommands: knownCommands, configuration: configuration,
            sort: sort, heartbeat: heartbeat)
        let claimed = try await call { $0.claim(request, completion: $1) }
        stamps.learn(claimed.stamp, of: first..<first + claimed.bodies.count)
        return claimed
    }

    package func id(_ number: Int) -> ClaimID { stamps[number] }

    /// Returns the origin of a job whose first claim is one of this lane.
    package func origin(_ number: Int) -> ByteBuffer { ByteBuffer(string: "\(name):\(id(number))") }

    package func filled(_ fill: (inout Settlement) -> Void) -> Settlement {
        Stamps.$current.withValue(stamps) {
            var settlement = Settlement()
            fill(&settlement)
            return settlement
        }
    }

    @discardableResult
    package func settle(_ fill: (inout Settlement) -> Void) async throws -> Int { try await settle(filled(fill)) }

    @discardableResult
    package func settle(_ settlement: Settlement) async throws -> Int { try await settled(settlement).lost }

    package func settled(_ settlement: Settlement) async throws -> QueueConnection.Settled {
        try await call { $0.settle(settlement, completion: $1) }
    }

    package func reserve(_ reservations: [Reservation]) async throws -> [ReservationResult] {
        try await call { $0.reserve(reservations, completion: $1) }
    }

    package func gauges() async throws -> QueueGauges { try await call { $0.gauges(completion: $1) } }

    package func stop(_ stopped: StoppedCampaign) async throws -> Bool {
        try await call { $0.stop(stopped, completion: $1) }
    }

    /// - Returns: the numbers of jobs that went back and that became dead letters; `nil` if the lease had not expired.
    @discardableResult
    package func reclaim(_ other: String) async throws -> [Int]? {
        var all: [Int]?
        while let counts = try await reclaimed(other) {
            all = [(all?[0] ?? 0) + counts.reclaimed, (all?[1] ?? 0) + counts.poisoned]
            if counts.left == 0 { break }
        }
        return all
    }

    package func reclaimed(_ other: String) async throws -> QueueConnection.Reclaimed? {
        try await call { $0.reclaim(other, completion: $1) }
    }

    @discardableResult
    package func release(
        of configuration: ConfigurationDigest = ConfigurationDigest(routing: [], rules: []),
        endOf process: String? = nil
    ) async throws -> Int {
        var all = 0
        while true {
            let released = try await call {
                $0.release(of: configuration, endOf: process, completion: $1)
            }
            all += released.released
            if released.left == 0 { return all }
        }
    }

    private func call<Value: Sendable>(
        _ body: @escaping @Sendable (QueueConnection, @escaping Completion<Value>) -> Void
    ) async throws -> Value {
        try await eventLoop.call { body(queue.value, $0) }
    }
}

extension EventLoop {
    /// Makes a call on the event loop, and waits for its completion.
    package func call<Value: Sendable, Failure: Error>(
        _ body: @escaping @Sendable (@escaping (Result<Value, Failure>) -> Void) -> Void
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            execute { body { continuation.resume(with: $0) } }
        }
    }
}

/// Runs `body` with a queue and a client for its workers, and closes the client afterwards.
package func withQueue(on server: RedisServer? = nil, _ body: (TestQueue) async throws -> Void) async throws {
    let server = try server ?? TestQueue.server.get()
    try await withRedis(server.url) { try await body(TestQueue(redis: server.connect(), client: $0)) }
}

/// Runs `body` with a connected client, and closes it afterwards.
/// - Parameter key: any key of the slot to serve, in a Cluster.
package func withRedis(_ url: String, key: String = "", _ body: (RedisClient) async throws -> Void) async throws {
    let client = RedisClient(
        topology: try RedisTopology(url: url), key: key, eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
        logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    client.start()
    let result: Result<Void, any Error>
    do {
        try await client.waitUntilReady(timeout: .minutes(3))
        try await body(client)
        result = .success(())
    } catch {
        result = .failure(error)
    }
    try await client.close().get()
    try result.get()
}

extension RedisClient {
    /// Adds tokens to the set of invalid ones, as a worker's lane does.
    package func addInvalidTokens(_ tokens: [InvalidToken], _ keys: SharedKeys) async throws {
        // In parts, so that Redis answers each of them in time, also on a busy machine.
        for start in stride(from: 0, to: tokens.count, by: 1000) {
            let part = Array(tokens[start..<min(start + 1000, tokens.count)])
            let _: [InvalidToken.Marking] = try await eventLoop.call {
                InvalidTokenSet(client: self, keys: keys, maximumAge: 0).mark(part, completion: $0)
            }
        }
    }
}

extension ByteBuffer {
    package var text: String { String(decoding: readableBytesView, as: UTF8.self) }
}

/// Settlements of claims by their numbers, for the worker whose settlement is filled.
extension Settlement {
    package mutating func end(_ number: Int, _ outcome: Outcome) { end(Stamps.id(number), outcome) }

    package mutating func end(_ number: Int, _ outcome: Outcome, notifications: Int) {
        end(Stamps.id(number), outcome, notifications: notifications)
    }

    package mutating func end(_ number: Int, _ outcome: Outcome, results: PackedResults) {
        end(Stamps.id(number), outcome, results: results)
    }

    package mutating func endMixed(_ number: Int) { endMixed(Stamps.id(number)) }

    package mutating func postpone(
        _ number: Int, _ postponement: Postponement, due: Due, head: ByteBuffer, reason: String?, original: Range<Int>
    ) { postpone(Stamps.id(number), postponement, due: due, head: head, reason: reason, original: original) }

    package mutating func split(
        _ number: Int, prefix: ByteBuffer, pieces: [Range<Int>], cut: Range<Int>, original: Range<Int>,
        text: ByteBuffer? = nil
    ) { split(Stamps.id(number), prefix: prefix, pieces: pieces, cut: cut, original: original, text: text) }

    package mutating func bury(
        _ number: Int, as outcome: Outcome = .dead, reason: String, attempts: Int, members: ByteBuffer,
        original: Range<Int>, settles: Bool = true
    ) {
        bury(
            Stamps.id(number), as: outcome, reason: reason, attempts: attempts, members: members, original: original,
            settles: settles)
    }
}

extension Claimed {
    package var texts: [String] { bodies.map(\.text) }
}

extension TestQueue {
    /// Returns a worker that has claimed these jobs, with numbers from 1.
    package func worker(
        _ name: String, claiming jobs: [String], _ limits: QueueLimits = QueueLimits(), clock: ClockSource = .server
    ) async throws -> TestWorker {
        let worker = worker(name, limits, clock: clock)
        for start in stride(from: 0, to: jobs.count, by: 5000) {
            let command = ["RPUSH", keys.jobs] + jobs[start...].prefix(5000)
            try redis.run(command.map { Array($0.utf8) })
        }
        guard try await worker.claim(jobs.count).bodies.count == jobs.count else {
            throw UnexpectedContents("the jobs that were pushed")
        }
        return worker
    }

    package func eval(_ script: QueueScript, _ keys: [String], _ arguments: [String]) throws -> RedisValue {
        let texts = ["\(keys.count)"] + keys + arguments
        return try redis.run([Array("EVAL".utf8), script.source] + texts.map { Array($0.utf8) })
    }
}

extension Settlement {
    /// Adds a retry of an unwrapped job that failed, which is due at once and differs from all others.
    package mutating func retry(_ claim: Int) {
        var writer = EnvelopeWriter(attempt: 2)
        writer.write(errorStatus: nil, reason: "NoAnswer", at: 1)
        writer.write(claim: ByteBuffer(string: "w:\(claim)"))
        postpone(claim, .retried, due: .after(milliseconds: 0), head: writer.head(), reason: nil, original: 0..<5)
    }

    package mutating func bury(_ claim: Int, reason: String) {
        bury(claim, reason: reason, attempts: 1, members: ByteBuffer(), original: 0..<4)
    }
}

extension TestWorker {
    package func claimTexts(_ count: Int, first: Int = 1) async throws -> [String] {
        try await claim(count, first: first).texts
    }
}

extension PackedResults {
    package static var sample: PackedResults { of(NotificationResult(.delivered)) }

    package static func of(_ results: NotificationResult...) -> PackedResults {
        var packed = PackedResults()
        for result in results { packed.append(result) }
        return packed
    }
}

extension MinuteCounts {
    /// Counts of every kind, with one reason for each.
    package static func sample(_ outcome: Outcome = .delivered) -> MinuteCounts {
        var counts = MinuteCounts()
        counts.outcomes[outcome] = 2
        counts.retries = ["Shutdown": 3]
        counts.deferrals = ["AppPaused": 4]
        counts.latencies.record(100)
        counts.answers.record(12)
        counts.oldest = 5000
        return counts
    }
}

extension Reservation {
    /// Makes the reservation of a worker's claim, which need not be of a job.
    package static func bare(_ worker: TestWorker, _ number: Int, id: String) -> Reservation {
        bare(worker, number, id: ByteBuffer(string: id))
    }

    package static func bare(_ worker: TestWorker, _ number: Int, id: ByteBuffer) -> Reservation {
        Reservation(claim: worker.id(number), id: id, origin: worker.origin(number), milliseconds: 600_000)
    }
}
