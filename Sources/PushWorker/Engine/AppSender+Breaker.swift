import Logging
import NIOCore
import PushQueue

/// Faults of the app, which pause it for the whole fleet, and the probes that end that.
extension AppSender {
    /// The interval at which a lasting block is written to Redis, which keeps a pause for a day. An operator may resume the app
    /// before.
    private static let blockReportInterval = TimeAmount.hours(1)
    /// The longest time, in milliseconds, for which a job of a paused app is deferred.
    private static let longestDeferral: Int64 = 60_000

    /// Pauses the app because of an answer.
    /// - Parameter isProbe: true for the answer to a probe.
    func pause(_ reason: Reason, isProbe: Bool) {
        let opened = breaker.tripped(reason: reason, isProbe: isProbe, now: lane.now)
        if opened { logPause() }
        // Further answers to what was in flight say nothing new.
        guard opened || isProbe else { return }
        leaveConnections()
        fleet.store.pause(name, reason, isProbe: isProbe) { [self] result in
            switch result {
            case .success(let wait):
                _ = breaker.learned(reason: reason, wait: wait.map { .milliseconds($0) }, now: lane.now)
            case .failure(let failure): lane.logFleetFailure(failure)
            }
        }
    }

    /// Sends nothing more on the connections that there are: APNs remembers for each what it was first used for, and a mended
    /// fault may only be seen on a new one (Apple, "Establishing a token-based connection to APNs").
    private func leaveConnections() {
        // The gateway closes a connection with each error.
        if !configuration.usesGateway { transport.retireConnections(reason: "the app is paused") }
    }

    /// Ends the app's pause for the fleet: a probe was accepted.
    func resume() {
        guard breaker.isOpen else { return }
        closeBreaker()
        fleet.store.resume(name) { [self] in fleet.log($0) }
    }

    /// Sends again after the app's configuration or credential has changed, unless that is blocked.
    /// - Parameter reason: the reason of the pause before the change.
    func reopen(pausedFor reason: Reason?) {
        guard breaker.block == nil else { return reportBlock() }
        watch.blockReportedAt = nil
        if breaker.isOpen {
            if !breaker.isPausedByOperator, breaker.reason?.isBadToken == false { resume() }
        } else if let reason {
            logResumption(reason)
        }
    }

    /// Asks for a probe, if it is time for one.
    func askForProbe() {
        guard breaker.decide(now: lane.now) == .ask else { return }
        breaker.asked()
        fleet.store.askForProbe(of: name) { [self] result in
            switch result {
            case .success(.granted):
                breaker.granted()
                // Also what was made since the last probe may be older than the mending of the fault.
                leaveConnections()
            case .success(.wait(let milliseconds, let reason, let detail)):
                breaker.denied(
                    reason: Reason(.init(text: reason), detail: detail), wait: milliseconds.map { .milliseconds($0) },
                    now: lane.now)
            case .success(.closed): closeBreaker()
            case .failure(let failure):
                breaker.askingFailed(now: lane.now)
                lane.logFleetFailure(failure)
            }
            lane.schedulePump()
        }
    }

    /// Adopts what other workers have found out about the app.
    /// - Parameters:
    ///   - version: the breaker's when Redis was asked.
    ///   - time: Redis' time in milliseconds since 1970; `nil` if it is not known yet. Asking for a probe tells the time then.
    func learned(_ pause: AppPause?, version: Int, time: Int64?) {
        guard breaker.version == version else { return }
        guard let pause else { return closeBreaker() }
        let wait = pause.until.map { until in
            TimeAmount.milliseconds(min(max(0, until - (time ?? until)), lane.configuration.appPause.longest))
        }
        let reason = Reason(.init(text: pause.reason), detail: pause.detail)
        guard breaker.learned(reason: reason, wait: wait, now: lane.now) else { return }
        logPause()
        if !breaker.isPausedByOperator { leaveConnections() }
    }

    private func closeBreaker() {
        guard let reason = breaker.closed() else { return }
        badTokens.startAfresh()
        if breaker.block == nil { logResumption(reason) }
        lane.schedulePump()
    }

    /// The milliseconds after which a job of the paused app comes back.
    var pauseDelay: Int64 {
        var delay = lane.random(in: 1000...5000)
        if case .wait(let until) = breaker.decide(now: lane.now) {
            // Longer would only make it later than it could be, when the fault is over sooner than expected.
            let longest = min(Self.longestDeferral, lane.configuration.appPause.longest)
            delay += min((until - lane.now).nanoseconds / 1_000_000, longest)
        }
        return delay
    }

    // MARK: Blocks

    /// Logs that the app is blocked, and pauses it in Redis, where operators see it. A worker with a right configuration ends
    /// that pause by a probe; this one stays blocked.
    func reportBlock() {
        guard let reason = breaker.block, !isRemoved else { return }
        lane.logOngoing(
            .error, "app_blocked",
            """
            the app is paused, and nothing is sent for it until its certificate or its topic is changed: \
            \(reason.explanation)
            """, of: "app \(name)", metadata: logMetadata)
        if let reported = watch.blockReportedAt, lane.now - reported < Self.blockReportInterval { return }
        // Without a connection to Redis this fails at once; the next attempt is a second later.
        watch.blockReportedAt = lane.now
        fleet.store.pause(name, reason, isProbe: false) { [self] result in
            switch result {
            case .success(let wait):
                _ = breaker.learned(reason: reason, wait: wait.map { .milliseconds($0) }, now: lane.now)
            case .failure(let failure):
                watch.blockReportedAt = nil
                lane.logFleetFailure(failure)
            }
        }
    }

    // MARK: Log

    private func logPause() {
        lane.logOngoing(
            .error, "app_paused",
            """
            the app is paused: \(breaker.reason?.explanation ?? ""); its jobs are deferred, and a probe now and then \
            finds out if it can be resumed. Check its key, key ID, team ID, topic and environment
            """, of: "app \(name)",
            metadata: logMetadata.merging(breaker.reason.map { ["reason": "\($0.code.text)"] } ?? [:]) { $1 })
    }

    private func logResumption(_ reason: Reason) {
        lane.logEnd(
            "app_resumed", "the app is sending again", of: "app \(name)",
            metadata: logMetadata.merging(["was": "\(reason.explanation)"]) { $1 })
    }
}
