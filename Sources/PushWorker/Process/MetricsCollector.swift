import APNS
import Logging
import NIOCore
import PushJob
import PushQueue
import Telemetry

/// Gathers the counts and states of all lanes, only when there is a scrape.
actor MetricsCollector {
    /// The maximum wait for the lanes. A busy lane answers sooner. If a lane is stuck, its last report is used.
    private static let patience = Duration.seconds(1)

    private let lanes: [Lane]
    private let servers: ServerWatch
    private let version: String
    private let leaseLength: Int
    private let wallClock: @Sendable () -> Int64
    private let logger: Logger
    private var page = MetricsPage(created: ProcessMetrics.started)
    private var reports: [Int: LaneReport] = [:]
    private var collection: Task<Void, Never>?
    private var isFinished = false
    private var hasLoggedDropped = false

    /// - Parameter leaseLength: the lease in milliseconds.
    init(
        lanes: [Lane], servers: ServerWatch, version: String, leaseLength: Int, logger: Logger,
        wallClock: @escaping @Sendable () -> Int64
    ) {
        self.lanes = lanes
        self.servers = servers
        self.version = version
        self.leaseLength = leaseLength
        self.wallClock = wallClock
        self.logger = logger
    }

    /// Returns the current metrics. Concurrent callers share one collection.
    /// - Parameter isLast: true if the lanes end after this and can't be asked any more.
    func collect(isLast: Bool = false) async -> MetricsPage {
        while let collection {
            await collection.value
            if !isLast { return page }
        }
        guard !isFinished else { return page }
        isFinished = isLast
        let collection = Task { await gather() }
        self.collection = collection
        await collection.value
        self.collection = nil
        return page
    }

    private func gather() async {
        let now = NIODeadline.now()
        let turning = lanes.filter { $0.observer.pulse.stuck(now: now) == nil }
        if let first = turning.first(where: { $0.index == 0 }) {
            _ = await first.eventLoop.flatSubmit { first.observer.readGauges() }.get(until: .now + Self.patience)
        }
        let deadline = ContinuousClock.now + Self.patience
        let answers = turning.map { lane in (lane.index, lane.eventLoop.submit { lane.observer.report() }) }
        for (index, answer) in answers {
            if let report = await answer.get(until: deadline) { reports[index] = report }
        }
        write(stuck: lanes.count - turning.count)
    }

    private func write(stuck: Int) {
        page.begin()
        let reports = reports.values.sorted { $0.lane < $1.lane }
        page.set(WorkerMetric.ready, stuck == 0 && !reports.isEmpty && reports.allSatisfy(\.isReady) ? 1 : 0)
        page.set(WorkerMetric.lanes, lanes.count)
        page.set(WorkerMetric.lanesStuck, stuck)
        page.set(WorkerMetric.buildInfo, by: [version], 1)
        page.set(WorkerMetric.leaseLength, Double(leaseLength) / 1000)
        writeCounters(reports)
        writeApps(Dictionary(grouping: reports.flatMap(\.apps), by: \.name))
        for report in reports {
            for queue in report.queues {
                if let age = queue.leaseAge {
                    page.set(WorkerMetric.leaseAge, by: [queue.name, "\(report.lane)"], age)
                }
            }
        }
        writeQueues(Dictionary(grouping: reports.flatMap(\.queues), by: \.name))
        if let tokens = reports.compactMap(\.invalidTokens).first { page.set(WorkerMetric.invalidTokens, tokens) }
        for server in servers.latest { write(server) }
        guard page.dropped > 0 else { return }
        page.set(WorkerMetric.droppedSeries, page.dropped)
        guard !hasLoggedDropped else { return }
        hasLoggedDropped = true
        logger.warning(
            "too many metric series; new series are omitted",
            metadata: ["event": "metric_series_dropped", "count": "\(page.dropped)"])
    }

    private func write(_ server: QueueServer) {
        page.set(WorkerMetric.redisWritesRefused, by: [server.address], server.refusesWrites ? 1 : 0)
        guard case .success(let info) = server.info else { return }
        if let used = info.usedMemory { page.set(WorkerMetric.redisMemoryUsed, by: [server.address], used) }
        if let limit = info.memoryLimit, limit > 0 {
            page.set(WorkerMetric.redisMemoryMaximum, by: [server.address], limit)
        }
        if let keeps = info.keepsAppendOnlyFile {
            page.set(WorkerMetric.redisAppendOnly, by: [server.address], keeps ? 1 : 0)
        }
        if info.evictionPolicy != nil { page.set(WorkerMetric.redisEvicts, by: [server.address], info.evicts ? 1 : 0) }
    }

    /// - Parameter place: the index of the push type; -1 for notifications that were never created.
    private static func label(ofPushType place: Int) -> String {
        guard place >= 0 else { return "" }
        return PushType.rows[place].name.description
    }

    private func writeCounters(_ reports: [LaneReport]) {
        var notifications: [[String]: Int] = [:]
        for report in reports {
            for (key, count) in report.notifications {
                let labels = [
                    report.apps.indices.contains(key.app) ? report.apps[key.app].name : "",
                    report.queues.indices.contains(key.queue) ? report.queues[key.queue].name : "",
                    Self.label(ofPushType: key.pushType),
                    key.fate.label, key.reason,
                ]
                notifications[labels, default: 0] += count
            }
        }
        for (labels, count) in notifications { page.set(WorkerMetric.notifications, by: labels, count) }
        writeOutcomes(notifications, apps: Set(reports.flatMap { $0.apps.map(\.name) }))
        page.set(WorkerMetric.lostClaims, reports.reduce(0) { $0 + $1.lostClaims })
        page.set(WorkerMetric.possibleDuplicates, reports.reduce(0) { $0 + $1.possibleDuplicates })
        page.set(WorkerMetric.requests, reports.reduce(0) { $0 + $1.submitted })
        page.set(WorkerMetric.redisConnections, reports.reduce(0) { $0 + $1.redisConnections })
        page.set(WorkerMetric.redisFailures, reports.reduce(0) { $0 + $1.redisFailures })
    }

    /// - Parameter notifications: the counts by the labels app, queue, push type, outcome and reason.
    private func writeOutcomes(_ notifications: [[String]: Int], apps: Set<String>) {
        var outcomes: [[String]: Int] = [:]
        for app in apps { for fate in Fate.ofNotifications { outcomes[[app, fate.label]] = 0 } }
        for (labels, count) in notifications { outcomes[[labels[0], labels[3]], default: 0] += count }
        for (labels, count) in outcomes { page.set(WorkerMetric.outcomes, by: labels, count) }
    }

    private func writeApps(_ apps: [String: [LaneReport.App]]) {
        let now = wallClock()
        for (name, lanes) in apps {
            let failures = lanes.reduce(into: [String: Int]()) { $0.merge($1.failures, uniquingKeysWith: +) }
            for (reason, count) in failures {
                page.set(WorkerMetric.connectionFailures, by: [name, reason], count)
            }
            let dropped = lanes.compactMap(\.droppedAfterConfirmation)
            if !dropped.isEmpty {
                page.set(WorkerMetric.droppedAfterConfirmation, by: [name], dropped.reduce(0, +))
            }
            let first = lanes[0].sendTimes
            page.set(WorkerMetric.sendTime, by: [name], lanes.dropFirst().reduce(first) { $0 + $1.sendTimes })
            // A removed app keeps its counters. It has no gauges, because they would show it as inactive.
            let lanes = lanes.filter { !$0.isRemoved }
            guard !lanes.isEmpty else { continue }
            let statistics = lanes.map(\.statistics)
            page.set(WorkerMetric.inFlight, by: [name], statistics.reduce(0) { $0 + $1.streamsInUse })
            page.set(WorkerMetric.waiting, by: [name], lanes.reduce(0) { $0 + $1.waiting })
            page.set(WorkerMetric.connections, by: [name, "connecting"], statistics.reduce(0) { $0 + $1.connecting })
            page.set(WorkerMetric.connections, by: [name, "usable"], statistics.reduce(0) { $0 + $1.usable })
            page.set(WorkerMetric.connections, by: [name, "draining"], statistics.reduce(0) { $0 + $1.draining })
            page.set(WorkerMetric.streams, by: [name, "used"], statistics.reduce(0) { $0 + $1.streamsInUse })
            page.set(WorkerMetric.streams, by: [name, "allowed"], statistics.reduce(0) { $0 + $1.streamLimit })
            let worst = lanes.map(\.state).max() ?? .sending
            for state in WorkerReport.App.State.allCases {
                page.set(WorkerMetric.appState, by: [name, state.rawValue], state == worst ? 1 : 0)
            }
            if let age = lanes.compactMap(\.providerTokenAge).max() {
                page.set(WorkerMetric.providerTokenAge, by: [name], Int(age))
            }
            if let end = lanes.compactMap(\.certificateEnd).min() {
                page.set(WorkerMetric.certificateDays, by: [name], Int((Double(end - now) / 86_400).rounded(.down)))
            }
        }
    }

    private func writeQueues(_ queues: [String: [LaneReport.Queue]]) {
        for (name, lanes) in queues {
            page.set(WorkerMetric.claimedJobs, by: [name], lanes.reduce(0) { $0 + $1.claims.claimed })
            page.set(WorkerMetric.reclaimed, by: [name], lanes.reduce(0) { $0 + $1.claims.reclaimed })
            page.set(WorkerMetric.poisoned, by: [name], lanes.reduce(0) { $0 + $1.claims.poisoned })
            for (index, fate) in Fate.ofJobs.enumerated() {
                page.set(WorkerMetric.jobs, by: [name, fate.label], lanes.reduce(0) { $0 + $1.jobs[index] })
            }
            let first = lanes[0].queueTimes
            page.set(WorkerMetric.queueTime, by: [name], lanes.dropFirst().reduce(first) { $0 + $1.queueTimes })
            page.set(WorkerMetric.settlements, by: [name], lanes.reduce(0) { $0 + $1.settlements })
            page.set(WorkerMetric.settlementBytes, by: [name], lanes.reduce(0) { $0 + $1.settlementBytes })
            page.set(WorkerMetric.redisUp, by: [name], lanes.allSatisfy(\.isConnected) ? 1 : 0)
            guard let gauges = lanes.compactMap(\.gauges).first else { continue }
            page.set(WorkerMetric.queueJobs, by: [name, "waiting"], gauges.jobs)
            page.set(WorkerMetric.queueJobs, by: [name, "scheduled"], gauges.later)
            page.set(WorkerMetric.queueJobs, by: [name, "retrying"], gauges.failed)
            page.set(WorkerMetric.queueJobs, by: [name, "claimed"], gauges.claims)
            page.set(WorkerMetric.queueJobs, by: [name, "dead"], gauges.dead)
            page.set(WorkerMetric.deadLetterBytes, by: [name], gauges.deadBytes)
            page.set(WorkerMetric.queueOldest, by: [name], Double(gauges.oldest) / 1000)
            page.set(WorkerMetric.queuePaused, by: [name], gauges.isPaused ? 1 : 0)
            page.set(WorkerMetric.campaignsStopped, by: [name], gauges.stoppedCampaigns)
        }
    }
}
