import APNS
import Glibc
import Logging
import NIOCore
import PushJob
import PushQueue
import Redis
import Sockets

/// A lane's health and reports: its problems and when they began, its heartbeats, and its counts for scrapes.
///
/// Belongs to the lane's event loop, except ``pulse``.
final class LaneObserver {
    private let context: LaneContext
    private let intake: Intake
    private let fleet: Fleet
    private let laneCount: Int
    private let startedAt: NIODeadline
    private let consumers: [QueueConsumer]
    let pulse = LoopPulse()
    private var readiness = Readiness()
    private var recentRate = RecentRate()
    /// The beginning of each current problem.
    private var problemsSince: [String: NIODeadline] = [:]
    /// The queues' gauges, read from Redis.
    private var gauges = QueueGaugeReadings()

    init(_ context: LaneContext, of laneCount: Int, consumers: [QueueConsumer], intake: Intake, fleet: Fleet) {
        self.context = context
        self.consumers = consumers
        self.intake = intake
        self.fleet = fleet
        self.laneCount = laneCount
        startedAt = context.now
    }

    private var senders: [AppSender] { intake.senders }

    /// True if the lane could not work at the last check.
    var hasProblem: Bool { readiness.hasProblem }

    /// Records that the process did not run for some time, which does not count as a part of a problem.
    func stoodStill(for time: TimeAmount, now: NIODeadline) {
        problemsSince = problemsSince.mapValues { $0.moved(by: time, now: now) }
        readiness.stoodStill(for: time, now: now)
    }

    // MARK: Problems

    /// The problems that prevent the lane from working.
    var problems: [WorkerReport.Obstacle] {
        let state: [WorkerReport.Obstacle] =
            switch context.state {
            case .starting: [.init(.starting, "the worker is starting")]
            case .draining, .stopped: [.init(.draining, "the worker is draining")]
            case .quiet: [.init(.quiet, "the worker is quiet: it claims no jobs until an operator resumes it")]
            case .running: []
            }
        return state + obstacles
    }

    /// The problems with Redis and APNs.
    private var obstacles: [WorkerReport.Obstacle] {
        var obstacles = consumers.compactMap(\.problem)
        // If a queue's server is unreachable, that explains a problem with the shared state.
        if obstacles.isEmpty { obstacles = fleet.problems }
        // While one app can send, the lane has work, and the jobs of other apps are deferred.
        let apps = senders.filter { !$0.isRemoved }.map { ($0.name, $0.problem) }
        if !apps.contains(where: { $0.1 == nil }) {
            obstacles += apps.compactMap { name, problem in problem.map { .init(.nothingSent, $0, app: name) } }
        }
        return obstacles.isEmpty ? consumers.compactMap(\.lackOfLease) : obstacles
    }

    /// Logs that the lane is not ready, once that has lasted for a second, and logs when it is ready again.
    func logReadiness() {
        let (now, problems) = (context.now, problems)
        record(problems, now: now)
        let isReady = if case .running = context.state { problems.isEmpty } else { true }
        switch readiness.update(isReady: isReady, now: now) {
        case .lost:
            context.reportSoon()
            context.logOngoing(
                .warning, "not_ready", "not ready: \(problems.map(\.reason).joined(separator: "; "))", of: "ready")
        case .regained:
            context.reportSoon()
            context.logEnd("ready_again", "ready again", of: "ready")
        case nil: break
        }
    }

    /// Records the current problems. Called about once per second.
    private func record(_ problems: [WorkerReport.Obstacle], now: NIODeadline) {
        guard !problems.isEmpty || !problemsSince.isEmpty else { return }
        let before = problemsSince
        problemsSince = Dictionary(problems.map { ($0.reason, before[$0.reason] ?? now) }) { one, _ in one }
    }

    private func duration(of problem: String, now: NIODeadline) -> TimeAmount { now - (problemsSince[problem] ?? now) }

    func health() -> WorkerHealth {
        let (now, problems) = (context.now, problems)
        record(problems, now: now)
        return WorkerHealth(
            problems.map { problem in
                let lasted = duration(of: problem.reason, now: now)
                return .init(problem.kind, problem.reason, seconds: Int(lasted.nanoseconds / 1_000_000_000))
            })
    }

    // MARK: The heartbeat

