import Logging
import PushQueue

/// Apps whose requests get no answer at all.
extension Lane {
    /// Logs when that begins and when it is over, and reports it to the fleet without delay.
    func watchAnswers(of app: AppLane) {
        guard phase == .running else { return }
        let isUnanswered = app.transport.isUnanswered && !app.isLeaving
        guard isUnanswered != app.isUnanswered else { return }
        // While there is no connection, which is logged as that, it is not over.
        guard isUnanswered || app.isLeaving || app.transport.usableConnections > 0 || app.transport.isDormant else {
            return
        }
        app.isUnanswered = isUnanswered
        for queue in queues { queue.tellSoon() }
        let subject = "no answers \(app.configuration.name)"
        if isUnanswered {
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
