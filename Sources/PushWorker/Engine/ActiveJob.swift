import APNS
import NIOCore
import PushJob
import PushQueue

/// A claimed job while a lane works on it.
///
/// Small on purpose: most jobs are delivered at once and need no more than their claim. Everything else is read from the body
/// again when it is needed.
struct ActiveJob: LinkedEntry {
    var claim = ClaimID.none
    /// The claimed bytes. `nil` only in an entry that holds nothing: an empty buffer would be counted by all lanes.
    var body: ByteBuffer?
    /// The notification of a job with one token, until it is submitted.
    var notification: Notification?
    /// The further state of a job with many tokens.
    var fanOut: FanOut?
    /// The ends of its notifications; `nil` as long as the only one is plainly delivered.
    var tally: JobTally?
    var app = AppID(index: 0)
    var queue = QueueID(index: 0)
    var next = -1
    /// The time at which the job was first seen, in milliseconds of Redis' clock: durations count from it.
    var firstSeen: Int64 = 0
    /// The time at which it joined its app's line.
    var readySince = NIODeadline.distantPast
    /// The time since which it waits to be sent, in milliseconds of Redis' clock; -1 if that must not be measured.
    var queuedSince: Int64 = -1
    /// The number of notifications that have not ended, unsubmitted ones included.
    var open = 0
    /// The number of notifications that have not been submitted.
    var unsubmitted = 0
    /// The generation of the queue's lease under which the job was claimed. Claims of an earlier one belong to other lanes.
    var generation = 0
    /// True for a job in Sidekiq's or Resque's form.
    var isSidekiq = false
    /// True if the topic is the job's own, and not the app's.
    var namesTopic = false
    /// True if the job asks for its results, whatever the queue keeps.
    var keepsResult = false
    /// True if it belongs to a campaign.
    var hasCampaign = false
    /// True if its notification is a broadcast on a channel, and not for a device.
    var isOnChannel = false
    /// True if a drain left its notification unsent: the job is given back and not settled.
    var isAbandoned = false
    /// The metrics' series of its notifications: see ``LaneMetrics/series(app:queue:pushType:)``.
    var series: UInt32 = 0

    /// The job, decoded. One with a single token is decoded again: it was decoded when it was claimed, and can't fail now.
    var job: Job? {
        if let fanOut { return fanOut.job }
        return body.flatMap { try? JobDecoder.decode($0, as: isSidekiq ? .sidekiq(classes: []) : .native) }
    }
}

/// A job with many tokens: what all its notifications share is prepared once.
final class FanOut {
    /// A notification without token and id.
    let template: Notification
    /// The id that `apns-id`s are derived from.
    let identity: ByteBuffer
    let job: Job
    /// The tokens that have not been submitted.
    var remaining: DistinctTokens
    /// The number of tokens before those.
    var position = 0
    /// The positions of the tokens that are known to be invalid.
    var suppressed: Set<Int> = []

    init(template: Notification, identity: ByteBuffer, job: Job, tokens: DistinctTokens) {
        self.template = template
        self.identity = identity
        self.job = job
        remaining = tokens
    }

    func notification(to token: DeviceToken) -> Notification {
        var notification = template
        notification.deviceToken = token
        notification.apnsID = APNSID(jobID: identity, token: token.hex)
        return notification
    }
}

/// A notification in flight, or one that waits to be sent again at once.
struct InFlight: LinkedEntry {
    var job = JobID(index: -1)
    var next = -1
    /// The token, for a job with many.
    var deviceToken: DeviceToken?
    /// The time at which the provider token that it was sent with was signed, in seconds since 1970.
    var providerTokenIssuedAt: Int64 = 0
    /// The index of the signing key of that token.
    var key: UInt8 = 0
    /// The number of times it was sent again without spending an attempt.
    var resends: UInt8 = 0
    /// The circuit breaker that it is a probe of.
    var probe: Probe?
    /// The time of its submission: see ``LaneMetrics/time()``.
    var submittedAt: UInt32 = 0

    /// The question that a probe answers.
    enum Probe: UInt8 {
        /// Does APNs still refuse the app?
        case ofApp
        /// Does the endpoint answer again?
        case ofEndpoint
    }

    /// True for the probe of a paused app.
    var isProbe: Bool { probe == .ofApp }
}

