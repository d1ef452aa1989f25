import NIOCore
import PrintableText
import PushJob
import PushQueue
import Redis

/// A snapshot of a queue's contents and its workers, for operators. Reading it changes nothing and costs Redis little,
/// regardless of the size of the queue.
package struct QueueOverview: Sendable {
    /// A lane that has, or had, a lease.
    package struct Worker: Sendable {
        /// The lane's name, printable.
        package var name: String
        /// The milliseconds until the lane's lease ends; negative if it has ended.
        package var leaseLeft: Int64
        /// The number of jobs that the lane has claimed and not settled.
        package var claims: Int
        /// The lane's report; `nil` if it can't be read.
        package var report: WorkerReport?
        /// True while a lease proves that the lane's process is alive. The lease of a lane without claims is long and proves nothing. Such
        /// a lane counts as alive while the first lane of its process, which polls, has a lease.
        package internal(set) var isLiving = true
    }

    /// The maximum number of lanes that are read.
    package static let maximumWorkers = 1000
    /// The maximum number of dead letters that are read for their reasons.
    package static let maximumSample = 200
    /// The maximum size in bytes of the dead letters together, and of the first job.
    private static let maximumBytes = 262_144

    /// Redis' time in milliseconds since 1970.
    package var now: Int64
    /// Jobs that no lane has claimed.
    package var waiting: Int
    /// Retried, scheduled and deferred jobs that are due.
    package var due: Int
    /// Retried, scheduled and deferred jobs that are not due yet.
    package var later: Int
    /// The jobs of ``due`` and ``later`` that are tried again after a failure.
    package var retrying: Int
    /// The scheduled and deferred jobs of ``due`` and ``later``; `nil` if the jobs are too many or too large to be counted.
    package var postponed: PostponedCounts?
    package var dead: Int
    /// The sum of the dead letters' lengths in bytes.
    package var deadBytes: Int
    /// Cancelled jobs that are kept.
    package var cancelled: Int
    /// The time since the first job of ``due`` became due, in milliseconds; `nil` if no job is due.
    package var overdue: Int64?
    /// The latest due time of the jobs of ``due`` and ``later``, in milliseconds since 1970; `nil` without these jobs.
    package var latest: Int64?
    /// The age in milliseconds of the job that has probably waited longest; `nil` if the job has no time of its enqueueing.
    package var oldestWaiting: Int64?
    package var pause: PauseRecord?
    /// At most ``maximumWorkers`` lanes.
    package var workers: [Worker]
    /// The number of all lanes, including lanes that are not read.
    package var workerCount: Int
    /// The day's counters by outcome and reason (UTC).
    package var counters: [String: Int]
    /// The newest dead letters by reason.
    package var deadReasons: [String: Int]
    /// The number of dead letters that were read for ``deadReasons``.
    package var deadSampled: Int
    /// The waiting jobs by their member `fair`; `nil` if the queue does not sort its jobs.
    package var shares: QueueShares?

    /// Jobs that are claimed and not settled.
    package var claims: Int { workers.reduce(0) { $0 + $1.claims } }

    /// The age in milliseconds of the oldest job that could be in flight by now: the larger one of ``overdue`` and ``oldestWaiting``.
    package var oldest: Int64? { [overdue, oldestWaiting].compactMap { $0 }.max() }

    /// True if Redis has no key of the queue.
    var isEmpty: Bool { waiting + due + later + dead + workerCount == 0 && pause == nil }

    /// - Parameter countsPostponed: false to omit ``postponed``, which costs the most.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    package static func read(
        _ client: RedisClient, _ keys: QueueKeys, countsPostponed: Bool = true
    ) async throws -> QueueOverview {
        var overview = try await QueueScript.overview.run(
            client,
            [
                keys.jobs, keys.retry, keys.workers, keys.dead, keys.paused, keys.workerInfo, keys.statsPrefix,
                keys.inbox, keys.deadBytes, keys.cancelled, keys.sorted, keys.shares, keys.failed,
            ]
        ) { command in
            command.append(keys.claimed(""))
            command.append(maximumWorkers)
            command.append(maximumSample)
            command.append(maximumBytes)
            command.append(keys.head == .left ? 0 : -1)
        } reading: {
            QueueOverview(&$0)
        }
        if countsPostponed { overview.postponed = try await PostponedCounts.read(client, keys) }
        return overview
    }

    /// Reads only the leases of a queue's lanes, and nothing of its jobs.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    package static func leases(_ client: RedisClient, _ keys: QueueKeys) async throws -> [Worker] {
        try await QueueScript.leases.run(client, [keys.workers, keys.workerInfo]) { command in
            command.append(keys.claimed(""))
            command.append(maximumWorkers)
        } reading: { reply in
            let now = Int64(reply.number())
            return workers(Array(reply.children()), now: now)
        }
    }

    private init(_ reply: inout ScriptReply) {
        now = Int64(reply.number())
        (waiting, due, later) = (reply.number(), reply.number(), reply.number())
        (retrying, dead) = (reply.number(), reply.number())
        overdue = reply.numberIfAny()
        pause = reply.bytesOrNull().map { PauseRecord($0) }
        let head = reply.bytes()
        // This finds the time in any format except Resque's, which has no time.
        if head.readableBytes > 0,
            let made = StoredJob(head, size: head.readableBytes, format: .native).enqueuedAt
        {
            oldestWaiting = max(0, now.since(made))
        }
        workerCount = reply.number()
        workers = Self.workers(Array(reply.children()), now: now)
        counters = Self.pairs(reply.children())
        deadSampled = reply.number()
        deadReasons = Self.pairs(reply.children())
        deadBytes = reply.number()
        latest = reply.numberIfAny()
        cancelled = reply.number()
        shares = QueueShares(Array(reply.children()))
    }

    private static func workers(_ parts: [RESPReply.Element], now: Int64) -> [Worker] {
        var workers = stride(from: 0, to: parts.count - 3, by: 4).map { index in
            let end = parts[index + 1].string.flatMap(Double.init) ?? 0
            let left = max(-1e13, min(end - Double(now), 1e13))
            return Worker(
                name: (parts[index].string ?? "").prefix(WorkerReport.maximumText).printable,
                leaseLeft: left.isNaN ? 0 : Int64(left), claims: parts[index + 2].number ?? 0,
                report: parts[index + 3].bytes.flatMap { $0.readableBytes > 0 ? WorkerReport($0) : nil })
        }
        let polling = workers.filter { $0.leaseLeft >= 0 && $0.report?.lane == 0 }.compactMap(\.report?.process)
        let living = Set(polling)
        for index in workers.indices {
            let worker = workers[index]
            let isOwnProof = worker.claims > 0 || worker.report.map { living.contains($0.process) } ?? true
            workers[index].isLiving = worker.leaseLeft >= 0 && isOwnProof
        }
        return workers
    }

    private static func pairs(_ elements: RESPReply.Children) -> [String: Int] {
        let parts = Array(elements)
        var pairs: [String: Int] = [:]
        for index in stride(from: 0, to: parts.count - 1, by: 2) {
            let name = (parts[index].string ?? "").prefix(WorkerReport.maximumText).printable
            let count = parts[index + 1].number ?? parts[index + 1].string.flatMap { Int($0) } ?? 0
            pairs[name] = max(0, min(count, 10_000_000_000_000))
        }
        return pairs
    }
}

