import Foundation
import NIOCore
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import PushQueue

@Suite("The set of invalid tokens", .queue)
struct InvalidTokenTests {
    private let queue = QueueScope.queue

    private func token(_ token: String, at: Int64 = 5, reason: String = "Unregistered") -> InvalidToken {
        InvalidToken(
            token: ByteBuffer(string: token), at: at, reason: reason, topic: ByteBuffer(string: "com.example.app"),
            source: .apns)
    }

    @Test("has each token once, with its latest details")
    func add() async throws {
        try await queue.addInvalidTokens([token("aa", at: 1), token("bb"), token("aa", at: 1_792_800_000_000)])
        try await queue.addInvalidTokens([token("bb", at: 7, reason: "BadDeviceToken")])
        try await queue.addInvalidTokens([token("bb", at: 7, reason: "BadDeviceToken")])
        let set = try queue.redis.run("SMEMBERS", queue.sharedKeys.invalidTokens).elements
        #expect(Set(set?.compactMap(\.text) ?? []) == ["aa", "bb"])
        let details = try queue.storedInvalidTokens().details()
        let (first, second) = (try #require(details["aa"]), try #require(details["bb"]))
        let topic = "com.example.app"
        #expect(
            first
                == .init(
                    at: 1_792_800_000_000, day: first.day, reason: "Unregistered", topic: topic, source: "apns"))
        #expect(second == .init(at: 7, day: first.day, reason: "BadDeviceToken", topic: topic, source: "apns"))
        #expect(abs(first.day - Int(Date().timeIntervalSince1970) / 86_400) <= 1)
        #expect(try queue.redis.run("HLEN", queue.sharedKeys.invalidTokenFacts) == 2)
    }

    @Test("a token's facts are JSON, whatever the reason and the topic; a time ahead counts as now")
    func hostile() async throws {
        let tokens: [String: Int64] = ["aa": -7, "bb": .max, "cc": 1 << 48 - 1]
        try await queue.addInvalidTokens(
            tokens.map {
                InvalidToken(
                    token: ByteBuffer(string: $0), at: $1, reason: "\"}\n\\",
                    topic: ByteBuffer(bytes: [0xFF, 0x22, 0]), source: .feedback)
            })
        let facts = try queue.redis.run("HVALS", queue.sharedKeys.invalidTokenFacts).elements ?? []
        #expect(try facts.count == 1 && jsonObject(ByteBuffer(bytes: try #require(facts.first).bytes)))
        let details = try queue.storedInvalidTokens().details()
        let now = Int64(Date().timeIntervalSince1970 * 1000)
        #expect(details["aa"]?.at == 0 && details.count == 3)
        #expect(try ["bb", "cc"].allSatisfy { now - (try #require(details[$0]).at) < 60_000 })
        #expect(details.values.allSatisfy { $0.facts.source == "feedback" && $0.facts.reason == "\"}\n\\" })
    }

