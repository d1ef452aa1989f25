import Foundation
import NIOCore
import TestSupport
import Testing

@testable import PushQueue
@testable import PushWorker

/// A lane made of its real parts (``ClaimWindow``, ``UnconfirmedSettlements``, ``ForgottenClaims``) over connections that break
/// at any time: commands are executed and not answered, not executed, or executed long after, also on an older state of Redis.
///
/// Redis is either a model of the scripts, which is fast, or a real one with the real scripts.
@Suite("Claims and leases, whatever happens between a lane and Redis")
struct LeaseModelTests {
    /// Failed before claims were bound to their execution.
    private static let knownSeeds: [UInt64] = [576, 1472, 1908, 2160, 2225]

    /// The number of seeds; the variable `APNS_WORKER_MODEL_SEEDS` sets another for a long run.
    private static let seeds = UInt64(environment("APNS_WORKER_MODEL_SEEDS") ?? "") ?? 3000

    @Test("every job ends, no settlement ends another job, and nothing is left")
    func everyJobEnds() throws {
        for seed in Array(0..<Self.seeds) + Self.knownSeeds {
            try run(seed, .everything, on: ModelServer())
        }
    }

    @Test("no job is taken twice as long as the lease lasts and Redis forgets nothing")
    func nothingTwice() throws {
        for seed in 0..<Self.seeds / 5 {
            let model = try run(seed, .reliable, on: ModelServer())
            try #require(model.taken.values.allSatisfy { $0 == 1 }, "seed \(seed)")
        }
    }

    @Test("without stamps, settlements end jobs that they were not made for: the model would notice")
    func withoutStamps() {
        let failures = (0..<400).count { seed in
            var model = LeaseModel(seed: UInt64(seed), .everything, on: ModelServer(hasStamps: false))
            return (try? model.run(steps: 600)) == nil || !model.settleAll()
        }
        #expect(failures > 4)
    }

    @Test("with the real scripts in a real Redis")
    func realScripts() throws {
        let server = try RedisServer()
        for seed in Array(0..<min(40, Self.seeds)) + Self.knownSeeds {
            try run(seed, .everything, on: ScriptServer(server))
        }
    }

    @Test("with the real scripts and one stamp for all claims, the model notices too")
    func realScriptsWithoutStamps() throws {
        let server = try RedisServer()
        let notices = try (0..<500).contains { seed in
            var model = LeaseModel(seed: UInt64(seed), .everything, on: try ScriptServer(server, hasStamps: false))
            return (try? model.run(steps: 600)) == nil || !model.settleAll()
        }
        #expect(notices)
    }

    @discardableResult
    private func run<Server: LeaseServer>(
        _ seed: UInt64, _ faults: Faults, on server: Server
    ) throws -> LeaseModel<Server> {
        var model = LeaseModel(seed: seed, faults, on: server)
        do {
            try model.run(steps: 600)
        } catch {
            Issue.record("seed \(seed): \(error)")
        }
        let isSettled = model.settleAll()
        try #require(isSettled, "seed \(seed) leaves jobs")
        try #require(model.taken.count == modelJobs, "seed \(seed)")
        return model
    }
}

/// How many jobs a run has.
private let modelJobs = 400

private enum Faults {
    /// Connections break.
    case reliable
    /// Leases are lost and Redis goes back in time, too.
    case everything
}

/// What a lane asks of Redis. A job is its number.
private protocol LeaseServer {
    associatedtype Snapshot

    /// - Returns: the stamp and the jobs; `nil` when the lease was lost.
    mutating func claim(_ lane: String, _ claim: ClaimWindow.Claim) -> (stamp: String, jobs: [Int])?
    /// - Returns: the jobs that were ended, by their claims.
    mutating func settle(_ lane: String, _ claims: [ClaimID]) -> [ClaimID: Int]
    func claims(of lane: String) -> [ClaimID: Int]
    /// Ends the lease of a lane, and puts its claims back.
    mutating func reclaim(_ lane: String)
    /// The lanes with a lease.
    var lanes: [String] { get }
    var jobs: [Int] { get }
    func snapshot() -> Snapshot
    mutating func restore(_ snapshot: Snapshot)
}

