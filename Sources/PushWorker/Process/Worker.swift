import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import PushQueue
import Redis
import ServiceLifecycle
import Sockets
import Synchronization
import Telemetry

/// A worker process: starts lanes on event loops, watches them, and drains them together.
package final class Worker: Service, LoopBound {
    private let current: NIOLockedValueBox<WorkerConfiguration>
    let logger: Logger
    private let issues: IssueLog
    private let wallClock: @Sendable () -> Int64
    private let group: MultiThreadedEventLoopGroup
    let lanes: [Lane]
    /// The clients of the first lane, by queue.
    private let queueClients: [(client: RedisClient, keys: QueueKeys)]
    private let reloads = Atomic(0)
    private let commands = NIOLockedValueBox((seen: WorkerCommands(), isQuiet: false))
    /// Ends when the worker is asked to stop.
    private let stopping = AsyncStream.makeStream(of: Never.self)
    private let phase = NIOLockedValueBox(Phase.starting)
    private let servers: ServerWatch
    private let collector: MetricsCollector?
    private let spans: SpanQueue?

    private enum Phase {
        case starting
        /// All lanes have started.
        case working
        case draining
        /// The event loops have stopped, or are about to.
        case stopped(LaneCounters)
    }

    /// - Parameters:
    ///   - isMeasured: false for a worker whose `metrics()` is never read. It measures no times.
    ///   - version: the program's version, for metrics.
    ///   - spans: the queue of spans of traced jobs; `nil` to record none.
    ///   - wallClock: returns the seconds since 1970, for provider tokens.
    package init(
        configuration: WorkerConfiguration, logger: Logger, isMeasured: Bool = false, version: String = "",
        spans: SpanQueue? = nil, wallClock: @escaping @Sendable () -> Int64
    ) {
        var redis = configuration.redisClient
        redis.clientName = "apns-worker:\(configuration.workerName):sentinel"
        let masterWatch = MasterWatch(
            configuration.redis, eventLoop: MultiThreadedEventLoopGroup.singleton.next(), configuration: redis,
            logger: logger)
        current = NIOLockedValueBox(configuration)
        self.logger = logger
        self.wallClock = wallClock
        let count = configuration.lanes > 0 ? configuration.lanes : System.coreCount
        let group = MultiThreadedEventLoopGroup(numberOfThreads: count)
        self.group = group
        let issues = IssueLog()
        let tokenFilters = TokenFilterSlot()
        self.issues = issues
        var queueClients: [(client: RedisClient, keys: QueueKeys)] = []
        let lanes = (0..<count).map { index in
            var logger = logger
            if count > 1 { logger[metadataKey: "lane"] = "\(index)" }
            let context = LaneContext(
                configuration: configuration, index: index, eventLoop: group.next(), logger: logger, issues: issues,
                metrics: LaneMetrics(
                    apps: configuration.apps.count, queues: configuration.queues.count, measuresTimes: isMeasured),
                spans: spans, tokenFilters: tokenFilters, masterWatch: masterWatch, wallClock: wallClock)
            let stores = RedisLaneStores(context)
            if index == 0 { queueClients = configuration.queues.map { (stores.client(of: $0.keys), $0.keys) } }
            return Lane(context, of: count, stores: stores)
        }
        self.queueClients = queueClients
        self.spans = spans
        self.lanes = lanes
        let servers = ServerWatch(logger)
        self.servers = servers
        collector =
            isMeasured
            ? MetricsCollector(
                lanes: lanes, servers: servers, version: version,
                leaseLength: configuration.queues.map(\.limits.lease).max() ?? 0, logger: logger,
                wallClock: wallClock) : nil
    }

    private var configuration: WorkerConfiguration { current.withLockedValue { $0 } }

    /// Works until the task is cancelled or a graceful shutdown begins. Then it drains: it claims no more jobs, finishes the notifications
    /// in flight within the configured time, and releases the rest.
    /// - Throws: if the worker can't start, for example because a key is unusable.
    package func run() async throws {
        for lane in lanes {
            let others = lanes.filter { $0 !== lane }
            lane.context.callbacks.command = { [weak self] command in self?.apply(command) }
            lane.context.callbacks.backlog = { queue in others.forEach { $0.wake(queue) } }
            if let polling = others.first(where: \.context.polls) {
                lane.context.callbacks.due = { queue, time in polling.wake(queue, at: time) }
            }
            try await lane.start()
        }
        let apps = configuration.apps.map { "\($0.name) → \($0.endpoint)" }.joined(separator: ", ")
        var metadata: Logger.Metadata = [
            "event": "started", "worker": "\(configuration.workerName)", "lanes": "\(lanes.count)",
        ]
        metadata["queue"] = "\(configuration.queues.map(\.keys.queue).joined(separator: ", "))"
        metadata["redis"] = "\(configuration.redis)"
        metadata["apps"] = "\(apps)"
        logger.info("started", metadata: metadata)
        phase.withLockedValue { $0 = .working }
        let keeper = Task { await keepAllCredentials() }
        let watch = Task { [servers, queueClients] in await servers.run(queueClients) }
        let interval = configuration.summaryInterval
        let summaries = interval > 0 ? Task { await summarize(every: interval) } : nil
        await waitForTheEnd()
        keeper.cancel()
        watch.cancel()
        summaries?.cancel()
        await drain(then: watch)
    }

    /// Waits for a graceful shutdown, a cancellation or a stop command. Each of them starts a drain.
    private func waitForTheEnd() async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { try? await gracefulShutdown() }
            group.addTask { [stream = stopping.stream] in for await _ in stream {} }
            await group.next()
            group.cancelAll()
        }
    }

    // MARK: Commands

    private func apply(_ command: WorkerCommand) {
        guard commands.withLockedValue({ $0.seen.isNew(command) }) else { return }
        switch command.kind {
        case .quiet: setQuiet(true, because: "a command in Redis")
        case .work: setQuiet(false, because: "a command in Redis")
        case .stop:
            logger.notice("stopping", metadata: ["event": "stopping", "reason": "a command in Redis"])
            stopping.continuation.finish()
        }
    }

    /// Stops or resumes claiming. The worker finishes the notifications in flight in either case. Safe to call from any thread, at any time
    /// after the start.
    /// - Parameter reason: the origin of the request, for the log.
    package func setQuiet(_ quiet: Bool, because reason: String) {
        let isChange = commands.withLockedValue { state in
            defer { state.isQuiet = quiet }
            return state.isQuiet != quiet
        }
        guard isChange else { return }
        logger.notice(
            quiet
                ? "quiet: claiming no more jobs; to resume: SIGCONT or `apns-worker quiet --undo`"
                : "no longer quiet: claiming jobs again",
            metadata: ["event": quiet ? "quiet" : "quiet_ended", "reason": "\(reason)"])
        for lane in lanes { lane.setQuiet(quiet) }
    }

    // MARK: Credentials

    /// Maintains the credentials of the current apps and, after a reload, of the new ones.
    private func keepAllCredentials() async {
        while !Task.isCancelled {
            let generation = reloads.load(ordering: .acquiring)
            var keeper = CredentialKeeper(configuration.apps, redis: configuration.redisClient.tls, logger: logger)
            repeat {
                keeper.look(
                    now: wallClock(),
                    replace: { app, credential in
                        let tls = try app.tlsContext(for: credential)
                        for lane in lanes { lane.replaceCredential(of: app.name, with: credential, tls) }
                    },
                    record: { app, problem in
                        for lane in lanes { lane.recordCredential(of: app, problem: problem) }
                    })
                // A changed file is in use after two looks. A cancelled sleep ends the loop.
                try? await Task.sleep(for: CertificateWatch.interval)
            } while !Task.isCancelled && generation == reloads.load(ordering: .acquiring)
        }
    }

    /// Records the result of the last reading of the configuration, for heartbeats and metrics.
    /// - Parameter problem: the error; `nil` if the reading succeeded.
    package func recordReload(problem: String?) {
        issues.refusedReload.withLockedValue { $0 = problem }
        if problem != nil {
            _ = issues.began("configuration", event: "configuration_refused", at: "reload", now: .now())
        } else {
            _ = issues.ended("configuration", at: "reload", now: .now())
        }
    }

    /// Applies the settings that a running worker can change: its apps, and the retry policy. No claimed job is dropped.
    /// - Returns: the changes to the apps.
    /// - Throws: if the new configuration is unusable. The worker then keeps its current one.
    package func reload(_ new: WorkerConfiguration) async throws -> ReloadReport {
        let prepared = try new.apps.map { try AppSender.Prepared($0) }
        let old = configuration
        let merged = old.reloaded(from: new)
        current.withLockedValue { $0 = merged }
        for lane in lanes { try await lane.reload(merged, prepared).get() }
        reloads.add(1, ordering: .releasing)
        return ReloadReport(from: old.apps, to: merged.apps)
    }

    /// - Parameter watch: a cancelled task that uses the lanes' clients. It ends when the clients are closed, and must end before the event
    ///   loops.
    private func drain(then watch: Task<Void, Never>) async {
        phase.withLockedValue { $0 = .draining }
        logger.info("draining", metadata: ["event": "draining", "limit_ms": "\(configuration.drainTimeout)"])
        let limit = TimeAmount.milliseconds(Int64(configuration.drainTimeout))
        let futures = lanes.map { $0.drain(within: limit) }
        for future in futures {
            do { try await future.get() } catch {
                logger.error("a lane did not drain: \(error)", metadata: ["event": "drain_failed"])
            }
        }
        await watch.value
        let total = await counters()
        _ = await collector?.collect(isLast: true)
        phase.withLockedValue { $0 = .stopped(total) }
        issues.logOverdue(logger, all: true, now: .now())
        logger.info(
            "drained",
            metadata: [
                "event": "drained", "delivered": "\(total[.delivered])", "invalid_token": "\(total[.invalidToken])",
                "expired": "\(total[.expired])", "dead": "\(total[.dead])", "retried": "\(total.retried)",
            ])
        do {
            for lane in lanes {
                let loop = lane.eventLoop
                try await loop.submit { SystemResolver.endLookups(on: loop) }.get()
            }
            try await group.shutdownGracefully()
        } catch {
            logger.error("the event loops did not stop: \(error)", metadata: ["event": "shutdown_failed"])
        }
    }

    /// True if all lanes have started. Safe to call from any thread.
    package var isWorking: Bool { if case .starting = phase.withLockedValue({ $0 }) { false } else { true } }

    /// Returns the worker's readiness and its problems. Answers within seconds in any state.
    package func health() async -> WorkerHealth {
        var health = WorkerHealth()
        switch phase.withLockedValue({ $0 }) {
        case .starting, .working: break
        case .draining: health.isDraining = true
        case .stopped:
            health.isDraining = true
            health.add(.init(.draining, "the worker has stopped", seconds: 0))
            return health
        }
        let stuck = liveness()
        guard stuck.isReady else { return stuck }
        let deadline = ContinuousClock.now + .seconds(1)
        let answers = lanes.map { lane in (lane.index, lane.eventLoop.submit { lane.observer.health() }) }
        for (index, answer) in answers {
            // The loop may be stuck, but not for long enough to be reported as stuck.
            let problem = WorkerHealth.Problem(
                .stuck, "the event loop of lane \(index) does not answer", seconds: 0)
            for problem in await answer.get(until: deadline)?.details ?? [problem] { health.add(problem) }
        }
        return health
    }

    /// Returns the stuck event loops as problems. Does not wait for the loops.
    package func liveness() -> WorkerHealth { liveness(patience: LoopPulse.patience) }

    /// - Parameter patience: a loop that has not run for this time counts as stuck.
    func liveness(patience: TimeAmount) -> WorkerHealth {
        let now = NIODeadline.now()
        return WorkerHealth(
            lanes.compactMap { lane in
                guard let time = lane.observer.pulse.stuck(after: patience, now: now) else { return nil }
                return .init(
                    .stuck, "the event loop of lane \(lane.index) is stuck",
                    seconds: Int(time.nanoseconds / 1_000_000_000))
            })
    }

    /// Returns the counts and states of the lanes for a scrape. Nothing is done for metrics between scrapes.
    package func metrics(lostLogLines: Int = 0) async -> MetricsPage {
        var page = await collector?.collect() ?? MetricsPage(created: ProcessMetrics.started)
        page.set(WorkerMetric.lostLogLines, lostLogLines)
        for (event, count) in issues.counts { page.set(WorkerMetric.problems, by: [event], count) }
        if let spans { page.set(WorkerMetric.droppedSpans, spans.dropped) }
        return page
    }

    func load() async -> WorkSummary.Load {
        var sum = WorkSummary.Load()
        for lane in lanes {
            // A lane whose event loop has stopped has nothing in flight.
            guard let load = try? await lane.eventLoop.submit({ lane.observer.load }).get() else { continue }
            sum.inFlight += load.inFlight
            sum.waiting += load.waiting
            sum.connections += load.connections
            sum.connectionsMade += load.connectionsMade
        }
        return sum
    }

    package func counters() async -> LaneCounters {
        if case .stopped(let counters) = phase.withLockedValue({ $0 }) { return counters }
        var sum = LaneCounters()
        for lane in lanes {
            if let counters = try? await lane.eventLoop.submit({ lane.context.metrics.counters }).get() {
                sum = sum + counters
            }
        }
        return sum
    }
}

extension Worker {
    /// Logs a summary at intervals, if there was any work, until the task is cancelled.
    func summarize(every interval: Int) async {
        var summary = WorkSummary()
        let clock = ContinuousClock()
        var began = clock.now
        while true {
            do { try await clock.sleep(for: .milliseconds(interval)) } catch { return }
            let now = clock.now
            let seconds =
                Double((now - began).components.seconds)
                + Double((now - began).components.attoseconds) / 1e18
            if let metadata = summary.next(await counters(), await load(), seconds: seconds) {
                logger.info("working", metadata: metadata.merging(["event": "working"]) { $1 })
            }
            began = now
        }
    }
}

/// Decides which commands are new. Every lane sees each command repeatedly, on all queues. No I/O.
struct WorkerCommands {
    private var last: Int64 = .min

    /// Returns true if a command is new, so that it must be carried out.
    ///
    /// A command that is not newer than the last one was carried out before, or was replaced by the last one.
    mutating func isNew(_ command: WorkerCommand) -> Bool {
        guard command.at > last else { return false }
        last = command.at
        return true
    }
}
