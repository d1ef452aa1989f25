import NIOCore
import Redis

/// The names of a queue's keys in Redis. All keys of a queue carry the same hash tag, so that a queue is one Cluster
/// slot and each of its transitions can be one script.
public struct QueueKeys: Sendable {
    public let queue: String
    /// The head of the list of jobs: the end where they are claimed.
    public enum Head: String, Sendable {
        /// Producers push at the right, as this project's producers and Resque do.
        case left = "LEFT"
        /// Producers push at the left, as Sidekiq does.
        case right = "RIGHT"
    }

    /// LIST of jobs to send; producers `RPUSH` here, and `LPUSH` puts a job first. The setting `list` names another key.
    public let jobs: String
    public let head: Head
    /// ZSET of scheduled and deferred jobs by due time in ms: none of them has failed.
    public let retry: String
    /// ZSET of jobs that failed, by the due time of their next attempt in ms. They wait apart, so that a job that fails again and again
    /// delays no other jobs.
    public let failed: String
    /// ZSET: the waiting jobs in the order of sending. It is used once a job has `fair` or `urgent`.
    public let sorted: String
    /// HASH: for each key of `fair` (`by:<key>`), the place in the order of `sorted` where its last job ends.
    public let shares: String
    /// ZSET of lanes by the end of their lease in ms.
    public let workers: String
    /// LIST of jobs that a blocking wait has moved here from the list. Each claim begins with these jobs.
    public let inbox: String
    /// ZSET of dead letters by time in ms, bounded by count, age and total size.
    public let dead: String
    /// STRING: the total size of the dead letters in bytes.
    public let deadBytes: String
    /// ZSET of cancelled jobs by time in ms. They have separate bounds, so that they and dead letters do not evict each other.
    public let cancelled: String
    /// STRING: the total size of the cancelled jobs in bytes.
    public let cancelledBytes: String
    /// STRING: the last counts for metrics, kept for ten seconds.
    public let gauges: String
    /// STREAM of results: the outcomes of those notifications that the setting `results` selects.
    public let results: String
    /// ZSET of entries of `results` by the number of results up to them, for removing old results. The score of `added` is the number of
    /// all results.
    public let resultsMarks: String
    /// HASH: consumer group → its position in `results`. A group that was lost continues at this position; see `ResultGroup`.
    public let resultsPositions: String
    /// STRING: the approximate size of the largest job that was claimed in the last day, in bytes. Claims use it to limit the number of
    /// jobs that they read at once.
    public let largest: String
    /// STRING: pauses the queue while it exists. JSON with `reason`, `since` and `by`, or any text.
    public let paused: String
    /// HASH: lane → its heartbeat, for `status`.
    public let workerInfo: String
    /// HASH: digest of a configuration → the time in ms at which its workers no longer count as living.
    public let configurations: String
    /// HASH: the deliveries of each app (`:<app>`), of each app with a push type (`alert:<app>`), and the failed notifications of each app
    /// with a push type (`failed:alert:<app>`). These counts decide if the failure of a job without a campaign spends an attempt. It has
    /// at most 1,000 fields, and is kept for two days after the last change.
    public let deliveries: String
    /// STRING: JSON with the location and format of the queue's jobs, which its workers write; see `QueueSource`.
    public let source: String
    /// The prefix of the keys of a day's counters, before the date.
    public let statsPrefix: String
    /// The prefix of the keys of a minute's counters, before the minute.
    public let minutesPrefix: String
    /// HASH: operators' commands about the jobs of a campaign or with an id; see ``JobCommands``.
    public let jobCommands: String
    /// ZSET of campaigns by the time of their last settlement in ms.
    public let campaigns: String
    /// The prefix of the keys of a campaign's counters, before its name.
    public let campaignPrefix: String
    /// The prefix of the keys of reservations, before the id.
    public var uniquePrefix: String { base + "unique:" }
    /// A campaign's counters are kept for this time after their last change, in milliseconds.
    public static let campaignLifetime = 90 * 86_400_000

    private let base: String

    /// The error for a prefix, queue name or list that is not valid.
    public struct Invalid: Error, Sendable, CustomStringConvertible {
        /// The problem and its solution.
        public let description: String
    }