/// What the scripts do, to the extent that matters here.
private struct ModelServer: LeaseServer {
    var hasStamps = true
    private(set) var jobs = Array(0..<modelJobs)
    private var held: [String: [ClaimID: Int]] = [:]
    private var leases: Set<String> = []
    private var next: [String: (next: Int, first: Int, stamp: String)] = [:]
    /// Goes on when Redis goes back in time.
    private var stamps = 0

    init(hasStamps: Bool = true) { self.hasStamps = hasStamps }

    var lanes: [String] { leases.sorted() }

    mutating func claim(_ lane: String, _ claim: ClaimWindow.Claim) -> (stamp: String, jobs: [Int])? {
        guard claim.join || leases.contains(lane) else { return nil }
        leases.insert(lane)
        guard claim.count > 0 else { return ("", []) }
        if let last = next[lane] {
            if last.first == claim.first {
                let found = (claim.first..<claim.first + claim.count).prefix { number in
                    held[lane]?[ClaimID(number: number, stamp: last.stamp)] != nil
                }
                return (last.stamp, found.compactMap { held[lane]?[ClaimID(number: $0, stamp: last.stamp)] })
            }
            if claim.first < last.next { return ("", []) }
        }
        let taken = Array(jobs.prefix(claim.count))
        guard !taken.isEmpty else { return ("", []) }
        jobs.removeFirst(taken.count)
        stamps += 1
        let stamp = hasStamps ? "s\(stamps)" : "s"
        for (offset, job) in taken.enumerated() {
            held[lane, default: [:]][ClaimID(number: claim.first + offset, stamp: stamp)] = job
        }
        next[lane] = (claim.first + taken.count, claim.first, stamp)
        return (stamp, taken)
    }

    mutating func settle(_ lane: String, _ claims: [ClaimID]) -> [ClaimID: Int] {
        claims.reduce(into: [:]) { ended, claim in ended[claim] = held[lane]?.removeValue(forKey: claim) }
    }

    func claims(of lane: String) -> [ClaimID: Int] { held[lane] ?? [:] }

    mutating func reclaim(_ lane: String) {
        let claims = (held.removeValue(forKey: lane) ?? [:]).sorted {
            ($0.key.number, $0.key.stamp) < ($1.key.number, $1.key.stamp)
        }
        jobs = claims.map(\.value) + jobs
        leases.remove(lane)
    }

    func snapshot() -> ModelServer { self }

    mutating func restore(_ snapshot: ModelServer) {
        let stamps = stamps
        self = snapshot
        self.stamps = stamps
    }
}

/// The real scripts in a real Redis.
private struct ScriptServer: LeaseServer {
    private let redis: RedisTestConnection
    private let keys: QueueKeys
    private let claimScript, settleScript, reclaimScript: String

    init(_ server: RedisServer, hasStamps: Bool = true) throws {
        redis = try server.connect()
        keys = try QueueKeys(queue: "model-\(UInt32.random(in: 0...UInt32.max))")
        claimScript = try Self.load(.claim, redis, withStamp: hasStamps ? nil : "same")
        settleScript = try Self.load(.settle, redis)
        reclaimScript = try Self.load(.reclaim, redis)
        try redis.run((["RPUSH", keys.jobs] + (0..<modelJobs).map(String.init)).map { Array($0.utf8) })
    }

    /// - Parameter stamp: what all claims get instead of a stamp of their own.
    private static func load(
        _ script: QueueScript, _ redis: RedisTestConnection, withStamp stamp: String? = nil
    ) throws -> String {
        var source = String(decoding: script.source, as: UTF8.self)
        if let stamp {
            let range = try #require(source.firstRange(of: "local claims, number, buried"))
            source.insert(contentsOf: "stamp = '\(stamp)'\n", at: range.lowerBound)
        }
        return try #require(redis.run("SCRIPT", "LOAD", source).text)
    }

