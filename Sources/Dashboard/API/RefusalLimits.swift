import NIOCore

/// Limits each producer's refused requests, because a refused request costs as much as an accepted one. No I/O.
///
/// A producer has credit for a number of requests, which grows with time up to ``burst``. A request takes 1 before it is read. It gives 1
/// back if it has no mistakes.
struct RefusalLimits {
    /// The maximum credit, and its growth per second.
    static let (burst, perSecond) = (100.0, 10.0)

    private struct Credit {
        var left: Double
        var at: NIODeadline
        var hasWarned = false
    }

    private var credits: [String: Credit] = [:]

    enum Answer { case granted, refused, refusedFirst }

    /// Takes the credit for a request.
    /// - Returns: `refused` if the producer has no credit; `refusedFirst` for the first such request since the credit was full.
    mutating func take(_ producer: String, now: NIODeadline) -> Answer {
        var credit = credit(producer, now)
        defer { credits[producer] = credit }
        guard credit.left < 1 else {
            credit.left -= 1
            return .granted
        }
        defer { credit.hasWarned = true }
        return credit.hasWarned ? .refused : .refusedFirst
    }

    /// Gives back the credit of a request without mistakes.
    mutating func giveBack(_ producer: String, now: NIODeadline) {
        var credit = credit(producer, now)
        credit.left = min(Self.burst, credit.left + 1)
        credits[producer] = credit
    }

    private func credit(_ producer: String, _ now: NIODeadline) -> Credit {
        // The names are from the file of users, so there are few entries.
        guard let credit = credits[producer] else { return Credit(left: Self.burst, at: now) }
        let left = credit.left + Double((now - credit.at).nanoseconds) / 1e9 * Self.perSecond
        return left >= Self.burst
            ? Credit(left: Self.burst, at: now) : Credit(left: left, at: now, hasWarned: credit.hasWarned)
    }
}
