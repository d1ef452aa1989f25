import NIOCore
import PrintableText
import PushJob
import Redis

/// A queue's contents and its workers at one moment, for people. Reading it changes nothing and costs Redis little,
/// however much the queue holds.
public struct QueueOverview: Sendable {
    /// A worker that has, or had, a lease.
    public struct Worker: Sendable {
        /// One lane of one process, as it stands in Redis: fit to be shown.
        public var name: String
        /// In how many milliseconds its lease ends; negative where it has ended.
        public var leaseLeft: Int64
        /// Jobs that it has taken and not settled.
        public var claims: Int
        /// Its report; `nil` if that can't be read.
        public var report: WorkerReport?
        /// True while its lease shows that its process lives. The long lease of a lane without claims does not: such a lane
        /// lives as long as the lane of its process that polls, which is the first.
        public internal(set) var isLiving = true
    }

    /// How many workers are looked at.
    public static let maximumWorkers = 1000
    /// How many dead letters are looked at for their reasons.
    public static let maximumSample = 200
    /// How many bytes of them at the most, and of the first job.
    private static let maximumBytes = 4 << 20

    /// Redis' time in milliseconds since 1970.
    public var now: Int64
    /// Jobs that nobody has taken yet.
    public var waiting: Int
    /// Retries whose time has come.
    public var due: Int
    /// Jobs that wait for their time: retries, scheduled and deferred ones.
    public var later: Int
    /// The jobs of ``due`` and ``later`` by the reason; `nil` if there are too many to count.
    public var retries: RetryCounts?
    /// Dead letters.
    public var dead: Int
    /// The sum of the dead letters' lengths in bytes.
    public var deadBytes: Int
    /// For how many milliseconds the first of the due retries has been due; `nil` when none is.
    public var overdue: Int64?
    /// For how many milliseconds the first of the waiting jobs has been there, where it says when it was made.
    public var oldestWaiting: Int64?
    /// Why the queue is paused; `nil` when it is not.
    public var pause: AppPause?
    /// Workers, ``maximumWorkers`` at the most.
    public var workers: [Worker]
    /// How many workers there are.
    public var workerCount: Int
    /// The day's counters by outcome and reason (UTC).
    public var counters: [String: Int]
    /// The newest dead letters by reason.
    public var deadReasons: [String: Int]
    /// How many dead letters ``deadReasons`` are of.
    public var deadSampled: Int

    /// Jobs that workers have taken and not settled.
    public var claims: Int { workers.reduce(0) { $0 + $1.claims } }

    /// The age of the oldest job that should be under way, in milliseconds, as far as it can be known: the first in the
    /// list, if its producer says when it was made, or the retry that has been due for longest. `nil` where no job waits or
    /// none tells.
    public var oldest: Int64? { [overdue, oldestWaiting].compactMap { $0 }.max() }

    /// Asks Redis.
    /// - Throws: `RedisError`, or ``QueueConnection/Failure/unexpectedReply(_:)``.
    public static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> QueueOverview {
        let command = QueueScript.overview.command([
            keys.jobs, keys.retry, keys.workers, keys.dead, keys.paused, keys.workerInfo, keys.statsPrefix, keys.inbox,
            keys.deadBytes,
        ]) { command in
            command.append(keys.claimed(""))
            command.append(maximumWorkers)
            command.append(maximumSample)
            command.append(maximumBytes)
            command.append(keys.head == .left ? 0 : -1)
        }
        guard var overview = QueueOverview(try await client.call(command)) else {
            throw QueueConnection.Failure.unexpectedReply(.overview)
        }
        overview.retries = try await RetryCounts.read(client, keys)
        return overview
    }

    private init?(_ reply: RESPReply) {
        let parts = Array(reply.root.children)
        guard parts.count == 14, let now = parts[0].integer, let jobs = parts[1].integer, let due = parts[2].integer,
            let later = parts[3].integer, let dead = parts[4].integer, let overdue = parts[5].integer,
            let head = parts[7].bytes, let members = parts[8].integer, let sampled = parts[11].integer,
            let deadBytes = parts[13].integer
        else { return nil }
        self.now = Int64(now)
        waiting = jobs
        self.due = due
        self.later = later
        self.dead = dead
        self.deadBytes = deadBytes
        self.overdue = overdue < 0 ? nil : Int64(overdue)
        if head.readableBytes > 0, let job = try? JobDecoder.decode(head), let made = job.enqueuedAt {
            oldestWaiting = max(0, Int64(now) - made)
        }
        pause = parts[6].bytes.map { AppPause($0) }
        workerCount = members
        workers = Self.workers(Array(parts[9].children), now: Int64(now))
        counters = Self.pairs(parts[10])
        deadSampled = sampled
        deadReasons = Self.pairs(parts[12])
    }

    private static func workers(_ parts: [RESPReply.Element], now: Int64) -> [Worker] {
        var workers = stride(from: 0, to: parts.count - 3, by: 4).map { index in
            let end = parts[index + 1].string.flatMap(Double.init) ?? 0
            let left = max(-1e13, min(end - Double(now), 1e13))
            return Worker(
                name: (parts[index].string ?? "").prefix(WorkerReport.maximumText).printable,
                leaseLeft: left.isNaN ? 0 : Int64(left), claims: parts[index + 2].integer ?? 0,
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

    /// Names and counts, in turn.
    private static func pairs(_ element: RESPReply.Element) -> [String: Int] {
        let parts = Array(element.children)
        var pairs: [String: Int] = [:]
        for index in stride(from: 0, to: parts.count - 1, by: 2) {
            let name = (parts[index].string ?? "").prefix(WorkerReport.maximumText).printable
            let count = parts[index + 1].integer ?? parts[index + 1].string.flatMap { Int($0) } ?? 0
            pairs[name] = max(0, min(count, 10_000_000_000_000))
        }
        return pairs
    }
}
