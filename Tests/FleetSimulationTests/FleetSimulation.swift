import APNS
import NIOCore
import Operations
import PushQueue

@testable import PushWorker
@testable import Redis

/// A whole fleet from one seed, in virtual time on one thread: workers with the real lanes and the real scripts in a
/// real Redis, a simulated network, a simulated APNs, producers, and faults of all of these.
///
/// The same options give the same run, event by event. A step is one event: a command that Redis executes, an answer, a
/// timer, a push, or a fault. A failure prints the options of its run, which replay it with a log of its events:
///
///     APNS_WORKER_SIMULATION_REPLAY=17:255:8000:50-1000 swift test --filter FleetSimulationTests/replay
///
/// The fields are the seed, the faults (see ``Faults``), the steps, the milliseconds between two faults, and the
/// mutation, if any. `APNS_WORKER_SIMULATION_STEPS` and `APNS_WORKER_SIMULATION_SEED` set the number of steps (default:
/// 500,000) and the first seed of a search. Two long searches from another seed:
///
///     APNS_WORKER_SIMULATION_STEPS=1000000 APNS_WORKER_SIMULATION_SEED=1000 \
///         swift test --filter 'SimulationTests/(durable|rollbacks)'
///
/// | file | content |
/// |---|---|
/// | `SimulatedTime` | the time, the event loops, the random numbers |
/// | `SimulatedServer`, `SimulatedRedis` | Redis, its faults, and the network to it |
/// | `SimulatedWorker` | processes and lanes, over the real stores |
/// | `SimulatedAPNS` | APNs, and the network to it |
/// | `SimulatedJob` | the jobs that producers push |
/// | `ProtocolChecks`, `SimulationLedger`, `FleetSimulation+Audit` | the checks |
/// | `Mutation` | the rules that can be removed, one at a time |
///
/// `@unchecked Sendable`: a test uses it on one thread.
final class FleetSimulation: @unchecked Sendable {
    struct Faults: OptionSet {
        let rawValue: Int
        /// Connections to Redis break: commands are executed and unanswered, lost, or executed late.
        static let breaks = Faults(rawValue: 1)
        /// Redis is unreachable for some time.
        static let outages = Faults(rawValue: 2)
        /// Processes do not run for some time, which may exceed their lease.
        static let stops = Faults(rawValue: 4)
        /// Processes end without warning.
        static let crashes = Faults(rawValue: 8)
        /// Processes are replaced after a drain.
        static let drains = Faults(rawValue: 16)
        /// Redis returns to an older state.
        static let rollbacks = Faults(rawValue: 32)
        /// The memory of Redis is full for some time.
        static let fullMemory = Faults(rawValue: 64)
        /// APNs refuses, delays and loses requests.
        static let apns = Faults(rawValue: 128)
        /// Redis refuses all commands for some time, because it is loading its data or executing a slow script.
        static let refusals = Faults(rawValue: 256)
        /// APNs refuses all requests of an app for some time.
        static let appRefusals = Faults(rawValue: 512)
        /// Not a fault: producers push jobs with `fair` and `urgent`, so that the queues sort their jobs.
        static let shares = Faults(rawValue: 1024)
        /// Not a fault: producers push jobs with `replaces`.
        static let replaces = Faults(rawValue: 2048)

        static let singles: [Faults] = [
            .breaks, .outages, .stops, .crashes, .drains, .rollbacks, .fullMemory, .apns, .refusals, .appRefusals,
        ]
        static let all = Faults(singles)
        /// All faults where Redis keeps the changes that it has confirmed.
        static let durable = all.subtracting(.rollbacks)
    }

    struct Violation: Error, CustomStringConvertible {
        let description: String
    }

    struct Options {
        var steps = 10_000
        var faults = Faults.durable
        var mutation: Mutation?
        /// The milliseconds between two faults of any kind.
        var faultInterval: ClosedRange<Int64> = 50...1000
        var isVerbose = false
        /// The plan that producers and APNs follow instead of chance. A run with a plan has no other faults.
        var plan: BlamePlan?
    }

    /// The maximum virtual time until everything has ended once there are no faults.
    static let drainLimit = TimeAmount.minutes(10)
    private static let auditInterval = 400

    let seed: UInt64
    let options: Options
    let time = SimulatedTime()
    let random: SimulatedRandom
    /// The milliseconds that a command or an answer usually takes.
    let latency: ClosedRange<Int64>
    let ledger = SimulationLedger()
    private(set) lazy var checks = ProtocolChecks(self)
    private(set) lazy var answerChecks = AnswerChecks(self)
    private var violation: String?
    /// False once everything must end.
    private(set) var hasFaults = true
    private var isAuditDue = false
    var fleet = Fleet()
    /// The scopes of all lanes, if the mutation shares scopes.
    let sharedScopes: ScopeRegister?
    /// The run of the options' ``BlamePlan``; `nil` without a plan.
    private(set) var blame: BlameRun?
    private(set) var summary = ""
    private var parts: (redis: SimulatedRedis, apns: SimulatedAPNS)?