    @Test("facts keep their numbers when they are deleted, and get another one if theirs has other facts")
    func facts() async throws {
        let key = queue.sharedKeys.invalidTokenFacts
        func numbers() throws -> [String: String] {
            let texts = try queue.redis.run("HGETALL", key).elements?.compactMap(\.text) ?? []
            return stride(from: 0, to: texts.count, by: 2).reduce(into: [:]) { $0[texts[$1]] = texts[$1 + 1] }
        }
        try await queue.addInvalidTokens([token("aa")])
        let first = try #require(try numbers().first)
        try queue.redis.run("DEL", key)
        #expect(try queue.storedInvalidTokens().details()["aa"]?.facts == StoredInvalidToken(at: 0).facts)
        try await queue.addInvalidTokens([token("bb")])
        #expect(try numbers() == [first.key: first.value])
        // Other programs can write any facts.
        let next = String(try #require(Int(first.key)) % 65_535 + 1)
        try queue.redis.run("HSET", key, first.key, #"{"reason":"Other"}"#)
        try await queue.addInvalidTokens([token("cc")])
        #expect(try numbers()[next] == first.value)
        for number in 0..<16 {
            let taken = (try #require(Int(first.key)) - 1 + number) % 65_535 + 1
            try queue.redis.run("HSET", key, "\(taken)", "{}")
        }
        try await queue.addInvalidTokens([token("dd")])
        let stored = try #require(try queue.storedInvalidTokens().details()["dd"])
        #expect(stored == .init(at: 5, day: stored.day))
    }

    @Test("drops tokens that were added too long ago, gradually, whatever time their details have")
    func age() async throws {
        let keys = queue.sharedKeys
        let now = try await queue.worker("w").claim(0).now
        let day: Int64 = 86_400_000
        let stored = try queue.storedInvalidTokens()
        func fill(_ prefix: String, _ count: Int, at: Int64, days: Int64) throws {
            for index in 0..<count {
                try stored.add("\(prefix)\(index)", .init(at: at, day: Int(now / day - days)))
            }
        }
        try fill("old", 400, at: now, days: 11)
        try fill("new", 100, at: 1, days: 9)
        for index in 0..<10 { try stored.add("unknown\(index)") }
        try stored.add("byhand")
        for index in 0..<300 {
            try queue.redis.run("HSET", keys.registrations, "old\(index)", "\(now - 11 * day)")
            try queue.redis.run("HSET", keys.registrations, "new\(index)", "\(now - 9 * day)")
            try queue.redis.run("HSET", keys.registrations, "odd\(index)", "soon")
        }
        func mark(_ token: String, maximumAge: Int64) async throws -> InvalidToken.Marking {
            try await Scene(queue, maximumAge: Int(maximumAge)).mark(self.token(token))
        }
        #expect(try await mark("first", maximumAge: 0) == .added)
        #expect(try queue.redis.run("SCARD", keys.invalidTokens) == 512)

        try queue.redis.run("CONFIG", "RESETSTAT")
        #expect(try await mark("second", maximumAge: 10 * day) == .added)
        let after = try queue.redis.run("SCARD", keys.invalidTokens).number ?? 0
        #expect(after < 513 && after >= 113, "\(after)")
        var calls = 0
        func isDone() throws -> Bool {
            try queue.redis.run("SCARD", keys.invalidTokens) == 113
                && queue.redis.run("HLEN", keys.registrations) == 600
        }
        while calls < 2000, try !isDone() {
            #expect(try await mark("second", maximumAge: 10 * day) == .known)
            calls += 1
        }
        let left = Set(try queue.redis.run("SMEMBERS", keys.invalidTokens).elements?.compactMap(\.text) ?? [])
        #expect(left.count == 113 && left.isSuperset(of: ["first", "second", "byhand"]))
        #expect(!left.contains { $0.hasPrefix("old") })
        #expect(try stored.detailsCount() == 102)
        let devices = try queue.redis.run("HKEYS", keys.registrations).elements?.compactMap(\.text) ?? []
        #expect(!devices.contains { $0.hasPrefix("old") })
    }

    @Test("a call drops at most a few hundred old tokens, and few cost it little")
    func ageIsBounded() async throws {
        let keys = queue.sharedKeys
        try await queue.addInvalidTokens((0..<20_000).map { token("\($0)") })
        // All marks are of the first day of 1970.
        let age = """
            for part = 0, 4095 do
                local key = string.format('%s:%03x', KEYS[1], part)
                for _, field in ipairs(redis.call('HKEYS', key)) do
                    redis.call('HSET', key, field, string.rep('\\0', 10))
                end
            end
            """
        try queue.redis.run("EVAL", age, "1", keys.invalidTokenDetails)
        let scene = Scene(queue, maximumAge: InvalidTokenSet.defaultMaximumAge)
        #expect(try await scene.mark(token("aa")) == .added)
        let left = try queue.redis.run("SCARD", keys.invalidTokens).number ?? 0
        #expect((19_501...19_999).contains(left), "\(left)")
    }

    @Test("accepts thousands at once, and none")
    func sizes() async throws {
        try await queue.addInvalidTokens([])
        try await queue.addInvalidTokens((0..<10_000).map { token("\($0)") })
        #expect(try queue.redis.run("SCARD", queue.sharedKeys.invalidTokens) == 10_000)
        #expect(try queue.storedInvalidTokens().detailsCount() == 10_000)
    }

    @Test("finds the tokens in it, with their details, and removes the requested ones")
    func find() async throws {
        var sandbox = token("bb", at: 7)
        sandbox.environment = "sandbox"
        try await queue.addInvalidTokens([token("aa", at: 1), sandbox, token("cc")])
        for token in ["dd", "ee"] { try queue.storedInvalidTokens().add(token) }
        try queue.storedInvalidTokens().write([1, 2, 3], for: "ee")
        let names = ["xx", "aa", "bb", "-", "dd", "ee", "aa"]
        let candidates = names.map(ByteBuffer.init(string:))
        var list = TokenList()
        for name in names { name == "-" ? list.skip() : list.append(ByteBuffer(string: name)) }
        let (looked, last) = (list, list.count)
        #expect(last == names.count)
        let scene = Scene(queue)
        let found = try await scene.call { $0.find(looked, completion: $1) }
        let topic = ByteBuffer(string: "com.example.app")
        var (first, second) = (InvalidTokenDetails(), InvalidTokenDetails())
        (first.at, first.topic) = (1, topic)
        (second.at, second.topic, second.environment) = (7, topic, ByteBuffer(string: "sandbox"))
        (first.reason, first.source) = (ByteBuffer(string: "Unregistered"), ByteBuffer(string: "apns"))
        (second.reason, second.source) = (first.reason, first.source)
        #expect(found.map(\.place) == [1, 2, 4, 5, 6])
        #expect(found.map(\.token) == [1, 2, 4, 5, 6].map { candidates[$0] })
        #expect(found.map(\.details) == [[first], [second], [], [], [first]])
        #expect(found.map(\.sets) == [.production, .sandbox, .production, .production, .production])
        #expect(try await scene.call { $0.count(completion: $1) } == 5)
        #expect(try await scene.call { $0.remove(candidates.map { .init($0, .all) }, completion: $1) } == 4)
        let left = try queue.redis.run("SMEMBERS", queue.sharedKeys.invalidTokens).elements?.compactMap(\.text)
        #expect(left == ["cc"])
        #expect(try queue.storedInvalidTokens().detailsCount() == 1)
    }

    private func mark(
        _ at: Int64, topic: String = "com.example.app", environment: String? = "production", isOwn: Bool = true,
        registeredAt: Int64? = nil
    ) -> InvalidToken {
        var mark = InvalidToken(
            token: ByteBuffer(string: "aa"), at: at, reason: "BadDeviceToken", topic: ByteBuffer(string: topic),
            environment: environment, source: .apns)
        (mark.isOfOwnTopic, mark.registeredAt) = (isOwn, registeredAt)
        return mark
    }

    /// A set of invalid tokens, and the state of the token `aa`.
    private struct Scene {
        let queue: TestQueue
        let set: NIOLoopBoundBox<InvalidTokenSet>

        init(_ queue: TestQueue, maximumAge: Int = 0) {
            self.queue = queue
            set = .makeBoxSendingValue(
                InvalidTokenSet(client: queue.client, keys: queue.sharedKeys, maximumAge: maximumAge),
                eventLoop: queue.client.eventLoop)
        }

        func call<Value: Sendable>(
            _ body: @escaping @Sendable (InvalidTokenSet, @escaping Completion<Value>) -> Void
        ) async throws -> Value {
            try await queue.client.eventLoop.call { [set] in body(set.value, $0) }
        }

        func mark(_ token: InvalidToken) async throws -> InvalidToken.Marking {
            try await call { $0.mark([token], completion: $1) }[0]
        }

        func remove(_ reason: InvalidToken.Removal.Reason, _ environment: String?, _ topic: String?) async throws
            -> Int
        {
            try await call {
                $0.remove(
                    [
                        .init(
                            ByteBuffer(string: "aa"), reason, environment: environment.map { ByteBuffer(string: $0) },
                            topic: topic.map { ByteBuffer(string: $0) })
                    ], completion: $1)
            }
        }

        func sets() throws -> [String] {
            try ["", ":sandbox", ":other"].filter {
                try queue.redis.run("SISMEMBER", queue.sharedKeys.invalidTokens + $0, "aa") == 1
            }
        }

        func invalidSince(_ topic: String, _ environment: String = "production") async throws -> Int64? {
            let list = TokenList([ByteBuffer(string: "aa")])
            let found = try await call { $0.find(list, completion: $1) }
            return found.first?.invalidSince(
                topic: ByteBuffer(string: topic), environment: ByteBuffer(string: environment))
        }
    }

    @Test("a refusal for another topic concerns only that topic, and an acceptance takes the token out")
    func topics() async throws {
        let scene = Scene(queue)
        let (app, voip) = ("com.example.app", "com.example.app.voip")
        let first = try await scene.mark(mark(5, topic: voip, isOwn: false))
        #expect(first == .added)
        #expect(try await scene.mark(mark(5, topic: voip, isOwn: false)) == .known)
        #expect(try scene.sets() == [":other"])
        #expect(try await scene.invalidSince(voip) == 5)
        #expect(try await scene.invalidSince(app) == nil)
        // The token is invalid for the own topic of another app.
        #expect(try await scene.mark(mark(6, topic: "com.example.other")) == .added)
        #expect(try scene.sets() == [""])
        #expect(try await scene.invalidSince(app) == nil)
        #expect(try await scene.invalidSince("com.example.other") == 6)
        #expect(try await scene.remove(.accepted, "production", app) == 1)
        #expect(try scene.sets() == [":other"])
        #expect(try await scene.invalidSince(voip) == 5)
        #expect(try await scene.invalidSince("com.example.other") == 6)
        #expect(try await scene.remove(.accepted, "production", app) == 0)
        // The token is invalid for the own topic of an app again.
        #expect(try await scene.mark(mark(7)) == .added)
        #expect(try scene.sets() == [""])
        #expect(try await scene.invalidSince(app) == 7)
        #expect(try await scene.remove(.mark, "production", app) == 1)
        // The other app's mark is left.
        #expect(try scene.sets() == [""])
        #expect(try await scene.invalidSince(app) == nil)
        #expect(try await scene.remove(.all, nil, nil) == 1)
        #expect(try scene.sets() == [])
        #expect(try queue.storedInvalidTokens().detailsCount() == 0)
    }

    @Test("production and the sandbox have sets of their own")
    func environments() async throws {
        let scene = Scene(queue)
        let app = "com.example.app"
        _ = try await scene.mark(mark(5, environment: "sandbox"))
        #expect(try scene.sets() == [":sandbox"])
        #expect(try await scene.invalidSince(app) == nil)
        #expect(try await scene.invalidSince(app, "sandbox") == 5)
        _ = try await scene.mark(mark(6))
        #expect(try scene.sets() == ["", ":sandbox"])
        #expect(try await scene.remove(.accepted, "sandbox", app) == 1)
        #expect(try scene.sets() == [""])
        #expect(try await scene.invalidSince(app) == 6)
        #expect(try await scene.invalidSince(app, "sandbox") == nil)
        // A mark without an environment applies to the environment of its set.
        _ = try await scene.mark(mark(8, topic: "com.example.x", environment: nil))
        #expect(try await scene.invalidSince("com.example.x", "localhost:1") == 8)
        #expect(try await scene.invalidSince("com.example.x", "sandbox") == nil)
    }

    @Test("of mark and registration the later holds, and a time ahead of Redis' clock counts as now")
    func registrations() async throws {
        let scene = Scene(queue)
        let far = Int64(4_102_444_800_000)
        func recorded() throws -> Int64? {
            try queue.redis.run("HGET", queue.sharedKeys.registrations, "aa").text.flatMap { Int64($0) }
        }
        // The registration in a job counts like a recorded one.
        #expect(try await scene.mark(mark(5, registeredAt: 6)) == .registeredSince)
        #expect(try recorded() == 6)
        #expect(try scene.sets() == [])
        #expect(try await scene.mark(mark(5)) == .registeredSince)
        #expect(try await scene.mark(mark(7, registeredAt: 6)) == .added)
        let before = Int64(Date().timeIntervalSince1970 * 1000)
        _ = try await scene.call {
            $0.remove([.init(ByteBuffer(string: "aa"), .registered, registeredAt: far)], completion: $1)
        }
        let now = try #require(try recorded())
        #expect(now >= before - 5000 && now < far)
        #expect(try scene.sets() == [])
        #expect(try await scene.mark(mark(5)) == .registeredSince)
        #expect(try await scene.mark(mark(far)) == .added)
        // A producer has written a registration in the future.
        try queue.redis.run("HSET", queue.sharedKeys.registrations, "aa", "\(far)")
        #expect(try await scene.mark(mark(now, topic: "x")) == .registeredSince)
        let written = try #require(try recorded())
        #expect(written < far)
        #expect(try await scene.mark(mark(InvalidToken.now, topic: "x")) == .added)
    }

    @Test("finds tokens among thousands, at any position, and reports a key that is not a set")
    func findMany() async throws {
        let (keys, scene) = (queue.sharedKeys, Scene(queue))
        func find(_ list: TokenList) async throws -> [InvalidToken.Found] {
            try await scene.call { $0.find(list, completion: $1) }
        }
        // The script looks up a thousand tokens at a time.
        let places = [0, 1, 999, 1000, 1001, 1999, 2000, 3999]
        try await queue.addInvalidTokens(places.map { token(String(format: "%08x", $0)) })
        var list = TokenList(expecting: 1)
        for number in 0..<4000 { list.append(ByteBuffer(string: String(format: "%08x", number))) }
        let found = try await find(list)
        #expect(found.map(\.place) == places)
        #expect(found.map(\.token.text) == places.map { String(format: "%08x", $0) })
        #expect(try await find(TokenList()).isEmpty)
        try queue.redis.run("DEL", keys.invalidTokens)
        #expect(try await find(list).isEmpty)
        try queue.redis.run("SET", keys.invalidTokens, "x")
        let one = list
        await #expect(throws: QueueFailure.self) { try await find(one) }
    }

    @Test(
        "details of any content are read",
        arguments: [
            "", "x", "null", "[]", "{", #"{"topic":"a""#, #"{"topic":"a"}x"#, #"{"topic":{"topic":2}}"#,
            #"{"reason":1.5,"topic":null}"#, #"{"topic":"\uD800"}"#,
        ])
    func unreadable(_ text: String) {
        #expect(InvalidTokenDetails(at: nil, facts: ByteBuffer(string: text)) == InvalidTokenDetails())
    }

    @Test("an escaped topic is decoded")
    func escaped() {
        let details = InvalidTokenDetails(
            at: 4, facts: ByteBuffer(string: #"{"topic":"a\u0062\"","more":[1,{"environment":"x"}]}"#))
        #expect(details.topic == ByteBuffer(string: "ab\"") && details.at == 4 && details.environment == nil)
    }

    @Test("is in one slot of a Cluster with its tokens' details")
    func cluster() async throws {
        let cluster = try await RedisCluster()
        let keys = SharedKeys()
        try await withRedis(cluster.url, key: keys.invalidTokens) {
            try await $0.addInvalidTokens([token("aa"), token("bb")], keys)
        }
        let owner = try cluster.owner(ofSlot: cluster.slot(of: keys.invalidTokens))
        #expect(try owner.run("SCARD", keys.invalidTokens) == 2)
        #expect(try owner.invalidTokens().detailsCount() == 2)
    }
}
