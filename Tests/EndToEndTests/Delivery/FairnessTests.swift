import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Shares of tenants")
    struct FairnessTests {
        /// Returns the number of notifications of a campaign that were delivered.
        private static func delivered(_ campaign: String, _ redis: RedisServer) throws -> Int {
            try redis.connect().run("HGET", "push:{default}:campaign:\(campaign)", "delivered").number ?? 0
        }

        private static func jobs(_ tenant: String, _ numbers: Range<Int>, _ members: String = "") -> [String] {
            numbers.map {
                TestJob.text(
                    TestJob.token(tenant, $0),
                    #""id":"\#(tenant)\#($0)","fair":"\#(tenant)","campaign":"\#(tenant)",\#(members)"#)
            }
        }

        /// Returns the first digits of the tokens of a recording, in its order.
        private static func order(_ record: URL) throws -> [UInt8] {
            let text = try Data(contentsOf: record)
            var (order, start) = ([UInt8](), 0)
            while let end = text.end(of: #""token":""#, from: start) {
                order.append(text[end])
                start = end
            }
            return order
        }

        @Test("a small tenant does not wait for the 100,000 jobs of another before it in the list")
        func smallTenant() async throws {
            let redis = try RedisServer()
            let record = redis.directory.appending(path: "record")
            let simulator = try await SimulatorProcess(
                manyTokens: true, options: ["--delay", "20ms±5ms", "--record", record.path])
            let (large, small) = (100_000, 200)
            try redis.push(Self.jobs("a", 0..<large))
            let worker = try WorkerProcess(
                redis, simulator, ["--lanes", "1", "--max-connections", "1", "--max-streams", "200"])
            // The small tenant's jobs come one after the other while the large tenant's are sent.
            for number in 0..<20 {
                try await eventually("the next of the large tenant are delivered") {
                    try Self.delivered("a", redis) > number * 1000
                }
                try redis.push(Self.jobs("b", number * 10..<(number + 1) * 10))
            }
            try await eventually("the small tenant's are delivered") { try Self.delivered("b", redis) == small }
            _ = try await worker.stop()
            let accepted = try await simulator.stop()
            #expect(accepted.duplicates == 0)

            let order = try Self.order(record)
            let last = try #require(order.lastIndex(of: UInt8(ascii: "b")))
            #expect(order.count { $0 == UInt8(ascii: "b") } == small)
            let before = order[..<last].count { $0 == UInt8(ascii: "a") }
            #expect(
                before < large / 2, "\(before) of the large tenant's were sent before the last one of the small tenant")
            // Nothing is lost when jobs are sorted and released.
            let waiting = try ["LLEN jobs", "LLEN inbox", "ZCARD sorted", "ZCARD retry"].map { text in
                let parts = text.split(separator: " ").map(String.init)
                return try redis.connect().run(parts[0], "push:{default}:\(parts[1])").number ?? 0
            }
            #expect(accepted.accepted + waiting.reduce(0, +) == large + small, "\(waiting)")
        }

        @Test("urgent jobs are sent before thousands of others that wait in their queue")
        func urgent() async throws {
            let redis = try RedisServer()
            let record = redis.directory.appending(path: "record")
            let simulator = try await SimulatorProcess(options: ["--delay", "20ms±5ms", "--record", record.path])
            let others = (0..<10_000).map { TestJob.text(TestJob.token("a", $0)) }
            try redis.push(others + [TestJob.text(TestJob.token("b", 0), #""urgent":true,"#)])
            // The queue sorts its jobs after the first urgent one; this one is sent in the order of the list.
            try redis.run("LPUSH", "push:{default}:jobs", TestJob.text(TestJob.token("b", 1), #""urgent":true,"#))
            let worker = try WorkerProcess(
                redis, simulator,
                ["--lanes", "1", "--max-connections", "1", "--max-streams", "100", "--exit-when-done"])
            #expect(try await worker.finish().delivered == 10_002)
            _ = try await simulator.stop()
            let order = try Self.order(record)
            let last = try #require(order.lastIndex(of: UInt8(ascii: "b")))
            #expect(last < 5000, "it was sent after \(last) others")
            #expect(try redis.connect().run("EXISTS", "push:{default}:sorted", "push:{default}:jobs").number == 0)
        }

        @Test("fair_per_second applies to all workers together, and not to the jobs of other keys")
        func rate() async throws {
            let (redis, simulator) = try await startServers()
            let workers = try (0..<2).map { _ in try WorkerProcess(redis, simulator) }
            let start = ContinuousClock.now
            try redis.push(
                Self.jobs("a", 0..<40, #""fair_per_second":10,"#) + Self.jobs("b", 0..<200)
                    + Self.jobs("c", 0..<20, #""fair_per_second":1000,"#))
            try await eventually("those of other keys are delivered") {
                try Self.delivered("b", redis) == 200 && Self.delivered("c", redis) == 20
            }
            let early = try Self.delivered("a", redis)
            // The first is sent at once.
            #expect(early <= Int((ContinuousClock.now - start) / .milliseconds(100)) + 2)
            try await eventually("all are delivered") { try Self.delivered("a", redis) == 40 }
            // Permits for a tenth of a second may have accumulated.
            #expect(ContinuousClock.now - start >= .milliseconds(3700))
            #expect(try redis.counted("deferred:FairLimited") >= 30)
            for worker in workers { _ = try await worker.stop() }
            let accepted = try await simulator.stop()
            #expect(accepted.accepted == 260 && accepted.duplicates == 0)
        }

        @Test("a job with fair_per_second and without fair is refused")
        func withoutKey() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, ["--exit-when-done"])
            try redis.push([TestJob.text(TestJob.token("a", 1), #""fair_per_second":10,"#)])
            try await eventually("it is a dead letter") { try QueueContents(redis).dead.count == 1 }
            #expect(try QueueContents(redis).dead.first?.reason == "MissingFair")
            _ = try await worker.stop()
            try await redis.apnsWorker([
                "enqueue", "--token", TestJob.token("a", 2), "--alert", "x", "--fair-per-second", "10",
            ]).fails(64, "--fair-per-second needs --fair")
        }
    }
}