    /// Returns the lane's report about itself. Claims and renewals carry it.
    func heartbeat(for queue: QueueContext) -> WorkerHeartbeat {
        let now = context.now
        var report = WorkerReport()
        report.process = context.configuration.workerName
        report.host = HostName.current
        report.processIdentifier = Int(getpid())
        report.version = WorkerVersion.current
        report.lane = context.index
        report.lanes = laneCount
        report.state =
            switch context.state {
            case .running: .running
            case .quiet: .quiet
            case .starting, .draining, .stopped: .draining
            }
        report.configuration = queue.configuration
        report.obstacles = obstacles.filter { duration(of: $0.reason, now: now) >= Readiness.patience }
        report.scopes = context.scopes.records(now: now.milliseconds, offset: queue.clockOffset)
        report.inFlight = intake.inFlight
        let counters = context.metrics.counters
        report.done = counters.done
        report.delivered = counters[.delivered]
        report.undatedExpirations = counters.undatedExpirations
        report.commands = queue.commands.version
        report.cancelledInFlight = queue.cancelledInFlight
        report.rate = recentRate.update(report.delivered, now: now)
        report.failoverWatch = context.masterWatch?.failure
        report.refusedReload = context.issues.refusedReload.withLockedValue { $0 }
        report.redis =
            switch context.configuration.redis {
            case .single: "single"
            case .sentinel: "sentinel"
            case .cluster: "cluster"
            }
        report.apps = senders.filter { !$0.isRemoved }.map(\.report)
        return WorkerHeartbeat(
            report, uptime: (now - startedAt).nanoseconds / 1_000_000, format: queue.format)
    }

    // MARK: Counts

    var load: WorkSummary.Load {
        WorkSummary.Load(
            inFlight: intake.inFlight, waiting: senders.reduce(0) { $0 + $1.line.unsubmitted },
            connections: senders.reduce(0) { $0 + $1.transport.usableConnections },
            connectionsMade: senders.reduce(0) { $0 + $1.transport.statistics.made })
    }

    func report() -> LaneReport {
        let wall = context.wallClock()
        let metrics = context.metrics
        let apps = senders.map { sender in
            LaneReport.App(
                name: sender.name, isRemoved: sender.isRemoved, statistics: sender.transport.statistics,
                failures: sender.failureCounts,
                droppedAfterConfirmation: sender.droppedAfterConfirmation,
                waiting: sender.line.count,
                state: sender.state,
                providerTokenAge: sender.credential.providerTokenAge(now: wall),
                certificateEnd: sender.credential.certificateEnd,
                sendTimes: .init(
                    metrics.sendTimes.row(sender.id.index), unitsPerSecond: 1_000_000,
                    exemplars: metrics.exemplars[sender.id.index] ?? [:]))
        }
        let queues = consumers.map { consumer in
            let queue = consumer.queue.id.index
            return LaneReport.Queue(
                name: consumer.queue.name,
                leaseAge: consumer.leaseRenewedAt.map { Double((context.now - $0).nanoseconds) / 1e9 },
                settlements: consumer.ledger.count, settlementBytes: consumer.ledger.size,
                isConnected: consumer.store.isReady, claims: metrics[claimsOf: queue],
                jobs: Fate.ofJobs.map { metrics.jobs($0, queue: queue) },
                queueTimes: .init(metrics.queueTimes.row(queue), unitsPerSecond: 1000),
                gauges: gauges.queues[queue])
        }
        return LaneReport(
            lane: context.index, isReady: problems.isEmpty, apps: apps, queues: queues,
            notifications: metrics.notifications, submitted: metrics.submitted,
            possibleDuplicates: metrics.possibleDuplicates, lostClaims: metrics.lostClaims,
            redisConnections: metrics.redisConnections, redisFailures: metrics.redisFailures,
            invalidTokens: gauges.invalidTokens)
    }

    // MARK: Gauges

