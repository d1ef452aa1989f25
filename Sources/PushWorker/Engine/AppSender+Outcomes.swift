import APNS
import Logging
import NIOCore
import PushJob
import PushQueue

/// The way from the end of a request to the outcome of its notification.
extension AppSender: TransportDelegate {
    /// The time in which the app's plain topic may be accepted, after the topic of a push type was refused.
    private static let patienceForPlainTopic = TimeAmount.seconds(30)
    /// The maximum number of immediate resends of a notification with another provider token or key.
    private static let maximumResends: UInt8 = 10
    /// The maximum number of attempts for failures that can end only much later, or never.
    private static let rareAttempts = 3
    /// The number of attempts after which a token is believed invalid even if nothing else shows that the app is right.
    private static let attemptsToBelieve = 3
    /// The beginning of 2008, before APNs existed, in milliseconds since 1970.
    private static let firstYear: Int64 = 1_199_145_600_000
    /// The maximum number of milliseconds by which APNs' clock may be ahead of Redis'.
    private static let clockDifference: Int64 = 1000

    /// A notification whose request has ended, with its job decoded.
    private struct Attempt {
        let flight: FlightID
        let id: JobID
        let job: Job
        let isProbe: Bool
        /// The status of the answer, if there was one.
        let status: Int?
        /// The token as text; empty for a broadcast.
        let token: ByteBuffer
        /// The token, or the channel.
        var recipient: ByteBuffer? { token.readableBytes > 0 ? token : job.recipient }
    }

    func transportChanged(_: any Transport) { lane.pump() }

    func transport(_: any Transport, refusedLate token: ByteBuffer, with status: GatewayStatus) {
        // The notification counts as delivered already; all that remains is to stop sending to the token.
        guard case .tokenSuspect(let reason) = Verdict(.refused(status), topic: .app), !breaker.isOpen,
            badTokens.bad() == .mark
        else { return }
        let invalid = InvalidToken(
            token: token, at: lane.wallClock() * 1000, reason: reason.code.text, topic: app.topic,
            environment: configuration.environment, source: .gateway)
        fleet.store.markInvalid([invalid]) { [self] in fleet.noteWrite(.invalidTokens, $0) }
    }

    func transport(_: any Transport, completed tag: UInt64, with result: RequestResult) {
        let flight = FlightID(index: Int(tag))
        let id = inFlight[flight].job
        line.pace.requestEnded()
        let verdict = Verdict(
            result, topic: lane.jobs[id].topicSource, isOnChannel: lane.jobs[id].isOnChannel)
        let time = lane.metrics.time() &- inFlight[flight].submittedAt
        if lane.jobs[id].isTraced { trace(flight, result, time: time) }
        if result.isAnswer {
            if lane.metrics.measuresTimes { lane.metrics.sendTimes.record(time, row: self.id.index) }
            lane.metrics.minutes.record(answer: Int(time / 1000), queue: lane.jobs[id].queue.index)
        }
        if case .delivered = verdict {
            badTokens.good()
            endpointAnswered()
            if watch.forbidden != nil { watch.forbidden = nil }
            if !watch.lacksID, result.lacksID { noteMissingID() }
            if watch.plainTopic != .accepted, lane.jobs[id].topicSource == .app { watch.plainTopic = .accepted }
            if breaker.isOpen, inFlight[flight].isProbe { resume() }
            if !fleet.throttles.isEmpty { fleet.throttles.ended(token(of: flight), now: ledger.queue(of: id).now) }
            ledger.record(
                .delivered, status: result.status, of: id, to: recipient(of: flight), wasSent: true,
                uniqueID: result.uniqueID)
            inFlight.remove(flight)
            return ledger.close(1, of: id)
        }
        noteEndpoint(verdict, result, isProbe: inFlight[flight].probe == .ofEndpoint)
        // It was decoded when it was claimed. Should decoding fail now, the claim is left to be recovered.
        guard let job = lane.jobs[id].job else { return abandon(flight) }
        let attempt = Attempt(
            flight: flight, id: id, job: job, isProbe: inFlight[flight].isProbe, status: result.status,
            token: token(of: flight, job))
        if apply(verdict, result, to: attempt) {
            inFlight.remove(flight)
            ledger.close(1, of: id)
        }
    }

