import NIOCore
import PushJob
import PushQueue
import Redis

package struct WorkerConfiguration: Sendable {
    /// The Redis servers that hold the queues.
    package var redis: RedisTopology
    /// The options of connections to Redis. Its client name is ignored, because each connection gets its own.
    package var redisClient = RedisClientConfiguration()
    /// The queues to claim jobs from, at least one.
    package var queues: [QueueConfiguration]
    package var queueOrder = QueueOrder.weighted
    package var sharedKeys: SharedKeys
    /// At least one app.
    package var apps: [AppConfiguration]
    /// The name of this process among all workers, unique for each start.
    package var workerName: String
    /// The number of event loops, each with its own connections; 0 for one per core.
    package var lanes = 1
    package var retry = RetryPolicy()
    /// The interval in milliseconds between summaries in the log; 0 for none. There is no summary without work.
    package var summaryInterval = 60_000
    /// The time that invalid tokens are kept, in milliseconds; 0 for forever.
    package var invalidTokenAge = InvalidTokenSet.defaultMaximumAge
    /// The maximum size in bytes of the filter of invalid tokens; 0 for none. With the filter, most tokens need no look-up.
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

    /// Returns this configuration with the settings of another one that a running worker can change.
    func reloaded(from other: WorkerConfiguration) -> WorkerConfiguration {
        var merged = self
        merged.apps = other.apps
        merged.retry = other.retry
        return merged
    }
}

package struct QueueConfiguration: Sendable {
    package var keys: QueueKeys
    /// The queue's share of the worker in relation to other queues while all have jobs; 1 to 1000.
    package var weight: Int

    package var format = JobFormat.native
    /// The lease, and the limits of jobs, claims, dead letters and results.
    package var limits = QueueLimits()

    package init(keys: QueueKeys, weight: Int = 1) {
        self.keys = keys
        self.weight = weight
    }
}

/// The order of claims from several queues with jobs.
package enum QueueOrder: String, Sendable, CaseIterable {
    /// Each queue gets a share according to its weight.
    case weighted
    /// The first queue gets all it can use, then the second, and so on.
    case strict
}
