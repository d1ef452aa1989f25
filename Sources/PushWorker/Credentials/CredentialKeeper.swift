import APNS
import Logging

/// Maintains the credentials of a running worker's apps: uses new ones when their files change, and reports current and
/// upcoming problems.
struct CredentialKeeper {
    private struct Kept {
        var app: Int
        var plan: CredentialPlan
        var watch: SecretWatch
        var credential: AppConfiguration.Credential
        var reportedAt: Int64
    }

    /// The interval between checks of the files. A changed file is in use after two checks.
    static let interval = Duration.seconds(5)
    /// The interval between reports of a problem, in seconds.
    private static let reportInterval: Int64 = 86_400

    private var kept: [Kept] = []
    private let apps: [AppConfiguration]
    private let logger: Logger

    init(_ apps: [AppConfiguration], logger: Logger) {
        self.apps = apps
        self.logger = logger
        for (index, app) in apps.enumerated() {
            guard let (plan, contents) = app.renewal else { continue }
            kept.append(
                Kept(
                    app: index, plan: plan, watch: SecretWatch(plan.sources, inUse: contents),
                    credential: app.credential, reportedAt: .min))
        }
    }

    /// Checks all credentials once.
    /// - Parameters:
    ///   - now: seconds since 1970.
    ///   - replace: puts a credential of an app into use.
    mutating func look(now: Int64, replace: (AppConfiguration, AppConfiguration.Credential) throws -> Void) {
        for index in kept.indices {
            let app = apps[kept[index].app]
            let plan = kept[index].plan
            // A value in a variable can't change, and need not be decoded every few seconds.
            switch kept[index].watch.canChange ? kept[index].watch.renew({ try plan.make(from: $0) }) : .unchanged {
            case .unchanged: break
            case .renewed(let credential):
                do {
                    try replace(app, credential)
                    kept[index].credential = credential
                    kept[index].reportedAt = .min
                    logger.notice(
                        "using the changed credential", metadata: metadata(app, event: "credential_replaced"))
                } catch {
                    logger.error(
                        "the changed credential cannot be used; keeping the previous one: \(error)",
                        metadata: metadata(app, event: "credential_refused"))
                }
            case .failed(let error):
                logger.error(
                    "the changed credential is unusable; keeping the previous one: \(error)",
                    metadata: metadata(app, event: "credential_unusable"))
            }
            if kept[index].reportedAt == .min || now - kept[index].reportedAt >= Self.reportInterval {
                kept[index].reportedAt = now
                report(kept[index], app, now: now)
            }
        }
    }

    private func report(_ kept: Kept, _ app: AppConfiguration, now: Int64) {
        let reports = kept.plan.report(
            kept.credential, topics: [app.topic] + app.otherTopics, endpoint: app.endpoint, now: now)
        var logged: Set<String> = []
        for finding in reports.flatMap(\.findings) where logged.insert(finding.sentence).inserted {
            let level: Logger.Level =
                switch finding.severity {
                case .error: .error
                case .warning: .warning
                }
            logger.log(
                level: level, "\(finding.sentence)", metadata: metadata(app, event: "credential_problem"))
        }
    }

    private func metadata(_ app: AppConfiguration, event: String) -> Logger.Metadata {
        ["event": "\(event)", "app": "\(app.name)", "endpoint": "\(app.endpoint)"]
    }
}
