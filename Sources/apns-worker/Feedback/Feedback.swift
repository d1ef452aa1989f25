import APNS
import ArgumentParser
import FoundationEssentials
import Glibc
import LegacyAPNS
import Logging
import NIOCore
import Operations
import PushJob
import PushQueue
import Redis
import ServiceLifecycle
import Synchronization
import Telemetry

struct Feedback: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "feedback",
        abstract: "Fetch invalid tokens from feedback services, once or periodically.",
        discussion: """
            Reads the feedback service of each app that has a certificate, all at the same time, and adds the tokens to the set of \
            invalid tokens. Tokens whose devices have registered since are skipped.

              apns-worker feedback                      (once, for cron)
              apns-worker feedback --interval 1h        (until SIGTERM)
              apns-worker feedback --list | jq .token
              apns-worker feedback --exec 'jq -r .token >> gone'

            A feedback service forgets the records that it has sent, so there is no dry run. A service is read only while Redis \
            accepts writes. Each record is on disk, in the file --spill, until Redis has it. After a crash, or if Redis accepts \
            nothing for --redis-patience, the next run writes the file's records first. A kill can lose the records that the \
            process has not read from the kernel: up to about 7,000 for each app.

            The JSON lines of --list, --exec and --spill have: token, at (ms since 1970), app, topic, environment, source \
            (feedback), and outcome: added, known (already in the set), registered_since (skipped) or not_written. After a \
            crash, --list and --exec may get a record twice.

            The exit status is 0 if all services were read to the end and all records were written, 1 if something failed, and \
            78 if the settings are wrong. Apps do not affect each other.
            """)

    @OptionGroup(title: "Redis") var redis: SettingFlags<FeedbackRedisFlags>
    @OptionGroup(title: "App") var settings: SettingFlags<WorkerFlags<AppFlags>>
    @OptionGroup(title: "Binary gateway (--transport gateway)") var gateway: SettingFlags<WorkerFlags<GatewayFlags>>

    @Option(help: "App. Repeatable. (default: all apps with a certificate)")
    var app: [String] = []

    @OptionGroup var service: SettingFlags<FeedbackFlags>

    @Option(
        help: "Repeat at this interval, such as 1h. The first run starts within a tenth of it, and within a minute.")
    var interval: String?

    @Option(help: "Maximum records per write to Redis.")
    var batch = 1000

    @Option(help: "Maximum time in which a service sends nothing and does not close the connection.")
    var timeout = "60s"

    @Option(help: "Maximum time to wait for Redis.")
    var redisPatience = "5m"

    @Option(
        help: """
            File for records that Redis does not have yet. With -, no file is used: records that Redis does not accept are printed \
            on standard error, and a kill loses those in memory. (default: feedback.ndjson in $STATE_DIRECTORY, or in \
            ~/.local/state/apns-worker)
            """)
    var spill: String?

    @Option(
        help: """
            Read no service; write the records of this file (see --spill) to Redis instead. - is standard input. Repeating it is \
            harmless.
            """)
    var from: String?

    @Flag(help: "Print each record as a line of JSON.")
    var list = false

    @Option(
        help:
            "Shell command that reads the records on standard input, one line of JSON each. Started with the first record."
    )
    var exec: String?

    @Option(
        help: ArgumentHelp(
            """
            Variable that the command of --exec inherits, in addition to PATH, HOME, LANG and TZ. Repeatable. Settings of \
            apns-worker cannot be inherited, because they include passwords and keys.
            """, valueName: "name"))
    var execEnv: [String] = []

    @Flag(help: "Print the result as a JSON object, one per run.")
    var json = false

    @Option(
        help: ArgumentHelp(
            "\(Setting.logLevel.help) At debug: connections, batches and results. (\(Setting.logLevel.variable); default: info)",
            valueName: "level"))
    var logLevel: String?

    @Flag(help: "Print nothing for apps without feedback.")
    var quiet = false

    func validate() throws {
        guard (1...10_000).contains(batch) else { throw ValidationError("--batch must be 1 to 10000") }
        if list, json { throw ValidationError("--list and --json cannot be combined") }
        if from != nil, list || exec != nil || interval != nil || spill != nil || !app.isEmpty {
            throw ValidationError("--from cannot be combined with --list, --exec, --interval, --spill and --app")
        }
        if let exec, exec.allSatisfy(\.isWhitespace) { throw ValidationError("--exec is empty") }
        if exec == nil, !execEnv.isEmpty { throw ValidationError("--exec-env needs --exec") }
        if let own = execEnv.first(where: { $0.hasPrefix(Setting.variablePrefix) }) {
            throw ValidationError("--exec-env \(own): settings of apns-worker are not passed to the command of --exec")
        }
        if let odd = execEnv.first(where: { $0.isEmpty || $0.contains("=") }) {
            throw ValidationError("--exec-env must be the name of a variable, not '\(odd)'")
        }
    }

    private func duration(_ text: String, _ flag: String) throws -> TimeAmount {
        .milliseconds(Int64(try DurationText.option(text, flag, 1...30 * 86_400)))
    }

    private func allSettings() throws -> Settings {
        try redis.settings(
            settings.given, gateway.given, service.given, logLevel.map { [.logLevel: $0] } ?? [:])
    }

    func run() async throws {
        // If the reader of standard output closes it, the process must survive to store the records.
        _ = signal(SIGPIPE, SIG_IGN)
        let (silence, patience) = (
            try duration(timeout, "--timeout"), try duration(redisPatience, "--redis-patience")
        )
        let interval = try interval.map { try duration($0, "--interval") }
        let all = try allSettings()
        let choices = from == nil ? try FeedbackApp.choose(app, all) : []
        let redis = try CommandRedis(all, as: "apns-worker:feedback")
        let place = RedisSettings(all)
        let spill = try openSpill("\(redis.topology) and the prefix \(place.prefix)")
        let writer = InvalidTokenClient.start(
            topology: redis.topology, keys: place.sharedKeys, maximumAge: place.invalidTokenAge,
            configuration: redis.configuration, logger: redis.logger)
        let level = SharedLogLevel(all.text(.logLevel).flatMap(Logger.Level.init(rawValue:)) ?? .info)
        let logger = Logger(
            label: "apns-worker",
            factory: LogOutput.standardError(.auto, environment: ProcessInfo.processInfo.environment).handlers(level))
        let context = FeedbackDrain.Context(
            writer: writer, spill: spill, batch: batch, silence: silence, redisPatience: patience, logger: logger)
        let service = FeedbackService(choices, self, context, every: interval)
        let group = ServiceGroup(
            configuration: .init(
                services: [.init(service: service, successTerminationBehavior: .gracefullyShutdownGroup)],
                gracefulShutdownSignals: [.sigterm, .sigint], logger: redis.logger))
        try await group.run()
        await writer.close()
        if service.hasFailed.load(ordering: .relaxed) { throw ExitCode(1) }
    }

    /// - Parameter destination: the Redis that gets the records.
    private func openSpill(_ destination: String) throws -> FeedbackSpill {
        guard from == nil, spill != "-" else { return FeedbackSpill() }
        let path = if let spill { spill } else { try FeedbackSpill.defaultPath(ProcessInfo.processInfo.environment) }
        return try FeedbackSpill(path: path, redis: destination)
    }
}

