import Foundation
import TestSupport
import Testing

/// The output of `apns-worker status --json`.
struct FleetView: Decodable {
    struct Problem: Decodable {
        let kind, severity, subject, message, advice: String
    }

    struct Pause: Decodable {
        let reason: String
        let since: Int64?
        let by: String?
    }

    struct Server: Decodable {
        let address: String
        let queues: [String]
        let full: Bool
        let version, role, eviction_policy, writes_refused, error: String?
        let used_memory_bytes, max_memory_bytes: Int?
        let append_only: Bool?
    }

    struct Queue: Decodable {
        let name: String
        let waiting, due, claimed, dead, dead_bytes, workers: Int
        let oldest_age_ms: Int64?
        let paused: Pause?
        let today, dead_reasons: [String: Int]
        let error: String?
    }

    struct Worker: Decodable {
        let name, host, version, state, redis: String
        let pid, lanes, lanes_total, in_flight, claimed, done: Int
        let queues, not_ready: [String]
        let started_at, updated_at: Int64?
        let lease_left_ms: Int64
    }

    struct App: Decodable {
        let name, state: String
        let endpoints: [String]
        let paused: Pause?
        let connections, lanes, lanes_slow: Int
        let failure: String?
    }

    let at: Int64
    let redis, prefix: String
    let problems: [Problem]
    let notes: [String]
    let servers: [Server]
    let queues: [Queue]
    let workers: [Worker]
    let apps: [App]
    let invalid_tokens: Int

    init(_ redis: String, _ options: String...) async throws {
        let result = try await apnsWorker(redis, ["status", "--json"] + options)
        guard result.ending == .exited(0) else {
            throw ChildProcess.Failure(description: "status: \(result.ending): \(result.errors)")
        }
        self = try JSONDecoder().decode(FleetView.self, from: Data(result.output.utf8))
    }

    func queue(_ name: String) throws -> Queue { try #require(queues.first { $0.name == name }) }

    func worker(_ process: WorkerProcess) -> Worker? {
        workers.first { $0.pid == Int(process.process.processIdentifier) }
    }

    /// The kind of each problem, with its queue, app or worker.
    var kinds: [String] { problems.map { "\($0.kind) \($0.subject)" } }
}
