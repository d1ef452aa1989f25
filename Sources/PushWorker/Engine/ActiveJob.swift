import APNS
import NIOCore
import PushJob
import PushQueue

/// A claimed job in the hands of a lane.
///
/// Small on purpose: most jobs are delivered at once and need only their claim. Everything else is read from the body
/// again when it is needed.
struct ActiveJob: LinkedEntry {
    var claim = ClaimID.none
    /// The claimed bytes. `nil` only in an empty table entry: the reference count of a shared empty buffer would be
    /// contended by all lanes.
    var body: ByteBuffer?
    /// The notification of a job with one token, until it is submitted.
    var notification: Notification?
    /// The additional state of a job with many tokens.
    var fanOut: FanOut?
    /// The outcomes of its notifications; `nil` while a plain delivery is all there is to record.
    var tally: JobTally?
    var app = AppID(index: 0)
    var queue = QueueID(index: 0)
    var next = -1
    /// The time at which the job was first seen, in milliseconds of Redis' clock. Durations count from it.
    var firstSeen: Int64 = 0
    /// The time at which it joined its app's line.
    var readySince = NIODeadline.distantPast
    /// The time since which it waits to be sent, in milliseconds of Redis' clock; -1 if its wait must not be measured.
    var queuedSince: Int64 = -1
    /// The number of notifications that have not ended, unsubmitted ones included.
    var open = 0
    /// The number of notifications that have not been submitted.
    var unsubmitted = 0
    /// The generation of the queue's lease under which the job was claimed. Claims of an earlier generation belong to
    /// other lanes.
    var generation = 0
    /// True for a job in Sidekiq's or Resque's format.
    var isSidekiq = false
    /// True if the job specifies its topic, rather than using the app's.
    var namesTopic = false
    /// True if the job requests its results, regardless of what the queue keeps.
    var keepsResult = false
    /// True if it belongs to a campaign.
    var hasCampaign = false
    /// True if its notification is a broadcast on a channel rather than for a device.
    var isOnChannel = false
    /// True if a drain left its notification unsent. The job is then released, not settled.
    var isAbandoned = false
    /// The metrics series of its notifications; see ``LaneMetrics/series(app:queue:pushType:)``.
    var series: UInt32 = 0

    /// The decoded job. One with a single token is decoded again, which can't fail because it was decoded when it was
    /// claimed.
    var job: Job? {
        if let fanOut { return fanOut.job }
        return body.flatMap { try? JobDecoder.decode($0, as: isSidekiq ? .sidekiq(classes: []) : .native) }
    }
}

/// The state of a job with many tokens. The shared parts of its notifications are prepared once.
final class FanOut {
    /// A notification without token and `apns-id`.
    let template: Notification
    /// The id from which `apns-id`s are derived.
    let identity: ByteBuffer
    let job: Job
    /// The tokens that have not been submitted.
    var remaining: DistinctTokens
    /// The number of tokens before the remaining ones.
    var position = 0
    /// The positions of tokens known to be invalid.
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

/// A notification that is in flight, or that waits to be resent at once.
struct InFlight: LinkedEntry {
    var job = JobID(index: -1)
    var next = -1
    /// The token; `nil` for a job with only one.
    var deviceToken: DeviceToken?
    /// The time at which the provider token of its request was signed, in seconds since 1970.
    var providerTokenIssuedAt: Int64 = 0
    /// The index of the signing key of that token.
    var key: UInt8 = 0
    /// The number of resends that spent no attempt.
    var resends: UInt8 = 0
    /// The circuit breaker that it probes.
    var probe: Probe?
    /// The time of its submission; see ``LaneMetrics/time()``.
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

/// The outcomes of one job's notifications, collected until all have ended and the job can be settled.
final class JobTally {
    /// The outcomes that need only a count; dead letters are in ``dead``.
    private(set) var outcomes = OutcomeCounts()
    /// The tokens that have become invalid. They are written to the set before the job is settled.
    var invalidTokens: [InvalidToken] = []
    /// The number of notifications sent again because no answer arrived.
    var unanswered = 0
    /// The number of notifications that an earlier holder of the job may have sent, counted once per reclaim.
    var reclaimed = 0
    private(set) var postponed: Postponed?
    /// The results for producers, written when the job is settled.
    var results = PackedResults()
    /// The dead and cancelled notifications, one entry per reason.
    private(set) var dead: [Dead] = []

    /// The number of requests sent, or still to be sent, although APNs may have accepted an earlier one.
    var possibleDuplicates: Int { unanswered + reclaimed }

    /// Notifications that will be sent later.
    struct Postponed {
        /// The tokens as text.
        var tokens: [ByteBuffer]
        /// The reason for the last of them.
        var reason: Reason
        var status: Int?
        /// The longest delay among them, in milliseconds.
        var delay: Int64
        /// `retried` if any of them is retried after a failure.
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

    /// Returns the fate of the job.
    /// - Parameter isAlone: true for a job with one notification.
    func fate(isAlone: Bool) -> Fate {
        if let postponed { return .postponed(postponed.kind) }
        let counted = outcomes.counted
        guard counted.count + Set(dead.map(\.outcome)).count == 1 || isAlone else { return .mixed }
        return .ended(dead.first?.outcome ?? counted.first?.outcome ?? .dropped)
    }

    func add(_ outcome: Outcome, count: Int = 1) { outcomes[outcome] += count }

    /// - Parameter spendsAttempt: `nil` for the default of the kind: only a retry spends one.
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
    /// A notification that was sent again at once.
    case resent
    /// A job whose notifications ended in different ways.
    case mixed
    /// A job that was replaced by pieces.
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
