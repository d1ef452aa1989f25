import APNS
import PushJob
import PushQueue

/// The answer to the question what follows from the end of a request: for its notification, its app and its device.
///
/// A pure function of the verdict and of facts about the attempt. The sender gathers the facts and carries out the
/// disposition.
struct Disposition: Equatable {
    var notification: OfNotification
    var app = OfApp.none
    var device = OfDevice.release
    /// True if APNs may have accepted the notification, so that sending it again may duplicate it.
    var isUncertain = false

    enum OfNotification: Equatable {
        /// It has ended. `cause`: the failure of the last attempt, if the reason is another.
        case end(Outcome, Reason?, cause: Reason? = nil)
        /// Its token is invalid, since a time in milliseconds since 1970 if APNs gave one.
        case markInvalid(Reason, since: Int64?)
        /// It returns to the queue, or expires if its time ends before the delay.
        case postpone(Postponement, Reason, Delay, spendsAttempt: Bool)
        /// It is sent again at once. `counts`: false if the resend does not count towards the maximum.
        case resend(Reason, isolation: Isolation?, counts: Bool)

        static func `defer`(_ reason: Reason, _ delay: Delay) -> Self {
            .postpone(.deferred, reason, delay, spendsAttempt: false)
        }
    }

    enum Delay: Equatable {
        case milliseconds(Int64)
        /// As long as other jobs of the paused app.
        case likePausedApp
        /// Behind the other notifications for the throttled device.
        case behindDevice
    }

    enum OfApp: Equatable {
        case none
        /// The app is right: a pause ends if this is the answer to its probe.
        case resume
        /// The app is at fault.
        case pause(Reason)
        /// A probe has shown nothing about the fault.
        case inconclusive
        /// The app's next key is used from now on.
        case changeKey(Reason)
    }

    enum OfDevice: Equatable {
        /// Notifications that wait for the device continue to wait.
        case keep
        /// The next notification that waits for the device may be sent.
        case release
        /// APNs throttles the device: all notifications for it wait, this one for at least so many milliseconds.
        case throttle(Int64)
    }

    /// The facts about an attempt on which its disposition depends.
    struct Facts {
        let job: Job
        var policy: RetryPolicy
        /// A random number from 0 to 1, evenly distributed.
        var jitter: Double
        /// The time in milliseconds of Redis' clock.
        var now: Int64
        /// The time at which the job was first seen, in the same unit.
        var firstSeen: Int64
        /// True if the notification expires at some time.
        var hasEnd = false
        /// True if this is the answer to the probe of a paused app.
        var isProbe = false
        /// The reason of the app's pause; `nil` if the app is not paused.
        var pause: Reason?
        /// The milliseconds for which jobs are deferred because of the endpoint's open breaker; `nil` if it is closed.
        var endpointDelay: Int64?
        /// False once the lane ends.
        var isWorking = true
        /// The number of resends that spent no attempt.
        var resends = 0
        var isolation = Isolation.shared
        /// True if the request could be sent again with another key of the app.
        var hasOtherKey = false
        var finding = Finding.none
    }

    /// The conclusion that the lane has drawn from this answer and earlier ones; see ``Evidence``.
    enum Finding {
        case none
        case badToken(BadTokenGuard.Judgement)
        /// `isOfApp`: true if another job was answered so too.
        case forbidden(isOfApp: Bool)
        case pushType(Evidence.TopicFault)
        /// The refused connection has been retired, or was before, and another may help.
        case connectionRetired
        /// A connection made since the last refusal was refused as well.
        case connectionRefusedAgain
    }

    /// The maximum number of immediate resends of a notification with another provider token or key.
    static let maximumResends = 10
    /// The maximum number of attempts for failures that can end only much later, or never.
    private static let rareAttempts = 3
    /// The number of attempts after which a token is believed invalid even if nothing else shows that the app is right.
    private static let attemptsToBelieve = 3

    init(
        _ notification: OfNotification, app: OfApp = .none, device: OfDevice = .release, isUncertain: Bool = false
    ) {
        self.notification = notification
        self.app = app
        self.device = device
        self.isUncertain = isUncertain
    }

