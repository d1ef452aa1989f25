import Foundation
import TestSupport

/// One run: load and faults at the same time, then a recovery, a drain, and the comparison of the accounts.
struct ChaosRun {
    struct Options {
        var topology: Topology
        var durability: Durability
        var queue: HotQueue
        var workers: Int
        var seconds: Int
        var poison: Int
        var jobs: Int
        var seed: UInt64
        var logs: URL?

        var name: String { topology.rawValue + (durability == .strict ? "" : ", relaxed") }
    }

    /// The workers' lease in milliseconds: the shortest possible, so that many leases expire in a short run.
    static let lease = 7000
    /// The number of shards of the invalid tokens in a Cluster.
    static let shards = 4
    /// If nothing more is settled for this long, the remaining jobs are stuck. An answer of APNs can defer a notification for 90 seconds.
    private static let patience = Duration.seconds(120)

    /// The number of jobs above which a drain needs no plain jobs.
    private static let muchLeft = 5000

    private let options: Options
    private let stage: Stage
    /// One producer for each queue.
    private let producers: [Producer]
    private let maker: JobMaker
    private let log: EventLog

    init(_ options: Options) async throws {
        self.options = options
        stage = try await Stage(
            topology: options.topology, durability: options.durability, queue: options.queue,
            workers: options.workers, lease: Self.lease, seed: options.seed, logs: options.logs)
        maker = JobMaker(
            count: options.jobs, seed: options.seed, start: Int(Date().timeIntervalSince1970),
            seconds: options.seconds, poison: options.poison)
        let (maker, servers) = (maker, stage.servers)
        producers = try options.queue.names.indices.map { try Producer(maker, options.queue, $0, servers: servers) }
        log = EventLog()
    }

    func run() async throws -> Outcome {
        if options.topology == .cluster { try await stage.reshard(to: Self.shards) }
        // The first worker has all apps. Before it has joined, other workers would refuse the jobs of apps that they lack.
        try stage.fleet.start(0)
        for name in options.queue.names {
            let key = HotQueue.base(name) + "configurations"
            let queue = try stage.servers.connect(for: key)
            try await eventually("the first worker has joined") { try queue.run("HLEN", key).number ?? 0 > 0 }
        }
        let limit = try await CampaignLimit(maker.campaignTotal, within: options.seconds, servers: stage.servers)
        for slot in 1..<max(1, options.workers) { try stage.fleet.start(slot) }
        log.start()
        let plan = Plan(
            seed: options.seed, seconds: options.seconds, workers: options.workers, lease: Self.lease,
            topology: options.topology, durability: options.durability)
        async let pushing: Void = push()
        await play(plan)
        log.write("peace: all is healed, the rest is drained")
        try await stage.heal()
        try stage.fleet.completeUpgrade()
        try await pushing
        _ = try await confirm()
        try await drain()
        for producer in producers { try await producer.close() }
        // The account reads the invalid tokens from one shard.
        try await stage.reshard(to: 1)
        let seconds = log.seconds
        let simulator = try await stage.simulator.stop()
        let remains = try QueueRemains(stage.servers, options.queue)
        var ledger = Ledger(maker, options.queue)
        try stage.simulator.forEachToken { ledger.accepted($0, $1) }
        for token in remains.invalidTokens { ledger.invalid(token) }
        for letter in remains.letters { ledger.dead(letter) }
        for job in remains.unsettled { ledger.unsettled(job.body, in: job.place) }
        ledger.close()
        let story = stage.fleet.story
        var problems = log.problems
        for problem in story.problems { problems.add("a worker failed", problem) }
        return Outcome(
            options: options, plan: plan, seconds: seconds,
            balance: Balance(ledger, remains, simulator, options, plan, limit, problems: problems),
            fleet: story, producer: producers.map(\.soFar).reduce(Producer.Progress(), +))
    }

