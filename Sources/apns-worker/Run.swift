import APNS
import ArgumentParser
import FoundationEssentials
import Logging
import PushQueue
import PushWorker
import ServiceLifecycle
import Telemetry

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

struct Run: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Work: take jobs from the queue and send them, until told to stop.",
        discussion: """
            SIGTERM or SIGINT (Ctrl-C) drains: nothing more is taken, what is under way is finished, the rest goes back to \
            the queue, and the exit status is 0.

            Each setting can be given by its flag or by the environment variable in brackets; the flag wins.

            For several apps, APNS_WORKER_APPS names them (shop,news), and each has its own settings in variables such as \
            APNS_WORKER_APPS_SHOP_TOPIC; what it has not, it takes from the common ones. Jobs choose one by `app` or by \
            their `topic`.

            For development, --simulate brings an APNs simulator along, which needs no credential and sends to no device:

              apns-worker run --simulate
            """)

    @OptionGroup(title: "Queues") var queues: QueuesOptions
    @OptionGroup(title: "App") var app: AppOptions
    @OptionGroup(title: "Without APNs") var simulate: SimulateOptions

    @Option(help: "Event loops that work, 0 for one a core. (APNS_WORKER_LANES; default 0)")
    var lanes: Int?

    @Option(
        help: "The first retry's longest pause, in ms; it doubles each time. (APNS_WORKER_RETRY_BASE; default 1000)")
    var retryBase: Int?

    @Option(help: "The longest pause between retries, in ms. (APNS_WORKER_RETRY_CAP; default 600000)")
    var retryCap: Int?

    @Option(help: "Attempts of a job that names no number. (APNS_WORKER_MAX_ATTEMPTS; default 10)")
    var maxAttempts: Int?

    @Option(
        help: """
            How long an app that APNs refuses is paused before the first probe, in ms; it doubles each time. \
            (APNS_WORKER_PAUSE; default 15000)
            """)
    var pause: Int?

    @Option(help: "The longest pause between probes, in ms. (APNS_WORKER_PAUSE_CAP; default 300000)")
    var pauseCap: Int?

    @Option(help: "How long a drain may take, in ms. (APNS_WORKER_DRAIN_TIMEOUT; default 25000)")
    var drainTimeout: Int?

    @Option(help: "How long claims stay a silent worker's own, in ms. (APNS_WORKER_LEASE; default 30000)")
    var lease: Int?

    @Option(help: "trace, debug, info, notice, warning or error. (APNS_WORKER_LOG_LEVEL; default info)")
    var logLevel: String?

    @Option(
        help: """
            text for people, json for programs, journal for systemd's, or auto for what fits standard error. \
            (APNS_WORKER_LOG_FORMAT; default auto)
            """)
    var logFormat: String?

    @Option(
        help: """
            How often the log has a line about what was done, in ms; 0 for never. (APNS_WORKER_LOG_SUMMARY; default 60000)
            """)
    var logSummary: Int?

    @OptionGroup(title: "Results") var results: ResultsOptions

    @Flag(help: "Exit when the queue has no jobs, retries or claims any more.")
    var exitWhenDone = false

    @Flag(help: "Show a progress bar on the terminal.")
    var progress = false

    @Option(help: "At the end, write what this process did to a file, as JSON.")
    var account: String?

    func run() async throws {
        let credentials = try simulate.credentials()
        var configuration = try workerConfiguration(simulated: credentials)
        let logger = try makeLogger()
        var services: [ServiceGroupConfiguration.ServiceConfiguration] = []
        var simulation: Simulation?
        if let credentials {
            let started = try await Simulation.start(simulate, credentials, for: configuration.apps, logger: logger)
            configuration.apps = configuration.apps.map { started.directed($0) }
            services.append(.init(service: started))
            simulation = started
        }
        let worker = Worker(configuration: configuration, logger: logger, wallClock: { Int64(time(nil)) })
        services.append(.init(service: worker, successTerminationBehavior: .gracefullyShutdownGroup))
        if exitWhenDone || progress {
            services.append(
                .init(
                    service: await QueueWatch(
                        configuration: configuration, worker: worker, showsProgress: progress,
                        stopsWhenDone: exitWhenDone),
                    successTerminationBehavior: .gracefullyShutdownGroup))
        }
        let group = ServiceGroup(
            configuration: .init(
                services: services, gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
        try await group.run()
        if let account { try await Account(counters: worker.counters()).write(to: account) }
        // It was told when it happened; whoever looks at the status only must not take the recording for whole.
        if let simulation, !simulation.hasRecordedAll { throw ExitCode.failure }
    }

    private func workerConfiguration(simulated: SimulatedCredentials?) throws -> WorkerConfiguration {
        var worker = WorkerConfiguration(
            redis: try queues.redis.topology(), queues: try queues.queues(),
            sharedKeys: SharedKeys(prefix: queues.redis.keyPrefix),
            apps: try app.apps(simulated: simulated),
            workerName: Self.uniqueName())
        worker.redisClient = try queues.redis.clientConfiguration()
        worker.queueOrder = try queues.order()
        worker.lanes = try Setting.number(lanes, "APNS_WORKER_LANES", in: 0...256) ?? 0
        if let base = try Setting.number(retryBase, "APNS_WORKER_RETRY_BASE", in: 1...3_600_000) {
            worker.retry.base = Int64(base)
        }
        if let cap = try Setting.number(retryCap, "APNS_WORKER_RETRY_CAP", in: 1...86_400_000) {
            worker.retry.cap = Int64(cap)
        }
        worker.retry.maximumAttempts =
            try Setting.number(maxAttempts, "APNS_WORKER_MAX_ATTEMPTS", in: 1...1000) ?? worker.retry.maximumAttempts
        if let pause = try Setting.number(pause, "APNS_WORKER_PAUSE", in: 100...3_600_000) {
            worker.appPause.first = Int64(pause)
        }
        if let cap = try Setting.number(pauseCap, "APNS_WORKER_PAUSE_CAP", in: 100...86_400_000) {
            worker.appPause.longest = Int64(cap)
        }
        worker.drainTimeout =
            try Setting.number(drainTimeout, "APNS_WORKER_DRAIN_TIMEOUT", in: 0...3_600_000) ?? worker.drainTimeout
        if let interval = try Setting.number(logSummary, "APNS_WORKER_LOG_SUMMARY", in: 0...86_400_000) {
            worker.summaryInterval = interval
        }
        try results.apply(to: &worker.queueLimits)
        // The blocking wait lasts five seconds, and a lease must outlive it.
        worker.queueLimits.lease =
            try Setting.number(lease, "APNS_WORKER_LEASE", in: 7000...3_600_000) ?? worker.queueLimits.lease
        return worker
    }

    private func makeLogger() throws -> Logger {
        let text = Setting.text(logLevel, "APNS_WORKER_LOG_LEVEL") ?? "info"
        guard let level = Logger.Level(rawValue: text.lowercased()) else {
            let known = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
            throw ValidationError("APNS_WORKER_LOG_LEVEL (or --log-level) is \(text); it has to be one of \(known)")
        }
        let formatText = Setting.text(logFormat, "APNS_WORKER_LOG_FORMAT") ?? LogFormat.auto.rawValue
        guard let format = LogFormat(rawValue: formatText.lowercased()) else {
            let known = LogFormat.allCases.map(\.rawValue).joined(separator: ", ")
            throw ValidationError(
                "APNS_WORKER_LOG_FORMAT (or --log-format) is \(formatText); it has to be one of \(known)")
        }
        return Logger(
            label: "apns-worker",
            factory: LineLogHandler.standardError(
                format, level: SharedLogLevel(level), environment: ProcessInfo.processInfo.environment))
    }

    /// A name that no other process has, nor this one after a restart.
    private static func uniqueName() -> String {
        var host = [CChar](repeating: 0, count: 256)
        gethostname(&host, host.count - 1)
        let bytes: [UInt8] = host.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }.filter { byte in
            let isAlphanumeric = byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26
            return isAlphanumeric || byte == 0x2D || byte == 0x2E
        }
        let suffix = String(UInt32.random(in: .min ... .max), radix: 16)
        return "\(String(decoding: bytes, as: UTF8.self)).\(getpid()).\(suffix)"
    }
}
