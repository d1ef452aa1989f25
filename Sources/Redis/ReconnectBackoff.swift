import NIOCore

/// How long to wait before connecting again: exponential, with full jitter, so that a fleet does not come back in step.
public struct ReconnectBackoff: Sendable, Equatable {
    /// The longest the first wait may be.
    public var initial: TimeAmount
    /// The longest any wait may be.
    public var maximum: TimeAmount

    /// A backoff; 50 ms to 5 s unless told.
    public init(initial: TimeAmount = .milliseconds(50), maximum: TimeAmount = .seconds(5)) {
        self.initial = initial
        self.maximum = maximum
    }

    /// The longest the wait may be after so many failures in a row: doubles with each.
    public func ceiling(failures: Int) -> TimeAmount {
        let doublings = max(0, failures - 1)
        // Past 62 doublings, even of a nanosecond, there is nothing left to compare.
        guard doublings < 62, initial.nanoseconds <= maximum.nanoseconds >> doublings else { return maximum }
        return .nanoseconds(initial.nanoseconds << doublings)
    }

    /// The wait after so many failures in a row.
    ///
    /// - Parameter random: from 0 to 1, evenly spread.
    public func delay(failures: Int, random: Double) -> TimeAmount {
        .nanoseconds(Int64(Double(ceiling(failures: failures).nanoseconds) * min(max(random, 0), 1)))
    }
}