    /// Returns true for a name with a colon and a number at its end, as in a list of queues with their weights.
    private static func endsWithWeight(_ queue: String) -> Bool {
        guard let colon = queue.utf8.lastIndex(of: UInt8(ascii: ":")) else { return false }
        var number = queue.utf8[colon...].dropFirst()
        if let first = number.first, first == UInt8(ascii: "+") || first == UInt8(ascii: "-") { number.removeFirst() }
        return !number.isEmpty && number.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    }

    /// - Parameters:
    ///   - prefix: the prefix of all keys, `push` by default.
    ///   - queue: the queue's name, `default` by default.
    ///   - list: the key of the list of jobs, if it is not the queue's own. In a Cluster it must be in the queue's
    ///     slot: see ``listIsInSlot``.
    ///   - head: the end of that list that is its head.
    public init(
        prefix: String = "push", queue: String = "default", list: String? = nil, head: Head = .left
    ) throws(Invalid) {
        for (name, value) in [("prefix", prefix), ("queue", queue)] {
            // Braces would change the hash tag, and with it the Cluster slot.
            let isPlain = value.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x7B && $0 != 0x7D }
            guard !value.isEmpty, value.utf8.count <= 100, isPlain else {
                throw Invalid(
                    description: "the \(name) name must have 1 to 100 printable ASCII characters without spaces, { or }"
                )
            }
        }
        guard !queue.contains(",") else {
            throw Invalid(
                description: "a queue can't be named \(queue): a comma separates the names of queues; choose another")
        }
        guard !Self.endsWithWeight(queue) else {
            throw Invalid(
                description: "a queue can't be named \(queue): a number behind a colon is a weight; choose another")
        }
        guard !SharedKeys.hasTag(queue) else {
            throw Invalid(
                description:
                    "a queue can't be named \(queue): the keys that all queues share have such names; choose another"
            )
        }
        if let list {
            let isPlain = list.unicodeScalars.allSatisfy { $0.value > 0x20 && $0.value != 0x7F }
            guard !list.isEmpty, list.utf8.count <= 255, isPlain else {
                throw Invalid(
                    description: "the list must be a key of 1 to 255 bytes without spaces or control characters")
            }
        }
        self.queue = queue
        self.head = head
        base = "\(prefix):{\(queue)}:"
        jobs = list ?? base + "jobs"
        retry = base + "retry"
        failed = base + "failed"
        sorted = base + "sorted"
        shares = base + "shares"
        workers = base + "workers"
        inbox = base + "inbox"
        dead = base + "dead"
        deadBytes = base + "dead-bytes"
        cancelled = base + "cancelled"
        cancelledBytes = base + "cancelled-bytes"
        gauges = base + "gauges"
        results = base + "results"
        resultsMarks = base + "results-marks"
        resultsPositions = base + "results-positions"
        largest = base + "largest"
        paused = base + "paused"
        workerInfo = base + "worker-info"
        configurations = base + "configurations"
        deliveries = base + "deliveries"
        source = base + "source"
        statsPrefix = base + "stats:"
        minutesPrefix = base + "minute:"
        jobCommands = base + "job-commands"
        campaigns = base + "campaigns"
        campaignPrefix = base + "campaign:"
    }

    /// The sets of jobs that wait until they are due.
    public var postponed: [String] { [retry, failed] }

    /// The keys of the jobs that have not ended, and that no lane has claimed.
    public var unclaimed: [String] { [jobs, inbox, sorted] + postponed }

    /// The keys whose names are known, with their types as `TYPE` names them.
    /// - Parameter lanes: the names of the queue's lanes.
    public func schema(lanes: [String]) -> [(key: String, type: String)] {
        [
            (jobs, "list"), (retry, "zset"), (failed, "zset"), (sorted, "zset"), (shares, "hash"), (workers, "zset"),
            (inbox, "list"),
            (dead, "zset"), (deadBytes, "string"), (cancelled, "zset"), (cancelledBytes, "string"),
            (gauges, "string"), (results, "stream"), (resultsMarks, "zset"), (resultsPositions, "hash"),
            (largest, "string"), (paused, "string"), (workerInfo, "hash"),
            (configurations, "hash"), (jobCommands, "hash"), (campaigns, "zset"), (deliveries, "hash"),
            (source, "string"),
        ] + lanes.flatMap { [(claimed($0), "hash"), (next($0), "string")] }
    }

    /// True if the list of jobs is in the same Cluster slot as the queue's other keys. If not, no script can move a job between them.
    public var listIsInSlot: Bool { RedisHashSlot.of(jobs) == RedisHashSlot.of(retry) }

    /// The command that producers use to push jobs.
    public var pushCommand: String { head == .left ? "RPUSH" : "LPUSH" }

    /// HASH of a lane's claims: `<number>.<stamp>` → job.
    public func claimed(_ worker: String) -> String { "\(base)claimed:\(worker)" }

    /// STRING: the digest of the jobs of a producer's request; expires after a day.
    /// - Parameter name: a digest of its `Idempotency-Key`.
    public func request(_ name: String) -> String { "\(base)request:\(name)" }

    /// STRING: the origin of the job with `unique_for` that has reserved the id. If the job ends unsent, it is deleted.
    /// - Parameter id: a producer's id. It can hold any bytes, because the prefix already has the hash tag.
    public func unique(_ id: ByteBuffer) -> ByteBuffer { name("unique:", id) }

    /// STRING: the id of the newest job that `replaces` a key, or the name of its campaign; kept for a day, or until that job
    /// expires. Producers set it in the transaction that pushes the job.
    /// - Parameter key: a producer's key. It can hold any bytes, like an id.
    public func newest(_ key: ByteBuffer) -> ByteBuffer { name("newest:", key) }

    /// STRING: exists once a job with `replaces` and `send_at` was due and became the newest; kept as long as `newest:<key>`.
    /// - Parameter id: the job's id.
    public func announced(_ id: ByteBuffer) -> ByteBuffer { name("announced:", id) }

    private func name(_ kind: String, _ rest: ByteBuffer) -> ByteBuffer {
        var key = ByteBuffer(string: base + kind)
        key.writeImmutableBuffer(rest)
        return key
    }

    /// STREAM: results that no receiver of a consumer group has accepted, with an entry for each result; see `ResultGroup`.
    /// - Parameter group: the name of the group.
    public func parkedResults(_ group: String) -> String { "\(base)results-parked:\(group)" }

    /// STRING: `<next> <first> <stamp>` of the lane's last claim, so that a late command cannot claim twice.
    public func next(_ worker: String) -> String { "\(base)next:\(worker)" }

    /// STRING: a command to a worker (`quiet`, `work`, `stop`), kept for ten minutes.
    /// - Parameter process: the part of a lane's name that all lanes of its process share.
    public func order(_ process: String) -> String { "\(base)order:\(process)" }

    /// HASH of a campaign's counters by outcome and reason, with `total`, `started_at`, `updated_at`, `finished_at`, `open` while the total
    /// can grow, `guard` (JSON, see `CampaignGuard`), `at:<start>/<length>` (the number that ended in a period of seconds), and `latency`
    /// (JSON: the upper bounds of times from enqueueing to delivery in ms, with the numbers of notifications); kept for 90 days.
    public func campaign(_ name: String) -> String { campaignPrefix + name }

    /// HASH: the position of `campaign send` in its list of tokens, as the number of jobs that were pushed (`next`), with the digests of
    /// the list and of the job, and the time when its canary was pushed (`canary_at`); kept for 90 days.
    public func campaignList(_ name: String) -> String { "\(base)campaign-list:\(name)" }

    /// HASH of a day's counters by outcome and reason (`delivered`, `dead:MalformedJSON`, …); kept for 40 days.
    /// - Parameter date: such as `2026-11-21`, in UTC.
    public func stats(_ date: String) -> String { statsPrefix + date }

    /// HASH of a minute's counters for charts: outcomes, retries and deferrals by reason, latencies (`answer:96`: 64 to
    /// 96 ms), and a sample of the backlog; kept for 25 hours.
    /// - Parameter minute: such as `2026-11-21T14:05`, in UTC.
    public func minute(_ minute: String) -> String { minutesPrefix + minute }
}