    /// Reads the sizes of the queues for a scrape, if the last reading is out of date. The commands share a pipeline with other commands,
    /// so they never delay the work.
    /// - Returns: a future that succeeds once the reading has ended.
    func readGauges() -> EventLoopFuture<Void> {
        if let reading = gauges.reading { return reading }
        guard context.now - gauges.readAt >= QueueGaugeReadings.maximumAge,
            context.isWorking || context.isDraining
        else { return context.eventLoop.makeSucceededVoidFuture() }
        gauges.readAt = context.now
        let reading = EventLoopFuture.andAllComplete(
            // The first lane reads the number of invalid tokens for the whole process.
            consumers.map(read) + (context.index == 0 ? [readInvalidTokenCount()] : []), on: context.eventLoop)
        gauges.reading = reading
        reading.assumeIsolated().whenComplete { [self] _ in
            gauges.reading = nil
            // If Redis did not answer, the next scrape reads again.
            if gauges.queues.isEmpty { gauges.readAt = .distantPast }
        }
        return reading
    }

    private func read(_ consumer: QueueConsumer) -> EventLoopFuture<Void> {
        let done = context.eventLoop.makePromise(of: Void.self)
        let queue = consumer.queue
        consumer.store.gauges { [self] result in
            // A failed reading is left out. Its failure is logged elsewhere.
            gauges.queues[queue.id.index] = (try? result.get()).map { reading in
                let head = reading.jobs > 0 ? reading.head ?? ByteBuffer() : nil
                let waited = gauges.heads[queue.id.index, default: HeadWatch()].recordHead(
                    head, enqueuedAt: reading.headEnqueuedAt(as: queue.format), now: reading.now)
                return QueueGaugeReadings.Queue(
                    jobs: reading.jobs, later: reading.later, failed: reading.failed, claims: reading.claims,
                    dead: reading.dead, deadBytes: reading.deadBytes, isPaused: reading.isPaused,
                    stoppedCampaigns: reading.stoppedCampaigns, oldest: max(waited, reading.overdue))
            }
            done.succeed(())
        }
        return done.futureResult
    }

    private func readInvalidTokenCount() -> EventLoopFuture<Void> {
        let done = context.eventLoop.makePromise(of: Void.self)
        fleet.store.invalidTokens.count { [self] result in
            gauges.invalidTokens = try? result.get()
            done.succeed(())
        }
        return done.futureResult
    }
}

/// Decides when to log that a lane can't work, and that it works again. No I/O.
///
/// A brief problem, such as a reconnection, is not logged, because operators could do nothing about it.
struct Readiness {
    enum Change: Equatable {
        case lost, regained
    }

    /// The minimum duration of a problem that is logged.
    static let patience = TimeAmount.seconds(1)

    private var problemSince: NIODeadline?
    private var isLogged = false

    /// True if the lane could not work at the last check. The lane then checks often, to notice its recovery soon.
    var hasProblem: Bool { problemSince != nil }

    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) {
        problemSince = problemSince?.moved(by: time, now: now)
    }

    /// - Parameter isReady: true if the lane can work now.
    /// - Returns: the change to log, if any.
    mutating func update(isReady: Bool, now: NIODeadline) -> Change? {
        guard !isReady else {
            defer { (problemSince, isLogged) = (nil, false) }
            return isLogged ? .regained : nil
        }
        let since = problemSince ?? now
        problemSince = since
        guard !isLogged, now - since >= Self.patience else { return nil }
        isLogged = true
        return .lost
    }
}

/// The recent rate per second of a count that is read at intervals. No I/O.
struct RecentRate {
    /// The time span over which the rate is measured.
    static let window = TimeAmount.seconds(60)
    /// The minimum interval between stored readings.
    static let spacing = TimeAmount.seconds(1)

    private var readings: [(at: NIODeadline, count: Int)] = []

    /// Adds a reading of the count.
    /// - Returns: the rate per second since the newest reading that is at least a window old, or since the first reading.
    mutating func update(_ count: Int, now: NIODeadline) -> Double {
        if let last = readings.last, now - last.at < Self.spacing {} else { readings.append((now, count)) }
        // One reading before the window is kept, so that the whole window is covered.
        while readings.count > 1, now - readings[1].at >= Self.window { readings.removeFirst() }
        guard let first = readings.first, now > first.at else { return 0 }
        return Double(count - first.count) / (Double((now - first.at).nanoseconds) / 1e9)
    }
}

/// The name of this machine or container.
package enum HostName {
    /// The name at the time of first use.
    package static let current: String = {
        var host = [CChar](repeating: 0, count: 256)
        gethostname(&host, host.count - 1)
        return String(decoding: host.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }()
}
