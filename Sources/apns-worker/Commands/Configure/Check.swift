import ArgumentParser
import FoundationEssentials
import NIOCore
import NIOPosix
import Operations
import PushJob
import PushQueue
import PushWorker
import Redis

struct Check: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Test a configuration: Redis, each app's credential and endpoint, and optionally a job.",
        discussion: """
            Uses the same settings as `run`, and changes nothing in Redis. It sends APNs a notification for a device token that \
            no device has; APNs answers BadDeviceToken if it accepts the credential and the topic. --no-connect skips that.

            For a job it explains the route and the request, and warns of likely mistakes.

            The exit status is 0 if a worker could work with these settings, and 1 if it could not.

              apns-worker check
              apns-worker check --job job.json
              apns-worker check --job job.json --no-redis --no-connect     (needs no configured app)
              apns-worker check --job job.json --send     (to its devices, without the queue)
            """)

    @OptionGroup(title: "Queues") var queues: SettingFlags<WorkerFlags<QueuesFlags>>
    @OptionGroup(title: "App") var app: SettingFlags<WorkerFlags<AppFlags>>
    @OptionGroup(title: "Binary gateway (--transport gateway)") var gateway: SettingFlags<WorkerFlags<GatewayFlags>>

    @Option(help: "File with jobs, one per line; - for standard input.") var job: String?
    @Flag(help: "Send the notifications of the job and print the answers of APNs.") var send = false
    @Flag(help: "Do not connect to APNs.") var noConnect = false
    @Flag(help: "Do not connect to Redis.") var noRedis = false
    @Flag(help: "Print the findings as JSON, one per line.") var json = false

    func validate() throws {
        if send, job == nil { throw ValidationError("--send needs --job") }
        if send, noConnect { throw ValidationError("--send and --no-connect cannot be combined") }
    }

    func run() async throws {
        let printer = VerdictPrinter(isJSON: json)
        let settings: Settings
        let apps: [AppConfiguration]
        do {
            settings = try queues.settings(app.given, gateway.given)
        } catch {
            printer.report([.init(.failure, "configuration", CommandFailure.message(of: error))])
            throw ExitCode(1)
        }
        do { apps = try settings.apps() } catch let error as CommandFailure {
            return try await checkWithoutApps(settings, error, printer)
        }
        if !noRedis { try await checkRedis(settings, apps, printer) }
        let now = Int64(Date().timeIntervalSince1970)
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        for app in apps {
            let check = AppCheck(app, eventLoop: loop, now: now)
            printer.report(check.credential())
            if !noConnect { printer.report(await check.endpoint()) }
        }
        if let job { try await checkJobs(job, settings, apps, loop, printer) }
        if printer.hasFailed { throw ExitCode(1) }
    }

    /// Checks a job without apps, so that an author of jobs needs no credential.
    private func checkWithoutApps(
        _ settings: Settings, _ error: CommandFailure, _ printer: VerdictPrinter
    ) async throws {
        let credential: [Setting] = [.appNames, .key, .keyBase64, .certificate, .certificateBase64]
        guard let job, !send, credential.allSatisfy({ settings.given($0) == nil }), try settings.appNames.isEmpty else {
            printer.report([.init(.failure, "configuration", error.message)])
            throw ExitCode(1)
        }
        let topic =
            settings.text(.topic).flatMap { $0.split(separator: ",").first.map(String.init) } ?? "com.example.app"
        printer.report([
            .init(
                .warning, "configuration",
                "no app is configured; the job is checked as if there were an app, default, with the topic \(topic)")
        ])
        let example = AppConfiguration(name: "default", topic: topic, credential: .providerTokens([]))
        if !noRedis { try await checkRedis(settings, [], printer) }
        try await checkJobs(job, settings, [example], MultiThreadedEventLoopGroup.singleton.next(), printer)
        if printer.hasFailed { throw ExitCode(1) }
    }

    private func checkRedis(_ settings: Settings, _ apps: [AppConfiguration], _ printer: VerdictPrinter) async throws {
        let place: RedisTopology
        do { place = try settings.redisTopology() } catch let error as CommandFailure {
            return printer.report([.init(.failure, "redis", error.message)])
        }
        var isFirst = true
        // Queues on the same server share its findings.
        var reported: Set<String> = []
        for queue in try settings.queues() {
            do {
                try await settings.withClient(for: queue.keys.jobs) { client in
                    let report = try await QueueCheck(client, queue.keys).run(now: Int64(Date().timeIntervalSince1970))
                    if isFirst {
                        printer.report([
                            .init(
                                .ok, "redis",
                                "\(place) answers" + (report.version.isEmpty ? "" : ", version \(report.version)"))
                        ])
                    }
                    isFirst = false
                    for (level, sentences) in [
                        (CheckVerdict.Level.ok, report.facts), (.warning, report.warnings), (.failure, report.failures),
                    ] {
                        for sentence in sentences where reported.insert(sentence).inserted {
                            printer.report([.init(level, "redis", sentence)])
                        }
                    }
                }
            } catch let error as CommandFailure {
                return printer.report([.init(.failure, "redis", "\(place): \(error.message)")])
            }
        }
        let keys = settings.sharedKeys
        for app in apps {
            try await settings.withClient(for: keys.appPaused(app.name)) { client in
                guard let pause = try await AppPauses.read(app.name, client, keys) else { return }
                printer.report([.init(.warning, "app \(app.name)", "it is paused: \(pause.inWords)")])
            }
        }
    }

    private func checkJobs(
        _ path: String, _ settings: Settings, _ apps: [AppConfiguration], _ loop: any EventLoop,
        _ printer: VerdictPrinter
    ) async throws {
        let jobs: [ByteBuffer]
        do {
            jobs = try Self.jobs(in: path)
        } catch {
            return printer.report([.init(.failure, "job", "\(error)")])
        }
        let check = JobCheck(
            apps, format: try settings.queues().first?.format ?? .native,
            maximumAttempts: settings.number(.maxAttempts) ?? RetryPolicy().maximumAttempts)
        for (number, job) in jobs.enumerated() {
            let now = Date().timeIntervalSince1970
            let name = jobs.count == 1 ? "job" : "job \(number + 1)"
            let (verdicts, plan) = check.run(job, name: name, now: Int64(now * 1000))
            printer.report(verdicts)
            guard send, let plan else { continue }
            let app = AppCheck(apps[plan.app], eventLoop: loop, now: Int64(now))
            printer.report(await app.send(plan.notifications))
        }
    }

    /// Returns the jobs in a file: one that can span several lines, or else one per line.
    private static func jobs(in path: String) throws -> [ByteBuffer] {
        let data: Data
        do {
            data = path == "-" ? LineReader.all() : try Data(contentsOf: URL(filePath: path))
        } catch {
            throw ValidationError("cannot read the job \(path): does it exist, and is it readable?")
        }
        let whole = ByteBuffer(bytes: data)
        if data.isEmpty { throw ValidationError("\(path) is empty; a job is a JSON object") }
        let lines = data.split(separator: UInt8(ascii: "\n")).map { ByteBuffer(bytes: $0) }
            .filter { $0.readableBytes > 0 }
        let isOne = whole.withUnsafeReadableBytes { bytes in (try? JSONScanner.validate(bytes)) != nil }
        return isOne || lines.count < 2 ? [whole] : lines
    }
}

/// Prints verdicts as they arrive.
final class VerdictPrinter {
    private let isJSON: Bool
    private(set) var hasFailed = false

    init(isJSON: Bool) {
        self.isJSON = isJSON
    }

    func report(_ verdicts: [CheckVerdict]) {
        for verdict in verdicts {
            if verdict.level == .failure { hasFailed = true }
            if isJSON, let line = try? JSONLine.text(verdict) {
                print(line)
            } else {
                let word = verdict.level == .ok ? "ok     " : verdict.level == .warning ? "warning" : "FAILED "
                print("\(word)  \(verdict.subject): \(verdict.sentence)")
            }
        }
    }
}

struct Schema: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "schema",
        abstract: "Print the JSON Schema of a job (draft 2020-12).",
        discussion: """
            For validators, code generators and editors. `check --job FILE` also checks rules that a schema cannot express, such \
            as the payload's size.

              apns-worker schema > job.schema.json
            """)

    func run() { Terminal.print(JobSchema.text) }
}
