import APNS
import Logging
import NIOCore
import PushJob
import PushQueue

/// The consequences of faults of one app and of its endpoint, on one lane: breakers open and close, all workers with the
/// same configuration pause the app, and operators read about it.
///
/// Belongs to the lane's event loop.
final class FaultHandler {
    /// The interval at which a lasting block is written to Redis again. Redis keeps a pause for a day, and an operator
    /// may resume the app earlier.
    private static let blockReportInterval = TimeAmount.hours(1)

    private let app: AppContext
    private let lane: LaneContext
    private let fleet: Fleet
    var gate = Gate()
    var evidence: Evidence
    /// The configuration that APNs refused and for which the app is paused in Redis; `nil` while this worker knows of no
    /// pause.
    private var refused: ConfigurationDigest?
    /// The time at which the block was last written; `nil` if it was not.
    private var blockWrittenAt: NIODeadline?

    init(_ app: AppContext) {
        self.app = app
        lane = app.lane
        fleet = app.fleet
        evidence = Evidence(maximumBadTokenShare: app.configuration.maximumBadTokenShare)
        gate.app.block(app.configuration.wrongCertificate(app.configuration.credential))
    }

    // MARK: Pauses of the app

    /// Pauses the app because of an answer.
    /// - Parameter isProbe: true for the answer to a probe.
    func pause(_ reason: Reason, isProbe: Bool) {
        let opened = gate.app.recordFault(reason: reason, isProbe: isProbe, now: lane.now)
        if opened {
            evidence.recordPause()
            logPause()
        }
        // Later answers to requests that were already in flight add nothing.
        guard opened || isProbe else { return }
        retireConnections()
        pauseFleet(reason, isProbe: isProbe)
    }

    /// Pauses the app in Redis, for all workers with the same configuration.
    private func pauseFleet(_ reason: Reason, isProbe: Bool) {
        let refusable = app.refusable
        refused = refusable
        fleet.store.pauses.trip(
            app.name, reason: reason.code.text, detail: reason.detail, isProbe: isProbe, configuration: refusable.text
        ) { [self] result in
            switch result {
            case .success(let wait):
                // A change of the configuration has ended the pause.
                guard refusable == app.refusable else { return }
                _ = gate.app.recordPause(reason: reason, wait: wait.map { .milliseconds($0) }, now: lane.now)
            case .failure(let failure):
                blockWrittenAt = nil
                fleet.refusals.recordRefusal(.pauses, failure)
            }
        }
    }

    /// Ends the pause in Redis that this worker has recorded or read, unless an operator ordered it.
    private func resumeFleet() {
        guard let refused else { return }
        self.refused = nil
        fleet.store.pauses.close(app.name, configuration: refused.text) { [self] in fleet.recordWrite(.pauses, $0) }
    }

    /// Retires all current connections. APNs remembers for each connection what it was first used for, so the end of a
    /// fault may show only on a new one (Apple, "Establishing a token-based connection to APNs").
    private func retireConnections() {
        // The gateway closes a connection with each error.
        if !app.configuration.usesGateway { app.transport.retireConnections(reason: "the app is paused") }
    }

    /// Ends the app's pause for the fleet, because a probe was accepted.
    func resume() {
        guard gate.app.isOpen else { return }
        resumeFleet()
        closeBreaker()
    }

    /// Resumes sending after the app's configuration or credential has changed, unless it is blocked.
    /// - Parameter reason: the reason of the pause before the change.
    func reopen(pausedFor reason: Reason?) {
        blockWrittenAt = nil
        if gate.app.block != nil {
            if refused != app.refusable { resumeFleet() }
            reportBlock()
        } else if gate.app.isOpen {
            if !gate.app.isPausedByOperator, gate.app.reason?.isBadToken == false { resume() }
        } else if let reason {
            resumeFleet()
            logResumption(reason)
        }
    }

