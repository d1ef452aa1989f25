import NIOCore

/// When a feedback service is asked again and again, without any I/O.
public struct FeedbackSchedule: Sendable {
    private let interval: TimeAmount
    /// When it is asked next.
    public private(set) var next: NIODeadline

    /// - Parameters:
    ///   - interval: from one beginning to the next.
    ///   - random: from 0 to 1, evenly spread: many that are started together do not ask together.
    public init(interval: TimeAmount, now: NIODeadline, random: Double) {
        self.interval = interval
        let spread = min(interval.nanoseconds / 10, TimeAmount.minutes(1).nanoseconds)
        next = now + .nanoseconds(Int64(Double(spread) * min(max(random, 0), 1)))
    }

    /// It has been asked. What should have been done in the meantime is left out.
    public mutating func finished(now: NIODeadline) {
        let late = max(0, (now - next).nanoseconds)
        next = next + .nanoseconds((late / interval.nanoseconds + 1) * interval.nanoseconds)
    }
}
