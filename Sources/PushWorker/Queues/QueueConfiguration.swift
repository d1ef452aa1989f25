import PushJob
import PushQueue

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
