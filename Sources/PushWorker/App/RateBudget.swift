import NIOCore

/// The share of a limited app's rate that a lane may send. No I/O.
///
/// The fleet's lanes reserve portions of the rate in Redis one after another. Each portion is for a later time than the one before, so
/// every lane gets a share. A portion is a fraction of a second's notifications, and expires if it is not used in time.
struct RateBudget {
    /// The number of portions per second.
    private static let portions = 20
    /// A portion expires after this time.
    private static let validity = TimeAmount.seconds(1)
    /// The pause after Redis could not be asked.
    private static let patience = TimeAmount.milliseconds(250)

    /// The maximum number of notifications per second, for all lanes together.
    let perSecond: Int
    private var credit = 0
    private var isAsking = false
    private var usableFrom = NIODeadline.distantPast
    private var usableUntil = NIODeadline.distantPast
    private var notBefore = NIODeadline.distantPast
    /// The latest due time of a job that was deferred for lack of budget.
    private var lastReturn = NIODeadline.distantPast

    init(perSecond: Int) {
        self.perSecond = perSecond
    }

    var portion: Int { max(1, perSecond / Self.portions) }

    /// Returns how many notifications may be sent now.
    func available(now: NIODeadline) -> Int { now >= usableFrom && now < usableUntil ? credit : 0 }

    /// The maximum number of notifications that wait in the lane. Further ones are deferred, so that they take no places from other apps.
    var maximumWaiting: Int { max(2, perSecond * 2) }

    /// Returns the delay of a job that is deferred for lack of budget. Deferred jobs return as fast as they can be sent.
    mutating func deferral(of notifications: Int, now: NIODeadline) -> TimeAmount {
        let earliest = now + .seconds(1)
        lastReturn = max(lastReturn, earliest) + .nanoseconds(Int64(notifications) * 1_000_000_000 / Int64(perSecond))
        lastReturn = min(lastReturn, now + .hours(1))
        return lastReturn - now
    }

    mutating func recordSpent(_ count: Int) { credit = max(0, credit - count) }

    /// Returns the number of notifications to reserve now; `nil` for none.
    /// - Parameter waiting: the number of notifications waiting to be sent.
    mutating func reserve(waiting: Int, now: NIODeadline) -> Int? {
        guard waiting > 0, !isAsking, now >= notBefore else { return nil }
        if now >= usableUntil { credit = 0 }
        guard credit == 0 else { return nil }
        isAsking = true
        return min(portion, waiting)
    }

    /// Records a reserved portion.
    /// - Parameter wait: the time until the portion can be used.
    mutating func recordPortion(_ count: Int, wait: TimeAmount, now: NIODeadline) {
        isAsking = false
        credit = count
        usableFrom = now + wait
        usableUntil = usableFrom + Self.validity
    }

    /// Records that Redis could not be asked.
    mutating func recordFailure(now: NIODeadline) {
        isAsking = false
        notBefore = now + Self.patience
    }
}

/// The rate of one app on one lane, if it is limited.
///
/// Belongs to the lane's event loop.
final class AppRate {
    private let app: String
    private let lane: LaneContext
    private let fleet: Fleet
    private(set) var budget: RateBudget?

    init(_ app: String, _ lane: LaneContext, _ fleet: Fleet, perSecond: Int?) {
        (self.app, self.lane, self.fleet) = (app, lane, fleet)
        limit(to: perSecond)
    }

    /// - Parameter perSecond: the maximum number of notifications per second; `nil` for no limit.
    func limit(to perSecond: Int?) { budget = perSecond.map(RateBudget.init(perSecond:)) }

    func available(now: NIODeadline) -> Int { budget?.available(now: now) ?? .max }

    func spent(_ count: Int) { budget?.recordSpent(count) }

    /// Returns the delay in milliseconds of a job that exceeds the rate; `nil` if it does not.
    /// - Parameters:
    ///   - notifications: the number of the job's notifications.
    ///   - waiting: the number of other notifications that wait in the lane.
    func deferral(of notifications: Int, behind waiting: Int) -> Int64? {
        guard let maximum = budget?.maximumWaiting, waiting >= maximum else { return nil }
        return (budget?.deferral(of: notifications, now: lane.now)).map { $0.nanoseconds / 1_000_000 }
    }

    /// Reserves a portion of the rate if one is needed.
    /// - Parameter waiting: the number of notifications that wait in the lane.
    func reserve(waiting: Int) {
        guard let count = budget?.reserve(waiting: waiting, now: lane.now), let perSecond = budget?.perSecond
        else { return }
        fleet.store.rates.reserve(count, of: app, perSecond: perSecond) { [self] result in
            fleet.refusals.record(.rate(app: app), result)
            switch result {
            case .success(let wait):
                budget?.recordPortion(count, wait: .milliseconds(wait), now: lane.now)
                guard wait > 0 else { return lane.schedulePump() }
                lane.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(wait)) { [lane] in lane.schedulePump() }
            case .failure: budget?.recordFailure(now: lane.now)
            }
        }
    }

    /// Reserves a portion if Redis refused the last one. Without jobs, nothing else would show that the refusal has ended.
    func probeIfRefused(waiting: Int, isRemoved: Bool) {
        guard fleet.refusals[.rate(app: app)] != nil else { return }
        guard budget != nil, !isRemoved else { return fleet.refusals.recordAcceptance(.rate(app: app)) }
        reserve(waiting: max(1, waiting))
    }
}
