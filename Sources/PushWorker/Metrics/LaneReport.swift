import APNS
import NIOCore
import PushQueue
import Telemetry

/// All that a lane has counted and is doing, at one moment.
struct LaneReport: Sendable {
    /// One of its apps.
    struct App: Sendable {
        var name: String
        /// True if the configuration no longer has it.
        var isRemoved: Bool
        var statistics: PoolStatistics
        var failures: [String: Int]
        /// `nil` for an app whose notifications do not travel through the binary gateway.
        var droppedAfterConfirmation: Int?
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
        /// In the order of ``Fate/ofJobs``.
        var jobs: [Int]
        var queueTimes: HistogramCounts
        var gauges: QueueGaugeReadings.Queue?
    }

    var lane: Int
    /// True if it can do its work.
    var isReady: Bool
    var counters: LaneCounters
    var apps: [App]
    var queues: [Queue]
    var notifications: [LaneMetrics.Key: Int]
    var redisConnections: Int
    var redisFailures: Int
    var invalidTokens: Int?
}

/// The state of an app's breakers. The raw value is the label.
enum BreakerState: String, CaseIterable, Comparable {
    case closed
    /// The endpoint does not answer, or answers with server errors only.
    case unavailable
    case open
    /// Paused by an operator.
    case paused

    init(_ breaker: AppBreaker, _ endpoint: EndpointBreaker) {
        self =
            breaker.isPausedByOperator ? .paused : breaker.isOpen ? .open : endpoint.isOpen ? .unavailable : .closed
    }

    static func < (one: BreakerState, other: BreakerState) -> Bool {
        allCases.firstIndex(of: one) ?? 0 < allCases.firstIndex(of: other) ?? 0
    }
}

extension HistogramCounts {
    /// - Parameter row: the number of values by bucket, and their sum in another unit than seconds.
    init(_ row: (counts: [Int], sum: Int), unitsPerSecond: Double) {
        self.init(counts: row.counts, sum: Double(row.sum) / unitsPerSecond)
    }
}

/// A lane's readings of the queues for scrapes.
struct QueueGaugeReadings {
    /// The age up to which a reading is shown again, however often a scrape comes.
    static let maximumAge = TimeAmount.seconds(10)

    /// The contents of a queue.
    struct Queue: Sendable {
        var jobs: Int
        var retries: Int
        var claims: Int
        var dead: Int
        var deadBytes: Int
        var isPaused: Bool
        /// The time for which the next job has waited, in milliseconds.
        var oldest: Int64
    }

    /// By index; those that could not be read are absent.
    var queues: [Int: Queue] = [:]
    var invalidTokens: Int?
    var heads: [Int: HeadWatch] = [:]
    var readAt = NIODeadline.distantPast
    var reading: EventLoopFuture<Void>?
}

/// How long the job at the head of a queue has waited, without any I/O.
///
/// Jobs carry no time of their own unless their producer writes `enqueued_at`. Of one without, it is known since when it has
/// been at the head: in a queue that moves that is no time at all, and in one that does not it grows as it should.
struct HeadWatch {
    private var head: ByteBuffer?
    private var since: Int64 = 0

    /// The queue was looked at.
    /// - Parameters:
    ///   - head: the job at the head, empty where it is too large to be told; `nil` where there is none.
    ///   - enqueuedAt: when it was enqueued, as far as it says.
    ///   - now: all times in milliseconds since 1970, by Redis' clock.
    /// - Returns: how long it has waited, in milliseconds.
    mutating func saw(_ head: ByteBuffer?, enqueuedAt: Int64?, now: Int64) -> Int64 {
        if head != self.head { (self.head, since) = (head, now) }
        guard head != nil else { return 0 }
        return max(0, now - min(since, enqueuedAt ?? since))
    }
}