/// The ends of one job's notifications, until all have ended and the job can be settled.
final class JobTally {
    /// Those that only need counting: dead letters are in ``dead``.
    private(set) var outcomes = OutcomeCounts()
    /// The tokens that have become invalid. They are in the set before the job is settled.
    var invalidTokens: [InvalidToken] = []
    /// Notifications that are sent again because no answer came.
    var unanswered = 0
    /// Notifications that an earlier holder of the job may have sent, once for each time that it was reclaimed unsettled.
    var reclaimed = 0
    private(set) var postponed: Postponed?
    /// The results for producers, written when the job is settled.
    var results = PackedResults()
    /// One for each reason, those that were cancelled included.
    private(set) var dead: [Dead] = []

    /// Requests that may be sent, or were, although APNs may have accepted an earlier one.
    var possibleDuplicates: Int { unanswered + reclaimed }

    /// Notifications that will be sent later.
    struct Postponed {
        /// Tokens as text.
        var tokens: [ByteBuffer]
        /// The reason for the last of them.
        var reason: Reason
        var status: Int?
        /// The longest of their pauses, in milliseconds.
        var delay: Int64
        /// `retried` if any of them is tried again after a failure.
        var kind: Postponement
        /// True if any of them spends an attempt.
        var spendsAttempt: Bool
    }

    /// Notifications that will never be delivered, for one reason.
    struct Dead {
        /// `dead`, or `cancelled`.
        var outcome: Outcome
        var tokens: [ByteBuffer]
        var reason: Reason
        /// The failure of the last attempt, if that is not the reason itself.
        var cause: Reason?
        var status: Int?
    }

    /// The fate of the job.
    /// - Parameter isAlone: true for a job with one notification.
    func fate(isAlone: Bool) -> Fate {
        if let postponed { return .postponed(postponed.kind) }
        let counted = outcomes.counted
        guard counted.count + Set(dead.map(\.outcome)).count == 1 || isAlone else { return .mixed }
        return .ended(dead.first?.outcome ?? counted.first?.outcome ?? .dropped)
    }

    func add(_ outcome: Outcome, count: Int = 1) { outcomes[outcome] += count }

    /// - Parameter spendsAttempt: `nil` for what the kind says: a retry does.
    func add(
        postponed tokens: [ByteBuffer], _ kind: Postponement, reason: Reason, status: Int?, delay: Int64,
        spendsAttempt: Bool? = nil
    ) {
        let spendsAttempt = spendsAttempt ?? (kind == .retried)
        guard var postponed else {
            postponed = Postponed(
                tokens: tokens, reason: reason, status: status, delay: delay, kind: kind, spendsAttempt: spendsAttempt)
            return
        }
        if spendsAttempt { postponed.spendsAttempt = true }
        postponed.tokens += tokens
        postponed.reason = reason
        postponed.status = status
        postponed.delay = max(postponed.delay, delay)
        if kind == .retried { postponed.kind = .retried }
        self.postponed = postponed
    }

    /// - Parameter outcome: `dead`, or `cancelled`.
    func add(
        dead token: ByteBuffer, as outcome: Outcome = .dead, reason: Reason, cause: Reason? = nil, status: Int? = nil
    ) {
        if let index = dead.firstIndex(where: { $0.reason.code == reason.code }) {
            dead[index].tokens.append(token)
        } else {
            dead.append(Dead(outcome: outcome, tokens: [token], reason: reason, cause: cause, status: status))
        }
    }
}

/// The fate of a notification or of a job, for metrics.
enum Fate: Hashable {
    case ended(Outcome)
    case postponed(Postponement)
    /// A notification was sent again at once.
    case resent
    /// A job's notifications ended in more ways than one.
    case mixed
    /// A job was replaced by pieces.
    case split

    /// The fates of jobs, in the order of their indices.
    static let ofJobs: [Fate] =
        Outcome.allCases.map(Fate.ended) + Postponement.allCases.map(Fate.postponed) + [.mixed, .split]

    private static let outcomes = Outcome.allCases.count

    /// The index in ``ofJobs``.
    var index: Int {
        switch self {
        case .ended(let outcome): outcome.index
        case .postponed(.retried): Self.outcomes
        case .postponed(.deferred): Self.outcomes + 1
        case .postponed(.scheduled): Self.outcomes + 2
        case .mixed: Self.outcomes + 3
        case .split: Self.outcomes + 4
        case .resent: preconditionFailure("a job is not sent again at once")
        }
    }

    /// The value of the label `outcome`.
    var label: String {
        switch self {
        case .ended(let outcome): outcome.rawValue
        case .postponed(let postponement): postponement.rawValue
        case .resent: "resent"
        case .mixed: Settlement.mixed
        case .split: "split"
        }
    }
}
