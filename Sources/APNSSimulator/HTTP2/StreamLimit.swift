/// The limit of concurrent streams on a connection. It depends on the client's credentials, the errors and the rules. Each change returns
/// the limit to announce, or nil if it is unchanged.
///
/// Source: Apple, "Sending notification requests to APNs": one stream until a request with a valid token. Observed: the limit drops to one
/// after any rejection, and rises with the next success (openradar 27870881; pushy, issue 732).
struct StreamLimit {
    private let initial: Int
    private let maximum: Int
    private let afterError: Int?
    private var isTrusted: Bool
    private var isPenalized = false
    private var lowered: Int?
    /// The time to restore a limit that a rule lowered, in microseconds of uptime.
    private(set) var liftedAt: Int64?
    /// The limit that was last announced.
    private(set) var current: Int

    init(initial: Int, maximum: Int, afterError: Int?, isTrusted: Bool) {
        self.initial = initial
        self.maximum = maximum
        self.afterError = afterError
        self.isTrusted = isTrusted
        current = isTrusted ? maximum : min(initial, maximum)
    }

    /// Records that a request was authenticated.
    mutating func trust() -> Int? {
        if isTrusted { return nil }
        isTrusted = true
        return change()
    }

    mutating func answered(_ status: Int) -> Int? {
        switch status {
        case 200..<300 where isPenalized: isPenalized = false
        case 410: return nil
        case 400..<500 where afterError != nil && !isPenalized: isPenalized = true
        default: return nil
        }
        return change()
    }

    /// Lowers the limit until a time, or for the rest of the connection.
    mutating func lower(to limit: Int, until time: Int64?) -> Int? {
        lowered = limit
        liftedAt = time
        return change()
    }

    /// Restores a lowered limit whose time has passed.
    mutating func advance(to now: Int64) -> Int? {
        guard let liftedAt, now >= liftedAt else { return nil }
        self.liftedAt = nil
        lowered = nil
        return change()
    }

    private mutating func change() -> Int? {
        let trusted = isTrusted ? maximum : min(initial, maximum)
        let own = isPenalized ? min(afterError ?? trusted, trusted) : trusted
        let limit = min(lowered ?? own, own)
        guard limit != current else { return nil }
        current = limit
        return limit
    }
}

/// The consecutive errors on a connection.
///
/// Source: Apple, "Handling notification responses from APNs": APNs closes a connection after too many errors, sooner
/// for BadDeviceToken, and does not count 410. Apple does not document the numbers.
struct ErrorRun {
    private let limit: Int?
    private let badTokenLimit: Int?
    private var errors = 0
    private var badTokens = 0

    init(_ settings: SimulatorSettings) {
        limit = settings.errorLimit
        badTokenLimit = settings.badTokenLimit
    }

    /// Records the answer to a request.
    /// - Returns: true if the connection must end.
    mutating func answered(_ status: Int, reason: String?) -> Bool {
        switch status {
        case 200..<300:
            if errors > 0 { (errors, badTokens) = (0, 0) }
            return false
        case 410: return false
        case 400..<500:
            errors += 1
            if reason == "BadDeviceToken" { badTokens += 1 }
            return errors >= limit ?? .max || badTokens >= badTokenLimit ?? .max
        default: return false
        }
    }
}