    private func run(_ script: String, _ keys: [String], _ arguments: [String]) -> [RedisValue] {
        let command = ["EVALSHA", script, "\(keys.count)"] + keys + arguments
        guard let reply = try? redis.run(command.map { Array($0.utf8) }), let elements = reply.elements else {
            preconditionFailure("a script has failed")
        }
        return elements
    }

    private func texts(_ command: String...) -> [String] {
        ((try? redis.run(command.map { Array($0.utf8) }))?.elements ?? []).compactMap(\.text)
    }

    /// The number within whatever wrappers reclaims have made.
    private static func job(_ body: String) -> Int {
        guard let start = body.firstRange(of: #""job":"#)?.upperBound else { return Int(body) ?? -1 }
        return Int(body[start...].prefix(while: \.isNumber)) ?? -1
    }

    var lanes: [String] { texts("ZRANGE", keys.workers, "0", "-1").sorted() }
    var jobs: [Int] { texts("LRANGE", keys.jobs, "0", "-1").map(Self.job) }

    mutating func claim(_ lane: String, _ claim: ClaimWindow.Claim) -> (stamp: String, jobs: [Int])? {
        let reply = run(
            claimScript,
            [
                keys.jobs, keys.retry, keys.claimed(lane), keys.inbox, keys.workers, keys.paused, keys.dead,
                keys.deadBytes, keys.statsPrefix, keys.next(lane), keys.results,
            ],
            [
                lane, claim.join ? "1" : "0", "3600000", "\(claim.count)", "\(claim.first)", "abcd", "1000000",
                "1000000",
                "1000", "1000000000", "1000000", "LEFT", "0",
            ])
        guard reply[0].number != 2 else { return nil }
        return (reply[6].text ?? "", reply[7...].compactMap(\.text).map(Self.job))
    }

    mutating func settle(_ lane: String, _ claims: [ClaimID]) -> [ClaimID: Int] {
        let before = self.claims(of: lane)
        _ = run(
            settleScript,
            [keys.claimed(lane), keys.retry, keys.dead, keys.deadBytes, keys.statsPrefix, keys.results],
            [lane, "1000", "1000000000", "1000000", "0", "ack", "delivered", "\(claims.count)"]
                + claims.map(\.description))
        let after = self.claims(of: lane)
        return before.filter { after[$0.key] == nil }
    }

    func claims(of lane: String) -> [ClaimID: Int] {
        let flat = texts("HGETALL", keys.claimed(lane))
        return stride(from: 0, to: flat.count, by: 2).reduce(into: [:]) { claims, index in
            if let claim = ClaimID(field: flat[index]) { claims[claim] = Self.job(flat[index + 1]) }
        }
    }

    mutating func reclaim(_ lane: String) {
        _ = texts("ZADD", keys.workers, "XX", "1", lane)
        _ = run(
            reclaimScript,
            [
                keys.workers, keys.claimed(lane), keys.jobs, keys.dead, keys.deadBytes, keys.statsPrefix, keys.results,
                keys.workerInfo,
            ], [lane, "100000", "1000", "1000000000", "1000000", "LEFT", "0"])
    }

    func snapshot() -> [(key: String, dump: [UInt8])] {
        texts("KEYS", keys.jobs.dropLast(4) + "*").compactMap { key in
            guard case .bytes(let dump)? = try? redis.run("DUMP", key) else {
                return (try? redis.run("DUMP", key))?.text.map { (key, Array($0.utf8)) }
            }
            return (key, dump)
        }
    }

    mutating func restore(_ snapshot: [(key: String, dump: [UInt8])]) {
        for key in texts("KEYS", keys.jobs.dropLast(4) + "*") { _ = texts("DEL", key) }
        for (key, dump) in snapshot {
            _ = try? redis.run([Array("RESTORE".utf8), Array(key.utf8), Array("0".utf8), dump])
        }
    }
}

private struct LeaseModel<Server: LeaseServer> {
    struct Wrong: Error, CustomStringConvertible {
        let description: String
    }

    enum Command {
        case claim(ClaimWindow.Claim)
        case settle(Int, Settlement, [ClaimID: Int])
        case look
        case read([ClaimID])
    }