    /// - Returns: false if the notification has not ended, because it is resent at once or abandoned.
    private func apply(_ verdict: Verdict, _ result: RequestResult, to attempt: Attempt) -> Bool {
        switch verdict {
        case .resend: break
        case .retireConnection(let reason):
            if resendsElsewhere(attempt, result, reason) { return false }
        case .pauseApp(let reason):
            if resendsWithNextKey(attempt, reason) { return false }
        case .pushTypeRefused: break
        case .forbidden(let reason):
            if meetsForbidden(attempt), resendsWithNextKey(attempt, reason) { return false }
        case .tokenInvalid:
            badTokens.good()
            if breaker.isOpen, attempt.isProbe { resume() }
        case .tokenSuspect(let reason):
            // An answer about a token shows that the app itself is right, unless the app was paused for bad tokens.
            if attempt.isProbe, !reason.isGoneWithoutReason, breaker.reason?.isBadToken == false { resume() }
        case .delivered, .retry, .resendApart, .resendUncertain, .serverError, .throttled, .deferred, .unknown, .dead:
            if attempt.isProbe { breaker.probeInconclusive(now: lane.now) }
        }
        switch verdict {
        case .resendApart(let reason):
            if resendsUncertain(attempt, reason, in: inFlight[attempt.flight].isolation.next) { return false }
        case .resendUncertain(let reason):
            if resendsUncertain(attempt, reason, in: inFlight[attempt.flight].isolation) { return false }
        default: break
        }
        endThrottle(verdict, attempt)
        switch verdict {
        case .delivered: break
        case .tokenInvalid(let reason, let since): markInvalid(attempt, reason, since: since)
        case .tokenSuspect(let reason): judge(attempt, reason)
        case .retry(let reason, _, true) where watch.endpoint.isOpen:
            wait(attempt, reason, retryAfter: nil, isUncertain: true)
        case .resendApart(let reason), .resendUncertain(let reason):
            retry(attempt, reason, retryAfter: nil, isUncertain: true, spendsAttempt: false)
        case .retry(let reason, let retryAfter, let isUncertain):
            if inFlight[attempt.flight].isolation == .alone, reason.isLostConnection { logCutter(attempt) }
            retry(attempt, reason, retryAfter: retryAfter, isUncertain: isUncertain)
        case .serverError(let reason, let retryAfter):
            wait(attempt, reason, retryAfter: retryAfter, isUncertain: false)
        case .throttled(let reason, let retryAfter): throttle(attempt, reason, retryAfter: retryAfter)
        case .resend(let reason):
            guard let pause = resendPause(attempt, result) else {
                // A notification discarded because of a bad one before it may be discarded as often as there are bad
                // ones.
                resend(attempt, reason, counts: result != .notProcessed(.discarded))
                return false
            }
            if attempt.isProbe { breaker.probeInconclusive(now: lane.now) }
            endThrottle(attempt)
            if age(of: attempt.id) < RetryPolicy.freeResends {
                deferNotification(attempt.token, of: attempt.id, attempt.job, reason, delay: pause)
            } else {
                retry(attempt, reason, retryAfter: nil, isUncertain: false)
            }
        case .retireConnection(let reason):
            let isToken = reason.code == .apns(.expiredProviderToken)
            pauseApp(attempt, isToken ? Reason(reason.code, detail: "is this machine's clock right?") : reason)
        case .pauseApp(let reason):
            if case .uncertain = result { ledger.recordPossibleDuplicate(of: attempt.id) }
            pauseApp(attempt, reason)
        case .pushTypeRefused(let reason): judgePushType(attempt, reason, result)
        case .forbidden(let reason):
            if isForbidden(attempt) { pauseApp(attempt, reason) } else { retryRarely(attempt, reason) }
        case .deferred(let reason):
            if reason.concernsBroadcasts { logMissingBroadcasts(reason) }
            let delay = lane.random(in: 30_000...90_000)
            deferNotification(attempt.token, of: attempt.id, attempt.job, reason, delay: delay)
        case .unknown(let reason):
            lane.logThrottled(
                .error, "unknown_reason",
                "unknown reason from APNs; its notifications are tried up to three times",
                kind: "unknown reason \(name) \(reason.code.text)",
                metadata: logMetadata.merging(["reason": "\(reason.code.text)", "status": "\(attempt.status ?? 0)"]) {
                    $1
                })
            retryRarely(attempt, reason)
        case .dead(let reason):
            ledger.record(
                .dead, reason, status: attempt.status, of: attempt.id, to: attempt.token, wasSent: true,
                uniqueID: result.uniqueID)
        }
        return true
    }

