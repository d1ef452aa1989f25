import NIOCore
import PushQueue
import QueueTestSupport
import Redis
import Testing

@Suite("Names of keys")
struct QueueKeysTests {
    @Test("all keys of a queue carry the same hash tag")
    func names() throws {
        let keys = try QueueKeys(prefix: "push", queue: "default")
        #expect(keys.jobs == "push:{default}:jobs")
        #expect(keys.postponed == ["push:{default}:retry", "push:{default}:failed"])
        #expect(keys.workers == "push:{default}:workers")
        #expect(keys.dead == "push:{default}:dead")
        #expect(keys.paused == "push:{default}:paused")
        #expect(keys.statsPrefix == "push:{default}:stats:")
        #expect(keys.stats("2026-11-21") == "push:{default}:stats:2026-11-21")
        #expect(keys.claimed("host.1") == "push:{default}:claimed:host.1")
        #expect(keys.inbox == "push:{default}:inbox")
        #expect(keys.unique(ByteBuffer(string: "a{b}:é\n")).text == "push:{default}:unique:a{b}:é\n")
    }

    @Test("all keys that the queues share carry one hash tag, which no queue can have")
    func shared() throws {
        let keys = SharedKeys(prefix: "push")
        let names = [
            keys.invalidTokens, keys.invalidTokenDetails, keys.invalidTokenFacts, keys.registrations,
            keys.throttledTokens, keys.appPaused("a{b}"), keys.appResumed("a{b}"), keys.appRate("a}b"),
            keys.providerToken(team: "T", key: "K"),
        ]
        #expect(
            names == [
                "push:{shared}:invalid-tokens", "push:{shared}:invalid-tokens:details",
                "push:{shared}:invalid-tokens:facts", "push:{shared}:registrations", "push:{shared}:throttled-tokens",
                "push:{shared}:apps:a{b}:paused", "push:{shared}:apps:a{b}:resumed", "push:{shared}:apps:a}b:rate",
                "push:{shared}:provider-token:T:K",
            ])
        #expect(Set(names.map(RedisHashSlot.of)).count == 1)
        let refusal = #expect(throws: QueueKeys.Invalid.self) { try QueueKeys(queue: "shared") }
        #expect(refusal?.description.contains("choose another") == true)
    }

    @Test(
        "names that would change the hash tag, or that can't be typed, are refused",
        arguments: ["", "{", "}", "a{b}", "a b", "a\n", "é", "\u{7F}", String(repeating: "x", count: 101)])
    func refused(name: String) throws {
        let asPrefix = #expect(throws: QueueKeys.Invalid.self) { try QueueKeys(prefix: name) }
        let asQueue = #expect(throws: QueueKeys.Invalid.self) { try QueueKeys(queue: name) }
        #expect(asPrefix?.description.contains("prefix") == true)
        #expect(asQueue?.description.contains("queue") == true)
    }

    @Test("a queue's name has no comma, because commands take lists of names", arguments: ["a,b", ",", "a,"])
    func commas(name: String) throws {
        let refusal = #expect(throws: QueueKeys.Invalid.self) { try QueueKeys(queue: name) }
        #expect(refusal?.description.hasPrefix("a queue can't be named \(name): a comma separates") == true)
        #expect(try QueueKeys(prefix: name).jobs == "\(name):{default}:jobs")
    }

    @Test(
        "a queue's name does not end like the weight in a list of names",
        arguments: ["a:5", "5:5", "a:b:07", ":0", "a:+5"])
    func weights(name: String) throws {
        let refusal = #expect(throws: QueueKeys.Invalid.self) { try QueueKeys(queue: name) }
        #expect(refusal?.description.hasPrefix("a queue can't be named \(name): a number behind a colon") == true)
        #expect(try QueueKeys(prefix: name).jobs == "\(name):{default}:jobs")
        for other in ["\(name)x", "x\(name):", name.replacing(":", with: "-")] {
            #expect(try QueueKeys(queue: other).queue == other)
        }
    }

    @Test("other names are accepted", arguments: ["a", "my-queue_1.x:y", "!", String(repeating: "x", count: 100)])
    func taken(name: String) throws {
        #expect(try QueueKeys(prefix: name, queue: name).jobs == "\(name):{\(name)}:jobs")
    }
}
