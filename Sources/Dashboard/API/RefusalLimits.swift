import NIOCore

/// Limits how often each producer can send requests with mistakes, which cost as much as others. No I/O.
///
/// A producer has a credit of requests, which grows with time up to ``burst``, and each refused request takes one.
struct RefusalLimits {
    /// The number of refused requests at once, and their sustained number per second.
    static let (burst, perSecond) = (100.0, 10.0)

    private struct Credit {
        var left: Double
        var at: NIODeadline
        var hasWarned = false
    }

    private var credits: [String: Credit] = [:]

    /// Returns false while a producer has no credit.
    func mayAsk(_ producer: String, now: NIODeadline) -> Bool { credit(producer, now).left >= 1 }

    /// Records that a request was refused.
    /// - Returns: true if the producer has just used up its credit, for the first time since it had the whole.
    mutating func recordRefusal(_ producer: String, now: NIODeadline) -> Bool {
        var credit = credit(producer, now)
        credit.left = max(0, credit.left - 1)
        let isNews = credit.left < 1 && !credit.hasWarned
        credit.hasWarned = credit.hasWarned || isNews
        credits[producer] = credit
        return isNews
    }

    private func credit(_ producer: String, _ now: NIODeadline) -> Credit {
        // Names are those of the file of users, so there are few.
        guard let credit = credits[producer] else { return Credit(left: Self.burst, at: now) }
        let left = credit.left + Double((now - credit.at).nanoseconds) / 1e9 * Self.perSecond
        return left >= Self.burst
            ? Credit(left: Self.burst, at: now) : Credit(left: left, at: now, hasWarned: credit.hasWarned)
    }
}
