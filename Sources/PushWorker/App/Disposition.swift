import APNS
import PushJob
import PushQueue

/// The consequences of the end of a request, for its notification, its app and its device.
///
/// A pure function of the verdict and of facts about the attempt, which the sender collects. The sender also carries the disposition out.
struct Disposition: Equatable {
    var notification: OfNotification
    /// The reason to switch to the app's next key; `nil` to keep the key.
    var changesKey: Reason?
    var device = OfDevice.release
    /// True if APNs may have accepted the notification, so that sending it again may duplicate it.
    var isUncertain = false

    enum OfNotification: Equatable {
        /// The notification has ended. `cause`: the failure of the last attempt, if it differs from the reason.
        case end(Outcome, Reason?, cause: Reason? = nil)
        /// The token of the notification is invalid. `since`: the time given by APNs, in milliseconds since 1970.
        case markInvalid(Reason, since: Int64?)
        /// The notification returns to the queue after the delay, or expires if its time ends before.
        case postpone(Postponement, Reason, Delay, Settlement.AttemptRule?)
        /// The notification is sent again at once. `counts`: true if the resend counts towards the maximum.
        case resend(Reason, isolation: Isolation?, counts: Bool)

        static func `defer`(_ reason: Reason, _ delay: Delay) -> Self {
            .postpone(.deferred, reason, delay, nil)
        }
    }

    enum Delay: Equatable {
        case milliseconds(Int64)
        /// Behind the other notifications for the throttled device.
        case behindDevice
    }

    enum OfDevice: Equatable {
        /// Notifications that wait for the device continue to wait.
        case keep
        /// The next notification that waits for the device may be sent.
        case release
        /// APNs throttles the device, so all notifications for it wait. This notification waits for at least this number of milliseconds.
        case throttle(Int64)
    }

    /// The facts about an attempt that decide its disposition.
    struct Facts {
        let job: Job
        var policy: RetryPolicy
        /// A random number from 0 to 1, evenly distributed.
        var jitter: Double
        /// The time in milliseconds of Redis' clock.
        var now: Int64
        /// The time of the job's first sighting, in milliseconds of Redis' clock.
        var firstSeen: Int64
        /// True if the notification expires at some time.
        var hasEnd = false
        /// False if this lane's last answers do not prove both the credential and the endpoint.
        var isWayGood = true
        /// True while the app is paused, or its endpoint is slow, so that little is sent.
        var isEndpointSlow = false
        /// False once the lane ends.
        var isWorking = true
        var resends = 0
        var isolation = Isolation.shared
        /// True if the request could be sent again with another key of the app.
        var hasOtherKey = false
        var finding = Finding.none
    }

    /// The lane's conclusion from this answer and the answers before it.
    enum Finding: Equatable {
        case none
        case badToken(TokenTrust.Judgement)
        /// `isPlainAccepted`: true if APNs accepts the app's topic without the suffix of a push type.
        case pushType(isPlainAccepted: Bool)
        /// The refused connection is retired, and another connection may help.
        case connectionRetired
        /// APNs refused a credential. A connection made after the refusal shows if APNs still refuses it.
        case secondTry
    }

    /// The maximum number of immediate resends of a notification with another provider token or key.
    static let maximumResends = 10
    /// The maximum number of attempts after an unknown reason, and for a held token.
    fileprivate static let rareAttempts = 3

    init(
        _ notification: OfNotification, changesKey: Reason? = nil, device: OfDevice = .release,
        isUncertain: Bool = false
    ) {
        self.notification = notification
        self.changesKey = changesKey
        self.device = device
        self.isUncertain = isUncertain
    }

