import APNS
import Glibc
import Logging
import NIOCore
import PushJob
import PushQueue
import Redis

/// The lane's health and reports.
extension Lane {
    // MARK: Problems

    /// The problems that prevent the lane from working, a sentence each.
    var problems: [String] {
        let state: [String] =
            switch context.state {
            case .starting: ["the worker is starting"]
            case .draining, .stopped: ["the worker is draining"]
            case .quiet: ["the worker is quiet: it claims no jobs until an operator resumes it"]
            case .running: []
            }
        return state + obstacles.map(\.reason)
    }

    /// The problems with Redis and APNs.
    private var obstacles: [WorkerReport.Obstacle] {
        var obstacles = consumers.compactMap(\.problem).map { WorkerReport.Obstacle($0) }
        // An unreachable server of all queues is the same for the shared state.
        if obstacles.isEmpty { obstacles = fleet.problems.map { WorkerReport.Obstacle($0) } }
        // While one app can send there is work to do; the other apps' jobs are deferred.
        let apps = senders.filter { !$0.isRemoved }.map { ($0.name, $0.problem) }
        if !apps.contains(where: { $0.1 == nil }) {
            obstacles += apps.compactMap { name, problem in problem.map { .init($0, app: name) } }
        }
        return obstacles.isEmpty ? consumers.compactMap(\.lackOfLease).map { .init($0) } : obstacles
    }

    /// Logs a change of readiness once it has lasted for a short time.
    func logReadiness() {
        let (now, problems) = (context.now, problems)
        observation.note(problems, now: now)
        let isReady = if case .running = context.state { problems.isEmpty } else { true }
        switch observation.readiness.update(isReady: isReady, now: now) {
        case .lost:
            context.reportSoon()
            context.logOngoing(
                .warning, "not_ready", "not ready: \(problems.joined(separator: "; "))", of: "ready")
        case .regained:
            context.reportSoon()
            context.logEnd("ready_again", "ready again", of: "ready")
        case nil: break
        }
    }

    /// Returns the lane's current health. Safe to call from any thread.
    func health() -> EventLoopFuture<WorkerHealth> {
        eventLoop.submit { [self] in
            let (now, problems) = (context.now, problems)
            observation.note(problems, now: now)
            return WorkerHealth(
                problems.map { sentence in
                    let lasted = observation.duration(of: sentence, now: now)
                    return .init(sentence: sentence, seconds: Int(lasted.nanoseconds / 1_000_000_000))
                })
        }
    }

    // MARK: The heartbeat

    /// Returns the lane's report about itself, which is sent with claims and renewals.
    func heartbeat(for queue: QueueContext) -> WorkerHeartbeat {
        let now = context.now
        var report = WorkerReport()
        report.process = context.configuration.workerName
        report.host = HostName.current
        report.processIdentifier = Int(getpid())
        report.version = WorkerVersion.current
        report.lane = index
        report.lanes = observation.laneCount
        report.state =
            switch context.state {
            case .running: .running
            case .quiet: .quiet
            case .starting, .draining, .stopped: .draining
            }
        report.configuration = queue.configuration
        report.obstacles = obstacles.filter { observation.duration(of: $0.reason, now: now) >= Readiness.patience }
        report.inFlight = inFlight
        let counters = context.metrics.counters
        report.done = counters.done
        report.delivered = counters[.delivered]
        report.undatedExpirations = counters.undatedExpirations
        report.commands = queue.commands.version
        report.cancelledInFlight = queue.cancelledInFlight
        report.rate = observation.recentRate.update(report.delivered, now: now)
        report.failoverWatch = context.configuration.redisClient.masterWatch?.failure
        report.redis =
            switch context.configuration.redis {
            case .single: "single"
            case .sentinel: "sentinel"
            case .cluster: "cluster"
            }
        report.apps = senders.filter { !$0.isRemoved }.map(\.report)
        return WorkerHeartbeat(
            report, uptime: (now - observation.startedAt).nanoseconds / 1_000_000, format: queue.format)
    }

    // MARK: Counts

    /// Returns the lane's counters, or their last values once it has stopped. Safe to call from any thread.
    func snapshot() -> EventLoopFuture<LaneCounters> { eventLoop.submit { self.context.metrics.counters } }

