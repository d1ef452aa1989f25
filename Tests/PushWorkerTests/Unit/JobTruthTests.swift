import APNS
import NIOCore
import PushJob
import Testing

@testable import PushQueue
@testable import PushWorker

/// The requests that the engine's real parts make for a job (headers, payload and number), and the jobs that they do not send.
@Suite("The engine's requests for a job")
struct JobTruthTests {
    private let scene: EngineScene

    init() throws { scene = try EngineScene() }

    private static let long = String(repeating: "0123456789abcdef", count: 32)

    private static func payload(_ notification: Notification) -> String { String(buffer: notification.payload) }

    // MARK: Tokens

    @Test("sends to device tokens of up to 1,024 bytes", arguments: [2, 80, 128, 256, 1024])
    func longTokens(bytes: Int) throws {
        let token = String(repeating: "ab", count: bytes)
        scene.push(EngineScene.job(token), EngineScene.fanOut([token]))
        scene.run()
        #expect(scene.transport.tokens == [token, token])
    }

    @Test(
        "sends once to a token that a job names twice, in any spelling",
        arguments: [
            (["aa", "bb", "aa"], ["aa", "bb"]), (["aa", "AA", "<a a>"], ["aa"]),
            ([long, long.uppercased(), "cc"], [long, "cc"]), (["zz", "zz", "aa"], ["aa"]),
            (
                ["AP8A/wD/AP8A/wD/AP8A/wD/AP8A/wD/AP8A/wD/++8=", String(repeating: "00ff", count: 15) + "fbef"],
                [String(repeating: "00ff", count: 15) + "fbef"]
            ),
        ])
    func twice(tokens: [String], sent: [String]) throws {
        scene.push(EngineScene.fanOut(tokens))
        #expect(scene.transport.tokens == sent)
        for _ in sent { scene.answer(EngineScene.delivered) }
        scene.run()
        // Malformed tokens are not compared.
        let malformed = tokens.count { $0 == "zz" }
        #expect(scene.stats["delivered"] == sent.count && scene.stats["dead"] == (malformed > 0 ? malformed : nil))
        #expect(Set(scene.queue.dead.map(\.reason)) == (malformed > 0 ? ["MalformedToken"] : []))
        #expect(scene.queue.held.isEmpty && scene.context.jobs.count == 0)
    }

