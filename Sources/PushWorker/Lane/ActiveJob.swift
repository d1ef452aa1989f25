import APNS
import Glibc
import NIOCore
import PushJob
import PushQueue

/// A claimed job that a lane works on.
///
/// Kept small, because most jobs are delivered at once and need only their claim. Everything else is read from the body again if it is
/// needed.
struct ActiveJob: LinkedEntry {
    var claim = ClaimID.none
    /// The claimed bytes; `nil` only in an empty table entry. A shared empty buffer would not do: all lanes would contend for its reference
    /// count.
    var body: ByteBuffer?
    /// The notification of a job with one token, until it is submitted.
    var notification: Notification?
    var fanOut: FanOut?
    /// The outcomes of the job's notifications; `nil` while there is nothing to record beyond a plain delivery.
    var tally: JobTally?
    var app = AppID(index: 0)
    var queue = QueueID(index: 0)
    var next = -1
    /// The time of the job's first sighting, in milliseconds of Redis' clock. Durations in the job start then.
    var firstSeen: Int64 = 0
    /// The time when the job joined its app's line.
    var readySince = NIODeadline.distantPast
    /// The time of Redis' last answer that no newer job has its `replaces`; `distantFuture` for a job without `replaces`.
    var confirmedAt = NIODeadline.distantFuture
    /// The start of the job's wait, in milliseconds of Redis' clock; -1 if the wait must not be measured.
    var queuedSince: Int64 = -1
    /// The number of notifications that have not ended, unsubmitted ones included.
    var open = 0
    var unsubmitted = 0
    /// The generation of the queue's lease when the job was claimed. Claims of earlier generations belong to other lanes.
    var generation = 0
    var isSidekiq = false
    var topicSource = Verdict.TopicSource.app
    /// True if the job asks for its results, even if the queue keeps none.
    var keepsResult = false
    var isTraced = false
    var hasCampaign = false
    var isOnChannel = false
    /// The scopes of the job's notifications, except the scopes of its app; see ``ScopePlace``.
    var groupScope: ScopeID = -1
    var addressScope: ScopeID = -1
    var jobScope: ScopeID = -1
    /// True if the job is a scope of its own.
    var hasManyTokens: Bool { jobScope >= 0 }
    /// True until a notification of the job fails. A deferral is not a failure.
    var isFresh = true
    /// Not `shared` if the job's notifications may have caused the loss of a connection.
    var isolation = Isolation.shared
    /// True if a drain left a notification of the job unsent. The job is then released instead of settled.
    var isAbandoned = false
    var series: UInt32 = 0

    /// The job's first claim on this lane. If the job has no id, its identity is derived from this claim.
    var firstClaim: ClaimID { fanOut?.claim ?? claim }

    /// The decoded job. A job with one token is decoded again, which can't fail because it was decoded when it was claimed.
    var job: Job? {
        if let fanOut { return fanOut.job }
        return body.flatMap { try? JobDecoder.decode($0, as: isSidekiq ? .sidekiq(classes: []) : .native) }
    }
}

/// The state of a job with many tokens, with the shared parts of its notifications.
final class FanOut {
    /// The job's claim before any part of it was settled.
    let claim: ClaimID
    /// A notification without token and `apns-id`.
    let template: Notification
    /// The source of the notifications' `apns-id`s.
    let identity: ByteBuffer
    private let seed: APNSID.Seed
    let job: Job
    /// The tokens that have not been submitted.
    var remaining: DistinctTokens
    /// The number of tokens before the remaining ones.
    var position = 0
    /// The positions of tokens known to be invalid.
    var suppressed: Set<Int> = []
    /// The range of the producer's bytes in the claimed job in Redis.
    var original: Range<Int>
    /// The number of parts that were settled before the rest had ended.
    var parts = 0

    init(
        claim: ClaimID, template: Notification, identity: ByteBuffer, job: Job, tokens: DistinctTokens,
        original: Range<Int>
    ) {
        self.claim = claim
        self.template = template
        self.identity = identity
        seed = APNSID.Seed(jobID: identity)
        self.job = job
        remaining = tokens
        self.original = original
    }

    func notification(to token: DeviceToken) -> Notification {
        // In one expression, because the compiler copies a large value that is changed afterwards.
        Notification(
            deviceToken: token, payload: template.payload, topic: template.topic, pushType: template.pushType,
            unknownPushType: template.unknownPushType, priority: template.priority, expiration: template.expiration,
            collapseID: template.collapseID, apnsID: APNSID(seed, token: token.hex))
    }
}

