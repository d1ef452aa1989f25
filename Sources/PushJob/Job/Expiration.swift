/// The time until which APNs should try to deliver a notification.
public enum Expiration: Equatable, Sendable {
    /// A time in seconds since 1970; 0 means one attempt and no storing (Apple: "Sending notification requests to
    /// APNs", `apns-expiration`).
    case epoch(Int64)
    /// A number of seconds after the job was enqueued.
    case after(seconds: Int64)

    /// The last valid second, the end of the year 9999. It is far below a current time in milliseconds, mistaken for seconds.
    public static let latestEpoch = JobTime.latestSecond

    /// Parses the text of a flag: `0`, a second since 1970, an ISO 8601 time, or a duration such as `45s`, `30m`, `1h30m`, `7d` or `2w`.
    /// - Returns: nil for any other text.
    public init?(_ text: String) {
        if let second = Int64(text), (0...Self.latestEpoch).contains(second) {
            self = .epoch(second)
        } else if let seconds = DurationText.seconds(text) {
            self = .after(seconds: seconds)
        } else {
            // A number with a fraction is a valid time, but not a whole second.
            guard text.contains(":"), let time = JobTime.milliseconds(text) else { return nil }
            self = .epoch(time / 1000)
        }
    }
}

/// Durations in jobs, such as `45s`, `30m`, `1h30m`, `7d` or `2w`, are whole seconds.
extension DurationText {
    /// The range of `unique_for` in seconds: up to 30 days, because each reservation is a key in Redis' memory.
    public static let uniqueFor: ClosedRange<Int64> = 1...(30 * 86_400)

    /// - Returns: nil if the text is not a duration.
    public static func seconds(_ text: String) -> Int64? {
        milliseconds(text, smallest: .seconds).map { Int64($0 / 1000) }
    }

    static func seconds(_ text: UnsafeRawBufferPointer) -> Int64? {
        milliseconds(text, smallest: .seconds).map { Int64($0 / 1000) }
    }
}

extension Job {
    /// Returns the `apns-expiration` in seconds since 1970; `nil` if the job does not specify one.
    public func expirationSecond(firstSeen: Int64) -> Int64? {
        switch expiration {
        case nil: nil
        case .epoch(let second): second
        case .after(let seconds): made(firstSeen: firstSeen) / 1000 + seconds
        }
    }

    /// The maximum difference of a producer's clock, in milliseconds.
    public static let clockTolerance: Int64 = 300_000

    /// Returns the time at which the job was made, in milliseconds since 1970: its `enqueued_at`, or `firstSeen` if that is missing or in
    /// the future. If a producer's clock is years ahead, a duration of an hour would otherwise end in years.
    public func made(firstSeen: Int64) -> Int64 {
        enqueuedAt.map { $0 > firstSeen + Self.clockTolerance ? firstSeen : $0 } ?? firstSeen
    }
}
