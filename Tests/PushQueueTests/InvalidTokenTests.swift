import NIOCore
import PushQueue
import Testing

@Suite("The set of invalid tokens")
struct InvalidTokenTests {
    private func token(_ token: String, at: Int64 = 5, reason: String = "Unregistered") -> InvalidToken {
        InvalidToken(
            token: ByteBuffer(string: token), at: at, reason: reason, topic: ByteBuffer(string: "com.example.app"),
            source: .apns)
    }

    @Test("has each token once, and beside it what was last said of it")
    func add() async throws {
        try await withQueue { queue in
            let worker = queue.worker("w")
            try await worker.addInvalidTokens([token("aa", at: 1), token("bb"), token("aa", at: 1_792_800_000_000)])
            try await worker.addInvalidTokens([token("bb", at: 7, reason: "BadDeviceToken")])
            try await worker.addInvalidTokens([token("bb", at: 7, reason: "BadDeviceToken")])
            let set = try queue.redis.run("SMEMBERS", queue.sharedKeys.invalidTokens).elements
            #expect(Set(set?.compactMap(\.text) ?? []) == ["aa", "bb"])
            let details = queue.sharedKeys.invalidTokenDetails
            #expect(
                try queue.redis.run("HGET", details, "aa").text
                    == #"{"at":1792800000000,"reason":"Unregistered","topic":"com.example.app","source":"apns"}"#)
            #expect(
                try queue.redis.run("HGET", details, "bb").text
                    == #"{"at":7,"reason":"BadDeviceToken","topic":"com.example.app","source":"apns"}"#)
        }
    }

    @Test("what stands beside a token is JSON, whatever the reason and the topic")
    func hostile() async throws {
        try await withQueue { queue in
            try await queue.worker("w").addInvalidTokens([
                InvalidToken(
                    token: ByteBuffer(string: "aa"), at: 0, reason: "\"}\n\\",
                    topic: ByteBuffer(bytes: [0xFF, 0x22, 0]),
                    source: .feedback)
            ])
            let details = try queue.redis.run("HGET", queue.sharedKeys.invalidTokenDetails, "aa")
            #expect(try jsonObject(ByteBuffer(bytes: details.bytes)))
            #expect(details.text?.hasSuffix(#""source":"feedback"}"#) == true)
        }
    }

    @Test("takes thousands at once, and none")
    func sizes() async throws {
        try await withQueue { queue in
            let worker = queue.worker("w")
            try await worker.addInvalidTokens([])
            try await worker.addInvalidTokens((0..<10_000).map { token("\($0)") })
            #expect(try queue.redis.run("SCARD", queue.sharedKeys.invalidTokens) == 10_000)
            #expect(try queue.redis.run("HLEN", queue.sharedKeys.invalidTokenDetails) == 10_000)
        }
    }

    @Test("fails when Redis takes only one half of it")
    func failure() async throws {
        try await withQueue { queue in
            for (broken, other) in [
                (queue.sharedKeys.invalidTokens, queue.sharedKeys.invalidTokenDetails),
                (queue.sharedKeys.invalidTokenDetails, queue.sharedKeys.invalidTokens),
            ] {
                try queue.redis.run("DEL", other)
                try queue.redis.run("SET", broken, "something else")
                await #expect(throws: QueueConnection.Failure.self) {
                    try await queue.worker("w").addInvalidTokens([token("aa")])
                }
                try queue.redis.run("DEL", broken)
            }
        }
    }
}