    struct Fleet {
        var workers: [SimulatedWorker] = []
        var formerWorkers: [SimulatedWorker] = []
        var started = 0
        /// The number of jobs at the time of the snapshot of Redis.
        var jobsInSnapshot = 0
        /// The times in milliseconds when campaigns were cancelled, by queue and name.
        var cancellations: [String: Int64] = [:]
        /// The times in milliseconds when a lane learned that tokens are in the set of invalid tokens.
        var markedInvalid: [String: Int64] = [:]
        /// The last times when a lane may have marked tokens as invalid.
        var lastMarked: [String: NIODeadline] = [:]

        var all: [SimulatedWorker] { workers + formerWorkers }
    }

    init(seed: UInt64, _ options: Options, on server: SimulatedServer) throws {
        self.seed = seed
        self.options = options
        random = SimulatedRandom(seed: seed)
        sharedScopes = options.mutation == .sharesScopes ? ScopeRegister() : nil
        latency = options.plan == nil ? 0...[2, 10, 60][random.pick(0...2)] : 0...2
        parts = (try SimulatedRedis(server, in: self), try SimulatedAPNS(self))
        try leaveProviderToken()
        if let plan = options.plan {
            for lanes in plan.fleet.lanes { startWorker(lanes: lanes) }
            blame = BlameRun(plan, self)
            blame?.produce()
            return
        }
        for _ in 0..<random.pick(2...3) { startWorker(lanes: random.pick(1...2)) }
        produce()
        operate()
        if options.faults.contains(.rollbacks) { takeSnapshots() }
        scheduleFault()
    }

    var redis: SimulatedRedis { madeParts.redis }
    var apns: SimulatedAPNS { madeParts.apns }
    var workers: [SimulatedWorker] { fleet.workers }

    private var madeParts: (redis: SimulatedRedis, apns: SimulatedAPNS) {
        guard let parts else { preconditionFailure("a part of the simulation is used before it is made") }
        return parts
    }

    /// Leaves a provider token of a former fleet in Redis. It expires during the run, or soon after.
    private func leaveProviderToken() throws {
        let issuedAt = time.milliseconds / 1000 - Int64(random.pick(2300...2760))
        let token = try ProviderToken(
            key: try SigningKey(pem: SimulatedAPNS.key.utf8), keyID: SimulatedAPNS.keyID, teamID: SimulatedAPNS.teamID,
            issuedAt: issuedAt)
        let key = redis.sharedKeys.providerToken(team: SimulatedAPNS.teamID, key: SimulatedAPNS.keyID)
        redis.server.run(RedisCommand("SET", key, "\(issuedAt) \(token.jwt)"))
        apns.adopt(providerToken: token.jwt)
        checks.providerTokenExists(issuedAt: issuedAt)
    }

    // MARK: Violations

    /// Records a violation, which ends the run after the step.
    func fail(_ description: @autoclosure () -> String) { if violation == nil { violation = description() } }

    func error(_ description: String) -> Violation {
        Violation(
            description: """
                step \(time.steps), at \(time.milliseconds): \(description). Replay it with \
                APNS_WORKER_SIMULATION_REPLAY=\(options.replay(seed: seed)) \
                swift test --filter FleetSimulationTests/replay
                """)
    }

    func log(_ event: @autoclosure () -> String) {
        if options.isVerbose { print("\(time.milliseconds) step \(time.steps): \(event())") }
    }

    private func makeSummary() -> String {
        let counters = fleet.all.flatMap(\.lanes).map(\.counters)
        return """
            seed \(seed): \(time.steps) steps, \(ledger.jobs.count) jobs, \(ledger.notificationCount) notifications, \
            \(ledger.duplicates) duplicates, \(fleet.started) workers, \
            \(counters.reduce(0) { $0 + $1.possibleDuplicates }) possible duplicates, \
            \(counters.reduce(0) { $0 + $1.lostClaims }) lost claims, \(counters.reduce(0) { $0 + $1.retried }) retried, \
            \(counters.reduce(0) { $0 + $1.deferred }) deferred, \(time.elapsed) s
            """
    }

    // MARK: Running

    /// Runs with faults, and then without faults until everything has ended.
    /// - Throws: ``Violation``.
    func run() throws {
        defer { dismantle() }
        while time.steps < options.steps { try step() }
        try settle()
    }

    func runPlan() throws -> BlameRun {
        defer { dismantle() }
        guard let blame else { throw error("there is no plan") }
        while !blame.isDone { try step() }
        blame.counts = counters { "push:{\($0.queue)}:stats:*" }
        return blame
    }

    private func step() throws {
        let before = time.steps
        guard time.step() else { throw error("nothing happens any more") }
        if let violation { throw error(violation) }
        guard blame == nil, isAuditDue || (time.steps > before && time.steps % Self.auditInterval == 0) else { return }
        isAuditDue = false
        _ = try audit()
    }

