import Foundation
import Logging
import NIOCore
import NIOPosix
import Redis
import Synchronization

/// Pushes all jobs of one queue at a steady rate, each of them once, with as many attempts as needed.
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

        static func + (one: Self, other: Self) -> Self {
            Self(
                pushed: one.pushed + other.pushed, repeated: one.repeated + other.repeated,
                alreadyMade: one.alreadyMade + other.alreadyMade, lostByRedis: one.lostByRedis + other.lostByRedis)
        }
    }

    /// The end of the key of the batches that Redis has, so that a push whose answer was lost is not made twice. It is in the queue's slot.
    static let batches = "chaos"
    private static let script = """
        if redis.call('SADD', KEYS[2], ARGV[1]) == 0 then return 0 end
        if ARGV[2] ~= '0' then redis.call('HINCRBY', KEYS[3], 'total', ARGV[2]) end
        for i = 3, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
        return 1
        """
    private static let batch = 100

    private struct Refused: Error {}

    private let maker: JobMaker
    private let name: String
    /// The numbers of the queue's jobs: first those that are pushed while the faults occur, then those for the drain.
    private let numbers: [Int]
    private let regularCount: Int
    private let client: RedisClient
    private let replicas: Int
    private let progress = Mutex(Progress())

    /// - Parameter index: the number of the queue.
    init(_ maker: JobMaker, _ queue: HotQueue, _ index: Int, servers: any QueueServers) throws {
        self.maker = maker
        name = queue.names[index]
        numbers = queue.jobs(of: index, below: maker.count)
        regularCount = queue.jobs(of: index, below: maker.regularCount).count
        replicas = servers.replicasToWaitFor
        client = RedisClient(
            topology: try RedisTopology(url: servers.url), key: HotQueue.jobsKey(name),
            eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            logger: Logger(label: "producer", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
    }

    var soFar: Progress { progress.withLock { $0 } }

    /// The number of jobs that have not been pushed.
    var left: Int { numbers.count - soFar.pushed }

    /// Pushes all jobs within a time, or as soon after it as Redis accepts them.
    func run(within time: Duration) async throws {
        let start = ContinuousClock.now
        for batch in 0..<batches {
            let due = start + time * (Double(batch) / Double(batches))
            try await Task.sleep(until: due, clock: .continuous)
            try await push(batch)
        }
    }

    /// Checks, after the recovery, that Redis has all jobs that were pushed. Pushes missing jobs again.
    /// - Returns: true if no job was missing.
    func confirm() async throws -> Bool {
        var isComplete = true
        for batch in 0..<batches + soFar.pushed - regularCount {
            if try await isThere(batch) { continue }
            isComplete = false
            progress.withLock { $0.lostByRedis += 1 }
            try await push(batch)
            progress.withLock { $0.pushed -= jobs(of: batch).count }
        }
        return isComplete
    }

    /// Pushes the next job for the drain. There must be one.
    func pushOne() async throws { try await push(batches + soFar.pushed - regularCount) }

    func close() async throws { try await client.close().get() }

    /// Returns true if Redis has a batch. Repeats the command, because the last fault may have killed the connection.
    private func isThere(_ batch: Int) async throws -> Bool {
        let command = RedisCommand("SISMEMBER", batchesKey, "\(batch)")
        let deadline = ContinuousClock.now + .seconds(30)
        while true {
            do {
                return try await client.call(command).root.integer == 1
            } catch let error as RedisError where !error.isAnswer && ContinuousClock.now < deadline {
                try await Task.sleep(for: .milliseconds(50))
            }
        }
    }

    private var batchesKey: String { HotQueue.base(name) + Self.batches }

    private var batches: Int { (regularCount + Self.batch - 1) / Self.batch }

    /// The jobs for the drain are batches of one job.
    private func jobs(of batch: Int) -> ArraySlice<Int> {
        guard batch < batches else { return numbers.dropFirst(regularCount + batch - batches).prefix(1) }
        return numbers[batch * Self.batch..<min((batch + 1) * Self.batch, regularCount)]
    }

    private func push(_ batch: Int) async throws {
        let campaigned = jobs(of: batch).filter { maker.kind($0).isOfCampaign }
        let total = campaigned.reduce(0) { $0 + maker.notifications($1) }
        var command = RedisCommand(
            "EVAL", Self.script, "3", HotQueue.jobsKey(name), batchesKey, HotQueue.campaignKey(name), "\(batch)",
            "\(total)")
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
