/// How a notification ended. The raw value is its spelling everywhere: in Redis' counters, in results, metrics and logs.
public enum Outcome: String, CaseIterable, Sendable {
    /// APNs accepted it.
    case delivered
    /// APNs reported that its device token is not valid. The token is in the set of invalid tokens.
    case invalidToken = "invalid_token"
    /// Its expiration passed before it was delivered.
    case expired
    /// It was dropped as its job requested: no answer arrived (`on_uncertain: drop`), another job has its id (`unique_for`), or a newer job
    /// replaces it (`replaces`).
    case dropped
    /// It was not sent, because its device token was in the set of invalid tokens.
    case suppressed
    /// It can't be delivered as it is, and is kept as a dead letter.
    case dead
    /// An operator cancelled its campaign or its job.
    case cancelled

    public var index: Int {
        switch self {
        case .delivered: 0
        case .invalidToken: 1
        case .expired: 2
        case .dropped: 3
        case .suppressed: 4
        case .dead: 5
        case .cancelled: 6
        }
    }
}

/// The reason why a notification goes back to Redis instead of ending. The raw value is the name of its counter.
public enum Postponement: String, CaseIterable, Sendable {
    /// It failed and will be tried again.
    case retried
    /// It can't be sent now, but it has not failed.
    case deferred
    /// Its job requests a later time (`send_at`).
    case scheduled
}

/// Numbers of notifications by outcome.
public struct OutcomeCounts: Sendable, Equatable {
    private var delivered = 0
    private var others = Array(repeating: 0, count: Outcome.allCases.count - 1)

    public init() {}

    public subscript(outcome: Outcome) -> Int {
        get { outcome == .delivered ? delivered : others[outcome.index - 1] }
        set { if outcome == .delivered { delivered = newValue } else { others[outcome.index - 1] = newValue } }
    }

    public var total: Int { others.reduce(delivered, +) }

    /// The outcomes that occurred, and how often.
    public var counted: [(outcome: Outcome, count: Int)] {
        Outcome.allCases.compactMap { self[$0] > 0 ? ($0, self[$0]) : nil }
    }

    public static func + (one: Self, other: Self) -> Self {
        var sum = one
        for outcome in Outcome.allCases { sum[outcome] += other[outcome] }
        return sum
    }
}
