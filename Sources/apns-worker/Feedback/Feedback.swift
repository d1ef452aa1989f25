import APNS
import ArgumentParser
import FoundationEssentials
import Glibc
import Logging
import NIOCore
import PushJob
import PushQueue
import Redis
import ServiceLifecycle
import Synchronization
import Telemetry

struct Feedback: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Drain feedback services into the set of invalid tokens: once, or again and again.",
        discussion: """
            Asks the feedback service of each app that has a certificate, all at the same time, and writes the tokens it tells of \
            into the set of invalid tokens that workers do not send to. A token whose device is known to have registered since \
            is left out.

              apns-worker feedback                      (once, as for cron)
              apns-worker feedback --interval 1h        (goes on until SIGTERM)
              apns-worker feedback --list | jq .token
              apns-worker feedback --exec 'jq -r .token >> gone'

            A feedback service forgets what it has sent, so there is no dry run. A service is asked only if Redis accepts \
            writes. Each record is in the file --spill, on the disk, before it is written to Redis, and is removed from there \
            when Redis has it. If the process is killed, or if Redis accepts nothing for --redis-patience, the next run writes \
            the file's records to Redis before it asks a service. What the kernel has received and the process has not read \
            is lost if the process is killed: up to about 7,000 records for each app.

            A line of JSON, for --list, --exec and --spill, has: token, at (ms since 1970), app, topic, environment, source \
            (feedback), and outcome, which is added, known (it was in the set), registered_since (it was left out) or \
            not_written. After a kill, --list and --exec may get a record twice.

            The exit status is 0 if all services were read to their end and all was written, 1 if something failed, and 64 if the \
            settings are wrong. What one app's service does keeps no other from being drained.
            """)

    @OptionGroup(title: "Redis") var redis: RedisOptions
    @OptionGroup(title: "App") var settings: AppOptions
    @OptionGroup(title: "Binary gateway (--transport gateway)") var gateway: SettingFlags<GatewayFlags>

    @Option(help: "One of several apps; more than once for several. (default all that have a certificate)")
    var app: [String] = []

    @OptionGroup var service: SettingFlags<FeedbackFlags>

    @Option(help: "Go on, and ask so often, such as 1h; the first time within a tenth of that and a minute.")
    var interval: String?

    @Option(help: "Records that are written to Redis at once, at the most. (default 1000)")
    var batch = 1000

    @Option(help: "How long a service may send nothing without closing the connection. (default 60s)")
    var timeout = "60s"

    @Option(help: "How long Redis is waited for. (default 5m)")
    var redisPatience = "5m"

    @Option(
        help: """
            The file that holds records until Redis has them; - for none: then those that Redis does not accept are printed on \
            standard error, and a kill loses what Redis does not have yet. (default feedback.ndjson in $STATE_DIRECTORY, else \
            in ~/.local/state/apns-worker)
            """)
    var spill: String?

    @Option(
        help: """
            Ask no service, and write the records of such a file, or of such lines, to Redis; - for standard input. Writing \
            them again does no harm.
            """)
    var from: String?

    @Flag(help: "Print each record on standard output, a line of JSON each.")
    var list = false

    @Option(help: "A shell command to hand each record to, a line of JSON each; started when there is the first.")
    var exec: String?

    @Option(
        help: ArgumentHelp(
            """
            A variable that the command of --exec inherits, beside PATH, HOME, LANG and TZ; repeatable. None of apns-worker's \
            own settings can be: passwords and keys are among them.
            """, valueName: "name"))
    var execEnv: [String] = []

    @Flag(help: "Print what became of it as a JSON object, one a round.")
    var json = false

    @Option(
        help: ArgumentHelp(
            "\(Setting.logLevel.help) At debug: connections, batches and ends. (\(Setting.logLevel.variable); default: info)",
            valueName: "level"))
    var logLevel: String?

    @Flag(help: "Say nothing of apps that have no feedback.")
    var quiet = false

    func validate() throws {
        guard (1...10_000).contains(batch) else { throw ValidationError("--batch is a number from 1 to 10000") }
        if list, json { throw ValidationError("--list and --json would both write to standard output: leave one out") }
        if from != nil, list || exec != nil || interval != nil || spill != nil || !app.isEmpty {
            throw ValidationError("--from asks no service: leave out --list, --exec, --interval, --spill and --app")
        }
        if let exec, exec.allSatisfy(\.isWhitespace) { throw ValidationError("--exec names no command") }
        if exec == nil, !execEnv.isEmpty { throw ValidationError("--exec-env needs --exec") }
        if let own = execEnv.first(where: { $0.hasPrefix(Setting.variablePrefix) }) {
            throw ValidationError("--exec-env \(own): the command of --exec gets no setting of apns-worker")
        }
        if let odd = execEnv.first(where: { $0.isEmpty || $0.contains("=") }) {
            throw ValidationError("--exec-env takes the name of a variable, not '\(odd)'")
        }
    }

    private func duration(_ text: String, _ flag: String) throws -> TimeAmount {
        guard let seconds = JobDuration.seconds(text), (1...2_592_000).contains(seconds) else {
            throw ValidationError("\(flag) is a duration from 1s to 30d, such as 45s, 30m or 1h30m")
        }
        return .seconds(seconds)
    }

    private func allSettings() throws -> Settings {
        try redis.settings(
            settings.given, gateway.given, service.given, logLevel.map { [.logLevel: $0] } ?? [:])
    }

    func run() async throws {
        // A reader of standard output that has gone must not take the records along.
        _ = signal(SIGPIPE, SIG_IGN)
        let limits = (
            silence: try duration(timeout, "--timeout"), redis: try duration(redisPatience, "--redis-patience")
        )
        let interval = try interval.map { try duration($0, "--interval") }
        let all = try allSettings()
        let choices = from == nil ? try FeedbackApp.choose(app, all) : []
        let redis = try CommandRedis(all, as: "apns-worker:feedback")
        let spill = try openSpill("\(redis.topology) and the prefix \(all.keyPrefix)")
        let writer = InvalidTokenClient.start(
            topology: redis.topology, keys: all.sharedKeys, maximumAge: all.invalidTokenAge,
            configuration: redis.configuration, logger: redis.logger)
        let level = SharedLogLevel(all.text(.logLevel).flatMap(Logger.Level.init(rawValue:)) ?? .info)
        let logger = Logger(
            label: "apns-worker",
            factory: LineLogHandler.standardError(
                .auto, level: level, environment: ProcessInfo.processInfo.environment))
        let service = FeedbackService(
            choices: choices, options: self, writer: writer, spill: spill, limits: limits, interval: interval,
            logger: logger)
        let group = ServiceGroup(
            configuration: .init(
                services: [.init(service: service, successTerminationBehavior: .gracefullyShutdownGroup)],
                gracefulShutdownSignals: [.sigterm, .sigint], logger: redis.logger))
        try await group.run()
        await writer.close()
        if service.hasFailed.load(ordering: .relaxed) { throw ExitCode(1) }
    }

    /// - Parameter destination: where records are written to.
    private func openSpill(_ destination: String) throws -> FeedbackSpill {
        guard from == nil, spill != "-" else { return FeedbackSpill() }
        do throws(FeedbackSpill.Unusable) {
            let path =
                if let spill { spill } else { try FeedbackSpill.defaultPath(ProcessInfo.processInfo.environment) }
            return try FeedbackSpill(path: path, redis: destination)
        } catch {
            guard error.isBusy else { throw ValidationError("\(error)") }
            Terminal.tell("\(error)\n")
            throw ExitCode(1)
        }
    }
}

