import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import PushQueue

@Suite("A queue's gauges", .queue)
struct QueueGaugesTests {
    private let queue = QueueScope.queue
    private var redis: RedisTestConnection { queue.redis }
    private var keys: QueueKeys { queue.keys }

    private func read() async throws -> QueueGauges { try await queue.worker("w").gauges() }

    private func count() async throws -> QueueGauges { try await QueueGauges.read(queue.client, keys) }

    @Test("counts all states at once, and has the head and the first retry")
    func counts() async throws {
        let head = #"{"token":"ab","payload":{},"enqueued_at":1700000000}"#
        for job in [head, "2", "3"] { try redis.run("RPUSH", keys.jobs, job) }
        try redis.run("ZADD", keys.retry, "1700000000124", "a", "2000000000000", "b")
        try redis.run("ZADD", keys.failed, "1700000000123", "c")
        try redis.run("ZADD", keys.workers, "1", "one", "2", "two")
        try redis.run("HSET", keys.claimed("one"), "1", "x", "2", "y")
        try redis.run("RPUSH", keys.inbox, "z")
        try redis.run("ZADD", keys.dead, "1", "d", "2", "e", "3", "f", "4", "g")
        try redis.run("SET", keys.deadBytes, "4096")
        try redis.run("SET", keys.paused, "why")

        let gauges = try await read()
        #expect(gauges.jobs == 4 && gauges.later == 2 && gauges.failed == 1 && gauges.claims == 2 && gauges.dead == 4)
        #expect(gauges.deadBytes == 4096)
        #expect(gauges.isPaused && gauges.firstDue == 1_700_000_000_123)
        #expect(gauges.overdue == gauges.now - 1_700_000_000_123)
        #expect(gauges.head.map { String(buffer: $0) } == head)
        #expect(gauges.headEnqueuedAt(as: .native) == 1_700_000_000_000)
    }

    @Test("a command counts again, with the claims of all lanes with a lease, and stores no reading for workers")
    func fresh() async throws {
        for job in ["1", "2", "3"] { try redis.run("RPUSH", keys.jobs, job) }
        try redis.run("ZADD", keys.retry, "1", "a", "2", "b")
        try redis.run("ZADD", keys.workers, "1", "one", "2", "two", "3", "idle")
        try redis.run("HSET", keys.claimed("one"), "1", "x", "2", "y")
        try redis.run("HSET", keys.claimed("two"), "1", "x")
        try redis.run("RPUSH", keys.inbox, "z")
        try redis.run("HSET", keys.claimed("nobody"), "1", "x")
        let first = try await count()
        #expect(first.jobs == 4 && first.later == 2 && first.failed == 0 && first.claims == 3 && first.total == 9)
        #expect(try redis.run("EXISTS", keys.gauges).number == 0)

        _ = try await read()
        // On a slow machine, the stored reply could expire.
        try redis.run("PERSIST", keys.gauges)
        try redis.run("RPUSH", keys.jobs, "4")
        #expect(try await read().jobs == 4)
        #expect(try await count().jobs == 5)
    }

    @Test("counts the campaigns that their guards have paused, and ignores commands of another form")
    func stoppedCampaigns() async throws {
        let commands = [
            "campaign:a": #"{"state":"paused","by":"guard"}"#, "campaign:b": #"{"state":"paused","by":"ada"}"#,
            "campaign:c": #"{"state":"cancelled","by":"guard"}"#, "campaign:d": #"{"by":"guard","state":"paused"}"#,
            "campaign:e": #"{"state":"paused","by":"guard""#, "campaign:f": #"["guard"]"#, "version": "7",
        ]
        for (field, value) in commands { try redis.run("HSET", keys.jobCommands, field, value) }
        #expect(try await read().stoppedCampaigns == 2)
        try redis.run("DEL", keys.jobCommands)
        try redis.run("SET", keys.jobCommands, "not a hash")
        #expect(try await count().stoppedCampaigns == 0)
    }

    @Test("a key of another type is an error", arguments: [false, true])
    func wrongType(isFailed: Bool) async throws {
        try redis.run("SET", isFailed ? keys.failed : keys.retry, "not a sorted set")
        let error = await #expect(throws: RedisError.self) { try await count() }
        #expect(error.map { "\($0)".contains("WRONGTYPE") } == true)
    }

    @Test("the head of Sidekiq's list is at its right end, and the job in it is read as Sidekiq writes it")
    func sidekiq() async throws {
        let sidekiq = try QueueKeys(
            prefix: "sidekiq-\(UInt64.random(in: 0...UInt64.max))", list: keys.jobs + ":sidekiq", head: .right)
        for time in [1_700_000_000, 1_700_000_009] {
            let job = #"{"class":"A","args":[{"token":"ab","payload":{}}],"enqueued_at":\#(time)}"#
            try redis.run("LPUSH", sidekiq.jobs, job)
        }
        let worker = TestWorker("w", client: queue.client, keys: sidekiq, limits: QueueLimits())
        let gauges = try await worker.gauges()
        #expect(gauges.headEnqueuedAt(as: .sidekiq(classes: [])) == 1_700_000_000_000)
    }

    @Test("an empty queue has zeros")
    func empty() async throws {
        let gauges = try await read()
        #expect(gauges.jobs + gauges.later + gauges.failed + gauges.claims + gauges.dead + gauges.deadBytes == 0)
        #expect(!gauges.isPaused && gauges.firstDue == nil && gauges.overdue == 0)
        #expect(gauges.head == nil && gauges.headEnqueuedAt(as: .native) == nil && gauges.now > 1_700_000_000_000)
    }

    @Test("a head that can't be read, or has no time, is accepted", arguments: ["{", #"{"payload":{},"token":"ab"}"#])
    func unreadable(head: String) async throws {
        try redis.run("RPUSH", keys.jobs, head)
        let gauges = try await read()
        #expect(gauges.head != nil && gauges.headEnqueuedAt(as: .native) == nil)
    }

    @Test("a head that is very large is not fetched")
    func large() async throws {
        try redis.run("RPUSH", keys.jobs, String(repeating: "x", count: QueueGauges.headLimit + 1))
        let gauges = try await read()
        #expect(gauges.jobs == 1 && gauges.head == nil)
    }

    @Test(
        "a score that an operator gave a retry by hand does no harm",
        arguments: ["0", "-1", "-inf", "+inf", "1e300", "-1e300", "1.5"])
    func scores(score: String) async throws {
        try redis.run("ZADD", keys.retry, score, "a")
        let gauges = try await read()
        #expect(gauges.later == 1 && gauges.overdue >= 0)
    }
}
