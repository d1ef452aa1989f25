import APNS
import Logging
import NIOCore
import PushQueue

/// Faults of an app, which pause it for the whole fleet, and the probes that end that.
extension Lane {
    /// Attempts after which a token is believed to be bad although nothing else of the app says that the app is good.
    private static let attemptsToBelieve = 3

    /// What a request's end says of the app.
    func updateBreaker(_ app: AppLane, _ tag: Int, _ verdict: Verdict) {
        switch verdict {
        case .pauseApp(let reason):
            trip(app, tag, reason: reason)
        case .resend, .renewProviderToken:
            break  // Known only when it is decided whether it goes out again.
        case .delivered, .tokenInvalid:
            app.badTokens.good()
            if app.breaker.isOpen, flights[tag].isProbe { close(app) }
        case .tokenSuspect:
            // Whoever can tell that takes the app for what it is.
            if flights[tag].isProbe, !app.isSuspect { close(app) }
        default:
            if flights[tag].isProbe { app.breaker.probeInconclusive(now: eventLoop.now) }
        }
    }

    /// APNs calls a token bad. Is it the token?
    /// - Parameter status: the HTTP status of the answer, if it was one.
    func judge(_ tag: Int, _ app: AppLane, reason: String, status: Int?) {
        if app.breaker.isOpen {
            // One of many that were under way, or a probe that is no better than they were.
            if flights[tag].isProbe { trip(app, tag, reason: app.breaker.reason ?? reason) }
            return postpone(tag, reason: reason, delay: breakerDelay(app))
        }
        switch app.badTokens.bad() {
        case .mark:
            noteInvalid(tag, reason: reason, since: nil, status: status)
        case .hold:
            guard let job = jobs[flights[tag].job].job else { return }
            let attempt = job.envelope.attempt
            if attempt >= Self.attemptsToBelieve { return noteInvalid(tag, reason: reason, since: nil, status: status) }
            guard attempt < job.maxAttempts ?? configuration.retry.maximumAttempts else {
                return die(token(of: tag), of: flights[tag].job, reason: reason, status: status, wasSent: true)
            }
            retry(tag, reason: reason, status: status, retryAfter: nil, isUncertain: false)
        case .trip:
            app.badTokens.startAfresh()
            trip(
                app, tag,
                reason: "\(reason) for most tokens (is the environment right, and the topic?); none was marked for it")
            postpone(tag, reason: reason, delay: breakerDelay(app))
        }
    }

    // MARK: Opening and closing

    func trip(_ app: AppLane, _ tag: Int, reason: String) {
        let isProbe = flights[tag].isProbe
        let opened = app.breaker.tripped(reason: reason, isProbe: isProbe, now: eventLoop.now)
        if opened { tellOfPause(app) }
        // The other answers of what was under way say nothing new.
        guard opened || isProbe else { return }
        appPauses?.trip(app.configuration.name, reason: reason, isProbe: isProbe) { [self] result in
            switch result {
            case .success(let wait):
                _ = app.breaker.learned(
                    reason: reason, wait: wait.map { .milliseconds($0) }, now: eventLoop.now)
            case .failure(let failure): tellOfFleetState(failure)
            }
        }
    }

    /// An app that was paused for its credential has another one now.
    /// - Parameter reason: why it was paused.
    func reopen(_ app: AppLane, pausedFor reason: String?) {
        guard app.breaker.block == nil else { return reportBlock(app) }
        app.blockReportedAt = nil
        if app.breaker.isOpen {
            if !app.breaker.isByHand, !app.isSuspect { close(app) }
        } else if let reason {
            tellOfResumption(app, reason)
        }
    }

    // MARK: Blocks

    /// How often a lasting block is written to Redis, which keeps a pause for a day; an operator may resume the app before.
    private static let blockReportInterval = TimeAmount.hours(1)

