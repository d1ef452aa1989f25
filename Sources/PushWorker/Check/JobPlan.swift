import APNS
import NIOCore
import PushJob

/// The notifications that a worker would send for a job.
package struct JobPlan: Sendable {
    /// The index of the job's app.
    package var app: Int
    package var notifications: [Notification] = []
    /// The positions, beginning with 1, of the first tokens that would become dead letters, and the reasons. Other tokens are sent.
    var refused: [(place: Int, why: Reason)] = []
    /// The number of all tokens that would become dead letters.
    var refusedCount = 0
    /// Hints about requirements of Apple that the job does not meet, and that APNs does not check.
    var hints: [Hint] = []

    /// Creates the plan of a job.
    /// - Parameter now: milliseconds since 1970.
    /// - Throws: the reason why the job would become a dead letter.
    init(_ job: Job, _ router: JobRouter, now: Int64) throws(Reason) {
        app = try router.route(job).index
        let routed = router.apps[app]
        let identity = job.id.map(job.text) ?? ByteBuffer(string: "check")
        let template = try routed.notification(
            for: job, identity: identity, firstSeen: now, readsMistakes: true
        ) { hints.append($0) }
        guard let tokens = job.tokens else {
            notifications = [template]
            return
        }
        var distinct = DistinctTokens(tokens, of: job)
        while let field = distinct.next() {
            do throws(Reason) {
                var notification = template
                notification.deviceToken = try routed.deviceToken(job.text(field))
                notification.apnsID = APNSID(jobID: identity, token: notification.deviceToken.hex)
                notifications.append(notification)
            } catch {
                refusedCount += 1
                if refused.count < MemberName.maximumCompared { refused.append((distinct.position, error)) }
            }
        }
    }
}
