import APNS
import Logging
import NIOCore
import PushJob
import PushQueue

/// From answers to what becomes of the job.
extension Lane: TransportDelegate {
    /// How often a notification is sent again at once because of another provider token or key.
    private static let maximumResends: UInt8 = 10

    func transportChanged(_: any Transport) {
        // At once, so that what is sent now leaves with the connection's own flush; but never from within a pump.
        if isPumping || phase == .starting || phase == .stopped { schedulePump() } else { pump() }
    }

    func transport(_: any Transport, completed tag: UInt64, with result: RequestResult) {
        let tag = Int(tag)
        let index = flights[tag].job
        let app = apps[jobs[index].app]
        let verdict = Verdict(
            result, topicIsConfigured: !jobs[index].namesTopic, isOnChannel: jobs[index].isOnChannel)
        noteAnswer(tag, result, app: jobs[index].app)
        if case .pauseApp(let reason) = verdict, flights[tag].resends < Self.maximumResends,
            takesNextKey(tag, app, reason: reason)
        {
            return resend(tag, app, reason: reason)
        }
        updateBreaker(app, tag, verdict)
        if !throttles.isEmpty { updateThrottles(tag, verdict) }
        switch verdict {
        case .delivered:
            counters.delivered += 1
            metrics.countDelivered(jobs[index].series)
            tell(.delivered, status: result.status, to: recipient(of: tag), of: index, wasSent: true)
            jobs[index].tally?.delivered += 1
        case .tokenInvalid(let reason, let since):
            noteInvalid(tag, reason: reason, since: since, status: result.status)
        case .tokenSuspect(let reason):
            judge(tag, app, reason: reason, status: result.status)
        case .retry(let reason, let retryAfter, let isUncertain):
            retry(tag, reason: reason, status: result.status, retryAfter: retryAfter, isUncertain: isUncertain)
        case .throttled(let reason, let retryAfter):
            throttle(tag, reason: reason, retryAfter: retryAfter)
        case .resend(let reason):
            guard let pause = resendPause(tag, result) else {
                // One that was behind a bad one may be so as often as there are bad ones.
                return resend(tag, app, reason: reason, counts: result != .notProcessed(.discarded))
            }
            if flights[tag].isProbe { app.breaker.probeInconclusive(now: eventLoop.now) }
            if !throttles.isEmpty { throttles.ended(token(of: tag), now: queues[jobs[index].queue].now) }
            if age(of: index) < RetryPolicy.freeResends {
                postpone(tag, reason: reason, delay: pause)
            } else {
                retry(tag, reason: reason, status: nil, retryAfter: nil, isUncertain: false)
            }
        case .renewProviderToken:
            if renew(tag, app) { return resend(tag, app, reason: APNSReason.expiredProviderToken.rawValue) }
            trip(app, tag, reason: "\(APNSReason.expiredProviderToken.rawValue) (is this machine's clock right?)")
            postpone(tag, reason: APNSReason.expiredProviderToken.rawValue, delay: breakerDelay(app))
        case .pauseApp(let reason):
            if case .uncertain = result { noteUnanswered(index) }
            postpone(tag, reason: reason, delay: breakerDelay(app))
        case .park(let reason):
            if reason == APNSReason.featureNotEnabled.rawValue { tellOfMissingBroadcasts(app) }
            postpone(tag, reason: reason, delay: .random(in: 30_000...90_000))
        case .dead(let reason):
            die(token(of: tag), of: index, reason: reason, status: result.status, wasSent: true)
        }
        flights.release(tag)
        ended(index)
    }

    /// How the job's notifications have ended, from the first that is not plainly delivered.
    func tally(of index: Int) -> JobTally {
        if let tally = jobs[index].tally { return tally }
        let tally = JobTally()
        jobs[index].tally = tally
        return tally
    }

    /// The token that a notification is for, as text.
    func token(of tag: Int) -> ByteBuffer {
        if let token = flights[tag].deviceToken { return token.hex }
        guard let job = jobs[flights[tag].job].job, let field = job.token else { return ByteBuffer() }
        let text = job.text(field)
        return (try? DeviceToken(text))?.hex ?? text
    }

    /// The token that a notification is for, or its channel.
    func recipient(of tag: Int) -> ByteBuffer? {
        if let token = flights[tag].deviceToken { return token.hex }
        return jobs[flights[tag].job].job.flatMap(Self.recipient)
    }

    /// One of the job's notifications has ended.
    func ended(_ index: Int) {
        jobs[index].open -= 1
        settleIfEnded(index)
    }

    /// A drain leaves it unsent.
    func abandon(_ tag: Int) {
        let index = flights[tag].job
        if jobs[index].fanOut != nil {
            postpone(tag, reason: "Drained", delay: 0)
        } else {
            jobs[index].isCutShort = true
        }
        flights.release(tag)
        ended(index)
    }

    private func tellOfMissingBroadcasts(_ app: AppLane) {
        incident(
            """
            APNs does not take broadcasts for this app (\(APNSReason.featureNotEnabled.rawValue)): its jobs with a `channel` \
            wait, and are tried again every minute. Enable the app's broadcast capability on Apple's developer site
            """, key: "broadcasts \(app.configuration.name)", metadata: app.logMetadata)
    }

    /// - Parameter counts: whether it may not go on like this for ever.
    private func resend(_ tag: Int, _ app: AppLane, reason: String, counts: Bool = true) {
        guard phase == .running else { return abandon(tag) }
        if counts { flights[tag].resends += 1 }
        counters.resent += 1
        count(.resent, of: flights[tag].job, reason: reason)
        app.sendAgain(tag, in: flights)
        schedulePump()
    }

