import Foundation
import PushQueue
import TestSupport
import Testing

/// A worker that is sending many jobs when its Redis fails.
struct OutageScene {
    let redis: RedisServer
    let simulator: SimulatorProcess
    let worker: WorkerProcess
    let count: Int

    /// Waits until a tenth of the jobs are delivered.
    /// - Parameters:
    ///   - count: the number of jobs, each with one token.
    ///   - arguments: the arguments of the server.
    ///   - options: the options of the worker, in addition to those that keep 200 notifications in flight.
    init(count: Int = 4000, arguments: [String] = [], options: [String] = []) async throws {
        self.count = count
        let redis = try RedisServer(arguments: arguments)
        self.redis = redis
        simulator = try await SimulatorProcess(options: ["--delay", "60ms±40ms"])
        try redis.push(TestJob.many(count))
        worker = try Self.worker(redis, simulator, options)
        try await eventually("it is at work") { try redis.counted("delivered") > count / 10 }
    }

    /// Starts a worker with the options of the scene's worker.
    static func worker(
        _ redis: RedisServer, _ simulator: SimulatorProcess, _ options: [String] = [],
        environment: [String: String] = [:]
    ) throws -> WorkerProcess {
        try WorkerProcess(
            redis, simulator, ["--max-connections", "1", "--max-streams", "200", "--exit-when-done"] + options,
            environment: environment)
    }

    /// Waits until the queue is empty, and expects that each job was delivered exactly once, that all accounts agree, and that the log
    /// has few lines.
    func finishWithoutDuplicates(sourceLocation: SourceLocation = #_sourceLocation) async throws {
        let account = try await worker.finish()
        let queue = try QueueContents(redis)
        let accepted = try await simulator.stop()
        expectAgreement(account, queue, accepted, sourceLocation: sourceLocation)
        #expect(account.delivered == count && queue.dead.isEmpty, sourceLocation: sourceLocation)
        #expect(accepted.accepted == count && accepted.duplicates == 0, sourceLocation: sourceLocation)
        worker.expectComplaints(1...3, sourceLocation: sourceLocation)
    }
}

extension SimulatorProcess {
    /// Waits until no request has arrived for 250 ms, which is longer than any answer takes here.
    /// - Returns: the number of requests.
    @discardableResult
    func isQuiet(after least: Int = 0) async throws -> Int {
        var (requests, since) = (-1, ContinuousClock.now)
        try await eventually("no more than \(least) requests come") {
            let now = try await account().requests
            if now != requests { (requests, since) = (now, .now) }
            return requests >= least && ContinuousClock.now - since > .milliseconds(250)
        }
        return requests
    }
}

extension WorkerProcess {
    /// The lines of warnings and errors, except those about the configuration of the tests' Redis.
    var complaints: [String] {
        log.split(separator: "\n").filter { line in
            (line.contains(" warning ") || line.contains(" error "))
                && !QueueServer.Finding.Kind.allCases.contains { line.contains(" event=\($0.rawValue)") }
        }.map(String.init)
    }

    /// Expects few warnings and errors, and few notices that a problem has ended.
    func expectComplaints(_ count: ClosedRange<Int>, sourceLocation: SourceLocation = #_sourceLocation) {
        let lines = log.split(separator: "\n")
        #expect(
            count.contains(complaints.count), "\(complaints.joined(separator: "\n"))", sourceLocation: sourceLocation)
        let relief = lines.filter { $0.contains(" notice ") }
        #expect(
            relief.count <= max(count.upperBound, 1), "\(relief.joined(separator: "\n"))",
            sourceLocation: sourceLocation)
    }
}

extension RedisServer {
    /// Returns a counter of the default queue, summed over all days.
    func counted(_ field: String) throws -> Int {
        let connection = try connect()
        return try connection.run("KEYS", "push:{default}:stats:*").strings().reduce(0) { sum, key in
            sum + (try connection.run("HGET", key, field).number ?? 0)
        }
    }
}