/// The waiting jobs of a queue that sorts them, by their member `fair`.
package struct QueueShares: Sendable, Equatable {
    /// The jobs of one key, or of several keys if there are too many keys.
    package struct Share: Sendable, Equatable {
        /// The text of `fair`, printable; empty for all jobs without it, `nil` for several keys.
        package var key: String?
        /// An upper bound of the size of the share's waiting jobs, in bytes.
        package var waitingBytes: Int
    }

    /// An upper bound of the number of shares with waiting jobs.
    package var count: Int
    /// An upper bound of the size of all waiting jobs, in bytes.
    package var waitingBytes: Int
    /// The largest shares in descending order, at most five.
    package var largest: [Share]

    /// The share that has more than half of the bytes while jobs of other shares wait.
    package var dominant: Share? { count > 1 ? largest.first { $0.waitingBytes > waitingBytes / 2 } : nil }

    package static func name(_ share: Share) -> String {
        share.key.map { $0.isEmpty ? "jobs without fair" : $0 } ?? "further keys"
    }
}

extension QueueShares: Shown {
    package static let columns = Columns<Self>(
        "Shares", "The waiting jobs of a queue by their member `fair`.",
        [
            .init("count", "Upper estimate of the number of keys whose jobs wait.", as: .count, \.count),
            .init("waiting_bytes", "Upper estimate of the bytes of all waiting jobs.", as: .bytes, \.waitingBytes),
            .init("largest", "Keys with the most bytes, at most five.", \.largest),
        ])
}

extension QueueShares.Share: Shown {
    package static let columns = Columns<Self>(
        "Share", "The waiting jobs of a key.",
        [
            .init("key", "Text of `fair`; empty for jobs without it, omitted for several keys together.", \.key),
            .init("waiting_bytes", "Maximum bytes of the key's waiting jobs.", as: .bytes, \.waitingBytes),
        ])
}

extension QueueShares {
    init?(_ parts: [RESPReply.Element]) {
        guard parts.count >= 2 else { return nil }
        func number(_ index: Int) -> Int { parts[index].number ?? parts[index].string.flatMap { Int($0) } ?? 0 }
        (count, waitingBytes) = (number(0), number(1))
        largest = stride(from: 2, to: parts.count - 1, by: 2).map { index in
            let field = parts[index].string ?? ""
            let key = field.hasPrefix("by:") ? field.dropFirst(3).prefix(WorkerReport.maximumText).printable : nil
            return Share(key: key, waitingBytes: number(index + 1))
        }
    }
}

package struct PostponedCounts: Sendable, Equatable {
    /// Jobs with a `send_at`.
    package var scheduled = 0
    /// Jobs that could not be sent, and have not failed.
    package var deferred = 0

    /// The maximum number and size in bytes of the counted jobs. Counting is limited because it reads the jobs.
    private static let (maximumJobs, maximumBytes) = (1000, 262_144)

    init() {}

    /// - Returns: `nil` if the jobs are too many or too large.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> PostponedCounts? {
        try await QueueScript.countPostponed.run(client, [keys.retry]) { command in
            command.append(maximumJobs)
            command.append(maximumBytes)
        } reading: { reply in
            let isComplete = reply.number() == 1
            var counts = PostponedCounts()
            (counts.scheduled, counts.deferred) = (reply.number(), reply.number())
            return isComplete ? counts : nil
        }
    }
}
