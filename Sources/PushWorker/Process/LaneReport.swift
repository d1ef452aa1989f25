import APNS
import NIOCore
import PushQueue
import Telemetry

/// A lane's counts and state at one moment.
struct LaneReport: Sendable {
    struct App: Sendable {
        var name: String
        /// True if the configuration no longer has the app.
        var isRemoved: Bool
        var statistics: PoolStatistics
        var failures: [String: Int]
        /// `nil` unless the app uses the binary gateway.
        var droppedAfterConfirmation: Int?
        var waiting: Int
        var state: WorkerReport.App.State
        /// The age in seconds.
        var providerTokenAge: Int64?
        /// The time in seconds since 1970.
        var certificateEnd: Int64?
        var sendTimes: HistogramCounts
    }

    struct Queue: Sendable {
        var name: String
        /// The age in seconds; `nil` while there is no lease.
        var leaseAge: Double?
        var settlements: Int
        var settlementBytes: Int
        var isConnected: Bool
        var claims: LaneMetrics.QueueClaims
        /// The counts in the order of ``Fate/ofJobs``.
        var jobs: [Int]
        var queueTimes: HistogramCounts
        var gauges: QueueGaugeReadings.Queue?
    }

    var lane: Int
    var isReady: Bool
    var apps: [App]
    var queues: [Queue]
    var notifications: [LaneMetrics.Key: Int]
    /// Submitted requests, including resends.
    var submitted: Int
    var possibleDuplicates: Int
    var lostClaims: Int
    var redisConnections: Int
    var redisFailures: Int
    var invalidTokens: Int?
}

extension HistogramCounts {
    /// - Parameter row: the number of values per bucket, and their sum in the given unit.
    init(_ row: (counts: [Int], sum: Int), unitsPerSecond: Double, exemplars: [Int: Exemplar] = [:]) {
        self.init(counts: row.counts, sum: Double(row.sum) / unitsPerSecond, exemplars: exemplars)
    }
}

/// A lane's readings of the queues for scrapes.
struct QueueGaugeReadings {
    /// The maximum age of a reading, however often metrics are scraped.
    static let maximumAge = TimeAmount.seconds(10)

    struct Queue: Sendable {
        var jobs: Int
        var later: Int
        var failed: Int
        var claims: Int
        var dead: Int
        var deadBytes: Int
        var isPaused: Bool
        /// The number of campaigns that their guards have paused.
        var stoppedCampaigns: Int
        /// The time that the next job has waited, in milliseconds.
        var oldest: Int64
    }

    /// The readings by index; those of queues that could not be read are absent.
    var queues: [Int: Queue] = [:]
    var invalidTokens: Int?
    var heads: [Int: HeadWatch] = [:]
    var readAt = NIODeadline.distantPast
    var reading: EventLoopFuture<Void>?
}

/// Measures how long the job at the head of a queue has waited. No I/O.
///
/// Jobs have no timestamp unless their producer writes `enqueued_at`. For other jobs, only the time of their arrival at the head is known.
/// In a moving queue that is always recent. In a stalled queue the age grows as it should.
struct HeadWatch {
    private var head: ByteBuffer?
    private var since: Int64 = 0

    /// Records the head of the queue.
    /// - Parameters:
    ///   - head: the job at the head, empty if it is too large to return; `nil` if the queue is empty.
    ///   - enqueuedAt: the time of its enqueueing, if it specifies one.
    ///   - now: the current time. All times are in milliseconds of Redis' clock.
    /// - Returns: the time that the job has waited, in milliseconds.
    mutating func recordHead(_ head: ByteBuffer?, enqueuedAt: Int64?, now: Int64) -> Int64 {
        if head != self.head { (self.head, since) = (head, now) }
        guard head != nil else { return 0 }
        return max(0, now - min(since, enqueuedAt ?? since))
    }
}
