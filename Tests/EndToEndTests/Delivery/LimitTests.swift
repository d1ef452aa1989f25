import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Limits")
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
            // The first was refused once, and nothing else was sent to the device before it.
            let requests = try await simulator.stop()
            #expect(requests.answers["429 TooManyRequests"] == 1 && requests.requests == 108)
            #expect(account.retried == 1 && account.dead == 0)
        }

        @Test("other workers also wait for a throttled device")
        func throttledElsewhere() async throws {
            let (redis, simulator) = try await startServers()
            let until = Int(Date().timeIntervalSince1970 * 1000) + 4000
            let device = TestJob.token("7", 1)
            try redis.run("ZADD", "push:{shared}:throttled-tokens", "\(until)", device)
            try redis.push([TestJob.text(device)] + TestJob.many(20, prefix: "a"))
            let account = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            #expect(Int(Date().timeIntervalSince1970 * 1000) >= until)
            #expect(account.delivered == 21 && account.deferred == 1)
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
            // Permits for a tenth of a second may have accumulated.
            #expect(ContinuousClock.now - start >= .milliseconds(5800))
            var accounts: [WorkerProcess.Account] = []
            for worker in workers { accounts.append(try await worker.stop()) }
            #expect(accounts.allSatisfy { $0.delivered >= 100 }, "\(accounts.map(\.delivered))")
            #expect(try await simulator.stop().accepted == 600)
        }

        @Test("the rate of one app does not slow another")
        func rateOfOne() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(
                redis, simulator,
                environment: BreakerTests.apps.merging(["APNS_WORKER_APPS_OTHER_MAX_PER_SECOND": "5"]) { $1 })
            try redis.push(BreakerTests.jobs(2000, "other", prefix: "b") + BreakerTests.jobs(2000, "good", prefix: "a"))
            try await eventually("the other app's jobs are delivered") {
                try await simulator.account().accepted >= 2000
            }
            let queue = try QueueContents(redis)
            #expect(queue.count("deferred:RateLimited") > 0 && queue.count("retried") == 0 && queue.dead.isEmpty)
            _ = try await worker.stop()
            let left = try QueueContents(redis)
            #expect(left.jobs.count + left.retries.count + left.count("delivered") == 4000)
        }
    }
}
