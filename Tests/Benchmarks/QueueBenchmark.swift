import ArgumentParser
import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis

/// A worker's calls to its queue in a real Redis: all the work on the event loop's thread.
enum QueueBenchmark {
    /// The number of jobs of a claim or a settlement.
    static let batch = 256

    /// - Returns: the costs of claiming a job and of settling one.
    static func run(_ sample: SampleJob, redis: String, batches: Int) async throws -> (Cost, Cost) {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let client = RedisClient(
            topology: try RedisTopology(url: redis), eventLoop: group.any(),
            logger: Logger(label: "bench", factory: { _ in SwiftLogNoOpLogHandler() }))
        client.start()
        try await client.waitUntilReady(timeout: .seconds(10))
        let keys = try QueueKeys(queue: "micro")
        try await fill(sample, count: (batches + 1) * batch, keys, client)
        let loop = group.any()
        let promise = loop.makePromise(of: (Cost, Cost).self)
        loop.execute {
            Round(client: client, keys: keys, batches: batches, promise: promise).claimBatch()
        }
        let costs = try await promise.futureResult.get()
        try await client.close().get()
        try await group.shutdownGracefully()
        return costs
    }

    private static func fill(_ sample: SampleJob, count: Int, _ keys: QueueKeys, _ client: RedisClient) async throws {
        for start in stride(from: 0, to: count, by: 1000) {
            var command = RedisCommand("RPUSH", expecting: 1001, bytes: 1000 * 512)
            command.append(keys.jobs)
            for number in start..<min(start + 1000, count) {
                command.append(sample.job(number: number, sent: 1_790_000_000_000_000))
            }
            _ = try await client.call(command, deadline: .seconds(30))
        }
    }

    /// Claims a batch and settles it, again and again. Belongs to the event loop.
    private final class Round {
        private let queue: QueueConnection
        private let promise: EventLoopPromise<(Cost, Cost)>
        private let batches: Int
        private var done = 0
        private var claim = Cost()
        private var settle = Cost()

        init(client: RedisClient, keys: QueueKeys, batches: Int, promise: EventLoopPromise<(Cost, Cost)>) {
            var limits = QueueLimits()
            limits.lease = 3_600_000
            queue = QueueConnection(
                client: client, keys: keys, worker: "bench", limits: limits)
            self.promise = promise
            self.batches = batches
        }

        func claimBatch() {
            let start = Usage.now()
            let first = done * batch + 1
            queue.claim(ClaimRequest(count: batch, first: first, join: done == 0)) { [self] result in
                switch result {
                case .success(let claimed) where claimed.bodies.count == batch:
                    // The first batch loads the scripts and warms up.
                    if done > 0 { claim.add(since: start, times: batch) }
                    settleBatch(first, claimed.stamp)
                case .success(let claimed):
                    promise.fail(ValidationError("a claim brought \(claimed.bodies.count) jobs, not \(batch)"))
                case .failure(let error): promise.fail(error)
                }
            }
        }

        private func settleBatch(_ first: Int, _ stamp: String) {
            let start = Usage.now()
            var settlement = Settlement()
            for number in first..<first + batch {
                settlement.end(ClaimID(number: number, stamp: stamp), .delivered)
            }
            queue.settle(settlement) { [self] result in
                switch result {
                case .success(let settled) where settled.lost > 0:
                    promise.fail(ValidationError("\(settled.lost) claims were lost"))
                case .success:
                    if done > 0 { settle.add(since: start, times: batch) }
                    done += 1
                    if done <= batches { claimBatch() } else { promise.succeed((claim, settle)) }
                case .failure(let error): promise.fail(error)
                }
            }
        }
    }
}