/// Reads the feedback services once, or periodically until the process receives a signal to end.
final class FeedbackService: Service {
    private let choices: [FeedbackApp.Choice]
    private let options: Feedback
    private let context: FeedbackDrain.Context
    private let interval: TimeAmount?
    /// True if the last round failed.
    let hasFailed = Atomic(false)

    init(
        _ choices: [FeedbackApp.Choice], _ options: Feedback, _ context: FeedbackDrain.Context,
        every interval: TimeAmount?
    ) {
        (self.choices, self.options, self.context, self.interval) = (choices, options, context, interval)
    }

    func run() async throws {
        let stop = context.stop
        try await withGracefulShutdownHandler {
            guard options.from == nil, let interval else { return try await ask() }
            var schedule = FeedbackSchedule(interval: interval, now: .now(), random: Double.random(in: 0..<1))
            while true {
                let pause = schedule.next - .now()
                await cancelWhenGracefulShutdown {
                    do {
                        try await Task.sleep(for: .nanoseconds(max(0, pause.nanoseconds)))
                    } catch {
                        // Cancelled, because the process must end.
                    }
                }
                if stop.isStopped { break }
                try await ask()
                schedule.finished(now: .now())
            }
        } onGracefulShutdown: {
            stop.stop()
        }
    }

    private func ask() async throws {
        var context = context
        context.progress = FeedbackProgress()
        let patience = Duration.nanoseconds(context.silence.nanoseconds)
        if options.list {
            context.outputs.list = LineOutput(
                STDOUT_FILENO, closesDescriptor: false, patience: patience, stop: context.stop)
        }
        context.outputs.command = options.exec.map {
            ExecCommand($0, variables: options.execEnv, patience: patience, stop: context.stop)
        }
        let report: FeedbackRoundReport
        if let path = options.from {
            var file = FeedbackFile(path, context)
            report = FeedbackRoundReport(apps: [await file.run()])
        } else {
            report = await round(context)
        }
        hasFailed.store(!report.isGood, ordering: .relaxed)
        try printReport(report)
    }

