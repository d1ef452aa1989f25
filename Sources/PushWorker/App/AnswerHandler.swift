import APNS
import LegacyAPNS
import Logging
import NIOCore
import PushJob
import PushQueue

/// The way from the end of a request to the outcome of its notification.
///
/// Belongs to the lane's event loop.
final class AnswerHandler: GatewayDelegate {
    /// The beginning of 2008, before APNs existed, in milliseconds since 1970.
    private static let firstYear: Int64 = 1_199_145_600_000
    /// The maximum number of milliseconds by which APNs' clock may be ahead of Redis'.
    private static let clockDifference: Int64 = 1000

    private let app: AppContext
    private let lane: LaneContext
    private let ledger: Ledger
    private let fleet: Fleet
    private let faults: FaultHandler
    private let waiting: WaitingNotifications
    private let tokens: ProviderTokenKeeper
    /// True if answers have no `apns-id`, and that was logged.
    private var lacksIDs = false
    /// The notifications that the binary gateway has dropped after they had completed as confirmed.
    private(set) var dropped = 0

    init(
        _ app: AppContext, _ faults: FaultHandler, _ waiting: WaitingNotifications, _ tokens: ProviderTokenKeeper
    ) {
        self.app = app
        lane = app.lane
        ledger = app.ledger
        fleet = app.fleet
        self.faults = faults
        self.waiting = waiting
        self.tokens = tokens
    }

    /// A notification whose request has ended, with its job decoded.
    private struct Attempt {
        let flight: FlightID
        let id: JobID
        let job: Job
        /// The status of the answer, if there was one.
        let status: Int?
        let uniqueID: APNSID?
        /// The token as text; empty for a broadcast.
        let token: ByteBuffer
        /// The token, or the channel.
        var recipient: ByteBuffer? { token.readableBytes > 0 ? token : job.recipient }
    }

    var keepsUniqueIDs: Bool { ledger.wantsAnswers }

    func transportChanged(_: any Transport) { lane.pump() }

    func gateway(dropped count: Int, refusing token: ByteBuffer?, with status: GatewayStatus) {
        dropped += count
        // The notification counts as delivered already; all that remains is to stop sending to the token.
        guard let token, case .tokenSuspect(let reason) = Verdict(.refused(status), topic: .app),
            !faults.gate.app.isOpen,
            faults.evidence.recordBadToken() == .mark
        else { return }
        let invalid = InvalidToken(
            token: token, at: lane.wallClock() * 1000, reason: reason.code.text, topic: app.rules.topic,
            environment: app.configuration.environment, source: .gateway)
        fleet.store.invalidTokens.mark([invalid]) { [self] in fleet.recordWrite(.invalidTokens, $0) }
    }

    func transport(_: any Transport, completed tag: UInt64, with result: RequestResult) {
        let flight = FlightID(index: Int(tag))
        let id = app.inFlight[flight].job
        waiting.line.pace.requestEnded()
        let verdict = Verdict(
            result, topic: lane.jobs[id].topicSource, isOnChannel: lane.jobs[id].isOnChannel)
        let time = lane.metrics.time() &- app.inFlight[flight].submittedAt
        if lane.jobs[id].isTraced { RequestTrace(flight, result, time: time, app)?.record() }
        if result.isAnswer {
            if lane.metrics.measuresTimes { lane.metrics.sendTimes.record(time, row: app.id.index) }
            lane.metrics.minutes.record(answer: Int(time / 1000), queue: lane.jobs[id].queue.index)
        }
        if case .delivered = verdict {
            faults.evidence.recordDelivery(topic: lane.jobs[id].topicSource)
            faults.endpointAnswered()
            if !lacksIDs, result.lacksID { logMissingID() }
            if faults.gate.app.isOpen, app.inFlight[flight].isProbe { faults.resume() }
            if !fleet.throttles.isEmpty {
                fleet.throttles.recordEnd(app.token(of: flight), now: ledger.queue(of: id).now)
            }
            ledger.record(
                .delivered, status: result.status, of: id, to: app.recipient(of: flight), wasSent: true,
                uniqueID: result.uniqueID)
            app.inFlight.remove(flight)
            return ledger.close(1, of: id)
        }
        faults.recordEndpoint(verdict, result, isProbe: app.inFlight[flight].probe == .ofEndpoint)
        // It was decoded when it was claimed. Should decoding fail now, the claim is left to be recovered.
        guard let job = lane.jobs[id].job else { return waiting.abandon(flight) }
        let attempt = Attempt(
            flight: flight, id: id, job: job, status: result.status, uniqueID: result.uniqueID,
            token: app.token(of: flight, job))
        let finding = recordEvidence(verdict, result, of: attempt)
        let explained = explained(verdict, of: id)
        log(explained, finding, of: attempt)
        if carryOut(Disposition(explained, facts(of: attempt, finding)), for: attempt) {
            app.inFlight.remove(flight)
            ledger.close(1, of: id)
        }
    }

