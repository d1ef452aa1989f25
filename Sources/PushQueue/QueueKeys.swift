import NIOCore

/// The names of a queue's keys in Redis. All keys of a queue carry the same hash tag, so that a queue is one Cluster slot
/// and each of its transitions can be one script.
public struct QueueKeys: Sendable {
    /// The queue's name.
    public let queue: String
    /// LIST of jobs to send; producers `RPUSH` here.
    public let jobs: String
    /// ZSET of wrapped jobs by due time in ms.
    public let retry: String
    /// ZSET of workers by the end of their lease in ms.
    public let workers: String
    /// ZSET of dead letters by time in ms.
    public let dead: String
    /// STRING: why the queue is paused.
    public let paused: String
    /// HASH: worker → what it tells of itself (see ``WorkerReport``).
    public let workerInfo: String
    /// The day's counters are under this and the date.
    public let statsPrefix: String

    private let base: String

    /// What is wrong with a prefix or a queue's name.
    public struct Invalid: Error, Sendable, CustomStringConvertible {
        /// What is wrong and what to do.
        public let description: String
    }

    /// - Parameters:
    ///   - prefix: what all keys begin with, `push` by default.
    ///   - queue: the queue's name, `default` by default.
    public init(prefix: String = "push", queue: String = "default") throws(Invalid) {
        for (name, value) in [("prefix", prefix), ("queue", queue)] {
            // Braces would change the hash tag, and with it the Cluster slot.
            let isPlain = value.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x7B && $0 != 0x7D }
            guard !value.isEmpty, value.utf8.count <= 100, isPlain else {
                throw Invalid(
                    description: "the \(name) name must have 1 to 100 printable ASCII characters without spaces, { or }"
                )
            }
        }
        self.queue = queue
        base = "\(prefix):{\(queue)}:"
        jobs = base + "jobs"
        retry = base + "retry"
        workers = base + "workers"
        dead = base + "dead"
        paused = base + "paused"
        workerInfo = base + "worker-info"
        statsPrefix = base + "stats:"
    }

    /// HASH of a worker's claims: claim number → job.
    public func claimed(_ worker: String) -> String { "\(base)claimed:\(worker)" }

    /// LIST of at most one job, moved there by a worker's blocking wait.
    public func inbox(_ worker: String) -> String { "\(base)inbox:\(worker)" }

    /// STRING: the claim that has reserved a job's id.
    /// - Parameter id: a producer's id, of any bytes: only ever behind the prefix, which has the hash tag already.
    public func unique(_ id: ByteBuffer) -> ByteBuffer {
        var key = ByteBuffer(string: base + "unique:")
        key.writeImmutableBuffer(id)
        return key
    }

    /// STRING: the number after the last that a claim of the worker asked for.
    public func next(_ worker: String) -> String { "\(base)next:\(worker)" }

    /// STRING: what a person wants a process to do (see ``WorkerOrder``).
    /// - Parameter process: the part of its workers' names that its lanes have in common.
    public func order(_ process: String) -> String { "\(base)order:\(process)" }

    /// HASH of a day's counters.
    /// - Parameter date: such as `2026-11-21`, in UTC.
    public func stats(_ date: String) -> String { statsPrefix + date }
}
