/// When a provider token is signed anew, and which of a fleet's tokens replaces it, without any I/O.
///
/// APNs refuses tokens older than an hour, and refuses a key whose tokens change more often than every 20 minutes.
public struct ProviderTokenSchedule: Sendable {
    /// The age in seconds at which a token is replaced.
    public static let renewalAge: Int64 = 50 * 60
    /// Below this age in seconds APNs would take a further token as one too many.
    public static let minimumAge: Int64 = 20 * 60
    /// How far in seconds a token may come from the future: two machines' clocks are never quite the same.
    public static let maximumLead: Int64 = 60

    private var issuedAt: Int64?
    private var isRefused = false
    /// The last token that APNs called expired, which must not come back from elsewhere.
    private var lastRefused: Int64?

    /// A schedule that has signed nothing yet.
    public init() {}

    /// Returns true if it is time to sign.
    /// - Parameter now: seconds since 1970.
    public func isDue(now: Int64) -> Bool {
        guard let issuedAt else { return true }
        // A clock that was set back makes a token look as if it came from the future, which APNs refuses.
        return isRefused || age(issuedAt, now) >= Self.renewalAge || isFromFuture(issuedAt, now)
    }

    /// A token was signed.
    public mutating func signed(at now: Int64) {
        issuedAt = now
        isRefused = false
    }

    /// A token came from elsewhere in the fleet.
    /// - Parameters:
    ///   - issuedAt: when it was signed, in seconds since 1970. Any number.
    ///   - now: seconds since 1970.
    /// - Returns: whether it is taken into use: it is not from the future, not due for renewal itself, and later than the
    ///   one in use and than one that was refused. What is itself from the future, because the clock was set back, does
    ///   not keep out the tokens of the others.
    public mutating func adopt(issuedAt candidate: Int64, now: Int64) -> Bool {
        guard !isFromFuture(candidate, now), age(candidate, now) < Self.renewalAge else { return false }
        for known in [issuedAt, lastRefused] {
            guard let known, !isFromFuture(known, now) else { continue }
            guard candidate > known else { return false }
        }
        signed(at: candidate)
        return true
    }

    /// APNs called the token expired (`ExpiredProviderToken`).
    /// - Returns: whether a new one may help: not when the refused one was signed just now, which means that this
    ///   machine's clock is wrong.
    public mutating func refused(now: Int64, issuedAt refused: Int64) -> Bool {
        guard refused == issuedAt else { return true }
        guard now - refused >= 60 else { return false }
        isRefused = true
        lastRefused = refused
        return true
    }

    // A time from elsewhere may be any number; only the sum with a distance could overflow.
    private func age(_ time: Int64, _ now: Int64) -> Int64 {
        let (age, overflows) = now.subtractingReportingOverflow(time)
        return overflows ? (time < now ? .max : .min) : age
    }

    private func isFromFuture(_ time: Int64, _ now: Int64) -> Bool { age(time, now) < -Self.maximumLead }
}
