import APNS
import APNSSimulator
import ArgumentParser
import HTTPPort
import Logging
import PushWorker
import ServiceLifecycle

/// The APNs simulator inside a worker.
///
/// As a service it is started before the worker, so that it is available until the worker has drained.
struct Simulation: Service, CustomStringConvertible {
    private let server: APNSSimulatorServer
    private let credentials: SimulatedCredentials
    private let record: RecordFile?
    /// The task that prints a line for each notification; `nil` if no lines are wanted.
    private let lines: Task<Void, Never>?
    private let logger: Logger

    /// Starts the simulator, so that its ports are known.
    /// - Parameters:
    ///   - apps: the apps that will use it.
    ///   - isForPeople: true if people read standard error; the inbox's address and a line per notification are then printed.
    static func start(
        _ options: SimulateOptions, _ credentials: SimulatedCredentials, for apps: [AppConfiguration],
        isForPeople: Bool, logger: Logger
    ) async throws -> Simulation {
        let usesGateway = apps.contains(where: \.usesGateway)
        let faults = try options.faults(usesHTTP2: apps.contains { !$0.usesGateway }, usesGateway: usesGateway)
        var configuration = try credentials.simulator()
        configuration.rules = faults.http2
        if usesGateway {
            configuration.gatewayPort = 0
            configuration.feedbackPort = 0
            configuration.gatewayRules = faults.gateway
        }
        configuration.isInWorker = true
        configuration.controlPort = Int(options.controlPort ?? 0)
        do {
            let record = try options.record.map { path in
                try RecordFile(path: path) { logger.error("\($0)", metadata: ["event": "simulation_record_failed"]) }
            }
            let recorder = Recorder(file: record)
            configuration.recorder = recorder
            let server = try await APNSSimulatorServer.start(configuration)
            let hasLines = isForPeople && !options.noLines
            let lines = hasLines ? NotificationLines(recorder) { Terminal.note("\($0)\n") } : nil
            let simulation = Simulation(
                server: server, credentials: credentials, record: record,
                lines: lines.map { lines in Task { await lines.run() } },
                logger: logger)
            simulation.logStart()
            if isForPeople { Terminal.note("inbox  \(simulation.inbox)\n") }
            return simulation
        } catch let error as RecordFile.Failure {
            throw ValidationError("--simulate-record: \(error)")
        } catch let error as HTTPPortFailure {
            throw ValidationError("--simulate-control-port: \(error)")
        }
    }

    /// Returns an app's configuration with the simulator as its endpoint.
    func directed(_ app: AppConfiguration) -> AppConfiguration {
        var app = app
        app.endpoint = APNSEndpoint(
            host: "127.0.0.1", port: app.usesGateway ? server.gatewayPort ?? 0 : server.port)
        app.trust = credentials.trust
        app.proxy = nil
        return app
    }

    /// Makes the inbox link to a dashboard.
    func link(to dashboard: String) { server.setDashboard(dashboard) }

    /// The name in the log.
    var description: String { "the simulated APNs" }

    /// True if the file of `--simulate-record` contains everything that was received.
    var hasRecordedAll: Bool { record?.failure == nil }

    func run() async throws {
        // Cancellation ends the wait like a graceful shutdown.
        try? await gracefulShutdown()
        try await server.stop()
        lines?.cancel()
        await lines?.value
        let account = server.account
        var metadata: Logger.Metadata = ["event": "simulation_stopped", "accepted": "\(account.accepted)"]
        if server.gatewayPort != nil { metadata["by_gateway"] = "\(account.gateway.accepted)" }
        logger.notice("the simulated APNs has stopped; nothing was sent to any device", metadata: metadata)
    }

    /// Logs the start at any log level, because a simulation must not be mistaken for the real APNs.
    private func logStart() {
        var loudLogger = logger
        loudLogger.logLevel = min(logger.logLevel, .warning)
        var metadata: Logger.Metadata = ["event": "simulation_started", "apns": "127.0.0.1:\(server.port)"]
        if let port = server.controlPort { metadata["control"] = "127.0.0.1:\(port)" }
        metadata["inbox"] = "\(inbox)"
        if let port = server.gatewayPort { metadata["gateway"] = "127.0.0.1:\(port)" }
        if let port = server.feedbackPort { metadata["feedback"] = "127.0.0.1:\(port)" }
        loudLogger.warning(
            "simulating APNs: nothing is sent to any device; the inbox shows each push in a browser",
            metadata: metadata)
    }

    /// The address of the pages that show what was received.
    var inbox: String { "http://127.0.0.1:\(server.controlPort ?? 0)/" }

    /// Logs the settings that have no effect because they are for the real APNs.
    func report(ignored places: [String]) {
        guard !places.isEmpty else { return }
        logger.notice(
            "ignoring settings for the real APNs, because it is simulated",
            metadata: ["event": "simulation_ignored_settings", "settings": "\(places.joined(separator: ", "))"])
    }
}
