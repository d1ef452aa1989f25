import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Pausing and resuming a queue")
    struct PauseTests {

        @Test(
            "a paused queue sends nothing, whether the worker starts before or after, and everything once resumed",
            arguments: [true, false])
        func pause(isRunningBefore: Bool) async throws {
            let (redis, simulator) = try await startServers()
            var worker: WorkerProcess?
            if isRunningBefore {
                worker = try WorkerProcess(redis, simulator)
                try redis.push(TestJob.many(1, prefix: "f"))
                try await redis.has(1)
            }
            try await redis.apnsWorker(["pause", "--reason", "the \u{1B}[1mmoon\nis full"]).succeeds()
                .begins("queue default is paused: the [1mmoonis full\n").lacks("\u{1B}")
            try redis.push(TestJob.many(20))
            if worker == nil { worker = try WorkerProcess(redis, simulator) }
            let before = try redis.scriptCalls()
            try await eventually("the worker has looked again and again") { try redis.scriptCalls() >= before + 4 }
            let queue = try QueueContents(redis)
            #expect(queue.jobs.count + queue.claims == 20)
            #expect(try await simulator.account().accepted == (isRunningBefore ? 1 : 0))

            try await redis.apnsWorker(["resume"]).succeeds().begins(
                "queue default is resumed; it was paused: the [1mmoonis full, since 20")
            let running = try #require(worker)
            try await redis.has((isRunningBefore ? 21 : 20))
            try await redis.apnsWorker(["resume"]).fails(1).prints("queue default was not paused\n")
            _ = try await redis.stop(running, simulator)
        }

        @Test("only the named queue is paused")
        func otherQueue() async throws {
            let redis = try RedisServer()
            let bulk = ["--queue", "bulk", "--prefix", "p"]
            try await redis.apnsWorker(["pause", "--reason", "too much"] + bulk).succeeds(
                "  apns-worker resume --queue bulk --redis \(redis.url) --prefix p\n"
            ).begins("queue bulk is paused: too much\n")
            let keys = try redis.run("KEYS", "*").elements?.compactMap(\.text).sorted()
            #expect(keys == ["p:{bulk}:paused", "p:{shared}:audit"])
            try await redis.apnsWorker(["resume"] + bulk).succeeds().begins(
                "queue bulk is resumed; it was paused: too much")
        }
    }
}