    // MARK: Faults of the app

    /// Pauses the app, and defers the notification that revealed the fault.
    private func pauseApp(_ attempt: Attempt, _ reason: Reason) {
        pause(reason, isProbe: attempt.isProbe)
        deferNotification(attempt.token, of: attempt.id, attempt.job, Reason(reason.code), delay: pauseDelay)
    }

    private func resendsWithNextKey(_ attempt: Attempt, _ reason: Reason) -> Bool {
        guard inFlight[attempt.flight].resends < Self.maximumResends,
            usesNextKey(keyIndex: inFlight[attempt.flight].key, reason)
        else { return false }
        resend(attempt, reason)
        return true
    }

    private func noteMissingID() {
        watch.lacksID = true
        lane.logThrottled(
            .warning, "answers_without_id",
            """
            the server's answers have no apns-id, unlike those of APNs; a proxy may remove it. They count as delivered
            """, kind: "no apns-id \(name)", metadata: logMetadata)
    }

    /// Decides whether a push type or the app is at fault, after APNs refused a topic that follows from the push type: many
    /// credentials are for some push types only, so one job must not stop the app's others.
    private func judgePushType(_ attempt: Attempt, _ reason: Reason, _ result: RequestResult) {
        let (topic, type) = address(of: attempt.id)
        let reason = Reason(
            reason.code,
            detail: "APNs refuses the topic \(topic) of the push type \(type); is the credential for this push type?")
        if breaker.isOpen {
            if attempt.isProbe, breaker.reason?.code == reason.code {
                pause(breaker.reason ?? reason, isProbe: true)
            } else if attempt.isProbe {
                // Whatever the app is paused for, this probe answered another question.
                breaker.probeInconclusive(now: lane.now)
            }
            return deferNotification(attempt.token, of: attempt.id, attempt.job, reason, delay: pauseDelay)
        }
        switch watch.plainTopic {
        case .unknown(let since?) where lane.now - since > Self.patienceForPlainTopic:
            // The app sends nothing else that could show whether its credential is right.
            return pauseApp(attempt, reason)
        case .unknown(let since):
            watch.plainTopic = .unknown(since: since ?? lane.now)
            deferNotification(
                attempt.token, of: attempt.id, attempt.job, reason, delay: lane.random(in: 5000...15_000))
        case .accepted:
            ledger.record(
                .dead, reason, status: attempt.status, of: attempt.id, to: attempt.token, wasSent: true,
                uniqueID: result.uniqueID)
        }
        lane.logThrottled(
            .error, "push_type_refused", "\(reason.explanation); the app's other jobs are sent",
            kind: "push type \(name) \(type)",
            metadata: logMetadata.merging(
                ["reason": "\(reason.code.text)", "push_type": "\(type)", "topic": "\(topic)"]
            ) { $1 },
            example: attempt.job.id.map { ["job": "\(String(buffer: attempt.job.text($0)))"] } ?? [:])
    }

    /// Retires a connection that APNs refuses, and renews the provider token if it has expired.
    /// - Returns: true if the notification is resent.
    private func resendsElsewhere(_ attempt: Attempt, _ result: RequestResult, _ reason: Reason) -> Bool {
        let isExpired = reason.code == .apns(.expiredProviderToken)
        let isRenewed = isExpired && renewProviderToken(attempt.flight)
        guard !breaker.isOpen, inFlight[attempt.flight].resends < Self.maximumResends,
            case .response(let response) = result
        else { return false }
        switch retireConnection(response, reason) {
        case .first where isExpired && !isRenewed: return false
        case .first, .further:
            resend(attempt, reason)
            return true
        case .again: return resendsWithNextKey(attempt, reason)
        }
    }

    /// Records that a job was answered `Forbidden`, which may be its own fault.
    /// - Returns: true if the app is at fault: another job got the same answer, and none has been delivered in between.
    private func meetsForbidden(_ attempt: Attempt) -> Bool {
        if watch.forbidden == nil { watch.forbidden = identity(attempt) }
        return isForbidden(attempt)
    }

