import APNS
import NIOCore

/// The evidence in APNs' answers on the question whether the app, rather than a notification, a token or a connection, is
/// at fault. No I/O.
struct Evidence {
    /// The time in which the app's plain topic may be accepted, after the topic of a push type was refused.
    private static let patienceForPlainTopic = TimeAmount.seconds(30)
    /// The time within which a second connection refused by APNs pauses the app.
    private static let retirementInterval = TimeAmount.minutes(1)

    private var badTokens: BadTokenGuard
    /// The identity of the first job answered `Forbidden` since the last delivery.
    private var forbidden: ByteBuffer?
    private var plainTopic = PlainTopic.unknown(since: nil)
    /// The newest connection when APNs last refused one, and the time of the refusal.
    private var refused: (newest: Int, at: NIODeadline)?

    /// The evidence about the topic without the suffix of a push type, since the credential last changed or the app was
    /// paused.
    private enum PlainTopic: Equatable {
        case accepted
        /// Nothing has been accepted. `since`: the time at which the topic of a push type was first refused.
        case unknown(since: NIODeadline?)
    }

    init(maximumBadTokenShare: Double) { badTokens = BadTokenGuard(maximumShare: maximumBadTokenShare) }

    // MARK: Deliveries

    /// Records that APNs accepted a notification.
    mutating func recordDelivery(topic: Verdict.TopicSource) {
        badTokens.recordGood()
        if forbidden != nil { forbidden = nil }
        if topic == .app, plainTopic != .accepted { plainTopic = .accepted }
    }

    // MARK: Tokens

    /// Records that APNs accepted a token, although not its notification.
    mutating func recordGoodToken() { badTokens.recordGood() }

    /// Records that APNs reported a bad token; see ``BadTokenGuard/recordBad(isRepeated:)``.
    mutating func recordBadToken(isRepeated: Bool = false) -> BadTokenGuard.Judgement {
        let judgement = badTokens.recordBad(isRepeated: isRepeated)
        if judgement == .trip { badTokens.reset() }
        return judgement
    }

    // MARK: Jobs

    /// Records that a job was answered `Forbidden`, which may be its own fault.
    /// - Returns: true if the app is at fault: another job got the same answer, and none has been delivered in between.
    mutating func recordForbidden(_ job: ByteBuffer) -> Bool {
        guard let forbidden else {
            forbidden = job
            return false
        }
        return forbidden != job
    }

    /// The cause of the refusal of a topic that follows from a push type.
    enum TopicFault {
        /// The credential is not for this push type, because APNs accepts the app's plain topic.
        case pushType
        /// The app: it has sent nothing with its plain topic that could show whether its credential is right.
        case app
        case unknown
    }

    /// Records that APNs refused a topic that follows from the job's push type: many credentials are for some push types
    /// only, so one job must not stop the app's others.
    mutating func recordRefusedPushType(now: NIODeadline) -> TopicFault {
        switch plainTopic {
        case .accepted: return .pushType
        case .unknown(let since?) where now - since > Self.patienceForPlainTopic: return .app
        case .unknown(let since):
            plainTopic = .unknown(since: since ?? now)
            return .unknown
        }
    }

    // MARK: Connections

    /// A connection on which APNs refuses all requests, compared with those that it refused before.
    enum RefusedConnection {
        /// The first in a while.
        case first
        /// Made before the first refusal, so that it meets the same.
        case further
        /// Made since the first refusal. Another connection does not help.
        case again
    }

    /// Returns how a connection that APNs refuses relates to those that it refused before.
    func refusal(of connection: Int, now: NIODeadline) -> RefusedConnection {
        guard let refused else { return .first }
        guard connection > refused.newest else { return .further }
        return now - refused.at < Self.retirementInterval ? .again : .first
    }

    /// Records that APNs refused a connection for the first time in a while.
    /// - Parameter newest: the newest connection.
    mutating func recordRefusedConnection(newest: Int, now: NIODeadline) { refused = (newest, now) }

    // MARK: Changes

    /// Records that the app was paused.
    mutating func recordPause() { plainTopic = .unknown(since: nil) }

    /// Records that the app's pause has ended.
    mutating func recordResumption() { badTokens.reset() }

    /// Records that requests have another credential.
    mutating func recordOtherCredential() { plainTopic = .unknown(since: nil) }

    /// Records that requests use other connections.
    mutating func recordOtherConnections() { refused = nil }

    /// Changes the share of bad answers above which the app is at fault.
    mutating func changeMaximumBadTokenShare(_ share: Double) { badTokens = BadTokenGuard(maximumShare: share) }
}
