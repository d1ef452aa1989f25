import APNS
import NIOCore
import PushJob
import PushQueue

/// Predicts the fate of a job.
public struct JobCheck {
    /// The notifications of a job, for a sender.
    public struct Plan: Sendable {
        /// The index of the app that it goes through.
        public var app: Int
        /// The notifications that would be sent.
        public var notifications: [Notification]
        /// Why which of its tokens would become dead letters while the others are sent, by their places from 1.
        var refused: [(place: Int, why: DeviceToken.Invalid)] = []
        /// Apple's requirements that the job does not meet, and that APNs does not check.
        var hints: [NotificationRules.Hint] = []
        /// The number of tokens that are named more than once.
        var repeatedTokens = 0
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

    /// Returns the reason why no worker could send a job, whatever its apps are; `nil` if one could.
    public static func defect(of body: ByteBuffer, as format: JobFormat) -> String? {
        let job: Job
        do throws(JobError) {
            job = try JobDecoder.decode(body, as: format)
        } catch {
            return "\(error)"
        }
        var place = 0
        for field in job.tokens.map(Array.init) ?? [] {
            place += 1
            do throws(DeviceToken.Invalid) { _ = try DeviceToken(job.text(field)) } catch {
                return "token \(place): \(error)"
            }
        }
        // Through another transport less would be sent, but not more.
        let app = RoutedApp(AppConfiguration(name: "", topic: "com.example.app", credential: .providerTokens([])))
        var hasUnknownType = false
        do throws(Reason) {
            _ = try app.notification(for: job, identity: ByteBuffer(), firstSeen: 0) { hint in
                if hint.rule == .unknownPushType { hasUnknownType = true }
            }
            return hasUnknownType ? mistypedPushType(of: job) : nil
        } catch {
            return error.detail ?? error.code.text
        }
    }

    /// A push type that this version does not know may be new, unless it looks like one that it knows.
    private static func mistypedPushType(of job: Job) -> String? {
        let type = job.pushType.map { String(buffer: job.text($0)) } ?? ""
        let known = PushType.allCases.map(\.rawValue).filter { $0 != "other" }
        return type.nearest(of: known).map { "unknown push type \(type); did you mean \($0)?" }
    }

    /// Returns what would become of a job.
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
                    "token \(refusal.place) would become a dead letter, MalformedToken: \(refusal.why)"
                        + (plan.notifications.isEmpty ? "" : "; the others would be sent"))
            }
            let facts = plan.notifications.isEmpty ? [] : explanation.facts.map { CheckVerdict(.ok, name, $0) }
            let warnings = (plan.hints.map(\.detail) + explanation.warnings).map { CheckVerdict(.warning, name, $0) }
            return (facts + refused + warnings + hints, plan)
        } catch {
            return ([Self.dead(name, error)] + hints, nil)
        }
    }

    private static func dead(_ name: String, _ reason: Reason) -> CheckVerdict {
        CheckVerdict(.failure, name, "it would become a dead letter, \(reason.code.text): \(reason.detail ?? "")")
    }

    private func plan(_ job: Job, now: Int64) throws(Reason) -> Plan {
        let app = try router.route(job).index
        let routed = router.apps[app]
        let identity = job.id.map(job.text) ?? ByteBuffer(string: "check")
        var plan = Plan(app: app, notifications: [])
        let template = try routed.notification(for: job, identity: identity, firstSeen: now) { plan.hints.append($0) }
        guard let tokens = job.tokens else {
            plan.notifications = [template]
            return plan
        }
        var distinct = DistinctTokens(tokens, of: job)
        plan.repeatedTokens = tokens.count - distinct.count
        while let field = distinct.next() {
            do throws(DeviceToken.Invalid) {
                var notification = template
                notification.deviceToken = try routed.deviceToken(job.text(field))
                notification.apnsID = APNSID(jobID: identity, token: notification.deviceToken.hex)
                plan.notifications.append(notification)
            } catch {
                plan.refused.append((distinct.position, error))
            }
        }
        return plan
    }
}
