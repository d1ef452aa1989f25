/// How many streams a connection may have open, as its credentials and the rules move it.
///
/// Source: Apple, "Sending notification requests to APNs": one stream until a request with a valid token. That it drops
/// to one again after a bad one is observed (openradar 27870881).
struct StreamLimit {
    private let initial: Int
    private let maximum: Int
    private var isTrusted: Bool
    private var lowered: Int?
    /// When a limit that a rule has lowered goes back, in microseconds of uptime.
    private(set) var liftedAt: Int64?
    /// What was announced last.
    private(set) var current: Int

    init(initial: Int, maximum: Int, isTrusted: Bool) {
        self.initial = initial
        self.maximum = maximum
        self.isTrusted = isTrusted
        current = isTrusted ? maximum : min(initial, maximum)
    }

    /// A request was authenticated. Returns the limit to announce, as all of these do, or nil if it stays.
    mutating func trust() -> Int? {
        if isTrusted { return nil }
        isTrusted = true
        return change()
    }

    /// A request's provider token was refused.
    mutating func distrust() -> Int? {
        isTrusted = false
        return change()
    }

    /// A rule lowers the limit until a time, or for good.
    mutating func lower(to limit: Int, until time: Int64?) -> Int? {
        lowered = limit
        liftedAt = time
        return change()
    }

    /// Lets time pass.
    mutating func advance(to now: Int64) -> Int? {
        guard let liftedAt, now >= liftedAt else { return nil }
        self.liftedAt = nil
        lowered = nil
        return change()
    }

    private mutating func change() -> Int? {
        let own = isTrusted ? maximum : min(initial, maximum)
        let limit = min(lowered ?? own, own)
        guard limit != current else { return nil }
        current = limit
        return limit
    }
}
