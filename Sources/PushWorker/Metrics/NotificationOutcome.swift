import APNS

/// What became of a notification, as `apns_worker_notifications_total` has it. The raw value is the label.
public enum NotificationOutcome: String, CaseIterable, Sendable {
    /// APNs took it.
    case delivered
    /// Its device token is not valid.
    case invalidToken = "invalid_token"
    /// Not sent, because its device token was known not to be valid.
    case suppressed
    /// Its expiration passed first.
    case expired
    /// Its answer never came, and the job asked for no second attempt.
    case dropped
    /// Kept as a dead letter.
    case dead
    /// Put off with an attempt spent.
    case retried
    /// Put off with no attempt spent.
    case parked
    /// Held until its time.
    case scheduled
    /// Sent again at once.
    case resent
}

/// What became of a job, as `apns_worker_jobs_total` has it. The raw value is the label.
public enum JobOutcome: String, CaseIterable, Sendable {
    /// APNs took all its notifications.
    case delivered
    /// Its device tokens are not valid.
    case invalidToken = "invalid_token"
    /// Not sent, because its device tokens were known not to be valid.
    case suppressed
    /// Its expiration passed first.
    case expired
    /// Its answers never came, and it asked for no second attempt.
    case dropped
    /// Its notifications ended in more ways than one.
    case mixed
    /// Kept as a dead letter.
    case dead
    /// Put off, in whole or in part, with an attempt spent.
    case retried
    /// Put off, in whole or in part, with no attempt spent.
    case parked
    /// Held until its time.
    case scheduled
    /// Replaced by smaller ones.
    case split
    /// Not sent, because another job with its id was.
    case duplicate

    static let count = allCases.count

    /// Its place in a table.
    var place: Int {
        switch self {
        case .delivered: 0
        case .invalidToken: 1
        case .suppressed: 2
        case .expired: 3
        case .dropped: 4
        case .mixed: 5
        case .dead: 6
        case .retried: 7
        case .parked: 8
        case .scheduled: 9
        case .split: 10
        case .duplicate: 11
        }
    }
}

extension PushType {
    static let count = allCases.count

    /// Its place in a table.
    var place: Int {
        switch self {
        case .alert: 0
        case .background: 1
        case .complication: 2
        case .controls: 3
        case .fileprovider: 4
        case .liveactivity: 5
        case .location: 6
        case .mdm: 7
        case .pushtotalk: 8
        case .voip: 9
        case .widgets: 10
        }
    }
}
