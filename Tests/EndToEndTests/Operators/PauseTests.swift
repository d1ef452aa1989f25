import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Pausing and resuming a queue")
    struct PauseTests {
        private static func command(_ arguments: String..., redis: RedisServer) async throws -> String {
            let result = try await redis.apnsWorker(arguments).succeeds()
            return result.output
        }

        @Test(
            "a paused queue sends nothing, whether the worker starts before or after, and everything once resumed",
            arguments: [true, false])
        func pause(isRunningBefore: Bool) async throws {
            let (redis, simulator) = try await startServers()
            var worker: WorkerProcess?
            if isRunningBefore {
                worker = try WorkerProcess(redis, simulator)
                try redis.push(TestJob.many(1, prefix: "f"))
                try await eventually("the worker is at work") { try redis.counted("delivered") == 1 }
            }
            let output = try await Self.command("pause", "--reason", "the \u{1B}[1mmoon\nis full", redis: redis)
            #expect(output.hasPrefix("queue default is paused: the [1mmoonis full\n") && !output.contains("\u{1B}"))
            try redis.push(TestJob.many(20))
            if worker == nil { worker = try WorkerProcess(redis, simulator) }
            let before = try redis.scriptCalls()
            try await eventually("the worker has looked again and again") { try redis.scriptCalls() >= before + 4 }
            let queue = try QueueContents(redis)
            #expect(queue.jobs.count + queue.claims == 20)
            #expect(try await simulator.account().accepted == (isRunningBefore ? 1 : 0))

            let resumed = try await Self.command("resume", redis: redis)
            #expect(resumed.hasPrefix("queue default is resumed; it was paused: the [1mmoonis full, since 20"))
            let running = try #require(worker)
            try await eventually("all are delivered") {
                try redis.counted("delivered") == (isRunningBefore ? 21 : 20)
            }
            try await redis.apnsWorker(["resume"]).fails(1).prints("queue default was not paused\n")
            expectAgreement(try await running.stop(), try QueueContents(redis), try await simulator.stop())
        }

        @Test("only the named queue is paused")
        func otherQueue() async throws {
            let redis = try RedisServer()
            let output = try await Self.command(
                "pause", "--queue", "bulk", "--prefix", "p", "--reason", "too much", redis: redis)
            #expect(output.hasPrefix("queue bulk is paused: too much\n"))
            #expect(output.contains("  apns-worker resume --queue bulk --redis \(redis.url) --prefix p\n"))
            let keys = try redis.run("KEYS", "*").elements?.compactMap(\.text).sorted()
            #expect(keys == ["p:{bulk}:paused", "p:{shared}:audit"])
            #expect(
                try await Self.command("resume", "--queue", "bulk", "--prefix", "p", redis: redis)
                    .hasPrefix("queue bulk is resumed; it was paused: too much"))
        }
    }
}
