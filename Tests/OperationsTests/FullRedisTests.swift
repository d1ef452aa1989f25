import NIOCore
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations
@testable import PushQueue

/// The functions that work on a server that has reached its `maxmemory` with the policy `noeviction`.
@Suite("On a Redis whose memory is full")
struct FullRedisTests {
    /// - Parameter prepare: runs before the memory is full.
    private func withFullRedis(
        prepare: (TestQueue) async throws -> Void = { _ in }, _ body: (TestQueue) async throws -> Void
    ) async throws {
        try await withQueue(on: RedisServer(arguments: ["--maxmemory-policy", "noeviction"])) { queue in
            try await prepare(queue)
            // Less than any server uses, so the memory is full.
            try queue.redis.run("CONFIG", "SET", "maxmemory", "100000")
            guard case .error(let text) = try queue.redis.run("SET", "test", "x") else {
                Issue.record("the server's memory is not full")
                return
            }
            #expect(text.hasPrefix("OOM"))
            try await body(queue)
        }
    }

    private func onLoop<Value>(_ queue: TestQueue, _ value: sending Value) -> NIOLoopBoundBox<Value> {
        .makeBoxSendingValue(value, eventLoop: queue.client.eventLoop)
    }

    @Test("an app is paused and resumed by operators")
    func appPauses() async throws {
        try await withFullRedis { queue in
            let keys = queue.sharedKeys
            try await AppPauses.set(PauseRecord(reason: "by hand"), of: "shop", queue.client, keys)
            #expect(try await AppPauses.read("shop", queue.client, keys) == PauseRecord(reason: "by hand"))
            #expect(try queue.redis.run("PTTL", keys.appPaused("shop")) == -1)
            #expect(try await AppPauses.end("shop", queue.client, keys))
        }
    }

    @Test("a portion of a rate is reserved, and a provider token and a throttled device are shared")
    func shared() async throws {
        try await withFullRedis { queue in
            let keys = queue.sharedKeys
            let rates = onLoop(queue, SharedRates(client: queue.client, keys: keys))
            for _ in 0..<2 {
                let _: Int64 = try await queue.client.eventLoop.call {
                    rates.value.reserve(100, of: "shop", perSecond: 1000, completion: $0)
                }
                let life = try #require(queue.redis.run("PTTL", keys.appRate("shop")).number)
                #expect((1...3_600_000).contains(life))
            }

            let tokens = onLoop(queue, SharedProviderTokens(client: queue.client, keys: keys))
            let now = Int64(try #require(queue.redis.run("TIME").elements?.first?.text.flatMap(Int.init)))
            let offer = SharedProviderTokens.Offer(keyID: "K", teamID: "T", issuedAt: now, token: "t")
            let answer: SharedProviderTokens.Answer = try await queue.client.eventLoop.call {
                tokens.value.share(offer, completion: $0)
            }
            #expect(answer == .taken)
            #expect(try #require(queue.redis.run("TTL", keys.providerToken(team: "T", key: "K")).number) > 3500)

            let throttled = onLoop(queue, ThrottledTokens(client: queue.client, keys: keys))
            let _: Void = try await queue.client.eventLoop.call {
                throttled.value.add(ByteBuffer(string: "aa"), until: (now + 60) * 1000, completion: $0)
            }
            #expect(try queue.redis.run("ZCARD", keys.throttledTokens) == 1)
        }
    }

    @Test("invalid tokens are added before their jobs are settled, and removed when a device registers")
    func invalidTokens() async throws {
        @Sendable func token(_ text: String) -> InvalidToken {
            InvalidToken(
                token: ByteBuffer(string: text), at: 5, reason: "Unregistered", topic: ByteBuffer(string: "t"),
                source: .apns)
        }
        try await withFullRedis { queue in
            let keys = queue.sharedKeys
            let set = onLoop(queue, InvalidTokenSet(client: queue.client, keys: keys, maximumAge: 0))
            let markings: [InvalidToken.Marking] = try await queue.client.eventLoop.call {
                set.value.mark([token("aa"), token("bb")], completion: $0)
            }
            #expect(markings == [.added, .added])
            #expect(try queue.storedInvalidTokens().detailsCount() == 2)
            let _: Int = try await queue.client.eventLoop.call {
                set.value.remove([.init(ByteBuffer(string: "aa"), .registered, registeredAt: 7)], completion: $0)
            }
            #expect(try queue.redis.run("SMEMBERS", keys.invalidTokens) == .array(["bb"]))
            #expect(try queue.redis.run("HGET", keys.registrations, "aa") == "7")
        }
    }

    @Test("a queue is paused and resumed, workers get commands, and actions are recorded")
    func operators() async throws {
        try await withFullRedis { queue in
            let (client, keys) = (queue.client, queue.keys)
            for reason in ["first", "second"] {
                try await QueuePause.set(client, keys, PauseRecord(reason: reason))
                #expect(try await QueuePause.read(client, keys)?.reason == reason)
            }
            #expect(try queue.redis.run("PTTL", keys.paused) == -1)
            #expect(try await QueuePause.clear(client, keys))
            try await AuditLog.record(.init(.pause, "default", by: "b", via: .cli), client, queue.sharedKeys)
            #expect(try await AuditLog.latest(1, client, queue.sharedKeys).first?.action == .pause)
            for kind in WorkerCommand.Kind.allCases {
                let command = WorkerCommand(kind, at: 7)
                try await command.send(to: "host.1", client, keys)
                #expect(try queue.redis.run("GET", keys.order("host.1")).text.flatMap { WorkerCommand($0) } == command)
                let life = try #require(queue.redis.run("PTTL", keys.order("host.1")).number)
                #expect((1...WorkerCommand.lifetime).contains(life))
            }
        }
    }

    @Test("a campaign is cancelled, and its jobs are settled and get their turns")
    func campaigns() async throws {
        try await withFullRedis(prepare: { queue in try queue.push(["a"]) }) { queue in
            let (client, keys) = (queue.client, queue.keys)
            let cancel = JobCommands.Change.cancel(discard: false)
            try await JobCommands.change(cancel, of: [.campaign("x")], by: "eve", client, keys)
            let worker = queue.worker("w")
            #expect(try await worker.claim(1).commands?.commands.count == 1)
            #expect(try await queue.limit("x", 10, since: 1, [1, 1]) == [0, 100])
            try await worker.settle { settlement in
                settlement.use(campaign: ByteBuffer(string: "x"))
                settlement.end(1, .delivered)
            }
            #expect(try await CampaignCounts.read("x", client, keys).counters == ["delivered": 1])
        }
    }

    @Test("jobs are neither enqueued nor requeued, the error has advice, and dead letters are deleted")
    func refusals() async throws {
        try await withFullRedis(prepare: { queue in try queue.bury(.numbered(1), at: 5000) }) { queue in
            let before = try queue.everything()
            let requeue = await #expect(throws: RedisError.self) {
                _ = try await queue.sweep(.requeue(first: false, keepsAttempts: false), .init())
            }
            let enqueue = await #expect(throws: RedisError.self) {
                _ = try await queue.client.call(RedisCommand("RPUSH", queue.keys.jobs, "{}"))
            }
            for error in [requeue, enqueue] {
                #expect(
                    error?.description
                        == "Redis answered: OOM command not allowed when used memory > 'maxmemory': Redis is full: "
                        + "raise its maxmemory, or let workers drain the queues")
            }
            #expect(try queue.everything() == before)
            #expect(try await queue.sweep(.delete, .init()).tally == 1)
        }
    }
}
