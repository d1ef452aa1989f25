import NIOCore
import PushQueue
import Redis

/// Everything a worker needs to know.
public struct WorkerConfiguration: Sendable {
    public var redis: RedisEndpoint
    public var queueKeys: QueueKeys
    public var sharedKeys: SharedKeys
    public var queueLimits = QueueLimits()
    public var apps: [AppConfiguration]
    /// This process' name among all workers: unique for each start.
    public var workerName: String
    /// Event loops that work, each with its own connections; 0 for one a core.
    public var lanes = 1
    public var retry = RetryPolicy()
    /// How long a drain may take, in milliseconds.
    public var drainTimeout = 25_000

    /// Takes what has no default.
    public init(
        redis: RedisEndpoint, queueKeys: QueueKeys, sharedKeys: SharedKeys, apps: [AppConfiguration],
        workerName: String
    ) {
        self.redis = redis
        self.queueKeys = queueKeys
        self.sharedKeys = sharedKeys
        self.apps = apps
        self.workerName = workerName
    }
}
