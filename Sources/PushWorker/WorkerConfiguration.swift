import NIOCore
import PushJob
import PushQueue
import Redis

/// Everything a worker needs to know.
public struct WorkerConfiguration: Sendable {
    /// Where the queues are.
    public var redis: RedisTopology
    /// How to connect there. Its client name is of no consequence: each connection gets its own.
    public var redisClient = RedisClientConfiguration()
    /// The queues to take jobs from, at least one.
    public var queues: [QueueConfiguration]
    /// Which queue's turn it is when several have work.
    public var queueOrder = QueueOrder.weighted
    /// The keys that all queues share.
    public var sharedKeys: SharedKeys
    /// The apps to send for, at least one.
    public var apps: [AppConfiguration]
    /// This process' name among all workers: unique for each start.
    public var workerName: String
    /// Event loops that work, each with its own connections; 0 for one a core.
    public var lanes = 1
    /// When and how often a notification is tried again.
    public var retry = RetryPolicy()
    /// For how long an app that APNs refuses is paused.
    public var appPause = AppPauses.Durations()
    /// How often the log has a line about what was done, in milliseconds; 0 for never. There is none when nothing was.
    public var summaryInterval = 60_000
    /// The time for which invalid tokens are kept, in milliseconds; 0 for ever.
    public var invalidTokenAge = InvalidTokenSet.defaultMaximumAge
    /// How long a drain may take, in milliseconds.
    public var drainTimeout = 25_000

    /// Takes what has no default.
    public init(
        redis: RedisTopology, queues: [QueueConfiguration], sharedKeys: SharedKeys, apps: [AppConfiguration],
        workerName: String
    ) {
        self.redis = redis
        self.queues = queues
        self.sharedKeys = sharedKeys
        self.apps = apps
        self.workerName = workerName
    }

    /// This configuration with everything of another one that a worker that runs can take up: the apps, and when and how often
    /// is tried again.
    func reloaded(from other: WorkerConfiguration) -> WorkerConfiguration {
        var merged = self
        merged.apps = other.apps
        merged.retry = other.retry
        merged.appPause = other.appPause
        return merged
    }
}

/// One of the queues that a worker takes jobs from.
public struct QueueConfiguration: Sendable {
    /// Its keys in Redis.
    public var keys: QueueKeys
    /// How much of the worker it has in relation to other queues while all have work; 1 to 1000.
    public var weight: Int

    /// How its jobs are written.
    public var format = JobFormat.native
    /// The lease, and the bounds of what is kept.
    public var limits = QueueLimits()

    /// Takes what has no default.
    public init(keys: QueueKeys, weight: Int = 1) {
        self.keys = keys
        self.weight = weight
    }
}

/// Which queue's turn it is when several have work.
public enum QueueOrder: String, Sendable, CaseIterable {
    /// Each has its share, by its weight.
    case weighted
    /// The first has all it can use, then the second, and so on.
    case strict
}
