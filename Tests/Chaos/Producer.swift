import Foundation
import Logging
import NIOCore
import NIOPosix
import Redis
import Synchronization

/// Pushes all jobs at a steady rate, each of them once, with as many attempts as needed.
final class Producer: Sendable {
    struct Progress: Sendable {
        /// Jobs that Redis has.
        var pushed = 0
        /// Pushes that were repeated because there was no answer or Redis refused.
        var repeated = 0
        /// Repeated pushes that had succeeded before.
        var alreadyMade = 0
        /// Pushes that Redis had confirmed and lost; they are made again.
        var lostByRedis = 0
    }

    /// The batches that Redis has, so that a push whose answer was lost is not made twice. In the queue's slot.
    static let batchesKey = "push:{default}:chaos"
    private static let jobsKey = "push:{default}:jobs"
    private static let script = """
        if redis.call('SADD', KEYS[2], ARGV[1]) == 0 then return 0 end
        for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
        return 1
        """
    private static let batch = 100

    private struct Refused: Error {}

    private let maker: JobMaker
    private let client: RedisClient
    private let replicas: Int
    private let progress = Mutex(Progress())

    init(_ maker: JobMaker, servers: any QueueServers) throws {
        self.maker = maker
        replicas = servers.replicasToWaitFor
        client = RedisClient(
            topology: try RedisTopology(url: servers.url), key: Self.jobsKey,
            eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            logger: Logger(label: "producer", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
    }

    var soFar: Progress { progress.withLock { $0 } }

    /// Pushes all jobs within a time, or as soon after it as Redis accepts them.
    func run(within time: Duration) async throws {
        let start = ContinuousClock.now
        for batch in 0..<batches {
            let due = start + time * (Double(batch) / Double(batches))
            try await Task.sleep(until: due, clock: .continuous)
            try await push(batch)
        }
    }

    /// Checks, when all has recovered, that Redis has all jobs, and pushes those that are missing.
    func confirm() async throws {
        for batch in 0..<batches {
            if try await isThere(batch) { continue }
            progress.withLock { $0.lostByRedis += 1 }
            try await push(batch)
            progress.withLock { $0.pushed -= jobs(of: batch).count }
        }
    }

    /// Pushes the next of the jobs that are for the drain.
    /// - Returns: false if all have been pushed.
    func pushOne() async throws -> Bool {
        let number = progress.withLock { $0.pushed }
        guard number < maker.count else { return false }
        try await push(batches + number - maker.regularCount)
        return true
    }

    func close() async throws { try await client.close().get() }

    /// Returns true if Redis has a batch. Repeats the command, because the last fault may have killed the connection.
    private func isThere(_ batch: Int) async throws -> Bool {
        let command = RedisCommand("SISMEMBER", Self.batchesKey, "\(batch)")
        let deadline = ContinuousClock.now + .seconds(30)
        while true {
            do {
                return try await client.call(command).root.integer == 1
            } catch let error as RedisError where !error.isAnswer && ContinuousClock.now < deadline {
                try await Task.sleep(for: .milliseconds(50))
            }
        }
    }

    private var batches: Int { (maker.regularCount + Self.batch - 1) / Self.batch }

    /// The jobs for the drain are batches of one job.
    private func jobs(of batch: Int) -> Range<Int> {
        guard batch < batches else {
            let number = maker.regularCount + batch - batches
            return number..<(number + 1)
        }
        return batch * Self.batch..<min((batch + 1) * Self.batch, maker.regularCount)
    }

    private func push(_ batch: Int) async throws {
        var command = RedisCommand("EVAL", Self.script, "2", Self.jobsKey, Self.batchesKey, "\(batch)")
        for number in jobs(of: batch) {
            let body = maker.body(number)
            for _ in 0..<maker.copies(number) { command.append(body) }
        }
        var mayHaveBeenMade = false
        while true {
            do {
                let made = try await acknowledged(command)
                progress.withLock { progress in
                    progress.pushed += jobs(of: batch).count
                    if !made, mayHaveBeenMade { progress.alreadyMade += 1 }
                }
                return
            } catch {
                mayHaveBeenMade = true
                progress.withLock { $0.repeated += 1 }
                try await Task.sleep(for: .milliseconds(50))
            }
        }
    }

    /// - Returns: true if the jobs were pushed now, and not before.
    private func acknowledged(_ command: RedisCommand) async throws -> Bool {
        let answer = try await client.call(command).root
        guard let made = answer.integer else { throw answer.error.map { $0 as any Error } ?? Refused() }
        if replicas > 0 {
            let reached = try await client.call(RedisCommand("WAIT", "\(replicas)", "1000")).root.integer ?? 0
            guard reached >= replicas else { throw Refused() }
        }
        return made == 1
    }
}