    /// Writes the records that an earlier run left in the spill file to Redis. Then reads the feedback services of all apps once,
    /// concurrently, so that a slow one does not delay the others.
    private func round(_ context: FeedbackDrain.Context) async -> FeedbackRoundReport {
        var report = FeedbackRoundReport(apps: [])
        if await context.spill.hasLeftovers, let path = context.spill.path {
            var file = FeedbackFile(path, context)
            report.apps.append(await file.run())
            if report.isGood { await context.spill.leftoversAreWritten() }
        }
        // If the leftovers were not written, the services are not read, so they keep their records.
        if report.isGood { report.apps += await drainAll(context) }
        report.exec = await context.outputs.command?.finish()
        if let list = context.outputs.list, let failure = await list.failure {
            report.listError = "standard output: \(failure); \(await list.lostLines) records are not listed"
        }
        return report
    }

    private func drainAll(_ context: FeedbackDrain.Context) async -> [FeedbackReport] {
        let showsProgress = !options.quiet && !options.json && isatty(STDERR_FILENO) == 1
        let drawing = showsProgress ? Task { await draw(context.progress) } : nil
        let reports = await withTaskGroup(of: (Int, FeedbackReport).self) { group in
            for (index, choice) in choices.enumerated() {
                group.addTask {
                    switch choice.app {
                    case .failure(let error):
                        var report = FeedbackReport(app: choice.name)
                        report.error = error.message
                        return (index, report)
                    case .success(let app):
                        var drain = FeedbackDrain(app, context)
                        return (index, await drain.run())
                    }
                }
            }
            return await group.reduce(into: []) { $0.append($1) }
        }
        drawing?.cancel()
        await drawing?.value
        return reports.sorted { $0.0 < $1.0 }.map(\.1)
    }

    private func draw(_ progress: FeedbackProgress) async {
        var drawn = ""
        while !Task.isCancelled {
            let apps = choices.count == 1 ? choices[0].name : "\(choices.count) apps"
            let line = "\(apps): \(progress.records) records read"
            if line != drawn { Terminal.note("\r\(line)\u{1B}[K") }
            drawn = line
            do { try await Task.sleep(for: .milliseconds(100)) } catch { break }
        }
        Terminal.note("\r\u{1B}[K")
    }

    private func printReport(_ report: FeedbackRoundReport) throws {
        for app in report.apps {
            if let error = app.error { Terminal.note("\(app.app): FAILED: \(error)\n") }
        }
        if let error = report.exec?.error { Terminal.note("--exec: FAILED: \(error)\n") }
        if let error = report.listError { Terminal.note("--list: FAILED: \(error)\n") }
        if options.json {
            if !options.quiet || report.apps.contains(where: \.isEventful) { print(try report.json()) }
        } else {
            for app in report.apps
            where app.records > 0 || app.incompleteBytes > 0 || (app.error == nil && !options.quiet) {
                // With --list, standard output is for the records.
                if options.list { Terminal.note("\(app.line)\n") } else { print(app.line) }
            }
        }
    }
}