    init(_ verdict: Verdict, _ facts: Facts) {
        switch verdict {
        case .delivered: self.init(.end(.delivered, nil), app: .resume)
        case .tokenInvalid(let reason, let since): self.init(.markInvalid(reason, since: since), app: .resume)
        case .tokenSuspect(let reason): self = facts.suspicion(reason)
        case .retry(let reason, _, true) where facts.endpointDelay != nil:
            self = facts.wait(reason, retryAfter: nil, isUncertain: true)
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
        case .retireConnection(let reason):
            switch facts.finding {
            case .connectionRetired: self.init(.resend(reason, isolation: nil, counts: true), device: .keep)
            case .connectionRefusedAgain: self = facts.refusal(of: reason)
            default: self = Self.pause(reason)
            }
        case .pauseApp(let reason):
            self = facts.refusal(of: reason)
            isUncertain = reason.isNoAnswer
        case .pushTypeRefused(let reason): self = facts.refusedPushType(reason)
        case .forbidden(let reason):
            let isOfApp = facts.pause != nil || facts.isForbiddenToApp
            self = isOfApp ? facts.refusal(of: reason) : facts.retryRarely(reason)
        case .deferred(let reason):
            self.init(.defer(reason, .milliseconds(facts.within(30_000...90_000))), app: .inconclusive)
        case .unknown(let reason): self = facts.retryRarely(reason)
        case .dead(let reason): self.init(.end(.dead, reason), app: .inconclusive)
        }
    }

    /// Pauses the app, and defers the notification that revealed the fault.
    fileprivate static func pause(_ reason: Reason) -> Disposition {
        let isExpired = reason.code == .apns(.expiredProviderToken)
        let reason = isExpired ? Reason(reason.code, detail: "is this machine's clock right?") : reason
        return Disposition(.defer(Reason(reason.code), .likePausedApp), app: .pause(reason))
    }
}

extension Disposition.Facts {
    /// True if the app, rather than the job, is forbidden.
    fileprivate var isForbiddenToApp: Bool { if case .forbidden(isOfApp: true) = finding { true } else { false } }

    private var badToken: BadTokenGuard.Judgement {
        if case .badToken(let judgement) = finding { judgement } else { .hold }
    }

    private var topicFault: Evidence.TopicFault {
        if case .pushType(let fault) = finding { fault } else { .unknown }
    }

    private var maximumAttempts: Int { job.maxAttempts ?? policy.maximumAttempts }

    /// The milliseconds since the job was first seen.
    private var age: Int64 { max(0, now - firstSeen) }

    fileprivate func within(_ range: ClosedRange<Int64>) -> Int64 { range.value(at: jitter) }

    fileprivate func backoff(_ retryAfter: Int?) -> Int64 {
        policy.delay(afterAttempt: job.envelope.attempt, retryAfter: retryAfter, jitter: jitter)
    }

    /// Sends a notification again with another key if the refusal may concern only the key, or pauses the app.
    fileprivate func refusal(of reason: Reason) -> Disposition {
        guard hasOtherKey, reason.concernsKey else { return .pause(reason) }
        return Disposition(.resend(reason, isolation: nil, counts: true), app: .changeKey(reason), device: .keep)
    }

    /// Retries a notification after a delay in milliseconds, or ends it if it has no attempt left.
    fileprivate func retry(_ reason: Reason, _ delay: Int64, isUncertain: Bool = false) -> Disposition {
        retry(reason, .milliseconds(delay), isUncertain: isUncertain)
    }

    /// - Parameter spendsAttempt: false if the failure does not count.
    fileprivate func retry(
        _ reason: Reason, _ delay: Disposition.Delay, isUncertain: Bool = false, spendsAttempt: Bool = true
    ) -> Disposition {
        if isUncertain, job.onUncertain == .drop { return Disposition(.end(.dropped, reason), app: .inconclusive) }
        guard !spendsAttempt || job.envelope.attempt < maximumAttempts else {
            return Disposition(.end(.dead, Reason(.attemptsExhausted), cause: reason), app: .inconclusive)
        }
        return Disposition(
            .postpone(.retried, reason, delay, spendsAttempt: spendsAttempt), app: .inconclusive,
            isUncertain: isUncertain)
    }

    /// Retries a notification up to three times, minutes apart, in case the fault ends; then it becomes a dead letter.
    fileprivate func retryRarely(_ reason: Reason) -> Disposition {
        guard job.envelope.attempt < min(Disposition.rareAttempts, maximumAttempts) else {
            return Disposition(.end(.dead, reason), app: .inconclusive)
        }
        return retry(reason, min(within(60_000...180_000), policy.cap))
    }