    private func isForbidden(_ attempt: Attempt) -> Bool {
        breaker.isOpen || watch.forbidden.map { $0 != identity(attempt) } ?? false
    }

    private func identity(_ attempt: Attempt) -> ByteBuffer {
        ledger.queue(of: attempt.id).identity(
            of: attempt.job, claim: lane.jobs[attempt.id].firstClaim, generation: lane.jobs[attempt.id].generation)
    }

    // MARK: Outcomes

    /// Decides whether a refused token or the app is at fault.
    private func judge(_ attempt: Attempt, _ reason: Reason) {
        if breaker.isOpen {
            // One of many in flight, or a probe that was refused like them.
            if attempt.isProbe { pause(breaker.reason ?? reason, isProbe: true) }
            return deferNotification(attempt.token, of: attempt.id, attempt.job, reason, delay: pauseDelay)
        }
        let isRepeated = attempt.job.envelope.failure(in: attempt.job.body)?.reason == reason.code.text
        switch badTokens.bad(isRepeated: isRepeated) {
        case .mark: markInvalid(attempt, reason, since: nil)
        case .hold:
            let count = attempt.job.envelope.attempt
            if count >= Self.attemptsToBelieve { return markInvalid(attempt, reason, since: nil) }
            guard count < maximumAttempts(of: attempt.job) else {
                return ledger.record(
                    .dead, reason, status: attempt.status, of: attempt.id, to: attempt.token, wasSent: true)
            }
            // If the app is at fault, other tokens show it in the meantime.
            let base = lane.configuration.retry.base
            let delay = min(lane.random(in: 5 * base...10 * base), lane.configuration.retry.cap)
            retry(attempt, reason, retryAfter: nil, isUncertain: false, delay: delay)
        case .trip:
            badTokens.reset()
            let detail = "for most tokens; are the environment and the topic right? No token was marked invalid"
            pause(
                reason.isGoneWithoutReason ? .notAPNs(status: 410) : Reason(reason.code, detail: detail),
                isProbe: attempt.isProbe)
            deferNotification(attempt.token, of: attempt.id, attempt.job, reason, delay: pauseDelay)
        }
    }

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
                topic: ByteBuffer(string: address(of: id).topic),
                environment: configuration.environment, source: configuration.usesGateway ? .gateway : .apns),
            reason, status: attempt.status, of: id)
    }

    /// Returns the topic and push type with which a job's notifications are sent.
    func address(of id: JobID) -> (topic: String, type: String) {
        if let template = lane.jobs[id].fanOut?.template {
            return (String(buffer: template.topic), template.pushType.rawValue)
        }
        do throws(Reason) {
            if let notification = try notification(ofJob: id) {
                return (String(buffer: notification.topic), notification.pushType.rawValue)
            }
        } catch {
            // The app's configuration has changed since the job was accepted.
        }
        return (String(buffer: app.topic), "unknown")
    }

    /// Retries a notification, or ends it if it has no attempt left or would expire first.
    /// - Parameters:
    ///   - delay: the pause in milliseconds; `nil` for the retry policy's.
    ///   - spendsAttempt: false if the failure does not count.
    private func retry(
        _ attempt: Attempt, _ reason: Reason, retryAfter: Int?, isUncertain: Bool, delay: Int64? = nil,
        spendsAttempt: Bool = true
    ) {
        let (id, job, status) = (attempt.id, attempt.job, attempt.status)
        if isUncertain, job.onUncertain == .drop {
            return ledger.record(.dropped, reason, status: status, of: id, to: attempt.recipient, wasSent: true)
        }
        let count = job.envelope.attempt
        guard !spendsAttempt || count < maximumAttempts(of: job) else {
            return ledger.record(
                .dead, Reason(.attemptsExhausted), cause: reason, status: status, of: id, to: attempt.token,
                wasSent: true)
        }
        let delay = delay ?? backoff(count, retryAfter: retryAfter)
        guard !expires(id, job, within: delay) else {
            return ledger.record(.expired, reason, of: id, to: attempt.recipient, wasSent: true)
        }
        if isUncertain { ledger.recordPossibleDuplicate(of: id) }
        putBack(
            .retried, 1, reason, status: status, tokens: [attempt.token], of: id, delay: delay,
            recipients: attempt.recipient.map { [$0] } ?? [], spendsAttempt: spendsAttempt)
    }

    /// Retries a notification up to three times, minutes apart, in case the fault ends; then it becomes a dead letter.
    private func retryRarely(_ attempt: Attempt, _ reason: Reason) {
        guard attempt.job.envelope.attempt < min(Self.rareAttempts, maximumAttempts(of: attempt.job)) else {
            return ledger.record(
                .dead, reason, status: attempt.status, of: attempt.id, to: attempt.token, wasSent: true)
        }
        let delay = min(lane.random(in: 60_000...180_000), lane.configuration.retry.cap)
        retry(attempt, reason, retryAfter: nil, isUncertain: false, delay: delay)
    }

    /// Defers a notification for a failing endpoint. It spends no attempt until it expires or, if it never does, in its
    /// first 24 hours.
    private func wait(_ attempt: Attempt, _ reason: Reason, retryAfter: Int?, isUncertain: Bool) {
        let (id, job) = (attempt.id, attempt.job)
        let now = ledger.queue(of: id).now
        let elapsed = job.envelope.failedAt(in: job.body).map { max(0, now - $0) }
        var delay = lane.configuration.retry.serverErrorPause(
            elapsed: elapsed, retryAfter: retryAfter, jitter: lane.jitter)
        if watch.endpoint.isOpen { delay = max(delay, min(endpointDelay, lane.configuration.retry.cap)) }
        let firstSeen = lane.jobs[id].firstSeen
        let expires = app.end(of: job, firstSeen: firstSeen) != nil
        // A producer's clock may be wrong; no job was enqueued after it was first seen.
        let since = max(min(job.enqueuedAt ?? firstSeen, firstSeen), job.sendAt ?? 0)
        guard expires || now - since < RetryPolicy.freeResends else {
            return retry(
                attempt, reason, retryAfter: retryAfter, isUncertain: isUncertain,
                delay: max(delay, backoff(job.envelope.attempt, retryAfter: retryAfter)))
        }
        retry(
            attempt, reason, retryAfter: retryAfter, isUncertain: isUncertain, delay: delay, spendsAttempt: false)
    }

    /// Retries a notification whose device APNs throttles, and makes all others for that device wait.
    private func throttle(_ attempt: Attempt, _ reason: Reason, retryAfter: Int?) {
        let now = ledger.queue(of: attempt.id).now
        let delay = backoff(attempt.job.envelope.attempt, retryAfter: retryAfter)
        let due = fleet.throttles.throttled(attempt.token, retryAt: now + delay, now: now)
        retry(attempt, reason, retryAfter: retryAfter, isUncertain: false, delay: due - now)
        fleet.store.throttle(attempt.token, until: due) { [self] in fleet.noteWrite(.throttledTokens, $0) }
    }

    private func backoff(_ attempt: Int, retryAfter: Int?) -> Int64 {
        lane.configuration.retry.delay(afterAttempt: attempt, retryAfter: retryAfter, jitter: lane.jitter)
    }

    private func maximumAttempts(of job: Job) -> Int {
        job.maxAttempts ?? lane.configuration.retry.maximumAttempts
    }

    /// Lets the next notification waiting for a device proceed, if this was the one it waited for.
    private func endThrottle(_ verdict: Verdict, _ attempt: Attempt) {
        switch verdict {
        case .throttled, .resend: break
        default: endThrottle(attempt)
        }
    }

    private func endThrottle(_ attempt: Attempt) {
        guard !fleet.throttles.isEmpty else { return }
        fleet.throttles.ended(attempt.token, now: ledger.queue(of: attempt.id).now)
    }

    private func logMissingBroadcasts(_ reason: Reason) {
        lane.logThrottled(
            .error, "broadcasts_not_enabled",
            """
            APNs does not accept broadcasts for this app (\(reason.code.text)): its jobs with a \
            `channel` wait, and are tried again every minute. Enable the app's broadcast capability on Apple's \
            developer site
            """, kind: "broadcasts \(name)", metadata: logMetadata)
    }

    // MARK: Resending

    /// Resends a notification at once.
    /// - Parameter counts: false if the resend does not count towards the maximum.
    private func resend(_ attempt: Attempt, _ reason: Reason, counts: Bool = true) {
        guard lane.isWorking else { return abandon(attempt.flight) }
        if counts { inFlight[attempt.flight].resends += 1 }
        let queue = ledger.queue(of: attempt.id)
        if !queue.commands.isEmpty, queue.commands.command(for: attempt.job)?.command.cancels(attempt.job) == true {
            return cancelResend(attempt.flight)
        }
        ledger.recordResent(reason, of: attempt.id)
        line.sendAgain(attempt.flight, in: inFlight, now: lane.now)
        lane.schedulePump()
    }

    /// Resends a notification that APNs may have accepted when its connection was lost.
    /// - Returns: false if it can't be resent now.
    private func resendsUncertain(_ attempt: Attempt, _ reason: Reason, in isolation: Isolation) -> Bool {
        guard lane.isWorking, isSending, attempt.job.onUncertain != .drop else { return false }
        inFlight[attempt.flight].probe = nil
        inFlight[attempt.flight].isolation = isolation
        ledger.recordPossibleDuplicate(of: attempt.id)
        resend(attempt, reason, counts: false)
        return true
    }

    private func logCutter(_ attempt: Attempt) {
        lane.logThrottled(
            .warning, "notification_cuts_connection",
            """
            APNs, or a proxy on the way, closed the connection on which a notification was sent alone; it is retried, \
            always alone
            """, kind: "cuts \(name)", metadata: logMetadata,
            example: attempt.job.id.map { ["job": "\(String(buffer: attempt.job.text($0)))"] } ?? [:])
    }

    /// Returns the pause in milliseconds before a notification that was not processed is resent; `nil` for none.
    private func resendPause(_ attempt: Attempt, _ result: RequestResult) -> Int64? {
        guard case .notProcessed(let failure) = result else { return nil }
        return lane.configuration.retry.resendPause(
            after: failure, resends: Int(inFlight[attempt.flight].resends),
            isReturning: attempt.job.envelope.isWrapped, age: age(of: attempt.id), jitter: lane.jitter)
    }

    /// Returns the milliseconds since a job was first seen.
    private func age(of id: JobID) -> Int64 { max(0, ledger.queue(of: id).now - lane.jobs[id].firstSeen) }

    /// Defers a notification that waited to be resent.
    func deferResend(_ flight: FlightID, _ reason: Reason, delay: Int64) {
        let id = inFlight[flight].job
        guard let job = lane.jobs[id].job else { return abandon(flight) }
        let token = token(of: flight, job)
        if !fleet.throttles.isEmpty { fleet.throttles.ended(token, now: ledger.queue(of: id).now) }
        deferNotification(token, of: id, job, reason, delay: delay)
        inFlight.remove(flight)
        ledger.close(1, of: id)
    }

    /// Gives back a notification that was sent, and must be sent again, because the lane is ending. A job with one token
    /// keeps its identity, even if the server said that it had not processed it, in case that was wrong; and its count of
    /// possible duplicates. The gateway knows no identities: if it certainly accepted nothing, the claim is released.
    func abandon(_ flight: FlightID) {
        let id = inFlight[flight].job
        let mayBeAccepted = lane.jobs[id].tally?.possibleDuplicates ?? 0 > 0
        let isReleased = configuration.usesGateway && lane.jobs[id].fanOut == nil && !mayBeAccepted
        if !isReleased, let job = lane.jobs[id].job {
            deferNotification(token(of: flight, job), of: id, job, Reason(.drained), delay: 0)
        } else {
            lane.jobs[id].isAbandoned = true
        }
        inFlight.remove(flight)
        ledger.close(1, of: id)
    }

    // MARK: Recipients

    /// Returns the token of a notification as text; empty for a broadcast.
    private func token(of flight: FlightID, _ job: Job? = nil) -> ByteBuffer {
        if let token = inFlight[flight].deviceToken { return token.hex }
        guard let job = job ?? lane.jobs[inFlight[flight].job].job, let field = job.token else { return ByteBuffer() }
        return DeviceToken.plain(job.text(field))
    }

    /// Returns the token or channel of a notification.
    func recipient(of flight: FlightID) -> ByteBuffer? {
        if let token = inFlight[flight].deviceToken { return token.hex }
        return lane.jobs[inFlight[flight].job].job.flatMap(\.recipient)
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
        case .refused(let status): Int(status.code)
        case .confirmed, .notProcessed, .uncertain: nil
        }
    }
}
