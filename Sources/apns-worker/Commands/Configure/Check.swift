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

            With --jobs-from it instead reads the jobs of another system without removing them, and counts how many would be \
            sent, sent differently, or not sent, by reason. Nothing is changed or sent. The exit status is 0 if all jobs would be \
            sent, and 1 if some would not.

              apns-worker check
              apns-worker check --job job.json
              apns-worker check --job job.json --no-redis --no-connect     (needs no configured app)
              apns-worker check --job job.json --send     (to its devices, without the queue)
              apns-worker check --jobs-from queue:push --format sidekiq
            """)

    @OptionGroup(title: "Queues") var queues: SettingFlags<WorkerFlags<QueuesFlags>>
    @OptionGroup(title: "App") var app: SettingFlags<WorkerFlags<AppFlags>>
    @OptionGroup(title: "Binary gateway (--transport gateway)") var gateway: SettingFlags<WorkerFlags<GatewayFlags>>

    @Option(help: "File with jobs, one per line; - for standard input.") var job: String?
    @Option(
        help: ArgumentHelp(
            """
            Key of a list or sorted set in Redis, or file with lines (- for standard input). Its jobs, in the format of --format, \
            are only counted: those that would be sent, sent differently, or not sent.
            """, valueName: "key-or-file")) var jobsFrom: String?
    @Flag(help: "Send the notifications of the job and print the answers of APNs.") var send = false
    @Flag(help: "Do not connect to APNs.") var noConnect = false
    @Flag(help: "Do not connect to Redis.") var noRedis = false
    @Flag(help: "Print the findings as JSON, one per line.") var json = false

    func validate() throws {
        if send, job == nil { throw ValidationError("--send needs --job") }
        if jobsFrom != nil, job != nil || send {
            throw ValidationError("--jobs-from cannot be combined with --job and --send")
        }
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
        do { apps = try WorkerSettings(settings).apps() } catch let error as CommandFailure {
            guard let example = try exampleApp(settings, printer) else {
                printer.report([.init(.failure, "configuration", error.message)])
                throw ExitCode(1)
            }
            return try await checkWithoutApps(settings, example, printer)
        }
        if let jobsFrom { return try await checkJobs(from: jobsFrom, settings, apps) }
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

    /// Returns an example app if neither apps nor credentials are configured, because an author of jobs needs no credential. Otherwise
    /// returns `nil`.
    private func exampleApp(_ settings: Settings, _ printer: VerdictPrinter) throws -> AppConfiguration? {
        let credential: [Setting] = [.appNames, .key, .keyBase64, .certificate, .certificateBase64]
        guard job != nil || jobsFrom != nil, !send, credential.allSatisfy({ settings.given($0) == nil }),
            try settings.appNames.isEmpty
        else { return nil }
        let topic =
            settings.text(.topic).flatMap { $0.split(separator: ",").first.map(String.init) } ?? "com.example.app"
        let what = jobsFrom == nil ? "the job is" : "the jobs are"
        printer.report([
            .init(
                .warning, "configuration",
                "no app is configured; \(what) checked as if there were an app, default, with the topic \(topic)")
        ])
        return AppConfiguration(name: "default", topic: topic, credential: .providerTokens([]))
    }

    private func checkWithoutApps(
        _ settings: Settings, _ example: AppConfiguration, _ printer: VerdictPrinter
    ) async throws {
        if let jobsFrom { return try await checkJobs(from: jobsFrom, settings, [example]) }
        if !noRedis { try await checkRedis(settings, [], printer) }
        if let job {
            try await checkJobs(job, settings, [example], MultiThreadedEventLoopGroup.singleton.next(), printer)
        }
        if printer.hasFailed { throw ExitCode(1) }
    }

    private func jobCheck(_ settings: Settings, _ apps: [AppConfiguration], _ format: JobFormat) -> JobCheck {
        JobCheck(
            apps, format: format,
            maximumAttempts: settings.number(.maxAttempts) ?? RetryPolicy().maximumAttempts)
    }

    /// Counts the jobs of a list or a file that would be sent, sent differently, or not sent.
    private func checkJobs(from source: String, _ settings: Settings, _ apps: [AppConfiguration]) async throws {
        let jobs = JobsFrom(source, jobCheck(settings, apps, try QueueSettings(settings).firstFormat))
        let survey = try await jobs.read(settings, usesRedis: !noRedis)
        try SurveyReport(survey: survey, source: source).print(asJSON: json)
        if Interruption.isRequested {
            Terminal.note("interrupted; the other jobs were not read\n")
            throw ExitCode(130)
        }
        if survey.jobs == 0 {
            throw CommandFailure(.attention, "\(source == "-" ? "standard input" : source) contains no jobs")
        }
        if survey.notSent > 0 { throw ExitCode(ExitStatus.attention.rawValue) }
    }

    private func checkRedis(_ settings: Settings, _ apps: [AppConfiguration], _ printer: VerdictPrinter) async throws {
        let place: RedisTopology
        do { place = try RedisSettings(settings).topology() } catch let error as CommandFailure {
            return printer.report([.init(.failure, "redis", error.message)])
        }
        var isFirst = true
        // Queues on the same server share its findings.
        var reported: Set<String> = []
        for queue in try QueueSettings(settings).all() {
            do {
                try await CommandRedis(settings).withClient(for: queue.keys.jobs) { client in
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
        let keys = RedisSettings(settings).sharedKeys
        for app in apps {
            try await CommandRedis(settings).withClient(for: keys.appPaused(app.name)) { client in
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
        let check = jobCheck(settings, apps, try QueueSettings(settings).all().first?.format ?? .native)
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

    /// Returns the jobs in a file: one job that can span several lines, or else one job per line.
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