    /// Makes the next step end with an audit.
    func auditSoon() { isAuditDue = true }

    /// Ends all faults, and waits until everything has ended.
    private func settle() throws {
        hasFaults = false
        redis.heal()
        for worker in workers { resume(worker) }
        let limit = time.now + Self.drainLimit
        var nextAudit = time.now + .seconds(5)
        while true {
            try step()
            guard time.now >= nextAudit else { continue }
            nextAudit = time.now + .seconds(5)
            let open = try audit()
            if open == 0 { break }
            guard time.now < limit else { throw error("\(open) notifications do not end: \(remaining())") }
        }
        // The lanes become idle.
        let end = time.now + .seconds(30)
        while time.now < end { try step() }
        guard try audit() == 0 else { throw error("jobs come back") }
        try checkCounters()
    }

    /// Releases the parts, which refer to each other.
    private func dismantle() {
        summary = makeSummary()
        for worker in fleet.all { worker.dismantle() }
        time.end()
        if fleet.all.contains(where: { $0.isDraining && !$0.isDrained }) {
            // A drain has promises that only its end fulfills, and an unfulfilled promise must not be released.
            _ = Unmanaged.passRetained(self)
        } else {
            fleet = Fleet()
        }
    }

    // MARK: Producers

    private func produce() {
        time.schedule(in: random.delay(5...120)) { [self] in
            guard hasFaults else { return }
            produce()
            for _ in 0..<random.pick(1...3) { push() }
        }
    }

    // MARK: Operators

    private func operate() {
        time.schedule(in: random.delay(500...8000)) { [self] in
            guard hasFaults else { return }
            operate()
            let (queue, campaign) = (random.pick(0...1), "c\(random.pick(0...3))")
            let cancels = random.chance(60)
            var command = RedisCommand("EVAL")
            command.append(QueueScript.commandJobs.reading(.key(SimulatedServer.clock)).source)
            for argument in [
                "1", redis.queues[queue].jobCommands, cancels ? "cancel" : "uncancel", "operator", "", "0",
                "campaign:\(campaign)",
            ] { command.append(argument) }
            // A refused command is reported to the operator.
            guard case .success(let reply) = redis.execute(command), reply.error == nil else { return }
            log("\(campaign) of queue \(queue): \(cancels ? "cancelled" : "sent again")")
            fleet.cancellations["\(queue) \(campaign)"] = cancels ? time.milliseconds : nil
        }
    }

    /// True if a claim that Redis executed must not lead to the sending of a job, because its campaign was cancelled before.
    func forbids(_ job: SimulatedJob, claimedAt: Int64) -> Bool {
        guard let campaign = job.campaign, let at = fleet.cancellations["\(job.queue) \(campaign)"] else {
            return false
        }
        return claimedAt > at
    }

    private func push() {
        push(SimulatedJob.make(ledger.jobs.count, queue: random.pick(0...2) > 0 ? 0 : 1, in: self))
    }

    func push(_ job: SimulatedJob) {
        var command = RedisCommand("RPUSH", redis.queues[job.queue].jobs)
        command.append(job.body)
        // The job must be known before a blocking wait can move it.
        ledger.add(job)
        guard let key = job.replaces, job.sendAt == nil else {
            if !redis.push([command]) { ledger.removeLast() }
            return
        }
        let name = redis.queues[job.queue].newest(ByteBuffer(string: key))
        let set = RedisCommand("SET", String(buffer: name), "j\(job.number)", "EX", "86400")
        guard redis.push([RedisCommand("MULTI"), set, command, RedisCommand("EXEC")]) else {
            return ledger.removeLast()
        }
        ledger.isNewest(job.number)
    }
}

extension FleetSimulation.Options {
    func replay(seed: UInt64) -> String {
        "\(seed):\(faults.rawValue):\(steps):\(faultInterval.lowerBound)-\(faultInterval.upperBound)"
            + (mutation.map { ":\($0)" } ?? "")
    }

    static func replaying(_ text: String) -> (seed: UInt64, options: FleetSimulation.Options)? {
        let fields = text.split(separator: ":").map(String.init)
        guard (4...5).contains(fields.count), let seed = UInt64(fields[0]), let faults = Int(fields[1]),
            let steps = Int(fields[2])
        else { return nil }
        let interval = fields[3].split(separator: "-").compactMap { Int64($0) }
        guard interval.count == 2, interval[0] <= interval[1] else { return nil }
        var options = FleetSimulation.Options(
            steps: steps, faults: .init(rawValue: faults), faultInterval: interval[0]...interval[1], isVerbose: true)
        if fields.count == 5 {
            guard let mutation = Mutation(rawValue: fields[4]) else { return nil }
            options.mutation = mutation
        }
        return (seed, options)
    }
}