    private var random: SeededGenerator
    private let faults: Faults
    private var now = NIODeadline.uptimeNanoseconds(1_000_000_000)
    private var server: Server
    private var older: (Server.Snapshot, ended: Set<Int>)
    private var ended: Set<Int> = []
    /// How often each job was taken up.
    private(set) var taken: [Int: Int] = [:]

    // The lane.
    private var window = ClaimWindow()
    private var generation = 0
    private var held: [ClaimID: Int] = [:]
    private var unconfirmed = UnconfirmedSettlements()
    /// The jobs that each unconfirmed settlement was made for.
    private var jobs: [Int: [ClaimID: Int]] = [:]
    private var forgotten = ForgottenClaims()
    private var isReading = false

    // The connection: what was written and not yet answered, in its order, and what the network still has of older ones.
    private var isConnected = true
    private var pipeline: [(lane: String, command: Command)] = []
    private var late: [(lane: String, command: Command)] = []

    private var lane: String { "w\(generation)" }

    init(seed: UInt64, _ faults: Faults, on server: Server) {
        random = SeededGenerator(seed: seed)
        self.faults = faults
        self.server = server
        older = (server.snapshot(), [])
    }

    mutating func run(steps: Int) throws {
        for _ in 0..<steps {
            now = now + .milliseconds(Int64.random(in: 0...300, using: &random))
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<25: ask()
            case 25..<60: try answer()
            case 60..<80: settleSome()
            case 80..<84: try breakConnection()
            case 84..<92: connect()
            case 92..<94: try executeLate()
            case 94: look()
            case 95 where faults == .everything: server.reclaim(lane)
            case 96: older = (server.snapshot(), ended)
            case 97 where faults == .everything:
                // A failover. What was on its way may still arrive: a demoted master keeps its clients' connections, and a
                // proxy keeps what it has read.
                try breakConnection()
                server.restore(older.0)
                ended = older.ended
            default: window.wake()
            }
        }
    }

    /// Whether everything ends when nothing bad happens any more.
    mutating func settleAll() -> Bool {
        do {
            while !late.isEmpty { try executeLate() }
            try breakConnection()
            late = []
            for round in 0..<2000 {
                now = now + .milliseconds(50)
                connect()
                // The lease of a name that is not used any more expires.
                for name in server.lanes where name != lane { server.reclaim(name) }
                // Now and then the lane looks at what it holds.
                if round % 50 == 0 { look() }
                window.wake()
                ask()
                while !pipeline.isEmpty { try answer() }
                flush(Array(held.keys))
                while !pipeline.isEmpty { try answer() }
                if ended.count == modelJobs {
                    return server.jobs.isEmpty && server.lanes.allSatisfy { server.claims(of: $0).isEmpty }
                }
            }
        } catch {
            return false
        }
        return false
    }

    private mutating func send(_ command: Command) { pipeline.append((lane, command)) }

    private mutating func ask() {
        guard isConnected else { return }
        let isRenewal = Int.random(in: 0..<8, using: &random) == 0
        let free = Int.random(in: 1...20, using: &random)
        guard let claim = isRenewal ? window.renewal(now: now) : window.next(free: free, busy: 0, now: now) else {
            return
        }
        send(.claim(claim))
    }

    private mutating func look() {
        guard isConnected, window.hasJoined, forgotten.isEmpty, !isReading else { return }
        send(.look)
    }

    private mutating func settleSome() {
        // Sorted: the order of a dictionary is another in each process, and a seed would not replay.
        let claims = held.keys.sorted { ($0.number, $0.stamp) < ($1.number, $1.stamp) }
        flush(claims.filter { _ in Bool.random(using: &random) })
    }

    private mutating func flush(_ claims: [ClaimID]) {
        guard isConnected, !claims.isEmpty else { return }
        var settlement = Settlement()
        var made: [ClaimID: Int] = [:]
        for claim in claims {
            settlement.end(claim, .delivered)
            made[claim] = held.removeValue(forKey: claim)
        }
        let number = unconfirmed.append(settlement)
        jobs[number] = made
        send(.settle(number, settlement, made))
    }

