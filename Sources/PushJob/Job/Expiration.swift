/// Until when APNs should try to deliver a notification.
public enum Expiration: Equatable, Sendable {
    /// Until this second since 1970; 0 means one try and no storing (Apple: "Sending notification requests to APNs",
    /// `apns-expiration`).
    case epoch(Int64)
    /// For so many seconds from when the job was enqueued.
    case after(seconds: Int64)

    /// The last second that is taken, the end of the year 9999. A time in milliseconds is always beyond it.
    public static let latestEpoch: Int64 = 253_402_300_799

    /// Reads what a person writes: `0`, a second since 1970, or a duration such as `45s`, `30m`, `1h30m`, `7d` or `2w`.
    /// - Parameter text: the text.
    /// - Returns: nil if it is neither.
    public init?(_ text: String) {
        if let second = Int64(text), (0...Self.latestEpoch).contains(second) {
            self = .epoch(second)
        } else {
            guard let seconds = JobDuration.seconds(text) else { return nil }
            self = .after(seconds: seconds)
        }
    }
}
