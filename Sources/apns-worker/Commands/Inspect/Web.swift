import APNS
import ArgumentParser
import Dashboard
import HTTPPort
import Logging
import NIOCore
import NIOPosix
import Operations
import PushJob
import PushQueue
import PushWorker
import Redis
import ServiceLifecycle
import Sockets
import TLS
import Telemetry
import UnixSignals
import WebPages

struct Web: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "web",
        abstract: "Serve the web dashboard.",
        discussion: """
            Shows queues, jobs, campaigns, dead letters, apps, workers and Redis, and does what the commands do: pause, cancel, \
            run, requeue, delete, quiet, stop. It needs only Redis, and can run beside the workers or anywhere else.

              apns-worker web                                # http://127.0.0.1:8080/, for this machine
              apns-worker web-user ada --role operator --users users
              apns-worker web --host 0.0.0.0 --users users --tls-certificate web.pem

            Without --users everyone who reaches the port is an operator, so it listens on a loopback address only.

            Programs use the JSON API at /api/v1/, which /api/v1/openapi.json describes, with a token: \
            apns-worker web-user ci --role viewer --token --users users

            Programs that only enqueue jobs, with POST /api/v1/jobs, get the role producer: \
            apns-worker web-user shop --role producer --token --queue default --users users
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @OptionGroup(title: "Web") var web: WebOptions

    @Option(help: ArgumentHelp("Port; 0 chooses a free one.", valueName: "port")) var port: UInt16 = 8080

    @Option(help: ArgumentHelp("Address to listen on.", valueName: "address")) var host = "127.0.0.1"

    func run() async throws {
        let settings = try queue.settings()
        let logger = Logger(
            label: "apns-worker",
            factory: LogOutput.standardError(.auto, environment: [:]).handlers(SharedLogLevel(.info)))
        // A hook sends SIGHUP after it has renewed a certificate.
        let hangups = await UnixSignalsSequence(trapping: .sighup)
        let served = try await ServedDashboard.start(
            web.configuration(host: host, port: Int(port), logger: logger), settings, at: hangups, logger: logger)
        print("dashboard  \(served.address)")
        var lifecycle = logger
        lifecycle.logLevel = .warning
        try await ServiceGroup(
            configuration: .init(services: [served], gracefulShutdownSignals: [.sigterm, .sigint], logger: lifecycle)
        ).run()
    }
}

/// The users and the address of the dashboard.
struct WebOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "File of users; see `apns-worker web-user`. It is read again when it changes.", valueName: "file"))
    var users: String?

    @Flag(help: "Refuse all changes.") var readOnly = false

    @Flag(help: "Also show payloads and full device tokens to viewers.") var viewersSeePayloads = false

    @Option(help: ArgumentHelp("Path under which a proxy serves the dashboard, such as /push.", valueName: "path"))
    var basePath = ""

    @Option(
        help: ArgumentHelp(
            "Host name that browsers use, without --users. Repeatable. (default: localhost and IP addresses)",
            valueName: "name"))
    var hostName: [String] = []

    @Option(
        help: ArgumentHelp(
            "PEM file with the certificate chain, and the private key unless --tls-key is set.", valueName: "file"))
    var tlsCertificate: String?

    @Option(help: ArgumentHelp("PEM file with the private key.", valueName: "file")) var tlsKey: String?

    @Option(
        help: ArgumentHelp(
            """
            Address, or range such as 10.0.0.0/8, of a proxy in front of the dashboard: its X-Forwarded-For header has the address \
            of each client. Repeatable.
            """, valueName: "address"))
    var trustedProxy: [String] = []

    @Option(
        help: ArgumentHelp(
            """
            Header in which --trusted-proxy names the user, such as X-Forwarded-User. Its requests without the header are \
            refused. The file of users has the roles.
            """, valueName: "name"))
    var userHeader: String?

    @Flag(help: "Admit users as viewers if --user-header names them and the file does not have them.")
    var unlistedUsersView = false

    func configuration(host: String, port: Int, logger: Logger) throws -> DashboardConfiguration {
        let proxies: TrustedProxies
        do {
            proxies = try TrustedProxies(trustedProxy)
        } catch {
            throw CommandFailure(.usage, "--trusted-proxy: \(error)")
        }
        var configuration = DashboardConfiguration(proxies: proxies)
        (configuration.host, configuration.port) = (host, port)
        if let users {
            do {
                configuration.users = try UserFile(users, logger: logger)
            } catch {
                throw CommandFailure(.configuration, "--users: \(error)")
            }
        } else if !Self.isLoopback(host) {
            throw CommandFailure(
                .usage,
                "--host \(host) can be reached from other machines, and without --users everyone there would be an operator; "
                    + "set --users FILE (see `apns-worker web-user`), or listen on 127.0.0.1")
        }
        if let userHeader {
            guard configuration.nameUsers(in: userHeader) else {
                throw CommandFailure(.usage, "--user-header \(userHeader) is not a name of a header")
            }
            guard users != nil, !trustedProxy.isEmpty else {
                throw CommandFailure(
                    .usage,
                    "--user-header needs --users, which has the roles, and --trusted-proxy, which names the user")
            }
            if let all = trustedProxy.first(where: { $0.hasSuffix("/0") }) {
                throw CommandFailure(.usage, "with --trusted-proxy \(all), every client could name any user")
            }
        } else if unlistedUsersView {
            throw CommandFailure(.usage, "--unlisted-users-view needs --user-header")
        }
        configuration.admitsUnlisted = unlistedUsersView
        configuration.isReadOnly = readOnly
        configuration.viewersSeeContent = viewersSeePayloads
        configuration.hostNames = hostName
        let base = basePath.split(separator: "/").joined(separator: "/")
        guard base.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"?#%\"<>{}*".utf8.contains($0) }) else {
            throw CommandFailure(.usage, "--base-path must be a path such as /push, without special characters")
        }
        configuration.base = base.isEmpty ? "" : "/\(base)"
        if let tlsCertificate {
            do {
                let sources = [tlsCertificate, tlsKey].compactMap { $0 }
                configuration.tls = try Renewable(sources.map(SecretSource.file)) { contents in
                    let identity = try TLSIdentity(
                        bytes: contents[0], keyBytes: contents.count > 1 ? contents[1] : nil, source: sources[0],
                        keySource: sources.count > 1 ? sources[1] : nil)
                    var tls = TLSServerConfiguration(identity: identity)
                    tls.applicationProtocols = ["http/1.1"]
                    return try TLSContext.server(tls)
                }
            } catch {
                throw CommandFailure(.configuration, "--tls-certificate: \(error)")
            }
        } else if tlsKey != nil {
            throw CommandFailure(.usage, "--tls-key needs --tls-certificate")
        }
        return configuration
    }

    static func isLoopback(_ host: String) -> Bool {
        if host.lowercased() == "localhost" { return true }
        switch try? SocketAddress(ipAddress: host, port: 0) {
        case .v4: return host.hasPrefix("127.")
        case .v6: return host == "::1"
        default: return false
        }
    }
}

/// A dashboard with its own connections to Redis.
struct ServedDashboard: Service {
    let address: String
    private let dashboard: Dashboard
    private let source: DashboardSource
    private let users: UserFile?
    private let certificates: [CertificateWatch]
    private let hangups: UnixSignalsSequence?

    /// Connects to Redis and starts to listen.
    /// - Parameters:
    ///   - hangups: SIGHUP signals. After each signal, the dashboard looks for changed certificates at once.
    ///   - worker: the name of the worker in this process, if there is one.
    /// - Throws: ``CommandFailure``.
    static func start(
        _ configuration: DashboardConfiguration, _ settings: Settings, at hangups: UnixSignalsSequence? = nil,
        worker: String? = nil, logger: Logger
    ) async throws -> ServedDashboard {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let redis = try CommandRedis(settings, as: "apns-worker:web")
        // A page that waits longer shows the problem in place of its content.
        let fleet = try redis.fleet(searches: true, on: loop) {
            try await $0.waitUntilReady(timeout: .seconds(3))
        }
        let tokens = redis.invalidTokens()
        // The dashboard needs no credential: workers report their apps.
        let apps = (try? WorkerSettings(settings).apps()) ?? []
        var source = DashboardSource(
            fleet: fleet, invalidTokens: tokens, version: WorkerVersion.current,
            check: { job, queue, reported in Self.check(job, queue, apps, reported) },
            prepare: { job, queue, terms in try Self.prepare(job, queue, terms) }, explain: { Reason.rule(of: $0) },
            environment: { APNSEndpoint($0)?.environment ?? $0 },
            token: { text in (try? DeviceToken(text)).map { String(buffer: $0.hex) } })
        source.reasons = Reason.Code.names
        source.appNames = try settings.appNames
        source.appSettings = Dictionary(
            uniqueKeysWithValues: try WorkerSettings(settings).appSettings().map { ($0.name, shown($0)) })
        source.worker = worker
        do {
            let dashboard = try await Dashboard.start(configuration, source, on: loop, logger: logger)
            let host = configuration.host.contains(":") ? "[\(configuration.host)]" : configuration.host
            let scheme = configuration.tls == nil ? "http" : "https"
            let address = "\(scheme)://\(host):\(dashboard.port)\(configuration.base)/"
            logger.info("the dashboard is open", metadata: ["event": "dashboard_opened", "address": "\(address)"])
            let certificates = [
                (configuration.tls, "browsers"), (redis.configuration.tls, "the dashboard's Redis clients"),
            ]
            return ServedDashboard(
                address: address, dashboard: dashboard, source: source, users: configuration.users,
                certificates: certificates.compactMap { context, purpose in
                    context.map { CertificateWatch($0, purpose: purpose, logger: logger) }
                }, hangups: hangups)
        } catch {
            await fleet.close()
            await tokens.close()
            throw CommandFailure(.unavailable, "\(error)")
        }
    }

    func run() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { await watchFiles() }
            try await dashboard.run()
            group.cancelAll()
        }
        await source.fleet.close()
        await source.invalidTokens.close()
    }

    /// Looks at the files that can change, so that a problem is logged even if the dashboard is not used.
    private func watchFiles() async {
        await withTaskGroup(of: Void.self) { group in
            let (looks, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
            group.addTask {
                guard let hangups else { return }
                for await _ in hangups { continuation.yield() }
            }
            group.addTask {
                repeat {
                    continuation.yield()
                    // A cancelled sleep ends the loop.
                } while (try? await Task.sleep(for: CertificateWatch.interval)) != nil
                continuation.finish()
            }
            var certificates = certificates
            for await _ in looks {
                users?.look()
                for index in certificates.indices { certificates[index].look(now: Moment.now / 1000) }
            }
            group.cancelAll()
        }
    }

    private static func prepare(
        _ job: ByteBuffer, _ queue: QueueSource, _ terms: DashboardSource.JobTerms
    ) throws -> DashboardSource.EnqueuedJob {
        let check = EnqueueCheck(
            format: queue.format, apps: terms.apps, isStrict: terms.isStrict, id: terms.id,
            uniqueFor: terms.uniqueFor, app: terms.app)
        let accepted = try check.prepare(job)
        let hints = accepted.hints.map { hint in
            DashboardSource.JobHint(
                kind: "\(hint.rule.rawValue) \(hint.subject)", rule: hint.rule.rawValue, message: hint.detail)
        }
        return .init(body: accepted.job, id: accepted.id, app: accepted.app, hints: hints)
    }

    private static func check(
        _ job: ByteBuffer, _ queue: QueueSource, _ apps: [AppConfiguration], _ reported: [WorkerReport.App]?
    ) -> DashboardSource.Check {
        let (verdicts, plan) = JobCheck.of(job, apps, reported: reported, format: queue.format, now: Moment.now)
        let preview = plan?.notifications.first.map { notification in
            PushPreview(
                payload: Array(notification.payload.readableBytesView), pushType: notification.pushType.name,
                topic: String(buffer: notification.topic), priority: notification.priority.map { Int($0) },
                expiration: notification.expiration, collapseID: notification.collapseID.map { String(buffer: $0) })
        }
        return .init(
            verdicts.map { .init(level: $0.level.rawValue, subject: $0.subject, sentence: $0.sentence) }, preview)
    }

    /// Returns the settings of an app to show. Reads no file.
    private static func shown(_ app: AppSettings) -> DashboardSource.AppSettings {
        func has(_ settings: Setting...) -> Bool { settings.contains { app.given($0) != nil } }
        let team = app.text(.teamID).map { " of team \($0)" } ?? ""
        let credential: String? =
            if has(.certificate, .certificateBase64) {
                "certificate"
            } else if has(.key, .keyBase64) {
                "signing key" + (app.text(.keyID).map { " \($0)" } ?? "") + team
            } else {
                nil
            }
        let rate = Setting.all.first { $0.path == ["max_per_second"] }.flatMap(app.text).flatMap { Int($0) }
        return .init(
            topics: (app.text(.topic) ?? "").split(separator: ",").map(String.init), credential: credential,
            maximumPerSecond: rate)
    }
}

extension JobCheck {
    /// Checks a job with the apps of a queue's workers or, if these are not known, with those of the configuration. Without any apps, it
    /// assumes an app that accepts the job, and the first verdict reports that.
    /// - Parameter reported: the apps of the queue's workers; `nil` if they are not known.
    static func of(
        _ body: ByteBuffer, _ configured: [AppConfiguration], reported: [WorkerReport.App]?, format: JobFormat,
        now: Int64
    ) -> (verdicts: [CheckVerdict], plan: JobPlan?) {
        // The configuration has more facts about an app than a report, such as its certificate.
        let apps = (reported ?? []).compactMap { app in
            configured.first { $0.name == app.name && [$0.topic] + $0.otherTopics == app.topics }
                ?? AppConfiguration(reported: app)
        }
        if !apps.isEmpty { return JobCheck(apps, format: format).run(body, name: "job", now: now) }
        if !configured.isEmpty {
            let (verdicts, plan) = JobCheck(configured, format: format).run(body, name: "job", now: now)
            let source = CheckVerdict(
                .ok, "job", "the apps of the queue's workers are not known: checked with the apps of this configuration"
            )
            return ([source] + verdicts, plan)
        }
        let job = try? JobDecoder.decode(body, as: format)
        func text(_ field: JobField?) -> String? { job.flatMap { job in field.map { String(buffer: job.text($0)) } } }
        let assumed = AppConfiguration(
            name: text(job?.app) ?? "default", topic: text(job?.topic) ?? "com.example.app",
            credential: .providerTokens([]))
        let (verdicts, plan) = JobCheck([assumed], format: format, isAssumed: true).run(body, name: "job", now: now)
        // No app could send this job, so it does not matter which apps there are.
        guard plan != nil else { return (verdicts, plan) }
        let unknown = CheckVerdict(
            .warning, "job",
            "the apps of the queue's workers are not known: only the job itself is checked, and not whether an app accepts it"
        )
        return ([unknown] + verdicts, plan)
    }
}