    init(_ verdict: Verdict, _ facts: Facts) {
        switch verdict {
        case .delivered: self.init(.end(.delivered, nil))
        case .tokenInvalid(let reason, let since): self.init(.markInvalid(reason, since: since))
        case .tokenSuspect(let reason): self = facts.suspicion(reason)
        // No answer. A notification that lost its connection alone is handled below, because it may be the cause.
        case .retry(let reason, let retryAfter, true) where !reason.isLostConnection:
            self = facts.wait(reason, retryAfter: retryAfter, isUncertain: true)
        case .retry(let reason, let retryAfter, let isUncertain):
            self = facts.retry(reason, facts.backoff(retryAfter), isUncertain: isUncertain)
        case .serverError(let reason, let retryAfter):
            self = facts.wait(reason, retryAfter: retryAfter, isUncertain: false)
        case .resendApart(let reason): self = facts.resendUncertain(reason, in: facts.isolation.next)
        case .resendUncertain(let reason): self = facts.resendUncertain(reason, in: facts.isolation)
        case .throttled(let reason, let retryAfter):
            self = facts.retry(reason, .behindDevice)
            device = .throttle(facts.backoff(retryAfter))
        case .resend(let failure): self = facts.resend(after: failure)
        case .retireConnection(let reason) where facts.finding == .connectionRetired:
            self.init(.resend(reason, isolation: nil, counts: true), device: .keep)
        case .retireConnection(let reason), .refused(let reason): self = facts.refusal(of: reason)
        case .misconfigured(let reason):
            self = facts.wait(reason, retryAfter: nil, isUncertain: reason.isNoAnswer)
        case .pushTypeRefused(let reason):
            self =
                facts.finding == .pushType(isPlainAccepted: true)
                ? Disposition(.end(.dead, reason)) : facts.wait(reason, retryAfter: nil, isUncertain: false)
        case .deferred(let reason): self.init(.defer(reason, .milliseconds(facts.within(30_000...90_000))))
        case .unknown(let reason), .unexplained(let reason): self = facts.retryRarely(reason)
        case .dead(let reason): self.init(.end(.dead, reason))
        }
    }
}

extension Disposition.Facts {
    private var badToken: TokenTrust.Judgement {
        if case .badToken(let judgement) = finding { judgement } else { .configuration }
    }

    private var maximumAttempts: Int { job.maxAttempts ?? policy.maximumAttempts }

    /// The milliseconds since the job was first seen.
    private var age: Int64 { max(0, now - firstSeen) }

    fileprivate func within(_ range: ClosedRange<Int64>) -> Int64 { range.value(at: jitter) }

    fileprivate func backoff(_ retryAfter: Int?) -> Int64 {
        policy.delay(afterAttempt: job.envelope.attempt, retryAfter: retryAfter, jitter: jitter)
    }

    /// Decides about a refused credential. A second try shows if only the connection was at fault. Then the next key is tried. A
    /// notification that is refused again waits.
    fileprivate func refusal(of reason: Reason) -> Disposition {
        if finding == .secondTry {
            return Disposition(.resend(reason, isolation: .alone, counts: true), device: .keep)
        }
        if hasOtherKey, reason.concernsKey {
            return Disposition(.resend(reason, isolation: nil, counts: true), changesKey: reason, device: .keep)
        }
        return retry(reason, backoff(nil))
    }

    /// Retries a notification after a delay in milliseconds.
    fileprivate func retry(
        _ reason: Reason, _ delay: Int64, isUncertain: Bool = false, maximum: Int = .max
    ) -> Disposition {
        retry(reason, .milliseconds(delay), isUncertain: isUncertain, maximum: maximum)
    }

    /// Retries a notification. Redis decides if the failure spends an attempt, so that all lanes decide alike. Redis also ends a
    /// notification without an attempt left.
    fileprivate func retry(
        _ reason: Reason, _ delay: Disposition.Delay, isUncertain: Bool = false,
        _ fault: Settlement.AttemptRule.Fault = .own, maximum: Int = .max
    ) -> Disposition {
        if isUncertain, job.onUncertain == .drop { return Disposition(.end(.dropped, reason)) }
        // Deliveries of other lanes prove nothing if those lanes reach APNs on another way, for example without this worker's proxy.
        let rule = Settlement.AttemptRule.judged(
            isWayGood ? fault : .server, maximum: min(maximum, maximumAttempts), expires: hasEnd)
        return Disposition(.postpone(.retried, reason, delay, rule), isUncertain: isUncertain)
    }

