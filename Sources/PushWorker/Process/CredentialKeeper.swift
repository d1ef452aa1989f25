import APNS
import Logging
import Redis
import TLS

/// Maintains the credentials for a running worker's apps and for Redis. It uses new credentials when their files change, and reports
/// current and upcoming problems.
struct CredentialKeeper {
    private struct Kept {
        /// The app, with the authorities in use.
        var app: AppConfiguration
        var plan: CredentialPlan
        var watch: SecretWatch
        var credential: Credential
        var reportedAt: Int64
        /// The error of a changed file that could not be used as the credential.
        var refusal: String?
        /// True if the file could be read, but its credential failed when it was put into use. The watch then counts the file as in use, so
        /// the refusal remains until the file changes.
        var isRefusedInUse = false
    }

    private var kept: [Kept] = []
    private var redis: CertificateWatch?
    private let logger: Logger

    /// - Parameter redis: the certificates for Redis. The Redis clients switch to renewed certificates by themselves.
    init(_ apps: [AppConfiguration], redis: Renewable<TLSContext>?, logger: Logger) {
        self.redis = redis.map { CertificateWatch($0, purpose: "Redis", logger: logger) }
        self.logger = logger
        for app in apps {
            guard let (plan, contents) = app.renewal else { continue }
            kept.append(
                Kept(
                    app: app, plan: plan, watch: SecretWatch(plan.sources, inUse: contents),
                    credential: app.credential, reportedAt: .min))
        }
    }

    /// Checks all credentials once.
    /// - Parameters:
    ///   - now: seconds since 1970.
    ///   - replace: puts a credential of an app and its authorities into use.
    ///   - record: gets the current error of an app's credential, or `nil` if there is none.
    mutating func look(
        now: Int64, replace: (AppConfiguration, Credential) throws -> Void,
        record: (_ app: String, _ problem: String?) -> Void
    ) {
        redis?.look(now: now)
        for index in kept.indices {
            var app = kept[index].app
            let plan = kept[index].plan
            // An environment variable can't change, so it need not be decoded every few seconds.
            let renewal =
                kept[index].watch.canChange
                ? kept[index].watch.renew { (try plan.make(from: $0), plan.trust(from: $0)) } : .unchanged
            switch renewal {
            case .unchanged:
                if kept[index].refusal != nil, !kept[index].isRefusedInUse, kept[index].watch.isInUse {
                    (kept[index].refusal, kept[index].reportedAt) = (nil, .min)
                }
            case .renewed((let credential, let trust)):
                do {
                    app.trust = trust ?? app.trust
                    try replace(app, credential)
                    kept[index].app = app
                    kept[index].credential = credential
                    (kept[index].refusal, kept[index].isRefusedInUse) = (nil, false)
                    kept[index].reportedAt = .min
                    logger.notice(
                        "using the changed credential", metadata: metadata(app, event: "credential_replaced"))
                } catch {
                    logger.error(
                        "the changed credential cannot be used; keeping the previous one: \(error)",
                        metadata: metadata(app, event: "credential_refused"))
                    kept[index].refusal = "the changed file cannot be used: \(error)"
                    (kept[index].isRefusedInUse, kept[index].reportedAt) = (true, .min)
                }
            case .failed(let error):
                logger.error(
                    "the changed credential is unusable; keeping the previous one: \(error)",
                    metadata: metadata(app, event: "credential_unusable"))
                kept[index].refusal = "the changed file cannot be used: \(error)"
                (kept[index].isRefusedInUse, kept[index].reportedAt) = (false, .min)
            }
            if kept[index].reportedAt == .min || now - kept[index].reportedAt >= CertificateWatch.reportInterval {
                kept[index].reportedAt = now
                let errors = report(kept[index], app, now: now)
                record(app.name, kept[index].refusal ?? errors.first)
            }
        }
    }

    /// - Returns: the errors of the credential in use.
    private func report(_ kept: Kept, _ app: AppConfiguration, now: Int64) -> [String] {
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
        return reports.flatMap(\.findings).filter { $0.severity == .error }.map(\.sentence)
    }

    private func metadata(_ app: AppConfiguration, event: String) -> Logger.Metadata {
        ["event": "\(event)", "app": "\(app.name)", "endpoint": "\(app.endpoint)"]
    }
}