    /// Pushes to all queues at the same time: a queue whose server is down does not delay the others.
    private func push() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for producer in producers {
                group.addTask { try await producer.run(within: .seconds(options.seconds)) }
            }
            try await group.waitForAll()
        }
    }

    /// - Returns: true if Redis had all jobs that were pushed.
    private func confirm() async throws -> Bool {
        var isComplete = true
        for producer in producers where try await !producer.confirm() { isComplete = false }
        return isComplete
    }

    /// Pushes one of the jobs that are for the drain, to the queues in turn.
    /// - Returns: false if all have been pushed.
    private func pushOne() async throws -> Bool {
        guard let next = producers.max(by: { $0.left < $1.left }), next.left > 0 else { return false }
        try await next.pushOne()
        return true
    }

    /// Plays every fault at its time. A long fault delays only the faults of its target.
    private func play(_ plan: Plan) async {
        await withTaskGroup(of: Void.self) { group in
            let targets = Dictionary(grouping: plan.faults, by: \.target)
            for faults in targets.values {
                group.addTask { for fault in faults { await play(fault) } }
            }
            group.addTask {
                while log.milliseconds < options.seconds * 1000 {
                    await attempt("look after the workers") { try stage.fleet.look() }
                    await log.wait(until: log.milliseconds + 250)
                }
            }
        }
    }

    private func play(_ fault: Fault) async {
        await log.wait(until: fault.begin)
        // A fault begins later than planned if the recovery from the previous fault took longer.
        let begin = log.milliseconds
        await attempt("\(fault.target): \(fault.name)") {
            let detail = try await stage.begin(fault)
            log.write("\(fault.target): \(fault.name)" + (detail.map { ", \($0)" } ?? ""))
        }
        if let undoing = fault.undoing {
            await log.wait(until: begin + fault.end - fault.begin)
            await attempt("\(fault.target): \(undoing)") {
                try await stage.end(fault)
                log.write("\(fault.target): \(undoing)")
            }
        }
        guard fault.target == .redis else { return }
        await attempt("Redis gets over it") { try await stage.servers.waitUntilWell() }
    }

    private func attempt(_ what: String, _ body: () async throws -> Void) async {
        do {
            try await body()
        } catch {
            log.write("\(what): failed: \(error)")
            log.note("the run itself failed", "\(what): \(error)")
        }
    }

    /// Lets the workers finish, and ends them. Jobs that remain after that are stuck.
    private func drain() async throws {
        var isDone = false
        // Other workers process the jobs that ending workers return.
        while !isDone {
            try stage.fleet.look()
            for slot in 0..<options.workers { try stage.fleet.start(slot) }
            let isEmpty = try await waitUntilEmpty()
            for slot in 0..<options.workers { stage.fleet.end(slot) }
            await stage.fleet.waitForEnds()
            let left = try QueueRemains.unsettledCount(stage.servers, options.queue)
            // A failover during the drain can make Redis lose jobs and their settlements.
            let isComplete = try await confirm()
            isDone = (left == 0 && isComplete) || !isEmpty
            if left > 0 { log.write("\(left) jobs were given back") }
            if !isComplete { log.write("Redis had forgotten jobs") }
        }
        log.write("the workers have ended")
    }

    /// - Returns: `false` when no progress was made for too long.
    private func waitUntilEmpty() async throws -> Bool {
        var last: [String: Int] = [:]
        var progressed = ContinuousClock.now
        var reportedAt = ContinuousClock.now
        while true {
            try stage.fleet.look()
            let left = try QueueRemains.unsettledCount(stage.servers, options.queue)
            // Above `muchLeft` jobs, no plain job is needed. With no job left, the other plain jobs are pushed without pauses.
            let hasPushed = left > Self.muchLeft ? true : try await pushOne()
            if left == 0, !hasPushed { return true }
            if left == 0 { while try await pushOne() {} }
            let counters = try QueueRemains.counters(stage.servers, options.queue)
            let ends = counters.filter {
                ["delivered", "invalid_token", "suppressed", "dead", "expired", "dropped"].contains($0.key)
            }
            if ends != last { (last, progressed) = (ends, .now) }
            if ContinuousClock.now - progressed > Self.patience {
                log.write("\(left) jobs are stuck")
                return false
            }
            if ContinuousClock.now - reportedAt > .seconds(10) {
                reportedAt = .now
                log.write("\(left) jobs left")
            }
            try await Task.sleep(for: .milliseconds(250))
        }
    }
}
