/// Decides when a provider token is renewed, and which of a fleet's tokens replaces it, without any I/O.
///
/// APNs refuses tokens older than an hour, and refuses a key whose tokens change more often than every 20 minutes.
public struct ProviderTokenSchedule: Sendable {
    /// A token of this age, in seconds, is renewed.
    public static let renewalAge: Int64 = 50 * 60
    /// The minimum age in seconds of a token before APNs accepts the next one.
    public static let minimumAge: Int64 = 20 * 60
    /// In seconds. A token's time may be this far in the future, because machines' clocks differ slightly.
    public static let maximumLead: Int64 = 60

    private var issuedAt: Int64?
    private var isRefused = false
    /// The time of the last token that APNs called expired; it must not be adopted again.
    private var lastRefused: Int64?

    public init() {}

    /// Returns true if a new token must be signed.
    /// - Parameter now: seconds since 1970.
    public func isDue(now: Int64) -> Bool {
        guard let issuedAt else { return true }
        // A clock that was set back makes the token appear to be from the future, and APNs refuses such tokens.
        return isRefused || age(issuedAt, now) >= Self.renewalAge || isFromFuture(issuedAt, now)
    }

    public mutating func signed(at now: Int64) {
        issuedAt = now
        isRefused = false
    }

    /// Adopts a token from elsewhere in the fleet, if it qualifies.
    /// - Parameters:
    ///   - issuedAt: when it was signed, in seconds since 1970. Untrusted: any number.
    ///   - now: seconds since 1970.
    /// - Returns: true if it is adopted. It must not be from the future or due for renewal. It must be newer than the refused and the
    ///   current token. A current token from the future does not count: the clock was set back.
    public mutating func adopt(issuedAt candidate: Int64, now: Int64) -> Bool {
        guard !isFromFuture(candidate, now), age(candidate, now) < Self.renewalAge else { return false }
        for known in [issuedAt, lastRefused] {
            guard let known, !isFromFuture(known, now) else { continue }
            guard candidate > known else { return false }
        }
        signed(at: candidate)
        return true
    }

    /// Records that APNs called the token expired (`ExpiredProviderToken`).
    /// - Returns: true if a new token may help. False if the refused one was signed less than a minute ago, which means
    ///   that this machine's clock is wrong.
    public mutating func refused(now: Int64, issuedAt refused: Int64) -> Bool {
        guard refused == issuedAt else { return true }
        guard now - refused >= 60 else { return false }
        isRefused = true
        lastRefused = refused
        return true
    }

    // A time from another worker can be any number, so the subtraction may overflow.
    private func age(_ time: Int64, _ now: Int64) -> Int64 {
        let (age, overflows) = now.subtractingReportingOverflow(time)
        return overflows ? (time < now ? .max : .min) : age
    }

    private func isFromFuture(_ time: Int64, _ now: Int64) -> Bool { age(time, now) < -Self.maximumLead }
}
