import Foundation
import TestSupport

/// A worker with a configuration file.
final class FileWorker {
    let worker: WorkerProcess
    private let folder: TemporaryFolder

    init(
        _ redis: RedisServer, _ yaml: String, _ options: [String] = [], environment: [String: String] = [:]
    ) throws {
        folder = try TemporaryFolder(yaml)
        let none = ["APNS_WORKER_ENDPOINT": "", "APNS_WORKER_TOPIC": ""]
        worker = try WorkerProcess(
            redis: redis.url, endpoint: 1, options: ["--config", folder.file] + options,
            environment: none.merging(environment) { $1 })
    }

    func write(_ yaml: String) throws { try folder.write(yaml) }

    /// Writes the file, sends SIGHUP, and waits until the worker has loaded the file.
    func reload(_ yaml: String) async throws {
        let before = worker.lines(of: "configuration_reloaded").count
        try write(yaml)
        worker.process.send(SIGHUP)
        try await eventually("the configuration is loaded") {
            worker.lines(of: "configuration_reloaded").count > before
        }
    }
}