/// A notification that is in flight, or that waits to be resent at once.
struct InFlight: LinkedEntry {
    var job = JobID(index: -1)
    var next = -1
    /// The device token; `nil` if the job has only one.
    var deviceToken: DeviceToken?
    /// The time of the signature of the request's provider token, in seconds since 1970.
    var providerTokenIssuedAt: Int64 = 0
    /// The index of the request's signing key.
    var key: UInt8 = 0
    /// The number of resends that spent no attempt.
    var resends: UInt8 = 0
    var probed: ScopeSet = []
    /// True if the notification was refused, and is sent again on a separate connection.
    var isSecondTry = false
    /// True if the notification is sent again although APNs may have accepted it.
    var mayBeAccepted = false
    /// True if the notification has failed since its job was claimed, and is sent again.
    var hasFailed = false
    var isolation = Isolation.shared
    /// The time of the submission; see ``LaneMetrics/time()``.
    var submittedAt: UInt32 = 0
}

/// The outcomes of one job's notifications, collected until all notifications have ended. If some take long, the outcomes so far are
/// written as a part of the job.
final class JobTally {
    /// The outcomes that need only a count; dead letters are in ``dead``.
    private(set) var outcomes = OutcomeCounts()
    /// The tokens that became invalid. They are written to the set before the job is settled.
    var invalidTokens: [InvalidToken] = []
    /// The number of notifications that were sent again because there was no answer.
    var unanswered = 0
    /// The number of notifications that an earlier holder of the job may have sent. Each reclaim counts them again.
    var reclaimed = 0
    /// The notifications that will be sent later.
    private(set) var postponed: [Postponed] = []
    /// The results for producers, written when the job is settled.
    var results = PackedResults()
    /// The dead and cancelled notifications, by reason.
    private(set) var dead: [Dead] = []
    /// The time from enqueueing to the first delivery in milliseconds, for the counters of a campaign. The times of further deliveries are
    /// in ``latencies``.
    private(set) var latency: Int?
    private(set) var latencies: LatencyCounts?
    /// The fates of all notifications, including those of the job's earlier tallies.
    private var fates: Fates
    /// The number of notifications that were dropped without being sent, and the reason: another job has reserved the id, or a newer job
    /// has the same `replaces`.
    private(set) var superfluous: (reason: Reason, count: Int)?
    /// True if a notification may have been delivered although no count shows it.
    var mayBeDelivered = false
    /// True if the job's reservation outlives the job: notifications were or may have been delivered, or several parts return to Redis.
    var keepsReservation: Bool {
        mayBeDelivered || possibleDuplicates > 0 || postponed.count > 1 || fates.contains(.ended(.delivered))
            || fates.contains(.ended(.dropped))
    }
    /// True if the ledger limits how long the outcomes remain unwritten.
    var isWatched = false

    /// The maximum number of groups of postponed notifications. Further notifications join the group with the nearest delay.
    private static let maximumGroups = 8

    private struct Fates: OptionSet {
        let rawValue: UInt16

        static let postponed = Fates(rawValue: 1 << 15)
        static func ended(_ outcome: Outcome) -> Fates { Fates(rawValue: 1 << UInt16(outcome.index)) }

        /// The only outcome; `nil` if there are several, or a notification was postponed.
        var onlyOutcome: Outcome? { Outcome.allCases.first { self == .ended($0) } }
    }

    /// - Parameter earlier: the job's tally of notifications that were written before.
    init(after earlier: JobTally? = nil) {
        fates = earlier?.fates ?? []
        mayBeDelivered = earlier.map { $0.keepsReservation || !$0.postponed.isEmpty } ?? false
    }

    var isEmpty: Bool { outcomes.total == 0 && postponed.isEmpty && dead.isEmpty }

    /// The number of requests that are sent again although APNs may have accepted an earlier one.
    var possibleDuplicates: Int { unanswered + reclaimed }

    /// The recipients of some notifications of a job.
    enum Recipients {
        /// All recipients of the job.
        case all(count: Int)
        /// Only these tokens, as text.
        case some([ByteBuffer])

        var count: Int {
            switch self {
            case .all(let count): count
            case .some(let tokens): tokens.count
            }
        }

        fileprivate mutating func add(_ other: Recipients) {
            guard case .some(let tokens) = self, case .some(let more) = other else { return }
            self = .some(tokens + more)
        }
    }

