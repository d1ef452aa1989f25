import NIOCore

/// The end of a lane: answers are awaited until a deadline, then settlements for a moment more. No I/O.
struct Drain {
    enum Step: Equatable {
        /// Answers to what is in flight are awaited.
        case answering
        /// Their time is up. Redis is given a moment more for the settlements.
        case settling
        /// That time is up, too.
        case givenUp
    }

    /// The time for settlements after the deadline for answers.
    static let settlementTime = TimeAmount.seconds(2)

    private(set) var step = Step.answering
    private var deadline: NIODeadline

    /// - Parameter limit: the time for answers.
    init(within limit: TimeAmount, now: NIODeadline) { deadline = now + limit }

    /// Moves to the next step if the time of this one is up.
    /// - Returns: the new step; `nil` if it is still the same.
    mutating func advance(now: NIODeadline) -> Step? {
        guard now >= deadline else { return nil }
        switch step {
        case .answering:
            step = .settling
            deadline = now + Self.settlementTime
        case .settling: step = .givenUp
        case .givenUp: return nil
        }
        return step
    }

    /// True when nothing is awaited any more.
    var isGivenUp: Bool { step == .givenUp }
}
