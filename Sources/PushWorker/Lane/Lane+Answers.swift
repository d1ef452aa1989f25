import Logging
import PushQueue

/// Apps whose requests get no answer at all.
extension Lane {
    /// Logs when that begins and when it is over, and reports it to the fleet without delay.
    func watchAnswers(of app: AppLane) {
        guard phase == .running else { return }
        let state = app.isLeaving ? .answered : app.transport.answerState
        if state != app.answerState { for queue in queues { queue.tellSoon() } }
        app.answerState = state
        // What was not answered lately may be neither now nor over.
        guard state != .unansweredLately, (state == .unanswered) != app.isUnanswered else { return }
        app.isUnanswered.toggle()
        let subject = "no answers \(app.configuration.name)"
        if app.isUnanswered {
            trouble(
                .error,
                """
                no answers from APNs: connections are made, and no request on them is answered; jobs are tried again. \
                Check the proxy, load balancer or firewall between this host and APNs, and Apple's status page
                """, subject, at: "\(index)",
                metadata: app.logMetadata.merging(["in_flight": "\(app.transport.statistics.streamsInUse)"]) { $1 })
        } else if let after = troubles.ended(subject, at: "\(index)") {
            logger.notice(
                "requests to APNs no longer go unanswered",
                metadata: app.logMetadata.merging(["after_ms": "\(after)"]) { $1 })
        }
    }
}