    @Test("does not return a token twice that a job names twice")
    func twiceDeferred() throws {
        scene.transport.streams = 1
        scene.push(EngineScene.fanOut(["aa", "bb", "aa", "bb", "cc"]))
        // An operator pauses the app, and the only request is not accepted.
        scene.fleet.pauses["shop"] = PauseRecord(reason: "a new key")
        scene.run(.seconds(3))
        scene.answer(.internalServerError)
        scene.run(.seconds(5))
        let body = scene.queue.postponed.map(\.body).joined()
        for token in ["aa", "bb", "cc"] { #expect(body.contains("\"\(token)\"")) }
        #expect(scene.counters.deferred == 2 && scene.counters.retried == 1)
    }

    // MARK: Push types

    @Test("sends an unknown push type if the job names its topic, and logs it once")
    func unknownPushType() throws {
        let job = #""alert":"x","push_type":"hologram","topic":"com.example.shop.push-type.hologram""#
        scene.push(EngineScene.job("aa", job), EngineScene.job("bb", job))
        #expect(scene.transport.tokens == ["aa", "bb"])
        #expect(scene.transport.sent.allSatisfy { String(buffer: $0.topic) == "com.example.shop.push-type.hologram" })
        #expect(scene.log.events.count { $0 == "unknown_push_type" } == 1)
        for type in ["Hologram", "holo-gram", String(repeating: "a", count: 33)] {
            scene.pushOne(token: "cc", #""alert":"x","push_type":"\#(type)","topic":"com.example.shop""#)
        }
        scene.pushOne(token: "dd", #""alert":"x","push_type":"hologram""#)
        scene.run()
        #expect(scene.queue.dead.map(\.reason) == Array(repeating: "InvalidPushType", count: 4))
        #expect(scene.transport.tokens == ["aa", "bb"])
    }

    // MARK: Hints

    @Test(
        "sends jobs that violate rules for apps and devices only, and logs each rule once",
        arguments: [
            #""payload":{"aps":{}},"push_type":"background""#, #""event":"end","timestamp":1800003600,"priority":1"#,
            #""payload":{"aps":{"event":"stop","timestamp":1800003600}},"push_type":"liveactivity""#,
            #""alert":"x","push_type":"widgets""#, #""payload":{},"push_type":"mdm""#,
        ])
    func hints(members: String) throws {
        scene.push(EngineScene.job("aa", members), EngineScene.job("bb", members))
        scene.run()
        #expect(scene.transport.tokens == ["aa", "bb"] && scene.queue.dead.isEmpty)
        #expect(scene.log.events.count { $0 == "payload_hint" } == 1)
    }

    @Test("logs a member with the name of another one once, and other names never")
    func names() throws {
        for number in 0..<20 {
            scene.pushOne(token: "aa", #""alert":"x","pushtype":"alert","own\#(number)":1"#)
            scene.pushOne(token: "bb", #""alert":"x","own":{"a":1}"#)
            scene.run(.milliseconds(20))
        }
        #expect(scene.transport.tokens.count == 40)
        #expect(scene.log.events.count { $0 == "job_hint" } == 1)
        #expect(!scene.log.events.contains("payload_hint"))
    }

    @Test("logs a value of the wrong type once for each member, also for payloads of alerts")
    func values() throws {
        for _ in 0..<20 {
            scene.pushOne(token: "aa", #""payload":{"aps":{"alert":"x","badge":"1"}}"#)
            scene.run(.milliseconds(20))
            scene.pushOne(token: "bb", #""payload":{"aps":{"alert":"x","sound":5}}"#)
            scene.run(.milliseconds(20))
        }
        #expect(scene.transport.tokens.count == 40 && scene.log.events.count { $0 == "payload_hint" } == 2)
    }

    @Test("an enqueued_at ahead of Redis' clock counts as the time at which the job was first seen")
    func ahead() throws {
        let second = EngineScene.time(scene.loop.now) / 1000
        scene.pushOne(token: "aa", #""alert":"x","expiration":"1h","enqueued_at":\#(second + 86_400)"#)
        scene.pushOne(token: "bb", #""alert":"x","expiration":"1h","enqueued_at":\#(second + 60)"#)
        scene.run()
        let expirations = scene.transport.sent.map { $0.expiration.map { $0 - second } }
        #expect(expirations == [3600, 3660], "\(expirations)")
        #expect(scene.log.events.count { $0 == "job_hint" } == 1)
    }

    @Test("sends a Wallet pass' empty payload without a hint")
    func wallet() throws {
        scene.pushOne(token: "aa", #""payload":{},"push_type":"background","topic":"pass.com.example.coupon""#)
        scene.pushOne(token: "bb", #""payload":{},"push_type":"background","topic":"order.com.example.shop""#)
        scene.pushOne(
            token: "cc",
            #""payload":{"aps":{}},"push_type":"background","topic":"pass.com.example.coupon","priority":10"#)
        scene.run()
        #expect(scene.transport.tokens == ["aa", "bb", "cc"] && !scene.log.events.contains("payload_hint"))
    }

    @Test("fills in a Live Activity's missing timestamp, the same each time")
    func timestamp() throws {
        let second = EngineScene.time(scene.loop.now) / 1000
        scene.pushOne(token: "aa", #""event":"update","content_state":{"n":1}"#)
        scene.pushOne(token: "bb", #""payload":{"x":1,"aps": { "event":"update","content-state":{}}}"#)
        scene.pushOne(token: "cc", #""payload":{"aps":{"event":"end","timestamp":"1"}},"push_type":"liveactivity""#)
        let payloads = scene.transport.sent.map(Self.payload)
        try #require(payloads.count == 3)
        #expect(payloads[0] == #"{"aps":{"timestamp":\#(second),"content-state":{"n":1},"event":"update"}}"#)
        #expect(payloads[1] == #"{"x":1,"aps": {"timestamp":\#(second), "event":"update","content-state":{}}}"#)
        #expect(payloads[2] == #"{"aps":{"event":"end","timestamp":"1"}}"#)
        scene.run(.seconds(3))
        scene.finish(RequestResult.notProcessed(.refusedStream))
        #expect(scene.transport.sent.last.map(Self.payload) == payloads[0])
    }

    // MARK: Expiration

    @Test("sends calls with expiration 0, and gives them up after half a minute", arguments: ["voip", "pushtotalk"])
    func calls(type: String) throws {
        scene.pushOne(token: "aa", #""payload":{"aps":{}},"push_type":"\#(type)""#)
        #expect(scene.transport.sent.first?.expiration == 0)
        scene.finish(.serviceUnavailable)
        #expect(scene.queue.postponed.count == 1, "there is time for another attempt")
        scene.pushOne(token: "bb", #""payload":{"aps":{}},"push_type":"\#(type)""#)
        scene.run(.seconds(10))
        scene.finish(.serviceUnavailable, retryAfter: 25)
        #expect(scene.queue.stats["expired"] == 1 && scene.queue.postponed.count == 1)
        scene.pushOne(token: "cc", #""payload":{"aps":{}},"push_type":"\#(type)","expiration":"1h""#)
        #expect(scene.transport.sent.last?.expiration != 0)
    }

    @Test("applies the app's expiration to jobs without one, and fixed ones to broadcasts and calls")
    func appExpiration() throws {
        let scene = try EngineScene { $0.apps[0].expiration = 60 }
        let second = EngineScene.time(scene.loop.now) / 1000
        scene.pushOne(token: "aa")
        scene.pushOne(token: "bb", #""alert":"x","enqueued_at":\#(second - 30)"#)
        scene.pushOne(token: "cc", #""alert":"x","expiration":0"#)
        scene.pushOne(token: "dd", #""alert":"x","push_type":"voip""#)
        scene.push(#"{"channel":"YQ==","event":"end","timestamp":1}"#)
        scene.pushOne(token: "ee", #""alert":"x","enqueued_at":\#(second - 61)"#)
        scene.run()
        let expirations = scene.transport.sent.map { $0.expiration.map { $0 - second } }
        #expect(expirations == [60, 30, -second, -second, -second], "\(expirations)")
        #expect(scene.stats == ["expired": 1], "what is not worth sending any more is not sent")
        scene.finish(.serviceUnavailable, retryAfter: 61)
        #expect(scene.stats == ["expired": 2], "nor retried")
    }

    @Test("keeps a job that violates a requirement of Apple as a dead letter if the app is strict")
    func strict() throws {
        let scene = try EngineScene { $0.apps[0].strictPayloads = true }
        scene.pushOne(token: "aa", #""payload":{"aps":{}},"push_type":"background""#)
        scene.pushOne(token: "bb", #""payload":{},"push_type":"background""#)
        scene.pushOne(token: "cc", #""alert":"x","push_type":"hologram","topic":"a.b.hologram""#)
        for payload in [
            #"{"aps":{"alert":"x","badge":"1"}}"#, #"{"aps":{"alert":"x","own":1}}"#, #"{"aps":{"mutable-content":1}}"#,
            #"{"aps":{"alert":"x"},"a":1,"a":2}"#,
        ] { scene.pushOne(token: "dd", #""payload":\#(payload)"#) }
        scene.pushOne(token: "ee", #""alert":"x","pushtype":"alert""#)
        scene.run()
        #expect(scene.queue.dead.map(\.reason) == Array(repeating: "BadPayload", count: 6))
        #expect(scene.transport.tokens == ["cc", "ee"])
    }

    @Test("counts jobs whose duration has no starting time")
    func undated() throws {
        scene.pushOne(token: "aa", #""alert":"x","expiration":"1h""#)
        scene.pushOne(token: "bb", #""alert":"x","expiration":"1h","enqueued_at":1800000000"#)
        scene.pushOne(token: "cc", #""alert":"x","expiration":1900000000"#)
        #expect(scene.counters.undatedExpirations == 1)
        let queue = try #require(scene.lane.consumers.first?.queue)
        let heartbeat = scene.lane.observer.heartbeat(for: queue)
        #expect(String(buffer: heartbeat.members).contains(#""undated_expirations":1"#))
    }

    @Test("counts the time of a scheduled call from when it is due")
    func scheduledCall() throws {
        let due = EngineScene.time(scene.loop.now) / 1000 + 3600
        scene.pushOne(token: "aa", #""payload":{"aps":{}},"push_type":"voip","send_at":\#(due)"#)
        scene.run()
        let wrapped = try #require(scene.queue.postponed.first?.body)
        scene.run(.seconds(3601))
        scene.push(wrapped)
        #expect(scene.transport.tokens == ["aa"], "\(scene.stats)")
        scene.finish(.serviceUnavailable)
        let again = try #require(scene.queue.postponed.last?.body)
        scene.run(.seconds(31))
        scene.push(again)
        #expect(scene.transport.sent.count == 1 && scene.queue.stats["expired"] == 1)
    }
}