    // MARK: Facts

    private func facts(of attempt: Attempt, _ finding: Disposition.Finding) -> Disposition.Facts {
        let (id, entry) = (attempt.id, app.inFlight[attempt.flight])
        return Disposition.Facts(
            job: attempt.job, policy: lane.configuration.retry, jitter: lane.jitter, now: ledger.queue(of: id).now,
            firstSeen: lane.jobs[id].firstSeen,
            hasEnd: app.rules.end(of: attempt.job, firstSeen: lane.jobs[id].firstSeen) != nil, isProbe: entry.isProbe,
            pause: faults.gate.app.reason,
            endpointDelay: faults.gate.endpoint.isOpen ? faults.deferral(because: .endpoint) : nil,
            isWorking: lane.isWorking, resends: Int(entry.resends), isolation: entry.isolation,
            hasOtherKey: entry.resends < Disposition.maximumResends && app.credential.hasKey(otherThan: entry.key),
            finding: finding)
    }

    /// Records what an answer shows about the app.
    /// - Returns: the conclusion.
    private func recordEvidence(
        _ verdict: Verdict, _ result: RequestResult, of attempt: Attempt
    ) -> Disposition.Finding {
        switch verdict {
        case .tokenInvalid:
            faults.evidence.recordGoodToken()
            return .none
        case .tokenSuspect(let reason):
            let endsPause = app.inFlight[attempt.flight].isProbe && reason.ends(pause: faults.gate.app.reason)
            guard !faults.gate.app.isOpen || endsPause else { return .none }
            if endsPause { faults.evidence.recordResumption() }
            let isRepeated = attempt.job.envelope.failure(in: attempt.job.body)?.reason == reason.code.text
            return .badToken(faults.evidence.recordBadToken(isRepeated: isRepeated))
        case .forbidden: return .forbidden(isOfApp: faults.evidence.recordForbidden(identity(attempt)))
        case .pushTypeRefused:
            return faults.gate.app.isOpen ? .none : .pushType(faults.evidence.recordRefusedPushType(now: lane.now))
        case .retireConnection(let reason): return refusedConnection(of: attempt, result, reason)
        case .delivered, .retry, .serverError, .throttled, .resend, .resendApart, .resendUncertain, .pauseApp,
            .deferred, .unknown, .dead:
            return .none
        }
    }

    private func identity(_ attempt: Attempt) -> ByteBuffer {
        ledger.queue(of: attempt.id).identity(
            of: attempt.job, claim: lane.jobs[attempt.id].firstClaim, generation: lane.jobs[attempt.id].generation)
    }

    /// Records an answer after which a connection is retired, and renews the provider token if it has expired.
    private func refusedConnection(
        of attempt: Attempt, _ result: RequestResult, _ reason: Reason
    ) -> Disposition.Finding {
        let isExpired = reason.code == .apns(.expiredProviderToken)
        let isRenewed = isExpired && tokens.renew(attempt.flight)
        guard !faults.gate.app.isOpen, app.inFlight[attempt.flight].resends < Disposition.maximumResends,
            case .response(let response) = result
        else { return .none }
        let connection = response.connection
        let refusal = faults.evidence.refusal(of: connection?.number ?? 0, now: lane.now)
        guard refusal != .again else { return .connectionRefusedAgain }
        guard refusal == .first else { return .connectionRetired }
        faults.evidence.recordRefusedConnection(newest: connection?.newest ?? 0, now: lane.now)
        lane.logThrottled(
            .warning, "connection_refused", "APNs refuses all requests on a connection; replacing it",
            kind: "connection \(app.name) \(reason.code.text)",
            metadata: app.logMetadata.merging(["reason": "\(reason.code.text)"]) { $1 })
        return isExpired && !isRenewed ? .none : .connectionRetired
    }

