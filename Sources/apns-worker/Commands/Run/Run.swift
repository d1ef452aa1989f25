import APNS
import ArgumentParser
import Dashboard
import Dispatch
import FoundationEssentials
import Glibc
import HTTPPort
import Logging
import PushQueue
import PushWorker
import ServiceLifecycle
import Sockets
import Telemetry
import UnixSignals

struct Run: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run",
        abstract: "Run a worker: claim jobs and send them until stopped.",
        discussion: """
            SIGTERM or SIGINT (Ctrl-C) drains: the worker claims no more jobs, finishes requests in flight, returns the rest to \
            the queue, and exits with 0. SIGTSTP (Ctrl-Z) makes it quiet: it claims no more jobs and keeps running; SIGCONT \
            resumes. `apns-worker stop` and `apns-worker quiet` do the same from another machine. SIGUSR1, SIGUSR2 and SIGALRM \
            are ignored, with a line in the log.

            Each setting can be a flag, the environment variable in parentheses, or in the file of --config. A flag overrides \
            a variable, and a variable overrides the file.

            For several apps, set APNS_WORKER_APPS=shop,news and each app's own settings, such as APNS_WORKER_APPS_SHOP_TOPIC. \
            An app without its own value uses the common one. A job names its app by `app` or by `topic`.

            For development, --simulate starts a simulated APNs in the worker. It needs no credential and sends to no device:

              apns-worker run --simulate
            """)

    @OptionGroup(title: "Queues") var queues: QueuesOptions
    @OptionGroup(title: "App") var app: AppOptions
    @OptionGroup(title: "Binary gateway (--transport gateway)") var gateway: SettingFlags<GatewayFlags>
    @OptionGroup(title: "Without APNs") var simulate: SimulateOptions
    @OptionGroup(title: "Work") var work: SettingFlags<WorkFlags>
    @OptionGroup(title: "Metrics and traces") var admin: SettingFlags<AdminFlags>

    @Option(
        help: ArgumentHelp(
            "Also serve the web dashboard on this port of 127.0.0.1; 0 chooses a free one. See `apns-worker web`.",
            valueName: "port"))
    var webPort: UInt16?

    @Flag(help: "Exit when the queue has no more jobs, retries or claims.")
    var exitWhenDone = false

    @Flag(help: "Show a progress bar; without a terminal, print a line every ten seconds.")
    var progress = false

    @Option(
        name: [.long, .customLong("account")], help: "Write statistics of this process to a file as JSON at the end.")
    var statsFile: String?

    func run() async throws {
        // From here on, SIGHUP does not end the process.
        let hangups = await UnixSignalsSequence(trapping: .sighup)
        let credentials = try simulate.credentials()
        let name = Self.uniqueName()
        let settings = try settings()
        let workerSettings = WorkerSettings(settings)
        var configuration = try workerSettings.configuration(named: name, simulated: credentials)
        let level = SharedLogLevel(settings.text(.logLevel).flatMap(Logger.Level.init(rawValue:)) ?? .info)
        let environment = ProcessInfo.processInfo.environment
        let output = LogOutput.standardError(
            settings.text(.logFormat).flatMap(LogFormat.init(rawValue:)) ?? .auto, environment: environment)
        let logger = Logger(label: "apns-worker", factory: output.handlers(level))
        for warning in settings.warnings { logger.warning("\(warning)", metadata: ["event": "secret_in_flag"]) }
        let exporter = try workerSettings.traceExporter(for: name, logger: logger)
        var services: [ServiceGroupConfiguration.ServiceConfiguration] = []
        var simulation: Simulation?
        if let credentials {
            let started = try await Simulation.start(
                simulate, credentials, for: configuration.apps, isForPeople: output.format == .text, logger: logger)
            started.report(ignored: try settings.replacedBySimulation(environment: environment))
            configuration.apps = configuration.apps.map { started.directed($0) }
            services.append(.init(service: started))
            simulation = started
        }
        let admin = workerSettings.adminAddress.map { Admin(address: $0, log: output, logger: logger) }
        let worker = Worker(
            configuration: configuration, logger: logger, isMeasured: admin != nil,
            version: WorkerVersion.current, spans: exporter?.spans, wallClock: { Int64(time(nil)) })
        if let exporter { services.insert(.init(service: exporter), at: 0) }
        // Services stop in reverse order. The admin port is the first, so it still answers while the worker stops.
        if let admin { services.insert(.init(service: try await admin.start(for: worker)), at: 0) }
        if let webPort {
            var web = try DashboardConfiguration(proxies: TrustedProxies())
            web.port = Int(webPort)
            web.inbox = simulation?.inbox
            let dashboard = try await ServedDashboard.start(web, settings, worker: name, logger: logger)
            simulation?.link(to: dashboard.address)
            Terminal.note("dashboard  \(dashboard.address)\n")
            services.append(.init(service: dashboard))
        }
        services.append(.init(service: WorkerSignals(worker, logger: logger)))
        let systemd = SystemdNotifier(worker, environment: environment, logger: logger)
        if let systemd { services.insert(.init(service: systemd), at: 0) }
        services.append(.init(service: worker, successTerminationBehavior: .gracefullyShutdownGroup))
        let reload = ConfigurationReload(
            worker, at: hangups, initial: settings, level: level, systemd: systemd, logger: logger
        ) { [self, simulation] in
            let settings = try self.settings()
            var configuration = try WorkerSettings(settings).configuration(named: name, simulated: credentials)
            if let simulation { configuration.apps = configuration.apps.map { simulation.directed($0) } }
            return (settings, configuration)
        }
        services.append(.init(service: reload))
        if exitWhenDone || progress {
            services.append(
                .init(
                    service: await QueueWatch(
                        configuration: configuration, worker: worker, showsProgress: progress,
                        stopsWhenDone: exitWhenDone),
                    successTerminationBehavior: .gracefullyShutdownGroup))
        }
        if let systemd { services.append(.init(service: StoppingNotice(notifier: systemd))) }
        var lifecycle = logger
        lifecycle[metadataKey: "event"] = "service_lifecycle"
        let group = ServiceGroup(
            configuration: .init(
                services: services, gracefulShutdownSignals: [.sigterm, .sigint], logger: lifecycle))
        try await group.run()
        if let statsFile { try Self.writeStatistics(await worker.counters(), to: statsFile) }
        // The failure was already logged, but scripts that check only the exit status must not assume a complete record.
        if let simulation, !simulation.hasRecordedAll { throw ExitCode.failure }
    }

    private func settings() throws -> Settings {
        try queues.settings(app.given, gateway.given, work.given, admin.given, isSimulated: simulate.isOn, warns: false)
    }

    /// Writes the work and the resource usage of this process as JSON.
    private static func writeStatistics(_ counters: LaneCounters, to path: String) throws {
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        let statistics = [
            "claimed_jobs": counters.claimedJobs, "submitted": counters.submitted,
            "delivered": counters[.delivered], "invalid_token": counters[.invalidToken],
            "suppressed": counters[.suppressed], "expired": counters[.expired], "dropped": counters[.dropped],
            "retried": counters.retried, "deferred": counters.deferred, "scheduled": counters.scheduled,
            "resent": counters.resent, "dead": counters[.dead],
            "possible_duplicates": counters.possibleDuplicates, "lost_claims": counters.lostClaims,
            // User and system time.
            "cpu_microseconds": (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1_000_000
                + Int(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec),
            "peak_memory_kib": usage.ru_maxrss,
        ]
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .prettyPrinted]
        do {
            try encoder.encode(statistics).write(to: URL(filePath: path))
        } catch {
            throw ValidationError("cannot write the statistics to \(path): \(error)")
        }
    }

    /// Returns a name that is unique among processes, also after a restart.
    private static func uniqueName() -> String {
        let bytes: [UInt8] = HostName.current.utf8.filter { byte in
            let isAlphanumeric = byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26
            return isAlphanumeric || byte == 0x2D || byte == 0x2E
        }
        let suffix = String(UInt32.random(in: .min ... .max), radix: 16)
        return "\(String(decoding: bytes, as: UTF8.self)).\(getpid()).\(suffix)"
    }
}

