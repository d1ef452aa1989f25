import APNS
import NIOCore
import PushJob
import PushQueue

/// A claimed job while a lane works on it.
///
/// Small on purpose, for most jobs are delivered at once and need no more than their claim's number. What else there is to
/// know is read from the body again when it is needed.
struct JobEntry: LinkedEntry {
    var claim = ClaimID.none
    /// What was claimed.
    var body = ByteBuffer()
    /// The notification of a job with one token, until it is submitted.
    var notification: Notification?
    /// What a job with many tokens needs besides.
    var fanOut: FanOut?
    /// How its notifications have ended; `nil` as long as that is one plain delivery.
    var tally: JobTally?
    /// The index of the app in the lane.
    var app = 0
    /// The index of the queue in the lane.
    var queue = 0
    var next = -1
    /// When the job was first seen, in milliseconds of Redis' clock: durations count from it.
    var firstSeen: Int64 = 0
    var readySince = NIODeadline.distantPast
    /// Since when it waits to be sent, in milliseconds of Redis' clock; -1 where that is not to be counted.
    var queuedSince: Int64 = -1
    /// Notifications whose end is not known yet, the ones that have not been submitted included.
    var open = 0
    /// Notifications that have not been submitted.
    var unsubmitted = 0
    /// The name under which the job was claimed: what was claimed under an earlier one is no longer ours to settle.
    var generation = 0
    /// How the job is written.
    var isSidekiq = false
    /// Whether the topic is the job's own, and not the app's.
    var namesTopic = false
    /// Whether its notification is a broadcast on a channel, and not for a device.
    var isOnChannel = false
    /// Whether a drain has left its notification unsent, so that the job is given back and not settled.
    var isCutShort = false
    /// Where its notifications are counted: see ``LaneMetrics/series(app:queue:pushType:)``.
    var series: UInt32 = 0

    /// The job; one with one token is read again from its body: it was read when it was claimed, and cannot fail to be read now.
    var job: Job? { fanOut?.job ?? (try? JobDecoder.decode(body, as: isSidekiq ? .sidekiq(classes: []) : .native)) }
}

/// A job with many tokens: what all its notifications share is prepared once.
final class FanOut {
    /// A notification whose token and id are to be filled in.
    let template: Notification
    /// The id that `apns-id`s are derived from.
    let identity: ByteBuffer
    let job: Job
    /// The tokens that have not been submitted.
    var remaining: JobTokens.Iterator
    /// How many tokens there were before those.
    var position = 0
    /// The places among the tokens of those that are known not to be valid.
    var suppressed: Set<Int> = []

    init(template: Notification, identity: ByteBuffer, job: Job, tokens: JobTokens) {
        self.template = template
        self.identity = identity
        self.job = job
        remaining = tokens.makeIterator()
    }

    func notification(to token: DeviceToken) -> Notification {
        var notification = template
        notification.deviceToken = token
        notification.apnsID = APNSID(jobID: identity, token: token.hex)
        return notification
    }
}

/// A notification that is under way, or is waiting to be sent again at once.
struct FlightEntry: LinkedEntry {
    /// The index of its job.
    var job = -1
    var next = -1
    /// The token, of a job with many.
    var deviceToken: DeviceToken?
    /// When the provider token that it was sent with was signed, in seconds since 1970.
    var providerTokenIssuedAt: Int64 = 0
    /// Which of the app's keys signed that.
    var key: UInt8 = 0
    /// How often it was sent again without spending an attempt.
    var resends: UInt8 = 0
    /// Whether it was already sent again because of an expired provider token.
    var isRenewed = false
    /// Whether it is the probe of an open breaker.
    var isProbe = false
    /// When it was submitted: see ``LaneMetrics/time()``.
    var submittedAt: UInt32 = 0
}