    /// Retries a notification after a failure of the endpoint. It spends no attempt until it expires or, if it never
    /// does, in its first 24 hours.
    fileprivate func wait(_ reason: Reason, retryAfter: Int?, isUncertain: Bool) -> Disposition {
        let elapsed = job.envelope.failure(in: job.body)?.at.map { max(0, now - $0) }
        var delay = policy.serverErrorPause(elapsed: elapsed, retryAfter: retryAfter, jitter: jitter)
        if let endpointDelay { delay = max(delay, min(endpointDelay, policy.cap)) }
        // A producer's clock may be wrong; no job was enqueued after it was first seen.
        let since = max(min(job.enqueuedAt ?? firstSeen, firstSeen), job.sendAt ?? 0)
        guard hasEnd || now - since < RetryPolicy.freeResends else {
            return retry(reason, max(delay, backoff(retryAfter)), isUncertain: isUncertain)
        }
        return retry(reason, .milliseconds(delay), isUncertain: isUncertain, spendsAttempt: false)
    }

    /// Sends a notification again that APNs certainly did not process, or defers it if that happened before.
    fileprivate func resend(after failure: RequestFailure.Kind) -> Disposition {
        let reason = Reason(.request(failure))
        let pause = policy.resendPause(
            after: failure, resends: resends, isReturning: job.envelope.isWrapped, age: age, jitter: jitter)
        guard let pause else {
            // A notification discarded because of a bad one before it may be discarded as often as there are bad ones.
            return Disposition(.resend(reason, isolation: nil, counts: failure != .discarded), device: .keep)
        }
        guard age < RetryPolicy.freeResends else { return retry(reason, backoff(nil)) }
        return Disposition(.defer(reason, .milliseconds(pause)), app: .inconclusive)
    }

    /// Sends a notification again that APNs may have accepted when its connection was lost, or retries it later if it
    /// can't be sent now.
    fileprivate func resendUncertain(_ reason: Reason, in isolation: Isolation) -> Disposition {
        guard isWorking, pause == nil, endpointDelay == nil, job.onUncertain != .drop else {
            return retry(reason, .milliseconds(backoff(nil)), isUncertain: true, spendsAttempt: false)
        }
        return Disposition(
            .resend(reason, isolation: isolation, counts: false), app: .inconclusive, device: .keep,
            isUncertain: true)
    }

    /// Decides whether a refused token or the app is at fault.
    fileprivate func suspicion(_ reason: Reason) -> Disposition {
        let endsPause = isProbe && reason.ends(pause: pause)
        if let pause, !endsPause {
            // One of many in flight, or a probe that was refused like them.
            return Disposition(.defer(reason, .likePausedApp), app: isProbe ? .pause(pause) : .none)
        }
        let app = endsPause ? Disposition.OfApp.resume : .none
        switch badToken {
        case .mark: return Disposition(.markInvalid(reason, since: nil), app: app)
        case .hold:
            let count = job.envelope.attempt
            guard count < Disposition.attemptsToBelieve else {
                return Disposition(.markInvalid(reason, since: nil), app: app)
            }
            guard count < maximumAttempts else { return Disposition(.end(.dead, reason), app: app) }
            // If the app is at fault, other tokens show it in the meantime.
            var held = retry(reason, min(within(5 * policy.base...10 * policy.base), policy.cap))
            held.app = app
            return held
        case .trip:
            let detail = "for most tokens; are the environment and the topic right? No token was marked invalid"
            return Disposition(
                .defer(reason, .likePausedApp),
                app: .pause(
                    reason.isGoneWithoutReason ? .notAPNs(status: 410) : Reason(reason.code, detail: detail)))
        }
    }

    /// Decides what follows from the refusal of a topic that depends on the job's push type.
    fileprivate func refusedPushType(_ reason: Reason) -> Disposition {
        if let pause {
            // If the app is paused for something else, the probe answered another question.
            let app = pause.code == reason.code ? Disposition.OfApp.pause(pause) : .inconclusive
            return Disposition(.defer(reason, .likePausedApp), app: isProbe ? app : .none)
        }
        switch topicFault {
        case .app: return Disposition(.defer(Reason(reason.code), .likePausedApp), app: .pause(reason))
        case .unknown: return Disposition(.defer(reason, .milliseconds(within(5000...15_000))))
        case .pushType: return Disposition(.end(.dead, reason))
        }
    }
}
