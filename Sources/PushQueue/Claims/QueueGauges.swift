import NIOCore
import PushJob
import Redis

/// The number of a queue's jobs in each state, counted atomically; the first due time, and the job that waits for longest.
public struct QueueGauges: Sendable {
    /// Redis' time of the count, in milliseconds since 1970.
    public var now: Int64
    /// Jobs that no lane has claimed.
    public var jobs: Int
    /// Scheduled and deferred jobs, due or not.
    public var later: Int
    /// Jobs that failed and wait for their next attempt, due or not.
    public var failed: Int
    /// Jobs that are claimed and not settled.
    public var claims: Int
    /// All jobs except the dead letters and the cancelled jobs.
    public var total: Int { jobs + later + failed + claims }
    public var dead: Int
    /// The sum of the dead letters' lengths in bytes.
    public var deadBytes: Int
    public var isPaused: Bool
    /// The number of campaigns that their guards have paused.
    public var stoppedCampaigns = 0
    /// The due time of the first job of ``later`` and ``failed``, in milliseconds since 1970; `nil` if there are none.
    public var firstDue: Int64?
    /// The job that has probably waited longest: the head of the list or, in a queue that sorts its jobs, the oldest of the next 16 sorted
    /// jobs. `nil` if no job waits, or that job is larger than ``headLimit``.
    public var head: ByteBuffer?

    /// The maximum size of ``head`` in bytes.
    public static let headLimit = 65_536

    /// All workers share a reading for this time, in milliseconds, because its cost for Redis grows with the number of lanes.
    public static let maximumAge = 9500

    /// Returns the time when the job at the head was enqueued, in milliseconds since 1970; `nil` if unknown.
    /// - Parameter format: the format of the queue's jobs.
    public func headEnqueuedAt(as format: JobFormat) -> Int64? {
        guard let head else { return nil }
        // An unreadable job has no known time; the worker that claims it reports the error.
        return try? JobDecoder.decode(head, as: format).enqueuedAt
    }

    /// The time since the first job of ``later`` and ``failed`` became due, in milliseconds; 0 if a job has no due time.
    public var overdue: Int64 {
        guard let firstDue, firstDue > 0 else { return 0 }
        return max(0, now - firstDue)
    }

    /// Counts the queue's jobs now, for a command.
    /// - Throws: `RedisError`, or ``QueueFailure/unexpectedReply(_:)``.
    public static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> QueueGauges {
        try await QueueScript.gauges.run(
            client, keyNames(keys), arguments: { append(keys, maximumAge: 0, to: &$0) }, reading: read)
    }

    static func keyNames(_ keys: QueueKeys) -> [String] {
        [
            keys.jobs, keys.inbox, keys.retry, keys.workers, keys.dead, keys.paused, keys.deadBytes, keys.gauges,
            keys.jobCommands, keys.sorted, keys.failed,
        ]
    }

    static func append(_ keys: QueueKeys, maximumAge: Int, to command: inout RedisCommand) {
        command.append(keys.claimed(""))
        command.append(headLimit)
        command.append(keys.head.rawValue)
        command.append(maximumAge)
    }

    static func read(_ reply: inout ScriptReply) -> QueueGauges {
        let now = Int64(reply.number())
        var gauges = QueueGauges(
            now: now, jobs: reply.number(), later: reply.number(), failed: reply.number(), claims: reply.number(),
            dead: reply.number(), deadBytes: 0, isPaused: reply.number() == 1)
        let firstDue = Int64(reply.number())
        gauges.firstDue = gauges.later + gauges.failed > 0 ? firstDue : nil
        gauges.deadBytes = reply.number()
        let head = reply.bytes()
        gauges.head = head.readableBytes > 0 ? head : nil
        gauges.stoppedCampaigns = reply.number()
        return gauges
    }
}