    /// Notifications that will be sent later, for one reason and after similar delays.
    struct Postponed {
        var recipients: Recipients
        let reason: Reason
        let status: Int?
        /// The longest delay of the notifications, in milliseconds.
        var delay: Int64
        let kind: Postponement
        let attempt: Settlement.AttemptRule
        /// The results to write if the failure has spent the notifications' last attempt.
        var results: PackedResults

        /// True if another postponement has the same cause and effect, apart from its delay.
        fileprivate func isLike(_ other: Postponed) -> Bool {
            kind == other.kind && attempt == other.attempt && status == other.status
                && reason.code == other.reason.code
        }

        /// The class of the delay. Delays of a class differ by less than a second or, from a second on, by less than half.
        fileprivate var delayClass: Int { delay < 1000 ? 0 : Int(2 * log2(Double(delay) / 1000)) + 1 }

        fileprivate mutating func add(_ other: Postponed) {
            recipients.add(other.recipients)
            delay = max(delay, other.delay)
            results.append(other.results)
        }
    }

    /// Notifications that will never be delivered, for one reason.
    struct Dead {
        /// `dead`, or `cancelled`.
        var outcome: Outcome
        var recipients: Recipients
        var reason: Reason
        /// The failure of the last attempt, if it is not the reason itself.
        var cause: Reason?
        var status: Int?
    }

    /// The fate of the whole job. Only valid for the tally of its last notifications.
    var fate: Fate {
        if let kind = postponed.first?.kind {
            return .postponed(postponed.contains { $0.kind == .retried } ? .retried : kind)
        }
        return fates.onlyOutcome.map(Fate.ended) ?? .mixed
    }

    /// - Parameter milliseconds: the time from enqueueing to delivery.
    func record(latency milliseconds: Int) {
        guard latency != nil else { return latency = milliseconds }
        if latencies == nil { latencies = LatencyCounts() }
        latencies?.record(milliseconds)
    }

    func add(_ outcome: Outcome, count: Int = 1) {
        outcomes[outcome] += count
        fates.insert(.ended(outcome))
    }

    /// Records that notifications were dropped without being sent.
    func recordSuperfluous(_ count: Int, _ reason: Reason) {
        superfluous = (reason, (superfluous?.count ?? 0) + count)
    }

    /// - Parameters:
    ///   - delay: in milliseconds.
    ///   - attempt: `nil` for the default: only a retry spends an attempt.
    ///   - results: the results to write if the last attempt was spent.
    func add(
        postponed recipients: Recipients, _ kind: Postponement, reason: Reason, status: Int? = nil, delay: Int64,
        attempt: Settlement.AttemptRule? = nil, results: PackedResults = PackedResults()
    ) {
        fates.insert(.postponed)
        let new = Postponed(
            recipients: recipients, reason: reason, status: status, delay: delay, kind: kind,
            attempt: attempt ?? (kind == .retried ? .always : .never), results: results)
        if let index = postponed.firstIndex(where: { $0.isLike(new) && $0.delayClass == new.delayClass }) {
            postponed[index].add(new)
        } else if postponed.count >= Self.maximumGroups, let index = nearest(to: new) {
            postponed[index].add(new)
        } else {
            postponed.append(new)
        }
    }

    /// Returns the index of the group with the same cause and effect, and with the nearest delay.
    private func nearest(to new: Postponed) -> Int? {
        postponed.indices.filter { postponed[$0].isLike(new) }.min {
            abs(postponed[$0].delay - new.delay) < abs(postponed[$1].delay - new.delay)
        }
    }

    /// - Parameter outcome: `dead`, or `cancelled`.
    func add(
        dead recipients: Recipients, as outcome: Outcome = .dead, reason: Reason, cause: Reason? = nil,
        status: Int? = nil
    ) {
        fates.insert(.ended(outcome))
        let isLike: (Dead) -> Bool = { [code = reason.code, cause = cause?.code] dead in
            dead.outcome == outcome && dead.reason.code == code && dead.cause?.code == cause && dead.status == status
        }
        if let index = dead.firstIndex(where: isLike) {
            dead[index].recipients.add(recipients)
        } else {
            dead.append(
                Dead(outcome: outcome, recipients: recipients, reason: reason, cause: cause, status: status))
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

    static let ofNotifications: [Fate] =
        Outcome.allCases.map(Fate.ended) + Postponement.allCases.map(Fate.postponed) + [.resent]

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
