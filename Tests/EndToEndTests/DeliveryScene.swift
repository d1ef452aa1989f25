import Foundation
import TestSupport
import Testing

/// A Redis, a simulated APNs, and the workers between them.
struct DeliveryScene {
    let redis: RedisServer
    let simulator: SimulatorProcess

    init(rules: [String] = [], options: [String] = []) async throws {
        (redis, simulator) = try await startServers(rules: rules, simulator: options)
    }

    func worker(_ options: [String] = [], environment: [String: String] = [:]) throws -> WorkerProcess {
        try WorkerProcess(redis, simulator, options, environment: environment)
    }

    /// The variables of an app with a key.
    var environment: [String: String] {
        get throws {
            [
                "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)",
                "APNS_WORKER_CA": try TestCertificates.path("ca.pem"),
                "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
                "APNS_WORKER_TEAM_ID": "TEAM123456", "APNS_WORKER_TOPIC": "com.example.app",
            ]
        }
    }

    /// Runs a worker until the queue is empty.
    func finish(_ options: [String] = [], environment: [String: String] = [:]) async throws -> WorkerProcess.Account {
        try await worker(["--exit-when-done"] + options, environment: environment).finish()
    }
}

extension RedisServer {
    /// Waits until this many notifications of the default queue have an outcome.
    func has(
        _ count: Int, _ outcome: String = "delivered", file: StaticString = #fileID, line: UInt = #line
    ) async throws {
        try await eventually("\(count) are counted as \(outcome)", file: file, line: line) {
            try QueueContents(self).count(outcome) == count
        }
    }

    /// Runs a command of `apns-worker` that exits with 0.
    @discardableResult
    func output(
        of arguments: [String], environment: [String: String] = [:], sourceLocation: SourceLocation = #_sourceLocation
    ) async throws -> String {
        let result = try await apnsWorker(arguments, environment: environment)
        #expect(result.ending == .exited(0), "\(arguments): \(result.errors)", sourceLocation: sourceLocation)
        return result.output
    }
}
