import PushQueue

/// The counters of a lane since it started. They count notifications unless stated otherwise.
package struct LaneCounters: Sendable, Equatable {
    /// Ended notifications, by outcome.
    package var outcomes = OutcomeCounts()
    /// Notifications that were returned to Redis and spent an attempt.
    package var retried = 0
    /// Notifications that were returned to Redis and spent no attempt.
    package var deferred = 0
    /// Notifications that were postponed until the `send_at` of their job.
    package var scheduled = 0
    package var claimedJobs = 0
    /// Submitted requests, including resends.
    package var submitted = 0
    /// Notifications that were resent at once.
    package var resent = 0
    /// Notifications that are sent again although APNs may have accepted an earlier request.
    package var possibleDuplicates = 0
    /// Jobs whose `expiration` is a duration without a start. The duration starts when a worker first sees the job.
    package var undatedExpirations = 0
    /// Settlements of claims that another lane had reclaimed.
    package var lostClaims = 0

    package init() {}

    package subscript(outcome: Outcome) -> Int { outcomes[outcome] }

    package var done: Int { outcomes.total }

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
