import APNS
import NIOCore
import PushJob
import PushQueue

/// What would become of a job.
public struct JobCheck {
    /// What a job is, for those who would send it.
    public struct Plan: Sendable {
        /// The index of the app that it goes through.
        public var app: Int
        /// What would be sent.
        public var notifications: [Notification]
        /// Why which of its tokens would become dead letters while the others are sent, by their places from 1.
        var refused: [(place: Int, why: DeviceToken.Invalid)] = []
    }

    private let apps: [AppConfiguration]
    private let format: JobFormat
    private let maximumAttempts: Int
    private let router: JobRouter

    /// - Parameters:
    ///   - apps: the apps of the worker.
    ///   - format: how the queue's jobs are written.
    ///   - maximumAttempts: the attempts of a job that does not say.
    public init(
        _ apps: [AppConfiguration], format: JobFormat = .native, maximumAttempts: Int = RetryPolicy().maximumAttempts
    ) {
        self.apps = apps
        self.format = format
        self.maximumAttempts = maximumAttempts
        router = JobRouter(apps.map(RoutedApp.init))
    }

    /// Says what would become of a job.
    /// - Parameters:
    ///   - name: what to call it, such as `job, line 3`.
    ///   - now: milliseconds since 1970.
    public func run(_ body: ByteBuffer, name: String, now: Int64) -> (verdicts: [CheckVerdict], plan: Plan?) {
        let hints = JobHints.of(body, as: format).map { CheckVerdict(.warning, name, $0) }
        let job: Job
        do throws(JobError) {
            job = try JobDecoder.decode(body, as: format)
        } catch {
            return ([Self.dead(name, Reason(error))] + hints, nil)
        }
        do throws(Reason) {
            let plan = try plan(job, now: now)
            let explanation = JobExplanation(
                job: job, plan: plan, app: apps[plan.app], isOnlyApp: apps.count == 1,
                maximumAttempts: maximumAttempts, now: now)
            let refused = plan.refused.map { refusal in
                CheckVerdict(
                    .failure, name,
                    "token \(refusal.place) would be kept as a dead letter, MalformedToken: \(refusal.why)"
                        + (plan.notifications.isEmpty ? "" : "; the others would be sent"))
            }
            let facts = plan.notifications.isEmpty ? [] : explanation.facts.map { CheckVerdict(.ok, name, $0) }
            let warnings = explanation.warnings.map { CheckVerdict(.warning, name, $0) }
            return (facts + refused + warnings + hints, plan)
        } catch {
            return ([Self.dead(name, error)] + hints, nil)
        }
    }

    private static func dead(_ name: String, _ reason: Reason) -> CheckVerdict {
        CheckVerdict(.failure, name, "it would be kept as a dead letter, \(reason.code.text): \(reason.detail ?? "")")
    }

    private func plan(_ job: Job, now: Int64) throws(Reason) -> Plan {
        let app = try router.route(job).index
        let routed = router.apps[app]
        let identity = job.id.map(job.text) ?? ByteBuffer(string: "check")
        let template = try routed.notification(for: job, identity: identity, firstSeen: now)
        guard let tokens = job.tokens else { return Plan(app: app, notifications: [template]) }
        var plan = Plan(app: app, notifications: [])
        for (index, field) in tokens.enumerated() {
            do throws(DeviceToken.Invalid) {
                var notification = template
                notification.deviceToken = try routed.deviceToken(job.text(field))
                notification.apnsID = APNSID(jobID: identity, token: notification.deviceToken.hex)
                plan.notifications.append(notification)
            } catch {
                plan.refused.append((index + 1, error))
            }
        }
        return plan
    }
}