    /// Asks Redis for a probe if one is due.
    func askForProbe() {
        guard gate.app.decide(now: lane.now) == .ask else { return }
        gate.app.recordQuestion()
        fleet.store.pauses.probe(app.name, configuration: app.refusable.text) { [self] result in
            switch result {
            case .success(.granted):
                gate.app.recordGrant()
                // Connections made since the last probe may also predate the end of the fault.
                retireConnections()
            case .success(.wait(let milliseconds, let reason, let detail)):
                gate.app.recordDenial(
                    reason: Reason(.init(text: reason), detail: detail), wait: milliseconds.map { .milliseconds($0) },
                    now: lane.now)
            case .success(.closed): closeBreaker()
            case .failure(let failure):
                gate.app.recordFailedQuestion(now: lane.now)
                fleet.refusals.recordRefusal(.pauses, failure)
            }
            lane.schedulePump()
        }
    }

    /// Adopts the state of the app that other workers have recorded in Redis.
    /// - Parameters:
    ///   - version: the breaker's version when Redis was asked.
    ///   - time: Redis' time in milliseconds since 1970; `nil` if unknown. The answer to the request for a probe then
    ///     has the wait.
    func recordPause(_ pause: PauseRecord?, version: Int, time: Int64?) {
        guard gate.app.version == version else { return }
        guard let pause else { return closeBreaker() }
        if let other = pause.configuration, other != app.refusable.text {
            return recordPause(ofOthers: pause, time: time)
        }
        let wait = pause.until.map { until in
            TimeAmount.milliseconds(min(pause.wait(now: time ?? until) ?? 0, lane.configuration.appPause.longest))
        }
        let reason = Reason(.init(text: pause.reason), detail: pause.detail)
        guard gate.app.recordPause(reason: reason, wait: wait, now: lane.now) else { return }
        refused = app.refusable
        logPause()
        if !gate.app.isPausedByOperator { retireConnections() }
    }

    /// Ignores the pause of workers with another configuration. Redis ends it if a probe of theirs is long overdue.
    private func recordPause(ofOthers pause: PauseRecord, time: Int64?) {
        if gate.app.isPausedByOperator { closeBreaker() }
        if let until = pause.until, let time, time > until {
            fleet.store.pauses.close(app.name, configuration: app.refusable.text) { [self] in
                fleet.recordWrite(.pauses, $0)
            }
        }
    }

    private func closeBreaker() {
        guard let reason = gate.app.recordEnd() else { return }
        refused = nil
        evidence.recordResumption()
        if gate.app.block == nil { logResumption(reason) }
        lane.schedulePump()
    }

    /// Returns the milliseconds for which jobs are deferred because of an obstacle.
    func deferral(because obstacle: Gate.Obstacle) -> Int64 {
        gate.deferral(because: obstacle, now: lane.now, longest: longestPause, jitter: lane.jitter)
    }

    // MARK: Blocks

    /// Logs that the app is blocked, and pauses it in Redis, where operators see it. A worker with a correct
    /// configuration ends the pause with a probe; this one stays blocked.
    func reportBlock() {
        guard let reason = gate.app.block, !app.isRemoved else { return }
        lane.logOngoing(
            .error, "app_blocked",
            """
            the app is paused, and nothing is sent for it until its certificate or its topic is changed: \
            \(reason.explanation)
            """, of: "app \(app.name)", metadata: app.logMetadata)
        if let reported = blockWrittenAt, lane.now - reported < Self.blockReportInterval { return }
        // Without a connection to Redis this fails at once, and is tried again a second later.
        blockWrittenAt = lane.now
        pauseFleet(reason, isProbe: false)
    }

    // MARK: The endpoint

    /// Opens the endpoint's breaker if requests go unanswered, long before their deadlines.
    func watchAnswers() {
        guard lane.isWorking, !app.isRemoved, app.transport.statistics.isUnanswered,
            gate.endpoint.recordUnanswered(
                longest: longestPause, now: lane.now, jitter: lane.jitter)
        else { return }
        logEndpointFailure()
    }

