import APNS
import APNSSimulator
import ArgumentParser
import HTTPPort
import Logging
import PushWorker
import ServiceLifecycle

/// The APNs simulator that a worker brings with it.
///
/// As a service it stands before the worker, so that it is there until the worker has drained.
struct Simulation: Service, CustomStringConvertible {
    private let server: APNSSimulatorServer
    private let credentials: SimulatedCredentials
    private let record: RecordFile?
    private let logger: Logger

    /// Starts it, so that its ports are known.
    /// - Parameter apps: those that are going to use it.
    static func start(
        _ options: SimulateOptions, _ credentials: SimulatedCredentials, for apps: [AppConfiguration], logger: Logger
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
        configuration.controlPort = Int(options.controlPort ?? 0)
        do {
            let record = try options.record.map { path in
                try RecordFile(path: path) { logger.error("\($0)", metadata: ["event": "simulation_record_failed"]) }
            }
            configuration.recorder = Recorder(file: record)
            let server = try await APNSSimulatorServer.start(configuration)
            let simulation = Simulation(server: server, credentials: credentials, record: record, logger: logger)
            simulation.tellLoudly()
            return simulation
        } catch let error as RecordFile.Failure {
            throw ValidationError("--simulate-record: \(error)")
        } catch let error as HTTPPortFailure {
            throw ValidationError("--simulate-control-port: \(error)")
        }
    }

    /// The app, with all that it sends going to the simulator.
    func directed(_ app: AppConfiguration) -> AppConfiguration {
        var app = app
        app.endpoint = APNSEndpoint(
            host: "127.0.0.1", port: app.usesGateway ? server.gatewayPort ?? 0 : server.port)
        app.trust = credentials.trust
        app.proxy = nil
        return app
    }

    /// The name in the log.
    var description: String { "the simulated APNs" }

    /// True if the file of `--simulate-record` has all that was received.
    var hasRecordedAll: Bool { record?.failure == nil }

    func run() async throws {
        // Cancellation ends the wait as a graceful shutdown does.
        try? await gracefulShutdown()
        try await server.stop()
        let account = server.account
        var metadata: Logger.Metadata = ["event": "simulation_stopped", "accepted": "\(account.accepted)"]
        if server.gatewayPort != nil { metadata["by_gateway"] = "\(account.acceptedByGateway)" }
        logger.notice("the simulated APNs has stopped; nothing was sent to any device", metadata: metadata)
    }

    /// Whatever the log's level: nobody is to take it for the real thing.
    private func tellLoudly() {
        var loudLogger = logger
        loudLogger.logLevel = min(logger.logLevel, .warning)
        var metadata: Logger.Metadata = ["event": "simulation_started", "apns": "127.0.0.1:\(server.port)"]
        if let port = server.controlPort { metadata["control"] = "127.0.0.1:\(port)" }
        if let port = server.gatewayPort { metadata["gateway"] = "127.0.0.1:\(port)" }
        if let port = server.feedbackPort { metadata["feedback"] = "127.0.0.1:\(port)" }
        loudLogger.warning(
            """
            simulating APNs: nothing is sent to any device; http://127.0.0.1:\(server.controlPort ?? 0)/ shows what was \
            received, and what else it does
            """, metadata: metadata)
    }
}
