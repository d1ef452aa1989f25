import NIOCore

/// The share of a limited app's rate that a lane may send, without any I/O.
///
/// The fleet's lanes reserve portions of the rate in Redis, one after the other, each for the time when it may be used; so
/// all that want some get their share. A portion is a small part of a second, and one that is not used in time is lost.
struct RateBudget {
    /// Portions of a second.
    private static let portions = 20
    /// How long a portion may be used.
    private static let validity = TimeAmount.seconds(1)
    /// How long to wait when Redis could not be asked.
    private static let patience = TimeAmount.milliseconds(250)

    /// Notifications a second, of all lanes together.
    let perSecond: Int
    private var credit = 0
    private var isAsking = false
    private var usableFrom = NIODeadline.distantPast
    private var usableUntil = NIODeadline.distantPast
    private var notBefore = NIODeadline.distantPast
    /// When the last of the jobs that were put off for want of budget comes back.
    private var lastReturn = NIODeadline.distantPast

    init(perSecond: Int) {
        self.perSecond = perSecond
    }

    /// How many notifications a portion is for.
    var portion: Int { max(1, perSecond / Self.portions) }

    /// How many may be sent now.
    func available(now: NIODeadline) -> Int { now >= usableFrom && now < usableUntil ? credit : 0 }

    /// When the portion that was reserved may be used, if that is still to come.
    func next(now: NIODeadline) -> NIODeadline? { credit > 0 && usableFrom > now ? usableFrom : nil }

    /// How many notifications may wait in the lane: what is more is put off, so that it does not crowd out others' jobs.
    var maximumWaiting: Int { max(2, perSecond * 2) }

    /// When to let a job come back that is put off for want of budget: they come back at the rate at which they can be sent.
    mutating func putOff(notifications: Int, now: NIODeadline) -> TimeAmount {
        let earliest = now + .seconds(1)
        lastReturn = max(lastReturn, earliest) + .nanoseconds(Int64(notifications) * 1_000_000_000 / Int64(perSecond))
        lastReturn = min(lastReturn, now + .hours(1))
        return lastReturn - now
    }

    mutating func spent(_ count: Int) { credit = max(0, credit - count) }

    /// How many to reserve now, if any.
    /// - Parameter waiting: how many notifications wait to be sent.
    mutating func reserve(waiting: Int, now: NIODeadline) -> Int? {
        guard waiting > 0, !isAsking, now >= notBefore else { return nil }
        if now >= usableUntil { credit = 0 }
        guard credit == 0 else { return nil }
        isAsking = true
        return min(portion, waiting)
    }

    /// A portion was reserved.
    /// - Parameter wait: how long until it may be used.
    mutating func reserved(_ count: Int, wait: TimeAmount, now: NIODeadline) {
        isAsking = false
        credit = count
        usableFrom = now + wait
        usableUntil = usableFrom + Self.validity
    }

    /// Redis could not be asked.
    mutating func failed(now: NIODeadline) {
        isAsking = false
        notBefore = now + Self.patience
    }
}