    /// Records what the end of a request shows about the endpoint.
    func recordEndpoint(_ verdict: Verdict, _ result: RequestResult, isProbe: Bool) {
        switch (result, verdict) {
        case (.response, .serverError(let reason, _)): endpointFailed(reason, isProbe: isProbe)
        case (.uncertain(.timedOut), _), (.uncertain(.reset), _):
            if case .retry(let reason, _, _) = verdict { endpointFailed(reason, isProbe: isProbe) }
        // An answer from another server, such as a proxy, proves nothing about APNs.
        case (.response(let response), _) where response.status == 200 || response.reasonText != nil: endpointAnswered()
        default: if isProbe { gate.endpoint.recordInconclusiveProbe(now: lane.now) }
        }
    }

    private func endpointFailed(_ reason: Reason, isProbe: Bool) {
        let opened = gate.endpoint.recordFailure(
            reason, isProbe: isProbe, longest: longestPause, now: lane.now, jitter: lane.jitter)
        if opened { logEndpointFailure() }
    }

    /// Closes the endpoint's breaker after an answer.
    func endpointAnswered() {
        guard gate.endpoint.isInDoubt || gate.endpoint.isOpen, gate.endpoint.recordAnswer(now: lane.now) != nil else {
            return
        }
        lane.logEnd("answers_again", "APNs answers again", of: "endpoint \(app.name)", metadata: app.logMetadata)
        lane.reportSoon()
        lane.schedulePump()
    }

    /// Forgets the state of the endpoint and of refused connections, because requests use other connections from now on.
    func forgetConnections() {
        let wasOpen = gate.endpoint.isOpen
        evidence.recordOtherConnections()
        gate.recordOtherConnections()
        guard wasOpen else { return }
        lane.logEnd(
            "endpoint_replaced", "sending again, over other connections", of: "endpoint \(app.name)",
            metadata: app.logMetadata)
        lane.reportSoon()
    }

    /// The longest pause between probes.
    private var longestPause: TimeAmount { .milliseconds(lane.configuration.appPause.longest) }

    /// Closes the breaker if nothing is left to probe with: this lane can't learn the state of the endpoint. Without a
    /// connection the lane claims nothing, so the absence of jobs proves nothing.
    func closeIdleEndpoint() {
        guard app.isConnected, gate.endpoint.closeIfIdle(now: lane.now)
        else { return }
        lane.logEnd(
            "endpoint_idle", "no more jobs wait for APNs to answer", of: "endpoint \(app.name)",
            metadata: app.logMetadata)
        lane.reportSoon()
    }

    // MARK: Log

    private func logPause() {
        lane.logOngoing(
            .error, "app_paused",
            """
            the app is paused: \(gate.app.reason?.explanation ?? ""); its jobs are deferred, and occasional probes \
            check whether it can be resumed. \(credentialAdvice)
            """, of: "app \(app.name)",
            metadata: app.logMetadata.merging(gate.app.reason.map { ["reason": "\($0.code.text)"] } ?? [:]) { $1 })
    }

    private var credentialAdvice: String {
        CredentialAdvice.text(gate.app.reason.flatMap { APNSReason(rawValue: $0.code.text) }, now: lane.wallClock())
    }

    private func logResumption(_ reason: Reason) {
        lane.logEnd(
            "app_resumed", "the app is sending again", of: "app \(app.name)",
            metadata: app.logMetadata.merging(["was": "\(reason.explanation)"]) { $1 })
    }

    private func logEndpointFailure() {
        lane.reportSoon()
        guard let reason = gate.endpoint.reason else { return }
        if reason.isNoAnswer {
            lane.logOngoing(
                .error, "no_answers",
                """
                no answers from APNs: connections succeed, but no request is answered; jobs wait, and one notification \
                at a time is sent. Check the proxy, load balancer or firewall between this host and APNs, and Apple's \
                status page
                """, of: "endpoint \(app.name)",
                metadata: app.logMetadata.merging(["in_flight": "\(app.transport.statistics.streamsInUse)"]) { $1 })
        } else {
            lane.logOngoing(
                .error, "server_errors",
                """
                server errors from APNs: no request succeeds; jobs wait, and one notification at a time is sent. Check \
                Apple's status page, and any proxy between this host and APNs
                """, of: "endpoint \(app.name)",
                metadata: app.logMetadata.merging(["reason": "\(reason.code.text)"]) { $1 })
        }
    }
}