    /// Returns a verdict whose reason names the topic and the push type that APNs refuses.
    private func explained(_ verdict: Verdict, of id: JobID) -> Verdict {
        guard case .pushTypeRefused(let reason) = verdict else { return verdict }
        let (topic, type) = app.address(of: id)
        return .pushTypeRefused(
            reason: Reason(
                reason.code,
                detail:
                    "APNs refuses the topic \(topic) of the push type \(type); is the credential for this push type?"))
    }

    // MARK: Consequences

    /// - Returns: false if the notification has not ended, because it is resent at once or abandoned.
    private func carryOut(_ disposition: Disposition, for attempt: Attempt) -> Bool {
        let (flight, id) = (attempt.flight, attempt.id)
        let isProbe = app.inFlight[flight].isProbe
        switch disposition.app {
        case .none: break
        case .resume: if isProbe { faults.resume() }
        case .pause(let reason):
            if reason.concernsKey { app.credential.startOver(after: app.inFlight[flight].key) }
            faults.pause(reason, isProbe: isProbe)
        case .inconclusive: if isProbe { faults.gate.recordInconclusive(.ofApp, now: lane.now) }
        case .changeKey(let reason): tokens.changeKey(from: app.inFlight[flight].key, reason)
        }
        let now = ledger.queue(of: id).now
        var due = now
        switch disposition.device {
        case .keep: break
        case .release: if !fleet.throttles.isEmpty { fleet.throttles.recordEnd(attempt.token, now: now) }
        case .throttle(let delay):
            due = fleet.throttles.recordThrottle(attempt.token, retryAt: now + delay, now: now)
            fleet.store.throttledTokens.add(attempt.token, until: due) { [self] in
                fleet.recordWrite(.throttledTokens, $0)
            }
        }
        switch disposition.notification {
        case .end(let outcome, let reason, let cause):
            ledger.record(
                outcome, reason, cause: cause, status: attempt.status, of: id,
                to: outcome == .dead ? attempt.token : attempt.recipient, wasSent: true, uniqueID: attempt.uniqueID)
        case .markInvalid(let reason, let since): markInvalid(attempt, reason, since: since)
        case .postpone(let kind, let reason, let delay, let spendsAttempt):
            let milliseconds =
                switch delay {
                case .milliseconds(let milliseconds): milliseconds
                case .likePausedApp: faults.deferral(because: .pause)
                case .behindDevice: due - now
                }
            guard !app.expires(id, attempt.job, within: milliseconds) else {
                ledger.record(.expired, reason, status: attempt.status, of: id, to: attempt.recipient, wasSent: true)
                break
            }
            if disposition.isUncertain { ledger.recordPossibleDuplicate(of: id) }
            waiting.putBack(
                kind, 1, reason, status: attempt.status, tokens: [attempt.token], of: id, delay: milliseconds,
                recipients: attempt.recipient.map { [$0] } ?? [],
                attempt: spendsAttempt ? .always : .never)
        case .resend(let reason, let isolation, let counts):
            if let isolation {
                app.inFlight[flight].probe = nil
                app.inFlight[flight].isolation = isolation
            }
            if disposition.isUncertain { ledger.recordPossibleDuplicate(of: id) }
            resend(attempt, reason, counts: counts)
            return false
        }
        return true
    }

    // MARK: Outcomes

    /// Marks a token as invalid.
    /// - Parameter since: the time given by APNs, in milliseconds since 1970. Ignored if it is more than a second in
    ///   the future, because then no later registration could follow it, or before APNs existed.
    private func markInvalid(_ attempt: Attempt, _ reason: Reason, since: Int64?) {
        let id = attempt.id
        let now = ledger.queue(of: id).now
        let latest = max(Self.firstYear, now + Self.clockDifference)
        let at = since.flatMap { (Self.firstYear...latest).contains($0) ? $0 : nil } ?? now
        ledger.record(
            invalid: InvalidToken(
                token: attempt.token, at: at, reason: reason.code.text,
                topic: ByteBuffer(string: app.address(of: id).topic),
                environment: app.configuration.environment, source: app.configuration.usesGateway ? .gateway : .apns),
            reason, status: attempt.status, of: id)
    }

