import APNS
import Logging
import NIOCore
import PushJob
import PushQueue

/// An endpoint that does not answer or is in trouble, and connections that APNs has turned against.
extension AppSender {
    /// The time within which a second connection that APNs turns against pauses the app.
    private static let leavingInterval = TimeAmount.minutes(1)
    /// The longest time, in milliseconds, for which a job is deferred because of its endpoint alone.
    private static let longestDeferral: Int64 = 60_000

    // MARK: The endpoint's breaker

    /// Records what the end of a request says of the endpoint.
    func noteEndpoint(_ verdict: Verdict, _ result: RequestResult, isProbe: Bool) {
        switch (result, verdict) {
        case (.response, .serverError(let reason, _)): endpointFailed(reason, isProbe: isProbe)
        case (.uncertain(.timedOut), _), (.uncertain(.reset), _):
            if case .retry(let reason, _, _) = verdict { endpointFailed(reason, isProbe: isProbe) }
        // What is not APNs says nothing of APNs.
        case (.response(let response), _) where response.status == 200 || response.reasonText != nil: endpointAnswered()
        default: if isProbe { watch.endpoint.probeInconclusive(now: lane.now) }
        }
    }

    private func endpointFailed(_ reason: Reason, isProbe: Bool) {
        let opened = watch.endpoint.failed(
            reason, isProbe: isProbe, longest: longestEndpointPause, now: lane.now, jitter: lane.jitter)
        if opened { logEndpointFailure() }
    }

    /// Closes the endpoint's breaker after an answer.
    func endpointAnswered() {
        guard watch.endpoint.isInDoubt || watch.endpoint.isOpen, watch.endpoint.answered(now: lane.now) != nil else {
            return
        }
        lane.logEnd("answers_again", "APNs answers again", of: "endpoint \(name)", metadata: logMetadata)
        lane.reportSoon()
        lane.schedulePump()
    }

    /// Closes the endpoint's breaker because requests take another way from now on.
    func forgetEndpoint() {
        watch.left = nil
        guard watch.endpoint.isOpen else { return watch.endpoint = EndpointBreaker() }
        watch.endpoint = EndpointBreaker()
        lane.logEnd(
            "endpoint_replaced", "sending again, over other connections", of: "endpoint \(name)", metadata: logMetadata)
        lane.reportSoon()
    }

    var longestEndpointPause: TimeAmount { .milliseconds(lane.configuration.appPause.longest) }

    /// Submits one notification if the endpoint may be probed.
    func dispatchEndpointProbe() {
        var jobsToTry = line.ready.count
        while jobsToTry > 0, watch.endpoint.allowsProbe(now: lane.now), transport.capacity > 0,
            let id = line.ready.removeFirst(in: lane.jobs)
        {
            jobsToTry -= 1
            guard submit(id, as: .ofEndpoint) else { return }
        }
        if transport.capacity == 0, watch.endpoint.allowsProbe(now: lane.now) { transport.requestCapacity() }
    }

    /// Chooses when a job comes back that the open breaker keeps from being sent.
    /// - Returns: the milliseconds until then.
    func postponeForEndpoint() -> Int64 {
        let wait = watch.endpoint.wait(now: lane.now).nanoseconds / 1_000_000
        let delay = lane.random(in: 1000...5000) + min(wait, Self.longestDeferral, lane.configuration.appPause.longest)
        watch.endpoint.postponed(until: lane.now + .milliseconds(delay))
        return delay
    }

    /// Closes the breaker if there is nothing left to probe with: this lane can't know how the endpoint is.
    func closeIdleEndpoint() {
        guard line.isEmpty, watch.endpoint.closeIfIdle(now: lane.now) else { return }
        lane.logEnd(
            "endpoint_idle", "no job is left that waits for APNs to answer", of: "endpoint \(name)",
            metadata: logMetadata)
        lane.reportSoon()
    }

    // MARK: Connections that APNs has turned against

    /// The action after an answer with which APNs turns against a connection.
    enum Departure {
        /// Send again on another connection: this is the first for a while.
        case first
        /// Send again on another connection: this one was made before the first was left, and meets the same.
        case further
        /// Pause the app: a connection that was made since meets the same.
        case again
    }

    /// Retires the connection of an answer after which APNs accepts nothing on it any more.
    func leaveConnection(_ response: Response, _ reason: Reason) -> Departure {
        let connection = response.connection ?? 0
        let isNew = watch.left.map { connection > $0.newest } ?? true
        if isNew, let left = watch.left, lane.now - left.at < Self.leavingInterval { return .again }
        let newest = transport.retireConnection(connection, reason: reason.code.text)
        guard isNew else { return .further }
        watch.left = (newest, lane.now)
        lane.logThrottled(
            .warning, "connection_refused", "APNs refuses all requests on a connection; it is replaced",
            kind: "connection \(name) \(reason.code.text)",
            metadata: logMetadata.merging(["reason": "\(reason.code.text)"]) { $1 })
        return .first
    }

    // MARK: Log

    func logEndpointFailure() {
        lane.reportSoon()
        guard let reason = watch.endpoint.reason else { return }
        if reason.isNoAnswer {
            lane.logOngoing(
                .error, "no_answers",
                """
                no answers from APNs: connections are made, and no request on them is answered; jobs wait, and one \
                notification at a time is sent. Check the proxy, load balancer or firewall between this host and APNs, and \
                Apple's status page
                """, of: "endpoint \(name)",
                metadata: logMetadata.merging(["in_flight": "\(transport.statistics.streamsInUse)"]) { $1 })
        } else {
            lane.logOngoing(
                .error, "server_errors",
                """
                server errors from APNs: no request succeeds; jobs wait, and one notification at a time is sent. Check \
                Apple's status page, and any proxy between this host and APNs
                """, of: "endpoint \(name)",
                metadata: logMetadata.merging(["reason": "\(reason.code.text)"]) { $1 })
        }
    }
}

extension Reason {
    /// True if there was no answer at all.
    var isNoAnswer: Bool { if case .request = code { true } else { false } }
}
