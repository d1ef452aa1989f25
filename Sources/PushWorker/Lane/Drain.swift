import NIOCore

/// The end of a lane: it awaits answers until a deadline, then settlements for a short time. No I/O.
struct Drain {
    enum Step: Equatable {
        /// Answers to requests in flight are awaited.
        case answering
        /// The time for answers has expired; Redis gets a short time for the settlements.
        case settling
        /// The time for settlements has expired too.
        case givenUp
    }

    /// The time for settlements after the deadline for answers.
    static let settlementTime = TimeAmount.seconds(2)

    private(set) var step = Step.answering
    private var deadline: NIODeadline

    /// - Parameter limit: the time for answers.
    init(within limit: TimeAmount, now: NIODeadline) { deadline = now + limit }

    /// Moves to the next step once the time of the current one has expired.
    /// - Returns: the new step; `nil` if it has not changed.
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

    /// Records that the process did not run for some time, in which nothing could arrive.
    mutating func stoodStill(for time: TimeAmount) { deadline = deadline + time }

    /// True once nothing is awaited any more.
    var isGivenUp: Bool { step == .givenUp }
}
