import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Known invalid tokens")
    struct SuppressionTests {
        private static func details(
            topic: String? = "com.example.app", environment: String? = nil
        ) -> StoredInvalidToken {
            .init(at: 1, reason: "Unregistered", topic: topic, environment: environment, source: "apns")
        }

        private static func mark(_ token: String, _ details: StoredInvalidToken?, _ redis: RedisServer) throws {
            try redis.invalidTokens().add(token, details)
        }

        @Test("are not sent to and are counted, unless they are invalid only for another topic or environment")
        func suppressed() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=dead,answer=410"])
            let tokens = (0..<300).map { TestJob.token("dead", $0) }
            for token in tokens { try Self.mark(token, token.hasSuffix("7") ? nil : Self.details(), redis) }
            let others = (0..<4).map { TestJob.token("cd", $0) }
            for (token, details) in zip(
                others,
                [
                    Self.details(topic: "com.example.other"), Self.details(environment: "sandbox"), Self.details(),
                    Self.details(topic: nil),
                ])
            { try Self.mark(token, details, redis) }
            // One of many tokens of a job.
            let fannedOut = (0..<20).map { number in
                TestJob.fanOut([tokens[number].uppercased(), TestJob.token("c", number), tokens[number + 20], "x"])
            }
            try redis.push((tokens + others).map { TestJob.text($0) } + TestJob.many(300, prefix: "a") + fannedOut)
            let account = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            let (queue, simulated) = (try QueueContents(redis), try await simulator.stop())
            expectAgreement(account, queue, simulated)
            #expect(account.suppressed == 300 + 40 + 2)
            #expect(account.delivered == 300 + 20 + 2 && account.dead == 20 && account.invalidToken == 0)
            #expect(simulated.requests == 322)
            #expect(Set(simulated.acceptedByToken.keys).isSuperset(of: others[..<2]))
            #expect(queue.invalidTokens.subtracting(others) == Set(tokens))
        }

        @Test("a set that cannot be read delays nothing and is logged")
        func unreadable() async throws {
            let redis = try RedisServer()
            try redis.run("SET", "push:{shared}:invalid-tokens", "something else")
            let simulator = try await SimulatorProcess()
            try redis.push(TestJob.many(100))
            let worker = try WorkerProcess(redis, simulator, ["--exit-when-done"])
            #expect(try await worker.finish().delivered == 100)
            #expect(
                worker.lines(of: "redis_refused").contains {
                    $0.contains("Redis answered: WRONGTYPE push:{shared}:invalid-tokens")
                }, "\(worker.log)")
        }
    }
}
