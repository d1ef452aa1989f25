import PushQueue

/// A lane's counters since it started. Notifications, unless stated otherwise.
public struct LaneCounters: Sendable, Equatable {
    /// Those that have ended, by outcome.
    package var outcomes = OutcomeCounts()
    /// Those that went back to Redis with an attempt spent.
    public var retried = 0
    /// Those that went back to Redis with no attempt spent.
    public var deferred = 0
    /// Those that were postponed until their job's time.
    public var scheduled = 0
    /// Claimed jobs.
    public var claimedJobs = 0
    /// Requests submitted, those sent again included.
    public var submitted = 0
    /// Those that were sent again at once.
    public var resent = 0
    /// Sent, or to be sent, a second time although APNs may have accepted the first.
    public var possibleDuplicates = 0
    /// Jobs with a duration as `expiration` and no time from which it could count: it counts from when they were first seen.
    public var undatedExpirations = 0
    /// Settlements that found their claim reclaimed by another lane.
    public var lostClaims = 0

    package init() {}

    /// The number of notifications with an outcome.
    public subscript(outcome: Outcome) -> Int { outcomes[outcome] }

    /// The number of notifications that have ended.
    public var done: Int { outcomes.total }

    package subscript(postponement: Postponement) -> Int {
        get {
            switch postponement {
            case .retried: retried
            case .deferred: deferred
            case .scheduled: scheduled
            }
        }
        set {
            switch postponement {
            case .retried: retried = newValue
            case .deferred: deferred = newValue
            case .scheduled: scheduled = newValue
            }
        }
    }

    static func + (one: LaneCounters, other: LaneCounters) -> LaneCounters {
        var sum = one
        sum.outcomes = one.outcomes + other.outcomes
        for member in members { sum[keyPath: member] += other[keyPath: member] }
        return sum
    }

    private static let members: [WritableKeyPath<LaneCounters, Int> & Sendable] = [
        \.retried, \.deferred, \.scheduled, \.claimedJobs, \.submitted, \.resent, \.possibleDuplicates, \.lostClaims,
        \.undatedExpirations,
    ]
}