    /// Retries a notification minutes apart, in case the fault ends. After three attempts of its own it becomes a dead letter. If this
    /// lane's own way to APNs may be at fault, another lane tries it sooner.
    fileprivate func retryRarely(_ reason: Reason) -> Disposition {
        let delay = isWayGood ? min(within(60_000...180_000), policy.cap) : backoff(nil)
        return retry(reason, delay, maximum: Disposition.rareAttempts)
    }

    /// Retries a notification after a failure for which the notification is probably not at fault.
    fileprivate func wait(_ reason: Reason, retryAfter: Int?, isUncertain: Bool) -> Disposition {
        let elapsed = job.envelope.failure(in: job.body)?.at.map { max(0, now - $0) }
        let delay = policy.serverErrorPause(elapsed: elapsed, retryAfter: retryAfter, jitter: jitter)
        return retry(reason, .milliseconds(delay), isUncertain: isUncertain, .server)
    }

    /// Resends a notification that APNs certainly did not process, or defers it if that happened before.
    fileprivate func resend(after failure: RequestFailure.Kind) -> Disposition {
        let reason = Reason(.request(failure))
        let pause = policy.resendPause(
            after: failure, resends: resends, isReturning: job.envelope.isWrapped, age: age, jitter: jitter)
        guard let pause else {
            // The gateway discards all notifications behind a bad one, so a good notification may be discarded many times.
            return Disposition(.resend(reason, isolation: nil, counts: failure != .discarded), device: .keep)
        }
        guard age < RetryPolicy.freeResends else { return retry(reason, backoff(nil)) }
        return Disposition(.defer(reason, .milliseconds(pause)))
    }

    /// Resends a notification that APNs may have accepted before its connection was lost, or retries it later if it can't be sent now.
    fileprivate func resendUncertain(_ reason: Reason, in isolation: Isolation) -> Disposition {
        guard isWorking, !isEndpointSlow, job.onUncertain != .drop else {
            if job.onUncertain == .drop { return Disposition(.end(.dropped, reason)) }
            return Disposition(.defer(reason, .milliseconds(backoff(nil))), isUncertain: true)
        }
        return Disposition(
            .resend(reason, isolation: isolation, counts: false), device: .keep, isUncertain: true)
    }

    /// Decides about a token that APNs reports as bad. In the wrong environment or for another topic, APNs also reports good tokens as bad.
    fileprivate func suspicion(_ reason: Reason) -> Disposition {
        switch badToken {
        case .believed: return Disposition(.markInvalid(reason, since: nil))
        case .configuration:
            // Neither the token nor the notification is at fault, so neither is given up.
            let elapsed = job.envelope.failure(in: job.body)?.at.map { max(0, now - $0) } ?? 0
            let delay = max(within(5 * policy.base...10 * policy.base), min(elapsed * 2, RetryPolicy.freeResends / 24))
            return retry(reason, min(delay, policy.cap))
        case .held:
            let count = job.envelope.attempt
            guard count < min(Disposition.rareAttempts, maximumAttempts) else {
                let detail = "APNs gives this reason for most tokens of the campaign or topic, and accepts other tokens"
                return Disposition(.end(.dead, Reason(reason.code, detail: detail)))
            }
            // The first retry comes soon: a list may begin with bad tokens, and its next tokens soon show that the configuration is right.
            let delay = count == 1 ? within(5 * policy.base...10 * policy.base) : within(600_000...660_000)
            return Disposition(
                .postpone(.retried, reason, .milliseconds(min(delay, policy.cap)), .always))
        }
    }
}