/// Makes a worker quiet at SIGTSTP, and lets it claim jobs again at SIGCONT. Ignores signals that other programs use as commands, because
/// they would end the process without a drain.
struct WorkerSignals: Service {
    private static let ignored = [(SIGUSR1, "SIGUSR1"), (SIGUSR2, "SIGUSR2"), (SIGALRM, "SIGALRM")]

    private let worker: Worker
    private let logger: Logger

    init(_ worker: Worker, logger: Logger) {
        self.worker = worker
        self.logger = logger
    }

    func run() async throws {
        // `source` ignores the signals. Otherwise SIGTSTP would stop the process, and its leases would expire. The kernel continues a
        // stopped process at SIGCONT even if SIGCONT is ignored.
        let commands = [(SIGTSTP, "SIGTSTP"), (SIGCONT, "SIGCONT")].map { number, name in
            Self.source(number) { [worker] in worker.setQuiet(number == SIGTSTP, because: name) }
        }
        let ignored = Self.ignored.map { number, name in
            Self.source(number) { [logger] in
                logger.warning(
                    "ignored \(name): SIGTERM drains, SIGTSTP makes the worker quiet, and SIGHUP reads the settings again",
                    metadata: ["event": "signal_ignored", "reason": "\(name)"])
            }
        }
        try? await gracefulShutdown()
        for source in commands + ignored { source.cancel() }
    }

    private static func source(
        _ number: Int32, _ handle: @escaping @Sendable () -> Void
    ) -> any DispatchSourceSignal {
        signal(number, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: number)
        source.setEventHandler(handler: handle)
        source.resume()
        return source
    }
}
