import APNS
import NIOCore
import PushQueue

/// All that a lane has counted and is doing, at one moment.
struct LaneReport: Sendable {
    /// One of its apps.
    struct App: Sendable {
        var name: String
        /// Whether the configuration has it no more.
        var isLeaving: Bool
        var statistics: PoolStatistics
        var failures: [String: Int]
        var waiting: Int
        var breaker: BreakerState
        /// In seconds.
        var providerTokenAge: Int64?
        /// In seconds since 1970.
        var certificateEnd: Int64?
        var sendTimes: HistogramCounts
    }

    /// One of its queues.
    struct Queue: Sendable {
        var name: String
        /// In seconds; `nil` while there is no lease.
        var leaseAge: Double?
        var settlements: Int
        var settlementBytes: Int
        var isConnected: Bool
        var claims: LaneMetrics.QueueClaims
        /// In the order of ``JobOutcome``.
        var jobs: [Int]
        var queueTimes: HistogramCounts
        var gauges: QueueGaugeReadings.Queue?
    }

    /// Values in buckets, and their sum in seconds.
    struct HistogramCounts: Sendable, Equatable {
        var counts: [Int]
        var sum: Double
    }

    var lane: Int
    /// Whether it can do its work.
    var isReady: Bool
    var counters: LaneCounters
    var apps: [App]
    var queues: [Queue]
    var notifications: [LaneMetrics.Key: Int]
    var redisConnections: Int
    var redisFailures: Int
    var invalidTokens: Int?
}

/// Whether an app's notifications are sent. The raw value is the label.
enum BreakerState: String, CaseIterable, Comparable {
    case closed
    case open
    case byHand = "by_hand"

    init(_ breaker: AppBreaker) { self = breaker.isByHand ? .byHand : breaker.isOpen ? .open : .closed }

    static func < (one: BreakerState, other: BreakerState) -> Bool {
        allCases.firstIndex(of: one) ?? 0 < allCases.firstIndex(of: other) ?? 0
    }
}

extension Lane {
    /// What the lane has counted and is doing. On its event loop.
    func report() -> LaneReport {
        let wall = wallClock()
        let apps = apps.enumerated().map { index, app in
            LaneReport.App(
                name: app.configuration.name, isLeaving: app.isLeaving, statistics: app.transport.statistics,
                failures: app.transport.failureCounts, waiting: app.waiting + app.resends.count,
                breaker: BreakerState(app.breaker), providerTokenAge: app.providerTokenAge(now: wall),
                certificateEnd: app.certificateEnd,
                sendTimes: .init(metrics.sendTimes.row(index), unitsPerSecond: 1_000_000))
        }
        return LaneReport(
            lane: index, isReady: problems.isEmpty, counters: counters, apps: apps, queues: queues.map(report),
            notifications: metrics.notifications, redisConnections: metrics.redisConnections,
            redisFailures: metrics.redisFailures, invalidTokens: gauges.invalidTokens)
    }

    private func report(_ queue: QueueLane) -> LaneReport.Queue {
        LaneReport.Queue(
            name: queue.keys.queue,
            leaseAge: queue.leaseRenewedAt.map { Double((eventLoop.now - $0).nanoseconds) / 1e9 },
            settlements: queue.unconfirmed.count + queue.settlement.count + queue.awaitingInvalidTokens,
            settlementBytes: queue.unconfirmed.size + queue.settlement.size, isConnected: queue.client.isReady,
            claims: metrics[claimsOf: queue.index],
            jobs: JobOutcome.allCases.map { metrics.jobs($0, queue: queue.index) },
            queueTimes: .init(metrics.queueTimes.row(queue.index), unitsPerSecond: 1000),
            gauges: gauges.queues[queue.index])
    }
}

extension LaneReport.HistogramCounts {
    fileprivate init(_ row: (counts: [Int], sum: Int), unitsPerSecond: Double) {
        self.init(counts: row.counts, sum: Double(row.sum) / unitsPerSecond)
    }

    /// What has come since an earlier state.
    static func - (now: Self, before: Self) -> Self {
        Self(counts: zip(now.counts, before.counts).map { $0 - $1 }, sum: now.sum - before.sum)
    }

    static func + (one: Self, other: Self) -> Self {
        Self(counts: zip(one.counts, other.counts).map { $0 + $1 }, sum: one.sum + other.sum)
    }
}

extension AppConfiguration.Credential {
    /// When it expires, in seconds since 1970; `nil` for keys, which do not.
    var certificateEnd: Int64? {
        if case .certificate(let identity) = self { identity.notAfter } else { nil }
    }
}
