import NIOCore
import PushJob
import PushQueue
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("Pushes for producers")
struct JobPushTests {
    private var scene: OperatorScene { SceneScope.scene }

    private static func jobs(_ range: ClosedRange<Int>) -> [ByteBuffer] {
        range.map { ByteBuffer(string: #"{"id":"\#($0)","token":"ab","alert":"x"}"#) }
    }

    @Test(
        "push all jobs of a call in their order, at the end from which they are claimed last", arguments: [false, true])
    func order(isSidekiq: Bool) async throws {
        try await OperatorScene.with(sidekiq: isSidekiq ? ["default"] : []) { scene in
            let keys = try await scene.fleet.queue(QueueKeys()).keys
            let client = try await scene.fleet.client(for: keys.jobs)
            // More jobs than Lua passes to a command at once.
            #expect(try await JobPush.push(Self.jobs(1...2500), client, keys) == .pushed)
            #expect(try await JobPush.push(Self.jobs(2501...2502), client, keys) == .pushed)
            let stored = try scene.redis.run("LRANGE", keys.jobs, "0", "-1").elements?.compactMap(\.text) ?? []
            #expect((isSidekiq ? stored.reversed() : stored) == Self.jobs(1...2502).map { String(buffer: $0) })
        }
    }

    @Test("push a request's jobs once, and nothing for another request with its name", .scene)
    func requests() async throws {
        let keys = try QueueKeys()
        let client = try await scene.fleet.client(for: keys.jobs)
        func push(_ name: String, _ digest: String, maximum: Int? = nil) async throws -> JobPush.Outcome {
            try await JobPush.push(
                Self.jobs(1...2), client, keys, maximumLength: maximum,
                request: .init(name: name, digest: digest, seconds: 60))
        }
        #expect(try await push("a", "x") == .pushed)
        #expect(try await push("a", "x") == .repeated)
        // A request that was pushed stays pushed, even if the list is too long now.
        #expect(try await push("a", "x", maximum: 1) == .repeated)
        #expect(try await push("a", "y") == .otherRequest)
        // The name of a refused request is still unused.
        #expect(try await push("b", "x", maximum: 1) == .listIsTooLong(length: 2))
        #expect(try await push("b", "y") == .pushed)
        #expect(try scene.redis.run("LLEN", keys.jobs).number == 4)
        #expect(try (50...60).contains(scene.redis.run("TTL", keys.request("a")).number ?? 0))
    }

    @Test("push nothing onto a list that has reached its maximum length", .scene)
    func maximum() async throws {
        let keys = try QueueKeys()
        let client = try await scene.fleet.client(for: keys.jobs)
        #expect(try await JobPush.push(Self.jobs(1...5), client, keys, maximumLength: 2) == .pushed)
        let refused = try await JobPush.push(Self.jobs(6...6), client, keys, maximumLength: 5)
        #expect(refused == .listIsTooLong(length: 5))
        #expect(try await JobPush.push(Self.jobs(6...6), client, keys, maximumLength: 6) == .pushed)
        #expect(try scene.redis.run("LLEN", keys.jobs).number == 6)
    }

    @Test("are one command for Redis, and survive a flush of its scripts", .scene)
    func commands() async throws {
        let keys = try QueueKeys()
        let client = try await scene.fleet.client(for: keys.jobs)
        _ = try await JobPush.push(Self.jobs(1...1), client, keys)
        try scene.redis.run("CONFIG", "RESETSTAT")
        for _ in 1...3 { _ = try await JobPush.push(Self.jobs(1...100), client, keys) }
        let calls = try scene.redis.calls()
        #expect(calls["evalsha"] == 3 && calls["eval"] == nil)
        try scene.redis.run("SCRIPT", "FLUSH")
        _ = try await JobPush.push(Self.jobs(1...1), client, keys)
        #expect(try scene.redis.calls()["eval"] == 1)
        #expect(try scene.redis.run("LLEN", keys.jobs).number == 302)
    }

    @Test("push all or nothing on a Redis whose memory is full, and name a key of the wrong type", .scene)
    func refused() async throws {
        let keys = try QueueKeys()
        let client = try await scene.fleet.client(for: keys.jobs)
        _ = try await JobPush.push(Self.jobs(1...1), client, keys)
        try scene.redis.run("CONFIG", "SET", "maxmemory", "1")
        await #expect {
            _ = try await JobPush.push(Self.jobs(1...2500), client, keys)
        } throws: {
            guard case .server(let answer)? = $0 as? RedisError else { return false }
            return answer.prefix == "OOM"
        }
        try scene.redis.run("CONFIG", "SET", "maxmemory", "0")
        #expect(try scene.redis.run("LLEN", keys.jobs).number == 1)
        try scene.redis.run("DEL", keys.jobs)
        try scene.redis.run("SET", keys.jobs, "x")
        await #expect {
            _ = try await JobPush.push(Self.jobs(1...1), client, keys)
        } throws: {
            guard case .server(let answer)? = $0 as? RedisError else { return false }
            return answer.prefix == "WRONGTYPE" && answer.message.contains(keys.jobs)
        }
    }

    @Test("count the devices of each campaign once", .scene)
    func campaigns() async throws {
        let keys = try QueueKeys()
        let client = try await scene.fleet.client(for: keys.jobs)
        let jobs = [
            #"{"campaign":"spring","tokens":["aa","bb","aa"],"alert":"x"}"#,
            #"{"campaign":"spring","token":"cc","alert":"x"}"#, #"{"campaign":"autumn","token":"cc","alert":"x"}"#,
            #"{"token":"cc","alert":"x"}"#, "not JSON",
        ].map { ByteBuffer(string: $0) }
        try await CampaignCounts.addTotals(of: jobs, client, keys)
        #expect(try await CampaignCounts.read("spring", client, keys).total == 3)
        #expect(try await CampaignCounts.read("autumn", client, keys).total == 1)
        #expect(try await Set(CampaignCounts.names(10, client, keys)) == ["spring", "autumn"])
    }
}