    /// Returns the lane's load. Safe to call from any thread; throws once the lane has stopped.
    func load() async throws -> WorkSummary.Load {
        try await eventLoop.submit {
            WorkSummary.Load(
                inFlight: self.inFlight, waiting: self.senders.reduce(0) { $0 + $1.waiting.line.unsubmitted },
                connections: self.senders.reduce(0) { $0 + $1.transport.usableConnections },
                connectionsMade: self.senders.reduce(0) { $0 + $1.transport.statistics.made })
        }.get()
    }

    /// Returns the lane's counts and state. Call this on its event loop.
    func report() -> LaneReport {
        let wall = context.wallClock()
        let metrics = context.metrics
        let apps = senders.map { sender in
            LaneReport.App(
                name: sender.name, isRemoved: sender.isRemoved, statistics: sender.transport.statistics,
                failures: sender.failureCounts,
                droppedAfterConfirmation: sender.droppedAfterConfirmation,
                waiting: sender.waiting.line.count,
                breaker: sender.gate.state,
                providerTokenAge: sender.app.credential.providerTokenAge(now: wall),
                certificateEnd: sender.app.credential.certificateEnd,
                sendTimes: .init(
                    metrics.sendTimes.row(sender.id.index), unitsPerSecond: 1_000_000,
                    exemplars: metrics.exemplars[sender.id.index] ?? [:]))
        }
        let queues = consumers.map { consumer in
            let queue = consumer.queue.id.index
            return LaneReport.Queue(
                name: consumer.queue.name,
                leaseAge: consumer.leaseRenewedAt.map { Double((context.now - $0).nanoseconds) / 1e9 },
                settlements: consumer.outbox.count, settlementBytes: consumer.outbox.size,
                isConnected: consumer.store.isReady, claims: metrics[claimsOf: queue],
                jobs: Fate.ofJobs.map { metrics.jobs($0, queue: queue) },
                queueTimes: .init(metrics.queueTimes.row(queue), unitsPerSecond: 1000),
                gauges: observation.gauges.queues[queue])
        }
        return LaneReport(
            lane: index, isReady: problems.isEmpty, counters: metrics.counters, apps: apps, queues: queues,
            notifications: metrics.notifications, redisConnections: metrics.redisConnections,
            redisFailures: metrics.redisFailures, invalidTokens: observation.gauges.invalidTokens)
    }

    // MARK: Gauges

    /// Reads the contents of the queues if the last reading is out of date. Done only for a scrape, and in the same
    /// pipeline as everything else, so it costs nothing without scrapes and never holds up the work.
    /// - Returns: a future that succeeds once the reading has ended.
    func readGauges() -> EventLoopFuture<Void> {
        if let reading = observation.gauges.reading { return reading }
        guard context.now - observation.gauges.readAt >= QueueGaugeReadings.maximumAge,
            context.isWorking || context.isDraining
        else { return eventLoop.makeSucceededVoidFuture() }
        observation.gauges.readAt = context.now
        let reading = EventLoopFuture.andAllComplete(consumers.map(read) + [readInvalidTokenCount()], on: eventLoop)
        observation.gauges.reading = reading
        reading.assumeIsolated().whenComplete { [self] _ in
            observation.gauges.reading = nil
            // If Redis did not answer, the next scrape reads again.
            if observation.gauges.queues.isEmpty { observation.gauges.readAt = .distantPast }
        }
        return reading
    }

    private func read(_ consumer: QueueConsumer) -> EventLoopFuture<Void> {
        let done = eventLoop.makePromise(of: Void.self)
        let queue = consumer.queue
        consumer.store.gauges { [self] result in
            // A failed reading is omitted; the failure is logged elsewhere.
            observation.gauges.queues[queue.id.index] = (try? result.get()).map { reading in
                let head = reading.jobs > 0 ? reading.head ?? ByteBuffer() : nil
                let waited = observation.gauges.heads[queue.id.index, default: HeadWatch()].saw(
                    head, enqueuedAt: reading.headEnqueuedAt(as: queue.format), now: reading.now)
                return QueueGaugeReadings.Queue(
                    jobs: reading.jobs, retries: reading.retries, claims: reading.claims, dead: reading.dead,
                    deadBytes: reading.deadBytes, isPaused: reading.isPaused, oldest: max(waited, reading.overdue))
            }
            done.succeed(())
        }
        return done.futureResult
    }

    private func readInvalidTokenCount() -> EventLoopFuture<Void> {
        let done = eventLoop.makePromise(of: Void.self)
        fleet.store.invalidTokens.count { [self] result in
            observation.gauges.invalidTokens = try? result.get()
            done.succeed(())
        }
        return done.futureResult
    }
}
