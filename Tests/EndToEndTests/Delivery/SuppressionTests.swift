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

        @Test("are not sent to and are counted, unless they are invalid only for another topic or environment")
        func suppressed() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=dead,answer=410"])
            let tokens = (0..<300).map { TestJob.token("dead", $0) }
            let marks = try redis.invalidTokens()
            for token in tokens { try marks.add(token, token.hasSuffix("7") ? nil : Self.details()) }
            let others = (0..<4).map { TestJob.token("cd", $0) }
            let details = [
                Self.details(topic: "com.example.other"), Self.details(environment: "sandbox"), Self.details(),
                Self.details(topic: nil),
            ]
            for (token, details) in zip(others, details) { try marks.add(token, details) }
            // Each token is one of many in a job.
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
            // APNs accepts two other tokens of the app's topic.
            #expect(queue.invalidTokens == Set(tokens + others[2...]))
        }

        private static func members(_ redis: RedisServer, _ suffix: String = "") throws -> Set<String> {
            Set(try redis.run("SMEMBERS", "push:{shared}:invalid-tokens" + suffix).strings())
        }

        @Test("get pushes for the topic of the app after a refusal for another topic")
        func otherTopics() async throws {
            let devices = (0..<20).map { TestJob.token("aa", $0) }
            let (redis, simulator) = try await startServers(
                simulator: devices.flatMap { ["--device", "token=\($0),topic=com.example.app"] })
            let calls = #""push_type":"voip","#
            let refused = Array(devices.prefix(5))
            // Good tokens come first, because a refusal is believed only if APNs accepts other tokens of the topic.
            try redis.push(TestJob.many(60, prefix: "bb", members: calls) + devices.map { TestJob.text($0) })
            let first = try WorkerProcess(redis, simulator, ["--exit-when-done"])
            #expect(try await first.finish().delivered == 80)
            try redis.push(TestJob.many(60, prefix: "bc", members: calls) + refused.map { TestJob.text($0, calls) })
            let second = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            #expect(second.delivered == 60 && second.invalidToken == 5)
            #expect(try Self.members(redis).isEmpty && Self.members(redis, ":other") == Set(refused))
            // The worker sends the alerts, but not the calls.
            try redis.push(devices.map { TestJob.text($0) } + refused.map { TestJob.text($0, calls) })
            let third = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            #expect(third.delivered == 20 && third.suppressed == 5)
            try await redis.apnsWorker(["invalid", "export"]).prints("")
            let listed = try await redis.apnsWorker(["invalid", "list", "--json"]).objects
            #expect(listed.count == 5 && listed.allSatisfy { $0["set"] == nil })
            try await redis.apnsWorker(["device", refused[0]]).shows(
                "com.example.app.voip", "only for this topic")
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
