import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Known invalid tokens")
    struct SuppressionTests {
        private static func details(
            _ at: Int64, topic: String? = "com.example.app", environment: String? = nil
        ) -> StoredInvalidToken {
            .init(at: at, reason: "Unregistered", topic: topic, environment: environment, source: "apns")
        }

        private static func mark(_ token: String, _ details: StoredInvalidToken?, _ redis: RedisServer) throws {
            try redis.invalidTokens().add(token, details)
        }

        private static func run(
            _ redis: RedisServer, _ jobs: [String], rules: [String] = []
        ) async throws -> AnswerTests.Result {
            let simulator = try await SimulatorProcess(rules: rules)
            try redis.push(jobs)
            let worker = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            let result = AnswerTests.Result(
                worker: worker, queue: try QueueContents(redis), simulator: try await simulator.stop())
            expectAgreement(result.worker, result.queue, result.simulator)
            return result
        }

        @Test("are not sent to and are counted, as a job's only token or as one of many")
        func suppressed() async throws {
            let redis = try RedisServer()
            let tokens = (0..<300).map { TestJob.token("dead", $0) }
            for token in tokens { try Self.mark(token, token.hasSuffix("7") ? nil : Self.details(1), redis) }
            let fannedOut = (0..<20).map { number in
                let list = [tokens[number].uppercased(), TestJob.token("c", number), tokens[number + 20]]
                return #"{"tokens":["\#(list.joined(separator: #"",""#))","x"],"payload":{"aps":{"alert":"all"}}}"#
            }
            let result = try await Self.run(
                redis, tokens.map { TestJob.text($0) } + TestJob.many(300, prefix: "a") + fannedOut,
                rules: ["prefix=dead,answer=410"])
            #expect(result.worker.suppressed == 300 + 40)
            #expect(result.worker.delivered == 300 + 20 && result.worker.dead == 20 && result.worker.invalidToken == 0)
            #expect(result.simulator.requests == 320)
            #expect(result.queue.invalidTokens == Set(tokens))
        }

        @Test("are sent to if they are invalid only for another topic or environment")
        func elsewhere() async throws {
            let redis = try RedisServer()
            let tokens = (0..<4).map { TestJob.token("cd", $0) }
            try Self.mark(tokens[0], Self.details(1, topic: "com.example.other"), redis)
            try Self.mark(tokens[1], Self.details(1, environment: "sandbox"), redis)
            try Self.mark(tokens[2], Self.details(1), redis)
            try Self.mark(tokens[3], Self.details(1, topic: nil), redis)
            let result = try await Self.run(redis, tokens.map { TestJob.text($0) })
            #expect(result.worker.delivered == 2 && result.worker.suppressed == 2)
            #expect(Set(result.simulator.acceptedByToken.keys) == Set(tokens[..<2]))
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
                    $0.contains("Redis refuses invalid tokens: Redis answered: WRONGTYPE")
                }, "\(worker.log)")
        }
    }
}
