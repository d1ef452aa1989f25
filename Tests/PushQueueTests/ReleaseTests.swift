import PushQueue
import QueueTestSupport
import Testing

@Suite("The release script", .queue)
struct ReleaseTests {
    private let queue = QueueScope.queue

    @Test("unsettled jobs return to the head, unchanged and in their order")
    func order() async throws {
        let wrapped = #"{"apns_worker":1,"attempt":3,"job":{}}"#
        let jobs = (1...120).map { $0 == 60 ? wrapped : "job \($0)\u{0}" }
        let worker = try await queue.worker("w", claiming: jobs)
        try queue.push(["newer"])
        try queue.redis.run("RPUSH", queue.keys.inbox, "waited")
        try await worker.settle { settlement in for claim in [1, 11, 120] { settlement.end(claim, .delivered) } }
        #expect(try await worker.release() == 117)
        let rest = jobs.enumerated().filter { ![0, 10, 119].contains($0.offset) }.map(\.element)
        #expect(try queue.jobs() == rest + ["waited", "newer"])
        #expect(
            try Set(queue.everything().keys) == [
                queue.keys.jobs, queue.keys.next("w"), queue.keys.largest, try statsKey(queue),
            ])
        #expect(try queue.workers().isEmpty)
        // No lease expired, so nothing was reclaimed.
        #expect(try queue.stats() == ["delivered": 3])
    }

    @Test("run twice, the second run finds nothing, even while the jobs are claimed again")
    func twice() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b"])
        #expect(try await worker.release() == 2)
        _ = try await queue.worker("x").claim(1)
        let before = try queue.everything()
        #expect(try await worker.release() == 0)
        #expect(try queue.everything() == before)
        #expect(try queue.workers() == ["x"])
    }

    @Test("a lane that was reclaimed before returns only the inbox")
    func afterReclaim() async throws {
        let worker = try await queue.worker("w", claiming: ["a"])
        try queue.endLease("w")
        try await queue.worker("x").reclaim("w")
        try queue.redis.run("RPUSH", queue.keys.inbox, "late")
        #expect(try await worker.release() == 0)
        #expect(try queue.jobs().first == "late")
        #expect(try queue.jobs().count == 2)
    }

    @Test("the configuration of a lane that has left soon ceases to count, unless others have it")
    func configuration() async throws {
        let mine = ConfigurationDigest(routing: ["a"], rules: ["1"])
        func rest() throws -> Int {
            let time = try queue.redis.run("TIME").elements ?? []
            let end = try queue.redis.run("HGET", queue.keys.configurations, mine.text).number
            return (end ?? 0) - (time.first?.number ?? 0) * 1000
        }
        let worker = queue.worker("w")
        try await worker.claim(0, configuration: mine, heartbeat: .sample)
        #expect(try rest() > 60_000)
        try await worker.release(of: mine)
        #expect(try (1...41_000).contains(rest()))
        #expect(try (1...40_000).contains(queue.redis.run("PTTL", queue.keys.configurations).number ?? 0))
        try await queue.worker("x").claim(0, configuration: mine, heartbeat: .sample)
        #expect(try rest() > 60_000)
        // The key stays for as long as the configuration of another worker needs it.
        let other = ConfigurationDigest(routing: ["b"], rules: ["1"])
        try await queue.worker("x").claim(0, configuration: other, heartbeat: .sample)
        try await queue.worker("x").release(of: mine)
        #expect(try (1...41_000).contains(rest()))
        #expect(try queue.redis.run("PTTL", queue.keys.configurations).number ?? 0 > 60_000)
        // A key of another type must not keep a lane from leaving.
        try queue.redis.run("SET", queue.keys.configurations, "x")
        #expect(try await queue.worker("x").release(of: mine) == 0)
    }

    @Test("thousands of claims at once")
    func thousands() async throws {
        let jobs = (1...10_000).map { "job \($0)" }
        let worker = try await queue.worker("w", claiming: jobs)
        #expect(try await worker.release() == 10_000)
        #expect(try queue.jobs() == jobs)
    }

    private func statsKey(_ queue: TestQueue) throws -> String {
        try #require(queue.redis.run("KEYS", queue.keys.statsPrefix + "*").elements?.first?.text)
    }
}