    // MARK: Resending

    /// Resends a notification at once.
    /// - Parameter counts: false if the resend does not count towards the maximum.
    private func resend(_ attempt: Attempt, _ reason: Reason, counts: Bool = true) {
        guard lane.isWorking else { return waiting.abandon(attempt.flight) }
        if counts { app.inFlight[attempt.flight].resends += 1 }
        let queue = ledger.queue(of: attempt.id)
        if !queue.commands.isEmpty, queue.commands.command(for: attempt.job)?.command.cancels(attempt.job) == true {
            return waiting.cancelResend(attempt.flight)
        }
        ledger.recordResent(reason, of: attempt.id)
        waiting.line.sendAgain(attempt.flight, in: app.inFlight, now: lane.now)
        lane.schedulePump()
    }

    // MARK: Log

    private func logMissingID() {
        lacksIDs = true
        lane.logThrottled(
            .warning, "answers_without_id",
            """
            the server's answers have no apns-id, unlike those of APNs; a proxy may remove it. They count as delivered
            """, kind: "no apns-id \(app.name)", metadata: app.logMetadata)
    }

    /// Logs an answer about which operators should know more than its outcome.
    private func log(_ verdict: Verdict, _ finding: Disposition.Finding, of attempt: Attempt) {
        switch verdict {
        case .retry(let reason, _, _) where reason.isLostConnection && app.inFlight[attempt.flight].isolation == .alone:
            lane.logThrottled(
                .warning, "notification_cuts_connection",
                """
                APNs, or a proxy on the way, closed the connection on which a notification was sent alone; it is \
                retried, always alone
                """, kind: "cuts \(app.name)", metadata: app.logMetadata, example: example(attempt))
        case .pushTypeRefused(let reason):
            // Otherwise the log says that the app is paused.
            guard case .pushType(let fault) = finding, fault != .app else { return }
            let (topic, type) = app.address(of: attempt.id)
            lane.logThrottled(
                .error, "push_type_refused", "\(reason.explanation); the app's other jobs are sent",
                kind: "push type \(app.name) \(type)",
                metadata: app.logMetadata.merging(
                    ["reason": "\(reason.code.text)", "push_type": "\(type)", "topic": "\(topic)"]
                ) { $1 },
                example: example(attempt))
        case .deferred(let reason) where reason.concernsBroadcasts:
            lane.logThrottled(
                .error, "broadcasts_not_enabled",
                """
                APNs does not accept broadcasts for this app (\(reason.code.text)): its jobs with a `channel` wait, and \
                are tried again every minute. Enable the app's broadcast capability on Apple's developer site
                """, kind: "broadcasts \(app.name)", metadata: app.logMetadata)
        case .unknown(let reason):
            lane.logThrottled(
                .error, "unknown_reason",
                "unknown reason from APNs; its notifications are tried up to three times",
                kind: "unknown reason \(app.name) \(reason.code.text)",
                metadata: app.logMetadata.merging(["reason": "\(reason.code.text)", "status": "\(attempt.status ?? 0)"])
                {
                    $1
                })
        default: break
        }
    }

    private func example(_ attempt: Attempt) -> Logger.Metadata {
        attempt.job.id.map { ["job": "\(String(buffer: attempt.job.text($0)))"] } ?? [:]
    }
}

extension RequestResult {
    /// True for an answer without an `apns-id`.
    fileprivate var lacksID: Bool {
        if case .response(let response) = self { response.origin != .apns } else { false }
    }

    /// True if APNs answered.
    var isAnswer: Bool {
        switch self {
        case .response, .confirmed, .refused: true
        case .notProcessed, .uncertain: false
        }
    }

    /// The `apns-unique-id` of an answer, if the transport keeps it.
    fileprivate var uniqueID: APNSID? { if case .response(let response) = self { response.uniqueID } else { nil } }

    /// The HTTP status or gateway status of an answer.
    var status: Int? {
        switch self {
        case .response(let response): response.status
        case .refused(let status): Int(status)
        case .confirmed, .notProcessed, .uncertain: nil
        }
    }
}