    /// The server executes what was written first, and the lane gets the answer.
    private mutating func answer() throws {
        guard isConnected, !pipeline.isEmpty else { return }
        let (name, command) = pipeline.removeFirst()
        let isOurs = name == lane
        switch command {
        case .claim(let claim):
            if Int.random(in: 0..<20, using: &random) == 0 {
                // LOADING, BUSY.
                if isOurs { window.refused(now: now, pause: .milliseconds(500)) }
                return
            }
            let reply = server.claim(name, claim)
            guard isOurs else { return }
            guard let (stamp, jobs) = reply else { return startAfresh() }
            _ = window.answered(
                received: jobs.count, isPaused: false, nextDue: server.jobs.isEmpty ? nil : 0, now: now)
            for (offset, job) in jobs.enumerated() { take(ClaimID(number: claim.first + offset, stamp: stamp), job) }
        case .settle(let number, let settlement, let made):
            try settle(name, settlement, made)
            if isOurs, unconfirmed.confirmed(number) != nil { jobs[number] = nil }
        case .look:
            guard isOurs else { return }
            let known = Set(held.keys).union(unconfirmed.claims)
            forgotten = ForgottenClaims(listed: Array(server.claims(of: lane).keys), window: window, known: known)
            window.adopted(forgotten.largestNumber)
            readForgotten()
        case .read(let claims):
            guard isOurs else { return }
            isReading = false
            let bodies = server.claims(of: lane)
            forgotten.read(claims.count, bytes: claims.count)
            for claim in claims { if let job = bodies[claim] { take(claim, job) } }
            readForgotten()
        }
    }

    private mutating func readForgotten() {
        guard !forgotten.isEmpty, !isReading else { return }
        isReading = true
        send(.read(forgotten.next(room: 20)))
    }

    private mutating func settle(_ name: String, _ settlement: Settlement, _ made: [ClaimID: Int]) throws {
        for (claim, job) in server.settle(name, settlement.claims) {
            guard made[claim] == job else {
                throw Wrong(description: "the settlement of job \(made[claim] ?? -1) ended job \(job)")
            }
            ended.insert(job)
        }
    }

    private mutating func take(_ claim: ClaimID, _ job: Int) {
        held[claim] = job
        taken[job, default: 0] += 1
    }

    private mutating func startAfresh() {
        generation += 1
        window.startAfresh()
        held = [:]
        unconfirmed = UnconfirmedSettlements()
        jobs = [:]
        forgotten = ForgottenClaims()
    }

    /// Of what was written, some is executed now, some when the network delivers it, and the rest never.
    private mutating func breakConnection() throws {
        guard isConnected else { return }
        isConnected = false
        let executed = pipeline.prefix(Int.random(in: 0...pipeline.count, using: &random))
        for (name, command) in executed { try execute(command, name) }
        let rest = pipeline.dropFirst(executed.count)
        late += rest.prefix(Int.random(in: 0...rest.count, using: &random))
        pipeline = []
        isReading = false
        if window.isAsking { window.failed(mayHaveRun: true, now: now) }
    }

    private mutating func executeLate() throws {
        guard !late.isEmpty else { return }
        let (name, command) = late.removeFirst()
        try execute(command, name)
    }

    private mutating func execute(_ command: Command, _ name: String) throws {
        switch command {
        case .claim(let claim): _ = server.claim(name, claim)
        case .settle(_, let settlement, let made): try settle(name, settlement, made)
        case .look, .read: break
        }
    }

    /// As ``QueueConsumer/redisChanged(_:)``.
    private mutating func connect() {
        guard !isConnected else { return }
        isConnected = true
        forgotten = ForgottenClaims()
        if window.hasJoined { send(.look) }
        unconfirmed.areWrittenAgain()
        for number in unconfirmed.numbers {
            if let settlement = unconfirmed[number] { send(.settle(number, settlement, jobs[number] ?? [:])) }
        }
        window.wake()
    }
}

private func environment(_ name: String) -> String? {
    ProcessInfo.processInfo.environment[name]
}
