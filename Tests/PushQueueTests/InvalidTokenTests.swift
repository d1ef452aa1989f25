import Foundation
import Logging
import NIOCore
import Operations
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import PushQueue

@Suite("The set of invalid tokens")
struct InvalidTokenTests {
    private func token(_ token: String, at: Int64 = 5, reason: String = "Unregistered") -> InvalidToken {
        InvalidToken(
            token: ByteBuffer(string: token), at: at, reason: reason, topic: ByteBuffer(string: "com.example.app"),
            source: .apns)
    }

    @Test("has each token once, with its latest details")
    func add() async throws {
        try await withQueue { queue in
            try await queue.addInvalidTokens([token("aa", at: 1), token("bb"), token("aa", at: 1_792_800_000_000)])
            try await queue.addInvalidTokens([token("bb", at: 7, reason: "BadDeviceToken")])
            try await queue.addInvalidTokens([token("bb", at: 7, reason: "BadDeviceToken")])
            let set = try queue.redis.run("SMEMBERS", queue.sharedKeys.invalidTokens).elements
            #expect(Set(set?.compactMap(\.text) ?? []) == ["aa", "bb"])
            let details = queue.sharedKeys.invalidTokenDetails
            #expect(
                try queue.redis.run("HGET", details, "aa").text?.hasPrefix(
                    #"{"at":1792800000000,"reason":"Unregistered","topic":"com.example.app","source":"apns","marked_at":"#
                )
                    == true)
            #expect(
                try queue.redis.run("HGET", details, "bb").text?.hasPrefix(
                    #"{"at":7,"reason":"BadDeviceToken","topic":"com.example.app","source":"apns","marked_at":"#)
                    == true)
        }
    }

    @Test("a token's details are JSON, whatever the reason and the topic")
    func hostile() async throws {
        try await withQueue { queue in
            try await queue.addInvalidTokens([
                InvalidToken(
                    token: ByteBuffer(string: "aa"), at: 0, reason: "\"}\n\\",
                    topic: ByteBuffer(bytes: [0xFF, 0x22, 0]),
                    source: .feedback)
            ])
            let details = try queue.redis.run("HGET", queue.sharedKeys.invalidTokenDetails, "aa")
            #expect(try jsonObject(ByteBuffer(bytes: details.bytes)))
            #expect(details.text?.contains(#""source":"feedback","marked_at":"#) == true)
        }
    }

    @Test("drops tokens that were added too long ago, gradually, whatever time their details have")
    func age() async throws {
        try await withQueue { queue in
            let keys = queue.sharedKeys
            let now = try await queue.worker("w").claim(0).now
            let day: Int64 = 86_400_000
            func fill(_ prefix: String, _ count: Int, details: String) throws {
                for index in 0..<count {
                    try queue.redis.run("SADD", keys.invalidTokens, "\(prefix)\(index)")
                    try queue.redis.run("HSET", keys.invalidTokenDetails, "\(prefix)\(index)", details)
                }
            }
            try fill("old", 400, details: #"{"at":\#(now),"marked_at":\#(now - 11 * day)}"#)
            try fill("new", 100, details: #"{"at":1,"marked_at":\#(now - 9 * day)}"#)
            try fill("unknown", 10, details: #"{"at":1}"#)
            try queue.redis.run("SADD", keys.invalidTokens, "byhand")
            let loop = queue.client.eventLoop
            func mark(_ token: String, maximumAge: Int64) async throws -> [InvalidTokenSet.Marking] {
                let set = NIOLoopBoundBox.makeBoxSendingValue(
                    InvalidTokenSet(client: queue.client, keys: keys, maximumAge: Int(maximumAge)), eventLoop: loop)
                let record = self.token(token)
                return try await withCheckedContinuation { continuation in
                    loop.execute { set.value.mark([record]) { continuation.resume(returning: $0) } }
                }.get()
            }
            #expect(try await mark("first", maximumAge: 0) == [.added])
            #expect(try queue.redis.run("SCARD", keys.invalidTokens) == 512)

            try queue.redis.run("CONFIG", "RESETSTAT")
            #expect(try await mark("second", maximumAge: 10 * day) == [.added])
            let after = try queue.redis.run("SCARD", keys.invalidTokens).number ?? 0
            #expect(after < 513 && after >= 113, "\(after)")
            var calls = 0
            while calls < 2000, try queue.redis.run("SCARD", keys.invalidTokens) != 113 {
                #expect(try await mark("second", maximumAge: 10 * day) == [.known])
                calls += 1
            }
            let left = Set(try queue.redis.run("SMEMBERS", keys.invalidTokens).elements?.compactMap(\.text) ?? [])
            #expect(left.count == 113 && left.isSuperset(of: ["first", "second", "byhand"]))
            #expect(!left.contains { $0.hasPrefix("old") })
            #expect(try queue.redis.run("HLEN", keys.invalidTokenDetails) == 112)
        }
    }

    @Test("a call drops at most a few hundred old tokens, and few cost it little")
    func ageIsBounded() async throws {
        try await withQueue { queue in
            let keys = queue.sharedKeys
            let fill = """
                for i = 1, 20000 do
                    redis.call('SADD', KEYS[1], i)
                    redis.call('HSET', KEYS[2], i, '{"at":1,"marked_at":' .. ARGV[1] .. '}')
                end
                """
            try queue.redis.run("EVAL", fill, "2", keys.invalidTokens, keys.invalidTokenDetails, "1000")
            try await queue.addInvalidTokens([token("aa")])
            let left = try queue.redis.run("SCARD", keys.invalidTokens).number ?? 0
            #expect((19_501...19_999).contains(left), "\(left)")
        }
    }

    @Test("accepts thousands at once, and none")
    func sizes() async throws {
        try await withQueue { queue in
            try await queue.addInvalidTokens([])
            try await queue.addInvalidTokens((0..<10_000).map { token("\($0)") })
            #expect(try queue.redis.run("SCARD", queue.sharedKeys.invalidTokens) == 10_000)
            #expect(try queue.redis.run("HLEN", queue.sharedKeys.invalidTokenDetails) == 10_000)
        }
    }

    @Test("finds the tokens in it, with their details, and removes the requested ones")
    func find() async throws {
        try await withQueue { queue in
            var sandbox = token("bb", at: 7)
            sandbox.environment = "sandbox"
            try await queue.addInvalidTokens([token("aa", at: 1), sandbox, token("cc")])
            try queue.redis.run("SADD", queue.sharedKeys.invalidTokens, "dd", "ee")
            try queue.redis.run("HSET", queue.sharedKeys.invalidTokenDetails, "ee", #"{"at":"soon","topic":7}"#)
            let names = ["xx", "aa", "bb", "-", "dd", "ee", "aa"]
            let candidates = names.map(ByteBuffer.init(string:))
            var list = TokenList()
            for name in names { name == "-" ? list.appendNothing() : list.append(ByteBuffer(string: name)) }
            let (looked, last) = (list, list.count)
            #expect(last == names.count)
            let (keys, loop) = (queue.sharedKeys, queue.client.eventLoop)
            let set = NIOLoopBoundBox.makeBoxSendingValue(
                InvalidTokenSet(client: queue.client, keys: keys), eventLoop: loop)
            let found = try await withCheckedThrowingContinuation { continuation in
                loop.execute { set.value.find(looked) { continuation.resume(with: $0) } }
            }
            let topic = ByteBuffer(string: "com.example.app")
            var (first, second) = (InvalidTokenDetails(), InvalidTokenDetails())
            (first.at, first.topic) = (1, topic)
            (second.at, second.topic, second.environment) = (7, topic, ByteBuffer(string: "sandbox"))
            (first.reason, first.source) = (ByteBuffer(string: "Unregistered"), ByteBuffer(string: "apns"))
            (second.reason, second.source) = (first.reason, first.source)
            #expect(found.map(\.place) == [1, 2, 4, 5, 6])
            #expect(found.map(\.token) == [1, 2, 4, 5, 6].map { candidates[$0] })
            #expect(found.map(\.details) == [first, second, .init(), .init(), first])
            let count = try await withCheckedThrowingContinuation { continuation in
                loop.execute { set.value.count { continuation.resume(with: $0) } }
            }
            #expect(count == 5)
            let withdrawn = try await withCheckedThrowingContinuation { continuation in
                loop.execute { set.value.withdraw(candidates) { continuation.resume(with: $0) } }
            }
            #expect(withdrawn == 4)
            #expect(try queue.redis.run("SMEMBERS", keys.invalidTokens).elements?.compactMap(\.text) == ["cc"])
            #expect(try queue.redis.run("HLEN", keys.invalidTokenDetails) == 1)
        }
    }

    @Test("finds tokens among thousands, at any position, and reports a key that is not a set")
    func findMany() async throws {
        try await withQueue { queue in
            let (keys, loop) = (queue.sharedKeys, queue.client.eventLoop)
            let set = NIOLoopBoundBox.makeBoxSendingValue(
                InvalidTokenSet(client: queue.client, keys: keys), eventLoop: loop)
            func find(_ list: TokenList) async throws -> [InvalidTokenSet.Found] {
                try await withCheckedThrowingContinuation { continuation in
                    loop.execute { set.value.find(list) { continuation.resume(with: $0) } }
                }
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
            await #expect(throws: QueueConnection.Failure.self) { try await find(one) }
        }
    }

    @Test(
        "details of any content are read",
        arguments: [
            "", "x", "null", "[]", "{", #"{"at":1"#, #"{"at":1}x"#, #"{"topic":{"at":2}}"#, #"{"at":1.5,"topic":null}"#,
            #"{"topic":"\uD800"}"#,
        ])
    func unreadable(_ text: String) {
        #expect(InvalidTokenDetails(ByteBuffer(string: text)) == InvalidTokenDetails())
    }

    @Test("an escaped topic is decoded")
    func escaped() {
        let details = InvalidTokenDetails(ByteBuffer(string: #"{"topic":"a\u0062\"","more":[1,{"at":3}],"at":4}"#))
        #expect(details.topic == ByteBuffer(string: "ab\"") && details.at == 4 && details.environment == nil)
    }

    @Test("is in one slot of a Cluster with its tokens' details")
    func cluster() async throws {
        let cluster = try await RedisCluster()
        let keys = SharedKeys()
        try await addInvalidTokensToSet([token("aa"), token("bb")], keys, on: RedisTopology(url: cluster.url))
        let owner = try cluster.owner(ofSlot: cluster.slot(of: keys.invalidTokens))
        #expect(try owner.run("SCARD", keys.invalidTokens) == 2)
        #expect(try owner.run("HLEN", keys.invalidTokenDetails) == 2)
    }
}
