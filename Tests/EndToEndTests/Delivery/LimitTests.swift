import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Limits and shares")
    struct LimitTests {
        @Test("a throttled device waits, and so do its later notifications; other devices do not")
        func throttled() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=7,answer=429,retry-after=3,times=1"])
            let worker = try WorkerProcess(redis, simulator)
            let device = TestJob.token("7", 1)
            try redis.push([TestJob.text(device, #""id":"first","#)])
            try await redis.has(1, "retried:TooManyRequests")
            try redis.push(
                (0..<4).map { TestJob.text(device, #""id":"next-\#($0)","#) }
                    + [TestJob.fanOut([device, TestJob.token("b", 1)])] + TestJob.many(100, prefix: "a"))
            try await redis.has(101)
            let queue = try QueueContents(redis)
            #expect(queue.count("deferred:Throttled") == 5)
            let due = queue.retries.map(\.due)
            #expect(due.count == 6 && due == due.sorted() && Set(due).count == 6)
            let ids = queue.retries.map { String(decoding: $0.body, as: UTF8.self) }
            for (body, id) in zip(ids, ["first", "next-0", "next-1", "next-2", "next-3"]) {
                #expect(body.contains(#""id":"\#(id)""#))
            }
            try await redis.has(107)
            let account = try await worker.stop()
            // APNs refused the first notification once. Before the retry, the device got no other notification.
            let requests = try await simulator.stop()
            #expect(requests.answers["429 TooManyRequests"] == 1 && requests.requests == 108)
            #expect(account.retried == 1 && account.dead == 0)
        }

        @Test("an app's rate applies to all lanes of all workers, and each gets its share")
        func rate() async throws {
            let (redis, simulator) = try await startServers()
            try redis.push(TestJob.many(600))
            let start = ContinuousClock.now
            let workers = try (0..<2).map { _ in
                try WorkerProcess(redis, simulator, ["--lanes", "2", "--max-per-second", "100"])
            }
            try await redis.has(600)
            // The worker may begin with permits for a tenth of a second.
            #expect(ContinuousClock.now - start >= .milliseconds(5800))
            var accounts: [WorkerProcess.Account] = []
            for worker in workers { accounts.append(try await worker.stop()) }
            #expect(accounts.allSatisfy { $0.delivered >= 100 }, "\(accounts.map(\.delivered))")
            #expect(try await simulator.stop().accepted == 600)
        }

        /// Returns how many notifications of a campaign were delivered.
        private static func delivered(_ campaign: String, _ redis: RedisServer) throws -> Int {
            try redis.connect().run("HGET", "push:{default}:campaign:\(campaign)", "delivered").number ?? 0
        }

        private static func jobs(_ tenant: String, _ numbers: Range<Int>) -> [String] {
            numbers.map {
                TestJob.text(
                    TestJob.token(tenant, $0),
                    #""id":"\#(tenant)\#($0)","fair":"\#(tenant)","campaign":"\#(tenant)","#)
            }
        }

        /// Returns the first digit of each token in a recording, in its order.
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
            // The small tenant enqueues jobs while the large tenant's are sent.
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
            // No job is lost when the worker sorts jobs and releases them.
            let waiting = try ["LLEN jobs", "LLEN inbox", "ZCARD sorted", "ZCARD retry"].map { text in
                let parts = text.split(separator: " ").map(String.init)
                return try redis.connect().run(parts[0], "push:{default}:\(parts[1])").number ?? 0
            }
            #expect(accepted.accepted + waiting.reduce(0, +) == large + small, "\(waiting)")
        }
    }
}
