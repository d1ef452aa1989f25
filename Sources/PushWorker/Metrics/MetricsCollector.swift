import APNS
import CoreMetrics
import NIOCore
import PushQueue

/// Gathers what all lanes have counted and are doing, and hands it to swift-metrics: when somebody asks, and never else.
actor MetricsCollector {
    /// How long the lanes are waited for. One that is busy answers in less; of one that is stuck the last report counts.
    private static let patience = Duration.seconds(1)

    private let lanes: [Lane]
    private let servers: ServerWatch
    private let version: String
    private let leaseLength: Int
    private let wallClock: @Sendable () -> Int64
    private var handover: MetricsHandover
    private var reports: [Int: LaneReport] = [:]
    private var collection: Task<Void, Never>?
    private var isFinished = false

    /// - Parameter leaseLength: in milliseconds.
    init(
        lanes: [Lane], servers: ServerWatch, factory: any MetricsFactory, version: String, leaseLength: Int,
        wallClock: @escaping @Sendable () -> Int64
    ) {
        self.lanes = lanes
        self.servers = servers
        self.version = version
        self.leaseLength = leaseLength
        self.wallClock = wallClock
        handover = MetricsHandover(factory: factory)
    }

    /// Hands over what there is now. Whoever asks while that goes on waits for the same.
    /// - Parameter isLast: whether the lanes end after this, and cannot be asked any more.
    func collect(isLast: Bool = false) async {
        while let collection {
            await collection.value
            if !isLast { return }
        }
        guard !isFinished else { return }
        isFinished = isLast
        let collection = Task { await gather() }
        self.collection = collection
        await collection.value
        self.collection = nil
    }

    private func gather() async {
        let now = NIODeadline.now()
        let turning = lanes.filter { $0.observation.pulse.stuck(now: now) == nil }
        if let first = turning.first(where: { $0.index == 0 }) {
            _ = await first.eventLoop.flatSubmit { first.readGauges() }.get(until: .now + Self.patience)
        }
        let deadline = ContinuousClock.now + Self.patience
        let answers = turning.map { lane in (lane.index, lane.eventLoop.submit { lane.report() }) }
        for (index, answer) in answers {
            if let report = await answer.get(until: deadline) { reports[index] = report }
        }
        handOver(stuck: lanes.count - turning.count)
    }

    private func handOver(stuck: Int) {
        let reports = reports.values.sorted { $0.lane < $1.lane }
        handover.set(.ready, [], stuck == 0 && !reports.isEmpty && reports.allSatisfy(\.isReady) ? 1 : 0)
        handover.set(.lanes, [], lanes.count)
        handover.set(.lanesStuck, [], stuck)
        handover.set(.buildInfo, [version], 1)
        handover.set(.leaseLength, [], Double(leaseLength) / 1000)
        handOverCounters(reports)
        handOverApps(Dictionary(grouping: reports.flatMap(\.apps), by: \.name))
        for report in reports {
            for queue in report.queues {
                if let age = queue.leaseAge { handover.set(.leaseAge, [queue.name, "\(report.lane)"], age) }
            }
        }
        handOverQueues(Dictionary(grouping: reports.flatMap(\.queues), by: \.name))
        if let tokens = reports.compactMap(\.invalidTokens).first { handover.set(.invalidTokens, [], tokens) }
        for server in servers.latest { handOver(server) }
        handover.finishRound()
    }

    private func handOver(_ server: QueueServer) {
        handover.set(.redisWritesRefused, [server.address], server.refusesWrites ? 1 : 0)
        guard case .success(let info) = server.info else { return }
        if let used = info.usedMemory { handover.set(.redisMemoryUsed, [server.address], used) }
        if let limit = info.memoryLimit, limit > 0 { handover.set(.redisMemoryMaximum, [server.address], limit) }
        if let keeps = info.keepsAppendOnlyFile { handover.set(.redisAppendOnly, [server.address], keeps ? 1 : 0) }
        if info.evictionPolicy != nil { handover.set(.redisEvicts, [server.address], info.evicts ? 1 : 0) }
    }

    private func handOverCounters(_ reports: [LaneReport]) {
        var notifications: [[String]: Int] = [:]
        for report in reports {
            for (key, count) in report.notifications {
                let labels = [
                    report.apps.indices.contains(key.app) ? report.apps[key.app].name : "",
                    report.queues.indices.contains(key.queue) ? report.queues[key.queue].name : "",
                    (PushType.allCases.indices.contains(key.pushType) ? PushType.allCases[key.pushType] : .other)
                        .rawValue,
                    key.fate.label, key.reason,
                ]
                notifications[labels, default: 0] += count
            }
        }
        for (labels, count) in notifications { handover.count(.notifications, labels, total: count) }
        let sum = reports.reduce(LaneCounters()) { $0 + $1.counters }
        handover.count(.lostClaims, total: sum.lostClaims)
        handover.count(.possibleDuplicates, total: sum.possibleDuplicates)
        handover.count(.requests, total: sum.submitted)
        handover.count(.redisConnections, total: reports.reduce(0) { $0 + $1.redisConnections })
        handover.count(.redisFailures, total: reports.reduce(0) { $0 + $1.redisFailures })
    }

    private func handOverApps(_ apps: [String: [LaneReport.App]]) {
        let now = wallClock()
        for (name, lanes) in apps {
            let failures = lanes.reduce(into: [String: Int]()) { $0.merge($1.failures, uniquingKeysWith: +) }
            for (reason, count) in failures {
                handover.count(.connectionFailures, [name, reason], total: count)
            }
            let first = lanes[0].sendTimes
            handover.record(.sendTime, [name], total: lanes.dropFirst().reduce(first) { $0 + $1.sendTimes })
            // Of an app that is gone, what it did is told, and not that it does nothing.
            let lanes = lanes.filter { !$0.isRemoved }
            guard !lanes.isEmpty else { continue }
            let statistics = lanes.map(\.statistics)
            handover.set(.inFlight, [name], statistics.reduce(0) { $0 + $1.streamsInUse })
            handover.set(.waiting, [name], lanes.reduce(0) { $0 + $1.waiting })
            handover.set(.connections, [name, "connecting"], statistics.reduce(0) { $0 + $1.connecting })
            handover.set(.connections, [name, "usable"], statistics.reduce(0) { $0 + $1.usable })
            handover.set(.connections, [name, "draining"], statistics.reduce(0) { $0 + $1.draining })
            handover.set(.streams, [name, "used"], statistics.reduce(0) { $0 + $1.streamsInUse })
            handover.set(.streams, [name, "allowed"], statistics.reduce(0) { $0 + $1.streamLimit })
            let breaker = lanes.map(\.breaker).max() ?? .closed
            for state in BreakerState.allCases {
                handover.set(.breakerState, [name, state.rawValue], state == breaker ? 1 : 0)
            }
            if let age = lanes.compactMap(\.providerTokenAge).max() {
                handover.set(.providerTokenAge, [name], Int(age))
            }
            if let end = lanes.compactMap(\.certificateEnd).min() {
                handover.set(.certificateDays, [name], Int((Double(end - now) / 86_400).rounded(.down)))
            }
        }
    }

    private func handOverQueues(_ queues: [String: [LaneReport.Queue]]) {
        for (name, lanes) in queues {
            handover.count(.claimedJobs, [name], total: lanes.reduce(0) { $0 + $1.claims.claimed })
            handover.count(.reclaimed, [name], total: lanes.reduce(0) { $0 + $1.claims.reclaimed })
            handover.count(.poisoned, [name], total: lanes.reduce(0) { $0 + $1.claims.poisoned })
            for (index, fate) in Fate.ofJobs.enumerated() {
                handover.count(.jobs, [name, fate.label], total: lanes.reduce(0) { $0 + $1.jobs[index] })
            }
            let first = lanes[0].queueTimes
            handover.record(.queueTime, [name], total: lanes.dropFirst().reduce(first) { $0 + $1.queueTimes })
            handover.set(.settlements, [name], lanes.reduce(0) { $0 + $1.settlements })
            handover.set(.settlementBytes, [name], lanes.reduce(0) { $0 + $1.settlementBytes })
            handover.set(.redisUp, [name], lanes.allSatisfy(\.isConnected) ? 1 : 0)
            guard let gauges = lanes.compactMap(\.gauges).first else { continue }
            handover.set(.queueJobs, [name, "waiting"], gauges.jobs)
            handover.set(.queueJobs, [name, "retry"], gauges.retries)
            handover.set(.queueJobs, [name, "claimed"], gauges.claims)
            handover.set(.queueJobs, [name, "dead"], gauges.dead)
            handover.set(.deadLetterBytes, [name], gauges.deadBytes)
            handover.set(.queueOldest, [name], Double(gauges.oldest) / 1000)
            handover.set(.queuePaused, [name], gauges.isPaused ? 1 : 0)
        }
    }
}
