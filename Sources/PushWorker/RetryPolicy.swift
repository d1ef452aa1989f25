/// When, and how often, a notification is tried again.
public struct RetryPolicy: Sendable, Equatable {
    /// The ceiling of the first pause in milliseconds; it doubles with each attempt.
    public var base: Int64 = 1000
    /// The ceiling of all pauses in milliseconds.
    public var cap: Int64 = 600_000
    /// How many attempts a job has that does not say.
    public var maximumAttempts = 10

    /// The defaults.
    public init() {}

    /// The pause before the next attempt in milliseconds: exponential with full jitter, so that what failed together
    /// does not come back together.
    /// - Parameters:
    ///   - attempt: how many attempts were made, from 1.
    ///   - retryAfter: the seconds that the server asked for, which are the least.
    ///   - jitter: from 0 to 1, evenly distributed.
    public func delay(afterAttempt attempt: Int, retryAfter: Int?, jitter: Double) -> Int64 {
        let exponent = Int64(min(max(attempt, 1) - 1, 30))
        let (grown, overflows) = base.multipliedReportingOverflow(by: 1 << exponent)
        let ceiling = overflows ? cap : min(cap, grown)
        let backoff = Int64(Double(ceiling) * jitter)
        guard let retryAfter else { return backoff }
        return max(Int64(min(retryAfter, 86_400)) * 1000, 0) + backoff
    }
}
