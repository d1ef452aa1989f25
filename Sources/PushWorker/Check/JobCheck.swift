import APNS
import NIOCore
import PushJob
import PushQueue

/// Predicts the fate of a job.
package struct JobCheck {
    private let apps: [AppConfiguration]
    private let format: JobFormat
    private let maximumAttempts: Int
    private let isAssumed: Bool
    private let router: JobRouter

    /// - Parameters:
    ///   - apps: the apps of the worker.
    ///   - format: the format of the queue's jobs.
    ///   - maximumAttempts: the number of attempts of a job that specifies none.
    ///   - isAssumed: true if no app is known, so that these apps are only assumed.
    package init(
        _ apps: [AppConfiguration], format: JobFormat = .native, maximumAttempts: Int = RetryPolicy().maximumAttempts,
        isAssumed: Bool = false
    ) {
        self.isAssumed = isAssumed
        self.apps = apps
        self.format = format
        self.maximumAttempts = maximumAttempts
        router = JobRouter(apps.map(RoutedApp.init))
    }

    /// The result of a check that does not depend on the apps of a worker.
    package struct Review: Sendable {
        /// The job; `nil` if it can't be read.
        package var job: Job?
        /// The reason why no worker could send the job; `nil` if one could.
        package var defect: String?
        /// The likely mistakes in a job that can be sent.
        package var hints: [Hint] = []
    }

    /// Checks a job without knowing the apps of the workers.
    /// - Parameter now: milliseconds since 1970.
    package static func review(_ body: ByteBuffer, as format: JobFormat, now: Int64) -> Review {
        let job: Job
        do throws(JobError) {
            job = try JobDecoder.decode(body, as: format)
        } catch {
            return Review(defect: "\(error)")
        }
        var place = 0
        for field in job.tokens.map(Array.init) ?? [] {
            place += 1
            do throws(DeviceToken.Invalid) { _ = try DeviceToken(job.text(field)) } catch {
                return Review(job: job, defect: "token \(place): \(error)")
            }
        }
        var hints: [Hint] = []
        do throws(Reason) {
            _ = try anyApp.notification(for: job, identity: ByteBuffer(), firstSeen: now, readsMistakes: true) {
                hints.append($0)
            }
        } catch {
            return Review(job: job, defect: error.detail ?? error.code.text)
        }
        if hints.contains(where: { $0.rule == .unknownPushType }), let mistyped = mistypedPushType(of: job) {
            return Review(job: job, defect: mistyped)
        }
        return Review(job: job, hints: hints + JobHints.of(job, body, as: format, now: now))
    }

    /// An app that accepts every job that some app accepts. (Other transports only accept less.) It is made once, because making its topics
    /// takes as long as a check. Nothing changes it.
    private nonisolated(unsafe) static let anyApp = RoutedApp(
        AppConfiguration(name: "", topic: "com.example.app", credential: .providerTokens([])))

    /// Returns an error if a job's unknown push type resembles a known one. Otherwise the type may be newer than this version.
    private static func mistypedPushType(of job: Job) -> String? {
        let type = job.pushType.map { String(buffer: job.text($0)) } ?? ""
        let known = PushType.allCases.map(\.name)
        return type.nearest(of: known).map { "unknown push type \(type); did you mean \($0)?" }
    }

    /// Predicts what would happen to a job.
    /// - Parameters:
    ///   - name: the job's name in the findings, such as `job, line 3`.
    ///   - now: milliseconds since 1970.
    package func run(_ body: ByteBuffer, name: String, now: Int64) -> (verdicts: [CheckVerdict], plan: JobPlan?) {
        func warnings(_ hints: [Hint]) -> [CheckVerdict] { hints.map { CheckVerdict(.warning, name, $0.detail) } }
        let job: Job
        do throws(JobError) {
            job = try JobDecoder.decode(body, as: format)
        } catch {
            // Hints about the names of members need no valid job.
            return ([Self.dead(name, Reason(error))] + warnings(JobHints.unknownMembers(body, format)), nil)
        }
        let hints = warnings(JobHints.of(job, body, as: format, now: now))
        do throws(Reason) {
            let plan = try JobPlan(job, router, now: now)
            let explanation = explanation(of: job, plan, now: now)
            let refused = plan.refused.map { refusal in
                CheckVerdict(
                    .failure, name,
                    "token \(refusal.place) would become a dead letter, \(refusal.why.code.text): "
                        + (refusal.why.detail ?? "")
                        + (plan.notifications.isEmpty ? "" : "; the others would be sent"))
            }
            let further = plan.refusedCount - plan.refused.count
            let others =
                further == 0
                ? [] : [CheckVerdict(.failure, name, "\(further) further tokens would become dead letters")]
            let facts = plan.notifications.isEmpty ? [] : explanation.facts.map { CheckVerdict(.ok, name, $0) }
            let unlikely = explanation.warnings.map { CheckVerdict(.warning, name, $0) }
            return (facts + refused + others + warnings(plan.hints) + unlikely + hints, plan)
        } catch {
            return ([Self.dead(name, error)] + hints, nil)
        }
    }

    private static func dead(_ name: String, _ reason: Reason) -> CheckVerdict {
        CheckVerdict(.failure, name, "it would become a dead letter, \(reason.code.text): \(reason.detail ?? "")")
    }

    /// Predicts what would happen to a job, without an explanation.
    /// - Parameter now: milliseconds since 1970.
    package func forecast(_ body: ByteBuffer, now: Int64) -> JobForecast {
        let job: Job
        do throws(JobError) {
            job = try JobDecoder.decode(body, as: format)
        } catch {
            return JobForecast(findings: [.init(Reason(error))])
        }
        do throws(Reason) {
            let plan = try JobPlan(job, router, now: now)
            if let end = router.apps[plan.app].end(of: job, firstSeen: now), end <= now {
                return JobForecast(findings: [
                    .init(.notSent, Reason.Own.expired.rawValue, "it has expired and would end as `expired`")
                ])
            }
            let hints = plan.hints + JobHints.of(job, body, as: format, now: now)
            let explanation = explanation(of: job, plan, now: now)
            return JobForecast(
                notifications: plan.notifications.count,
                findings: plan.refused.map { .init($0.why) }
                    + hints.map { .init(.different, $0.rule.rawValue, $0.detail) }
                    + explanation.omitted.map { .init(.different, "omitted", $0) }
                    + (try shortened(job, plan)))
        } catch {
            return JobForecast(findings: [.init(error)])
        }
    }

    private func shortened(_ job: Job, _ plan: JobPlan) throws(Reason) -> [JobForecast.Finding] {
        guard job.makesPayload, let sent = plan.notifications.first?.payload.readableBytes else { return [] }
        let whole: Int
        do throws(JobError) { whole = try job.payload(limit: .max).readableBytes } catch { throw Reason(error) }
        // A Live Activity's payload can grow by its timestamp.
        guard whole > sent else { return [] }
        return [.init(.different, "truncated", "the alert's body would be shortened (`truncate`)")]
    }

    private func explanation(of job: Job, _ plan: JobPlan, now: Int64) -> JobExplanation {
        JobExplanation(
            job: job, plan: plan, app: apps[plan.app], isOnlyApp: apps.count == 1, isAssumed: isAssumed,
            maximumAttempts: maximumAttempts,
            now: now)
    }
}
