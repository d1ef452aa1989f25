import NIOCore

/// The pauses between attempts: exponential and random, so that workers do not try again at the same time.
public struct Backoff: Sendable, Equatable {
    /// The upper limit of the first pause. It doubles with each further failure.
    public var first: TimeAmount
    /// The upper limit of any pause.
    public var longest: TimeAmount
    /// The shortest pause, as a share of its upper limit: 0 for any pause up to the limit, 1 for exactly the limit.
    public var least: Double

    public init(first: TimeAmount, longest: TimeAmount, least: Double = 0) {
        self.first = first
        self.longest = longest
        self.least = least
    }

    /// Returns the upper limit of the pause after a number of consecutive failures.
    public func limit(failures: Int) -> TimeAmount {
        let doublings = max(failures, 1) - 1
        // After 62 doublings, `longest` applies even to a nanosecond.
        guard doublings < 62, first.nanoseconds <= longest.nanoseconds >> doublings else { return longest }
        return .nanoseconds(first.nanoseconds << doublings)
    }

    /// Returns the pause after a number of consecutive failures.
    /// - Parameter random: from 0 to 1, evenly distributed.
    public func pause(failures: Int, random: Double) -> TimeAmount {
        let share = least + (1 - least) * min(max(random, 0), 1)
        return .nanoseconds(Int64(Double(limit(failures: failures).nanoseconds) * share))
    }

    /// Returns the pause after a number of consecutive failures, and after a request to wait, such as `Retry-After`.
    /// - Parameters:
    ///   - requested: the minimum. A random part of ``first`` is added, so that workers do not return at the same time.
    ///   - random: from 0 to 1, evenly distributed.
    public func pause(failures: Int, requested: TimeAmount, random: Double) -> TimeAmount {
        let spread = Int64(Double(first.nanoseconds) * min(max(random, 0), 1))
        return max(pause(failures: failures, random: random), requested + .nanoseconds(spread))
    }
}