    /// The pause before a notification that was not processed is sent again, in milliseconds; `nil` for at once.
    private func resendPause(_ tag: Int, _ result: RequestResult) -> Int64? {
        guard case .notProcessed(let failure) = result else { return nil }
        let index = flights[tag].job
        return configuration.retry.resendPause(
            after: failure, resends: Int(flights[tag].resends),
            isReturning: failure == .refusedStream && jobs[index].job?.envelope.isWrapped ?? false,
            age: age(of: index), jitter: .random(in: 0..<1))
    }

    /// Milliseconds since a job was first seen.
    private func age(of index: Int) -> Int64 { max(0, queues[jobs[index].queue].now - jobs[index].firstSeen) }

    /// - Parameter delay: in how many milliseconds, instead of by the retry policy.
    func retry(
        _ tag: Int, reason: String, status: Int?, retryAfter: Int?, isUncertain: Bool, delay: Int64? = nil
    ) {
        let index = flights[tag].job
        guard let job = jobs[index].job else { return }
        let tally = tally(of: index)
        if isUncertain, job.onUncertain == .drop {
            counters.dropped += 1
            count(.dropped, of: index, reason: reason)
            tell(.dropped, reason: reason, status: status, to: recipient(of: tag), of: index, wasSent: true)
            tally.dropped += 1
            return
        }
        let attempt = job.envelope.attempt
        guard attempt < job.maxAttempts ?? configuration.retry.maximumAttempts else {
            return die(
                token(of: tag), of: index, reason: "AttemptsExhausted", cause: reason, status: status, wasSent: true)
        }
        let delay =
            delay
            ?? configuration.retry.delay(
                afterAttempt: attempt, retryAfter: retryAfter, jitter: .random(in: 0..<1))
        guard !expires(index, job, within: delay) else {
            return expire(1, of: index, reason: reason, to: recipient(of: tag).map { [$0] } ?? [], wasSent: true)
        }
        counters.retried += 1
        count(.retried, of: index, reason: reason)
        tellPutOff("retried", reason: reason, status: status, to: recipient(of: tag), of: index, delay: delay)
        if isUncertain { noteUnanswered(index) }
        tally.add(retry: [token(of: tag)], reason: reason, status: status, delay: delay, spendsAttempt: true)
    }

    /// APNs may have taken a notification that is sent again.
    private func noteUnanswered(_ index: Int) {
        counters.possibleDuplicates += 1
        tally(of: index).unanswered += 1
    }

    /// Puts a notification off with no attempt spent.
    func postpone(_ tag: Int, reason: String, delay: Int64) {
        postpone(token(of: tag), of: flights[tag].job, reason: reason, delay: delay)
    }

    /// Puts one notification of a job off with no attempt spent; or ends it, if it would expire meanwhile.
    func postpone(_ token: ByteBuffer, of index: Int, reason: String, delay: Int64) {
        guard let job = jobs[index].job, !expires(index, job, within: delay) else {
            return expire(1, of: index, reason: reason, to: [token], wasSent: false)
        }
        counters.parked += 1
        count(.parked, of: index, reason: reason)
        tellPutOff("parked", reason: reason, status: nil, to: token, of: index, delay: delay)
        tally(of: index).add(retry: [token], reason: reason, status: nil, delay: delay, spendsAttempt: false)
    }

    /// Whether a job expires before it could be tried again.
    func expires(_ index: Int, _ job: Job, within delay: Int64) -> Bool {
        guard let expiration = job.expirationSecond(firstSeen: jobs[index].firstSeen), expiration > 0 else {
            return false
        }
        return queues[jobs[index].queue].now + delay >= expiration * 1000
    }

    /// Ends notifications of a job that cannot be tried again in time.
    /// - Parameters:
    ///   - reason: why they would have to be.
    ///   - recipients: whom they are for.
    func expire(
        _ count: Int, of index: Int, reason: String, to recipients: @autoclosure () -> [ByteBuffer], wasSent: Bool
    ) {
        counters.expired += count
        self.count(.expired, of: index, count, reason: "")
        if endings.includes(.expired) {
            for recipient in recipients() {
                tell(.expired, reason: reason, to: recipient, of: index, wasSent: wasSent)
            }
        }
        tally(of: index).expired += count
    }

    func noteInvalid(_ tag: Int, reason: String, since: Int64?, status: Int?) {
        counters.invalid += 1
        let index = flights[tag].job
        count(.invalidToken, of: index, reason: reason)
        tell(.invalidToken, reason: reason, status: status, to: token(of: tag), of: index, wasSent: true)
        let topic = jobs[index].fanOut?.template.topic ?? remade(index)?.topic ?? router.apps[jobs[index].app].topic
        tally(of: index).invalidTokens.append(
            InvalidToken(
                token: token(of: tag), at: since ?? queues[jobs[index].queue].now, reason: reason, topic: topic,
                environment: apps[jobs[index].app].configuration.environment,
                source: apps[jobs[index].app].configuration.usesGateway ? .gateway : .apns))
    }
}

extension RequestResult {
    /// The HTTP status of an answer, or the gateway's.
    fileprivate var status: Int? {
        switch self {
        case .response(let response): response.status
        case .refused(let status): Int(status.code)
        case .confirmed, .notProcessed, .uncertain: nil
        }
    }
}
