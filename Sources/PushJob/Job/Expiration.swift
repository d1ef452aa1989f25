/// Until when APNs should try to deliver a notification.
public enum Expiration: Equatable, Sendable {
    /// Until this second since 1970; 0 means one try and no storing (Apple: "Sending notification requests to APNs",
    /// `apns-expiration`).
    case epoch(Int64)
    /// For so many seconds from when the job was enqueued.
    case after(seconds: Int64)

    /// The last second that is taken, the end of the year 9999. A time in milliseconds is always beyond it.
    public static let latestEpoch: Int64 = 253_402_300_799

    /// Reads the text of a flag: `0`, a second since 1970, an ISO 8601 time, or a duration such as `45s`, `30m`, `1h30m`, `7d`
    /// or `2w`.
    /// - Returns: nil for any other text.
    public init?(_ text: String) {
        if let second = Int64(text), (0...Self.latestEpoch).contains(second) {
            self = .epoch(second)
        } else {
            if let seconds = JobDuration.seconds(text) {
                self = .after(seconds: seconds)
            } else {
                // A number with a fraction is a time too, but no second.
                guard text.contains(":"), let time = JobTime.milliseconds(text) else { return nil }
                self = .epoch(time / 1000)
            }
        }
    }
}
