import APNS
import NIOCore
import PushQueue

/// What may not be sent as fast as it could be: to a device that APNs has had enough of, and by an app whose rate is limited.
extension Lane {
    // MARK: Throttled tokens

    /// APNs has had enough of a device: whatever goes there waits.
    func throttle(_ tag: Int, reason: String, retryAfter: Int?) {
        let index = flights[tag].job
        let now = queues[jobs[index].queue].now
        let attempt = jobs[index].job?.envelope.attempt ?? 1
        let delay = configuration.retry.delay(
            afterAttempt: attempt, retryAfter: retryAfter, jitter: .random(in: 0..<1))
        let token = token(of: tag)
        let due = throttles.throttled(token, retryAt: now + delay, now: now)
        retry(tag, reason: reason, status: 429, retryAfter: retryAfter, isUncertain: false, delay: due - now)
        throttledTokens?.add(token, until: due) { [self] result in
            if case .failure(let failure) = result { tellOfFleetState(failure) }
        }
    }

    /// A notification has ended: perhaps it was what others to the same device waited for.
    func updateThrottles(_ tag: Int, _ verdict: Verdict) {
        switch verdict {
        case .throttled, .resend, .renewProviderToken: break
        default: throttles.ended(token(of: tag), now: queues[jobs[flights[tag].job].queue].now)
        }
    }

    /// Puts off one notification of a job if its device is to be left alone.
    /// - Returns: whether it did.
    func putsOff(_ token: ByteBuffer, of index: Int) -> Bool {
        guard let delay = delay(of: token, index) else { return false }
        postpone(token, of: index, reason: Self.throttled, delay: delay)
        return true
    }

    /// For how many milliseconds a job with one token has to wait for its device; `nil` where it need not.
    func throttleDelay(of index: Int) -> Int64? {
        guard !jobs[index].isOnChannel, let token = jobs[index].notification?.deviceToken.hex else { return nil }
        return delay(of: token, index)
    }

    private func delay(of token: ByteBuffer, _ index: Int) -> Int64? {
        let now = queues[jobs[index].queue].now
        let isReturning = jobs[index].job?.envelope.isWrapped ?? false
        switch throttles.decide(token, isReturning: isReturning, now: now) {
        case .send: return nil
        case .wait(let until): return until - now
        }
    }

    /// Why a notification is put off whose device is to be left alone.
    static let throttled = "Throttled"

    // MARK: Rates

    /// How many notifications of an app its rate allows now.
    func budget(of app: AppLane) -> Int { app.budget?.available(now: eventLoop.now) ?? .max }

    /// Reserves a portion of the app's rate, if it needs one.
    func reserveRate(_ app: AppLane) {
        guard let count = app.budget?.reserve(waiting: app.waiting, now: eventLoop.now), let appRates,
            let perSecond = app.budget?.perSecond
        else { return }
        appRates.reserve(count, of: app.configuration.name, perSecond: perSecond) { [self] result in
            switch result {
            case .success(let wait):
                app.budget?.reserved(count, wait: .milliseconds(wait), now: eventLoop.now)
                guard wait > 0 else { return schedulePump() }
                eventLoop.scheduleTask(in: .milliseconds(wait)) { [self] in schedulePump() }
            case .failure(let failure):
                app.budget?.failed(now: eventLoop.now)
                tellOfFleetState(failure)
            }
        }
    }

    /// In how many milliseconds a job is to come back for which an app's rate has no room; `nil` where it has.
    func rateDelay(of index: Int, _ app: AppLane) -> Int64? {
        guard let budget = app.budget, app.waiting - jobs[index].open >= budget.maximumWaiting else { return nil }
        let delay = app.budget?.putOff(notifications: jobs[index].open, now: eventLoop.now) ?? .seconds(1)
        return delay.nanoseconds / 1_000_000
    }

    /// Why a job is put off for which an app's rate has no room.
    static let rateLimited = "RateLimited"
}