/// Asks once, or again and again, until the process is told to end.
private final class FeedbackService: Service {
    let choices: [FeedbackApp.Choice]
    let options: Feedback
    let writer: InvalidTokenClient
    let spill: FeedbackSpill
    let limits: (silence: TimeAmount, redis: TimeAmount)
    let interval: TimeAmount?
    let logger: Logger
    /// Whether the last round went wrong.
    let hasFailed = Atomic(false)

    init(
        choices: [FeedbackApp.Choice], options: Feedback, writer: InvalidTokenClient, spill: FeedbackSpill,
        limits: (silence: TimeAmount, redis: TimeAmount), interval: TimeAmount?, logger: Logger
    ) {
        self.choices = choices
        self.options = options
        self.writer = writer
        self.spill = spill
        self.limits = limits
        self.interval = interval
        self.logger = logger
    }

    func run() async throws {
        let stop = FeedbackStop()
        try await withGracefulShutdownHandler {
            if let path = options.from { return try await bringBack(path, stop) }
            guard let interval else { return try await ask(stop) }
            var schedule = FeedbackSchedule(interval: interval, now: .now(), random: Double.random(in: 0..<1))
            while true {
                let pause = schedule.next - .now()
                await cancelWhenGracefulShutdown {
                    do {
                        try await Task.sleep(for: .nanoseconds(max(0, pause.nanoseconds)))
                    } catch {
                        // The process is to end.
                    }
                }
                if stop.isStopped { break }
                try await ask(stop)
                schedule.finished(now: .now())
            }
        } onGracefulShutdown: {
            stop.stop()
        }
    }

    private func bringBack(_ path: String, _ stop: FeedbackStop) async throws {
        var file = FeedbackFile(path, context(FeedbackOutputs(list: nil, command: nil), stop))
        let report = FeedbackRoundReport(apps: [await file.run()])
        hasFailed.store(!report.isGood, ordering: .relaxed)
        try tell(report)
    }

    private func ask(_ stop: FeedbackStop) async throws {
        let patience = Duration.nanoseconds(limits.silence.nanoseconds)
        let outputs = FeedbackOutputs(
            list: options.list
                ? FeedbackOutput(STDOUT_FILENO, closesDescriptor: false, patience: patience, stop: stop) : nil,
            command: options.exec.map {
                FeedbackCommand($0, variables: options.execEnv, patience: patience, stop: stop)
            })
        let round = FeedbackRound(
            choices: choices, context: context(outputs, stop),
            showsProgress: !options.quiet && !options.json && isatty(STDERR_FILENO) == 1)
        let report = await round.run()
        hasFailed.store(!report.isGood, ordering: .relaxed)
        try tell(report)
    }

    private func context(_ outputs: FeedbackOutputs, _ stop: FeedbackStop) -> FeedbackDrain.Context {
        FeedbackDrain.Context(
            writer: writer, spill: spill, outputs: outputs, stop: stop, progress: FeedbackProgress(),
            batch: options.batch, silence: limits.silence, redisPatience: limits.redis, logger: logger)
    }

    private func tell(_ report: FeedbackRoundReport) throws {
        for app in report.apps {
            if let error = app.error { Terminal.tell("\(app.app): FAILED: \(error)\n") }
        }
        if let error = report.exec?.error { Terminal.tell("--exec: FAILED: \(error)\n") }
        if let error = report.listError { Terminal.tell("--list: FAILED: \(error)\n") }
        if options.json {
            if !options.quiet || report.apps.contains(where: \.isEventful) { print(try report.json()) }
        } else {
            for app in report.apps
            where app.records > 0 || app.incompleteBytes > 0 || (app.error == nil && !options.quiet) {
                // Standard output is the records' where they are listed.
                if options.list { Terminal.tell("\(app.line)\n") } else { print(app.line) }
            }
        }
        // A round's line is to be seen when it ends, also in a file.
        fflush(nil)
    }
}
