import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// The effects of APNs' answers on jobs. The simulator's rules choose the answers.
    @Suite("Answers")
    struct AnswerTests {
        private struct Result {
            let redis: RedisServer
            let worker: WorkerProcess.Account
            let queue: QueueContents
            let simulator: SimulatorProcess.Account
        }

        private static func deliver(
            _ jobs: [String], rules: [String] = [], options: [String] = []
        ) async throws -> Result {
            let (redis, simulator) = try await startServers(rules: rules)
            try redis.push(jobs)
            let account = try await WorkerProcess(redis, simulator, ["--exit-when-done"] + options).finish()
            let (queue, seen) = (try QueueContents(redis), try await simulator.stop())
            expectAgreement(account, queue, seen)
            return Result(redis: redis, worker: account, queue: queue, simulator: seen)
        }

        @Test("invalid tokens are stored with their details and not sent to again")
        func invalidTokens() async throws {
            let (gone, bad) = (TestJob.token("dead", 1), TestJob.token("bad0", 2))
            let foreign = TestJob.token("f0", 3).uppercased()
            let before = Int64(Date().timeIntervalSince1970 * 1000)
            // BadDeviceToken is believed because APNs accepts other tokens of the topic.
            let jobs = [TestJob.token("a", 4), gone, bad].map { TestJob.text($0) }
            let others = [TestJob.token("a", 5), foreign].map { TestJob.text($0, #""topic":"com.example.other","#) }
            let result = try await Self.deliver(
                jobs + others,
                rules: [
                    "prefix=dead,answer=410,timestamp=1700000000123", "prefix=bad0,answer=BadDeviceToken",
                    "prefix=f0,answer=DeviceTokenNotForTopic",
                ])
            #expect(result.worker.invalidToken == 3 && result.worker.delivered == 2)
            // No token of the topic com.example.other is marked, because no app has this topic.
            #expect(result.queue.invalidTokens == [gone, bad])
            let details = result.queue.invalidTokenDetails
            let facts = details.mapValues { [$0.facts.reason, $0.facts.topic, $0.facts.source] }
            #expect(
                facts == [
                    gone: ["Unregistered", "com.example.app", "apns"],
                    bad: ["BadDeviceToken", "com.example.app", "apns"],
                    foreign.lowercased(): ["DeviceTokenNotForTopic", "com.example.other", "apns"],
                ])
            #expect(details[gone]?.at == 1_700_000_000_123)
            #expect(details[gone]?.facts.environment?.hasPrefix("localhost:") == true)
            #expect((before...Int64(Date().timeIntervalSince1970 * 1000)).contains(try #require(details[bad]?.at)))
        }

        @Test(
            "temporary failures are retried until they succeed",
            arguments: ["429", "500", "503", "503,retry-after=1", "502,body=text", "500,body=empty", "503,body=split"])
        func retried(_ answer: String) async throws {
            let result = try await Self.deliver(
                TestJob.many(4, prefix: "7") + TestJob.many(36, prefix: "a"),
                rules: ["prefix=7,answer=\(answer),times=2"])
            #expect(result.worker.delivered == 40 && result.worker.retried == 8)
            #expect(result.queue.count("retried") == 8)
            #expect(result.simulator.requests == 48 && result.simulator.duplicates == 0)
            #expect(result.simulator.distinctTokens == 40)
            #expect(result.worker.possibleDuplicates == 0)
        }

        @Test("tokens of any length arrive whole, are marked whole, and appear whole in the results")
        func longTokens() async throws {
            let tokens = [64, 160, 256, 512, 2048].map { String(repeating: "ab", count: $0 / 2) }
            let gone = "dead" + String(repeating: "cd", count: 254)
            // Each of these tokens is in the list several times, and gets one notification.
            let others = tokens.map { "cd" + $0.dropFirst(2) }
            let list = (others + others.map { $0.uppercased() }).map { "\"\($0)\"" }.joined(separator: ",")
            let result = try await Self.deliver(
                (tokens + [gone]).map { TestJob.text($0) } + [#"{"tokens":[\#(list)],"alert":"x"}"#],
                rules: ["prefix=dead,answer=410"], options: ["--results", "all"])
            #expect(result.worker.delivered == 10 && result.worker.invalidToken == 1 && result.queue.dead.isEmpty)
            #expect(Set(result.simulator.acceptedByToken.keys) == Set(tokens + others))
            #expect(result.queue.invalidTokens == [gone])
            #expect(Set(try storedResults(result.redis).compactMap { $0["token"] }) == Set(tokens + others + [gone]))
        }

        @Test("broken connections and streams lose nothing, and every possible duplicate is counted")
        func faults() async throws {
            var generator = SeededGenerator(seed: 3)
            let jobs =
                TestJob.many(2000, prefix: "a") + (["d0", "d1", "d2"].flatMap { TestJob.many(20, prefix: $0) })
                + (["d3", "d4"].flatMap { TestJob.many(5, prefix: $0) })
            let result = try await Self.deliver(
                jobs.shuffled(using: &generator),
                rules: [
                    "prefix=d0,times=2,answer=reset,code=REFUSED_STREAM",
                    "prefix=d1,times=1,answer=reset,code=INTERNAL_ERROR",
                    "prefix=d2,times=1,answer=reset,code=INTERNAL_ERROR,accept=true",
                    "prefix=d3,times=1,answer=drop,accept=true", "prefix=d4,times=1,answer=goaway,last-stream=accepted",
                    "after=300,streams=1,for=200ms",
                ],
                options: ["--max-attempts", "30"])
            #expect(result.worker.delivered == jobs.count)
            #expect(result.simulator.distinctIDs == jobs.count && result.simulator.distinctTokens == jobs.count)
            #expect(result.simulator.resets == 20 * 2 + 20 + 20)
            #expect(result.simulator.drops == 5 && result.simulator.goAways >= 5)
            #expect(result.simulator.duplicates >= 20 + 5)
        }
    }
}
