import NIOCore
import PushJob
import PushQueue
import Redis

package struct WorkerConfiguration: Sendable {
    /// The Redis servers that hold the queues.
    package var redis: RedisTopology
    /// The options of connections to Redis. Its client name is ignored, because each connection gets its own.
    package var redisClient = RedisClientConfiguration()
    /// The queues from which to claim jobs, at least one.
    package var queues: [QueueConfiguration]
    package var queueOrder = QueueOrder.weighted
    package var sharedKeys: SharedKeys
    /// The apps for which to send, at least one.
    package var apps: [AppConfiguration]
    /// The name of this process among all workers, unique for each start.
    package var workerName: String
    /// The number of event loops, each with its own connections; 0 for one per core.
    package var lanes = 1
    package var retry = RetryPolicy()
    /// The interval in milliseconds between summaries in the log; 0 for none. A summary is omitted if there was no
    /// work.
    package var summaryInterval = 60_000
    /// The time for which invalid tokens are kept, in milliseconds; 0 for forever.
    package var invalidTokenAge = InvalidTokenSet.defaultMaximumAge
    /// The maximum size in bytes of the filter of invalid tokens, with which most tokens need no look-up; 0 for none.
    package var tokenFilterBytes = 64 << 20
    /// The maximum duration of a drain, in milliseconds.
    package var drainTimeout = 25_000

    package init(
        redis: RedisTopology, queues: [QueueConfiguration], sharedKeys: SharedKeys, apps: [AppConfiguration],
        workerName: String
    ) {
        self.redis = redis
        self.queues = queues
        self.sharedKeys = sharedKeys
        self.apps = apps
        self.workerName = workerName
    }

    /// Returns this configuration with all settings of another one that a running worker can change: the apps and
    /// retries.
    func reloaded(from other: WorkerConfiguration) -> WorkerConfiguration {
        var merged = self
        merged.apps = other.apps
        merged.retry = other.retry
        return merged
    }
}

package struct QueueConfiguration: Sendable {
    /// Its keys in Redis.
    package var keys: QueueKeys
    /// Its share of the worker in relation to other queues while all have jobs; 1 to 1000.
    package var weight: Int

    package var format = JobFormat.native
    /// The lease, and the limits of what is kept.
    package var limits = QueueLimits()

    package init(keys: QueueKeys, weight: Int = 1) {
        self.keys = keys
        self.weight = weight
    }
}

/// The order in which queues with jobs are claimed from.
package enum QueueOrder: String, Sendable, CaseIterable {
    /// Each queue gets a share according to its weight.
    case weighted
    /// The first queue gets all it can use, then the second, and so on.
    case strict
}