    /// Logs that an app is blocked, and pauses it in Redis, where operators see it. A worker with a correct configuration ends
    /// that pause by a probe; this one stays blocked.
    func reportBlock(_ app: AppLane) {
        guard let reason = app.breaker.block, !app.isLeaving else { return }
        trouble(
            .error,
            "the app is paused, and nothing is sent for it until its certificate or its topic is changed: \(reason)",
            "app \(app.configuration.name)", at: "\(index)", metadata: app.logMetadata)
        let now = eventLoop.now
        if let reported = app.blockReportedAt, now - reported < Self.blockReportInterval { return }
        guard let appPauses else { return }
        // Without a connection to Redis this fails at once; the next attempt is a second later.
        app.blockReportedAt = now
        appPauses.trip(app.configuration.name, reason: reason, isProbe: false) { [self] result in
            switch result {
            case .success(let wait):
                _ = app.breaker.learned(reason: reason, wait: wait.map { .milliseconds($0) }, now: eventLoop.now)
            case .failure(let failure):
                app.blockReportedAt = nil
                tellOfFleetState(failure)
            }
        }
    }

    private func close(_ app: AppLane) {
        guard app.breaker.isOpen else { return }
        learnedOfClosing(app)
        appPauses?.close(app.configuration.name) { [self] result in
            if case .failure(let failure) = result { tellOfFleetState(failure) }
        }
    }

    /// Asks whether to send a probe, if it is time for one.
    func askForProbe(_ app: AppLane) {
        guard app.breaker.decide(now: eventLoop.now) == .ask, let appPauses else { return }
        app.breaker.asked()
        appPauses.probe(app.configuration.name) { [self] result in
            switch result {
            case .success(.granted): app.breaker.granted()
            case .success(.wait(let milliseconds, let reason)):
                app.breaker.denied(reason: reason, wait: milliseconds.map { .milliseconds($0) }, now: eventLoop.now)
            case .success(.closed): learnedOfClosing(app)
            case .failure(let failure):
                app.breaker.askingFailed(now: eventLoop.now)
                tellOfFleetState(failure)
            }
            schedulePump()
        }
    }

    /// Takes over what others have found out about an app.
    /// - Parameter version: the breaker's when Redis was asked.
    func learned(_ pause: AppPause?, of app: AppLane, version: Int) {
        guard app.breaker.version == version else { return }
        guard let pause else { return learnedOfClosing(app) }
        // Before the first claim is answered nobody knows what time it is for Redis; asking for a probe tells.
        let now = queues.first { $0.knowsTime }?.now
        let wait = pause.until.map { until in
            TimeAmount.milliseconds(min(max(0, until - (now ?? until)), configuration.appPause.longest))
        }
        if app.breaker.learned(reason: pause.reason, wait: wait, now: eventLoop.now) { tellOfPause(app) }
    }

    private func learnedOfClosing(_ app: AppLane) {
        guard let reason = app.breaker.closed() else { return }
        app.badTokens.startAfresh()
        if app.breaker.block == nil { tellOfResumption(app, reason) }
        schedulePump()
    }

    private func tellOfPause(_ app: AppLane) {
        trouble(
            .error,
            """
            the app is paused: \(app.breaker.reason ?? ""); its jobs are put off, and a probe now and then finds out \
            whether it can go on. Check its key, key ID, team ID, topic and environment
            """, "app \(app.configuration.name)", at: "\(index)", metadata: app.logMetadata)
    }

    private func tellOfResumption(_ app: AppLane, _ reason: String) {
        guard let after = troubles.ended("app \(app.configuration.name)", at: "\(index)") else { return }
        logger.notice(
            "the app is sending again",
            metadata: app.logMetadata.merging(["was": "\(reason)", "after_ms": "\(after)"]) { $1 })
    }

    /// In how many milliseconds a job of a paused app is to come back.
    func breakerDelay(_ app: AppLane) -> Int64 {
        var delay = Int64.random(in: 1000...5000)
        if case .wait(let until) = app.breaker.decide(now: eventLoop.now) {
            // Longer would only make it later than it could be, when the fault is gone sooner than expected.
            let longest = min(Self.longestPark, configuration.appPause.longest)
            delay += min((until - eventLoop.now).nanoseconds / 1_000_000, longest)
        }
        return delay
    }

    /// In milliseconds.
    private static let longestPark: Int64 = 60_000
}

extension AppLane {
    var logMetadata: Logger.Metadata {
        ["app": "\(configuration.name)", "endpoint": "\(configuration.endpoint)"]
    }
}
