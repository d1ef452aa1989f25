import Foundation
import Synchronization
import TestSupport

/// The workers: a fixed number of places, with a changing process in each.
final class Fleet: Sendable {
    /// The starts and ends of all processes.
    struct History: Sendable {
        var started = 0
        var killed = 0
        /// The accounts of the workers that ended properly.
        var accounts: [WorkerProcess.Account] = []
        /// Processes that ended unexpectedly or with a wrong status, with the end of their log.
        var problems: [String] = []
        /// The number of lines of each level in all logs.
        var logLines: [String: Int] = [:]
    }

    /// A worker's place, with its own connections to Redis and to APNs, clock and configuration.
    struct Place: Sendable {
        let redis: FaultProxy?
        let apns: FaultProxy
        let clock: TestClock
        let settings: WorkerSettings
        /// The pipe for the logs; `nil` for files.
        let logs: StalledPipe?
    }

    let places: [Place]
    private let queue: HotQueue
    private let redisURL: String
    private let lease: Int
    private let logs: URL?
    private let workers: Mutex<[WorkerProcess?]>
    private let draining = Mutex<[Task<Void, Never>]>([])
    private let history = Mutex(History())

    /// - Parameters:
    ///   - redisURL: for workers without a proxy of their own.
    ///   - logs: the directory for the workers' logs; `nil` to discard them.
    init(places: [Place], queue: HotQueue, redisURL: String, lease: Int, logs: URL?) {
        self.places = places
        self.queue = queue
        self.redisURL = redisURL
        self.lease = lease
        self.logs = logs
        workers = Mutex(Array(repeating: nil, count: places.count))
    }

    /// Starts a worker if there is none.
    func start(_ slot: Int) throws {
        guard worker(slot) == nil else { return }
        let place = places[slot]
        let redis = place.redis.map { "redis://127.0.0.1:\($0.port)" } ?? redisURL
        let process = try WorkerProcess(
            redis: redis, endpoint: place.apns.port,
            options: [
                // Every second worker has two lanes, as on machines with several cores.
                "--lanes", "\(1 + slot % 2)", "--max-connections", "2", "--max-streams", "200",
                "--request-timeout", "3000", "--max-attempts", "1000", "--retry-base", "200", "--retry-cap", "3000",
                "--drain-timeout", "5000", "--lease", "\(lease)", "--config", place.settings.file,
                "--queue", queue.names.joined(separator: ","),
            ],
            environment: place.settings.environment.merging(place.clock.environment) { $1 }, logsTo: place.logs)
        workers.withLock { $0[slot] = process }
        history.withLock { $0.started += 1 }
    }

    func kill(_ slot: Int) {
        guard let process = take(slot) else { return }
        // If the worker has ended by itself, this end is reported.
        guard process.process.ending == nil else { return ended(process, slot, by: nil) }
        process.process.kill()
        history.withLock { $0.killed += 1 }
        keepLog(process, slot)
    }

    /// Replaces a worker's credentials, and makes the worker load them.
    func rotateCredentials(_ slot: Int) throws {
        try places[slot].settings.rotate()
        send(SIGHUP, to: slot)
    }

    /// Gives all workers the configuration at the end of an upgrade.
    func completeUpgrade() throws {
        for slot in places.indices {
            try places[slot].settings.complete()
            send(SIGHUP, to: slot)
        }
    }

    func send(_ signal: Int32, to slot: Int) { worker(slot)?.process.send(signal) }

    /// Ends a worker with SIGTERM, and starts another in its place at once.
    func replace(_ slot: Int) throws {
        end(slot)
        try start(slot)
    }

    /// Ends a worker with SIGTERM; ``waitForEnds()`` waits for its end.
    func end(_ slot: Int) {
        guard let process = take(slot) else { return }
        let task = Task { [self] in
            do {
                let account = try await process.stop()
                history.withLock { $0.accounts.append(account) }
            } catch {
                guard !Self.endedBeforeItBegan(process) else { return }
                history.withLock { $0.problems.append("a worker did not end as it should: \(error)") }
            }
            keepLog(process, slot)
        }
        draining.withLock { $0.append(task) }
    }

    /// Waits for all processes that got SIGTERM.
    func waitForEnds() async {
        let tasks = draining.withLock { tasks in
            defer { tasks = [] }
            return tasks
        }
        for task in tasks { await task.value }
    }

    /// Records workers that have ended by themselves, and starts others in their places.
    func look() throws {
        for slot in places.indices {
            guard let process = worker(slot), let ending = process.process.ending else { continue }
            _ = take(slot)
            if !Self.endedBeforeItBegan(process) { ended(process, slot, by: ending) }
            try start(slot)
        }
    }

    /// True for a worker that got SIGHUP or SIGTERM before it could handle them.
    private static func endedBeforeItBegan(_ process: WorkerProcess) -> Bool {
        [.signalled(SIGHUP), .signalled(SIGTERM)].contains(process.process.ending) && process.log.isEmpty
    }

    var story: History { history.withLock { $0 } }

    private func worker(_ slot: Int) -> WorkerProcess? { workers.withLock { $0[slot] } }

    private func take(_ slot: Int) -> WorkerProcess? {
        workers.withLock { workers in
            defer { workers[slot] = nil }
            return workers[slot]
        }
    }

    private func ended(_ process: WorkerProcess, _ slot: Int, by ending: ChildProcess.Ending?) {
        let how = ending.map { "\($0)" } ?? "by itself"
        history.withLock { $0.problems.append("\(process.process.failure("worker \(slot) ended: \(how)"))") }
        keepLog(process, slot)
    }

    private func keepLog(_ process: WorkerProcess, _ slot: Int) {
        let log = process.log
        history.withLock { history in
            for line in log.split(separator: "\n") {
                let words = line.split(separator: " ", maxSplits: 2)
                if words.count > 1 { history.logLines[String(words[1]), default: 0] += 1 }
            }
        }
        guard let logs else { return }
        let name = "worker-\(slot)-\(process.process.processIdentifier).log"
        try? Data(log.utf8).write(to: logs.appending(path: name))
    }
}
