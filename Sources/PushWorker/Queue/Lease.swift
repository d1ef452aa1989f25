import NIOCore
import PushQueue

/// A lane's lease on a queue: when it is renewed, and when the lane may reclaim the claims of other lanes. No I/O.
///
/// After an outage longer than the lease, all leases have expired, and the lanes return one after another. The first must not reclaim from
/// the others, which are alive. So a lane reclaims only if its own lease has been renewed without a gap for longer than the others need to
/// return. They need a reconnect pause of up to 5 s, and the login.
struct Lease {
    /// The maximum number of expired lanes that are remembered.
    private static let maximumExpired = 100
    /// The maximum interval between renewals by a polling lane, because it receives operators' commands.
    private static let longestRenewal = TimeAmount.milliseconds(WorkerReport.longestInterval)
    /// The maximum interval between renewals by a quiet polling lane.
    private static let quietRenewal = TimeAmount.milliseconds(WorkerReport.interval)
    /// The maximum interval between renewals by a lane with jobs. A renewal brings commands, and unsent jobs can still be cancelled.
    private static let commandInterval = TimeAmount.milliseconds(500)

    private let length: TimeAmount
    private let idleLength: TimeAmount
    private let steadyTime: TimeAmount
    /// A longer time between two renewals is a gap. This limit is below the lease, because other lanes may lose theirs in a longer outage.
    private let longestGap: TimeAmount
    /// The time of the last request that renews the lease.
    private(set) var requestedAt = NIODeadline.distantPast
    private var renewedAt = NIODeadline.distantPast
    /// The end of the last gap.
    private var steadySince: NIODeadline?
    /// True if Redis holds no claims of the lane according to its last answer, so that there is nothing to recover.
    private(set) var holdsNothing = false
    /// True while the lane has no claims. Its lease is then longer.
    private(set) var isIdle = false
    /// The earliest times to reclaim from lanes with expired leases.
    private var reclaimAfter: [String: NIODeadline] = [:]

    init(_ limits: QueueLimits) {
        length = .milliseconds(Int64(limits.lease))
        idleLength = .milliseconds(Int64(limits.idleLease))
        steadyTime = .milliseconds(Int64(limits.steadyTime))
        longestGap = min(.seconds(10), .nanoseconds(length.nanoseconds / 2))
    }

    /// Returns true if the lease must be renewed without a claim.
    /// - Parameters:
    ///   - polls: true for the lane that polls for its worker.
    ///   - isAtRest: true if the lane has neither jobs nor problems. Otherwise its heartbeat must be recent.
    func isDue(polls: Bool, isQuiet: Bool, hasJobs: Bool, isAtRest: @autoclosure () -> Bool, now: NIODeadline) -> Bool {
        var interval = TimeAmount.nanoseconds(length.nanoseconds / 3)
        if polls {
            interval = min(interval, isQuiet ? Self.quietRenewal : Self.longestRenewal)
        } else if isIdle, isAtRest() {
            interval = .nanoseconds(idleLength.nanoseconds / 3)
        }
        if hasJobs { interval = min(interval, Self.commandInterval) }
        return now - requestedAt > interval
    }

    /// Records a request that renews the lease.
    /// - Parameter count: the maximum number of jobs that it claims.
    mutating func recordRequest(count: Int, now: NIODeadline) {
        requestedAt = now
        if count > 0 { isIdle = false }
    }

    /// Records an answer to a request that renews the lease.
    /// - Parameters:
    ///   - count: the maximum number of jobs that the request could claim.
    ///   - held: the number of claims that the lane had before; negative if unknown.
    mutating func recordRenewal(count: Int, held: Int, now: NIODeadline) {
        if steadySince == nil || now - renewedAt > longestGap { steadySince = now }
        renewedAt = now
        holdsNothing = held == 0
        isIdle = holdsNothing && count == 0
    }

    /// Records that the lease was lost, and with it all claims.
    mutating func recordLoss() {
        steadySince = nil
        (holdsNothing, isIdle) = (false, false)
    }

    /// True if the lease has been renewed without a gap for long enough to reclaim from others.
    func isSteady(now: NIODeadline) -> Bool {
        guard let steadySince, now - renewedAt <= longestGap else { return false }
        return now - steadySince >= steadyTime
    }

    /// Records that another lane's lease has expired.
    /// - Parameter delay: the time that this lane waits first, so that only one lane of the fleet reclaims.
    /// - Returns: true if this lane must reclaim now.
    mutating func recordExpired(_ other: String, delay: @autoclosure () -> TimeAmount, now: NIODeadline) -> Bool {
        guard isSteady(now: now) else { return false }
        guard let after = reclaimAfter[other] else {
            if reclaimAfter.count >= Self.maximumExpired { reclaimAfter.removeAll() }
            reclaimAfter[other] = now + delay()
            return false
        }
        guard now >= after else { return false }
        reclaimAfter[other] = nil
        return true
    }

    /// The time when this lane may reclaim another lane's claims; `nil` unless that lane's lease has expired.
    func reclaimTime(of other: String) -> NIODeadline? { reclaimAfter[other] }
}
