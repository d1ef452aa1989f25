/// The time until which APNs should try to deliver a notification.
package enum Expiration: Equatable, Sendable {
    /// A time in seconds since 1970; 0 means one attempt and no storing (Apple: "Sending notification requests to
    /// APNs", `apns-expiration`).
    case epoch(Int64)
    /// A number of seconds after the job was enqueued.
    case after(seconds: Int64)

    /// The last valid second, the end of the year 9999. A current time in milliseconds is always beyond it.
    package static let latestEpoch = JobTime.latestSecond

    /// Parses the text of a flag: `0`, a second since 1970, an ISO 8601 time, or a duration such as `45s`, `30m`,
    /// `1h30m`, `7d` or `2w`.
    /// - Returns: nil for any other text.
    package init?(_ text: String) {
        if let second = Int64(text), (0...Self.latestEpoch).contains(second) {
            self = .epoch(second)
        } else {
            if let seconds = JobDuration.seconds(text) {
                self = .after(seconds: seconds)
            } else {
                // A number with a fraction is a valid time, but not a whole second.
                guard text.contains(":"), let time = JobTime.milliseconds(text) else { return nil }
                self = .epoch(time / 1000)
            }
        }
    }
}

/// Durations in jobs, such as `45s`, `30m`, `1h30m`, `7d` or `2w`: whole seconds.
package enum JobDuration {
    /// The longest valid duration, 100 years in seconds.
    package static let longest = Int64(DurationText.longest / 1000)

    /// The range of `unique_for` in seconds: up to 30 days, because each reservation is a key in Redis' memory.
    package static let uniqueFor: ClosedRange<Int64> = 1...(30 * 86_400)

    /// Parses a duration.
    /// - Parameter text: the text.
    /// - Returns: seconds, or nil if it is not a duration.
    package static func seconds(_ text: String) -> Int64? {
        DurationText.milliseconds(text, smallest: .seconds).map { Int64($0 / 1000) }
    }

    /// Parses a duration: numbers with the units w, d, h, m and s, each at most once and the larger ones first.
    static func seconds(_ text: UnsafeRawBufferPointer) -> Int64? {
        DurationText.milliseconds(text, smallest: .seconds).map { Int64($0 / 1000) }
    }
}
