import APNS
import LegacyAPNS
import NIOCore
import PushJob
import Testing

@testable import PushWorker

/// The findings of `check --job`, and the refusals of `enqueue`.
@Suite("The check of a job")
struct JobCheckTests {
    private static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
    private static let now: Int64 = 1_800_000_000_000

    private static func app(_ change: (inout AppConfiguration) -> Void = { _ in }) -> AppConfiguration {
        var app = AppConfiguration(name: "shop", topic: "com.example.shop", credential: .providerTokens([]))
        change(&app)
        return app
    }

    private func verdicts(
        _ members: String, token: String? = #""token":"\#(token)""#, _ app: AppConfiguration = app()
    ) -> [CheckVerdict] {
        let job = "{\(token.map { $0 + "," } ?? "")\"id\":\"1\",\(members)}"
        return JobCheck([app]).run(ByteBuffer(string: job), name: "job", now: Self.now).verdicts
    }

    private func warnings(
        _ members: String, token: String? = #""token":"\#(token)""#, _ app: AppConfiguration = app()
    ) -> [String] {
        verdicts(members, token: token, app).filter { $0.level == .warning }.map(\.sentence)
    }

    @Test("finds no problem in a plain job")
    func plain() { #expect(warnings(#""alert":"x","expiration":"1h","enqueued_at":1800000000"#).isEmpty) }

    @Test("warns of Apple's requirements, which a strict app refuses")
    func strict() {
        let members = #""payload":{"aps":{"alert":"x"}},"push_type":"background""#
        #expect(
            warnings(members).contains {
                $0.contains("needs `content-available` in its `aps`, which must be the number 1")
            })
        let verdicts = verdicts(members, Self.app { $0.strictPayloads = true })
        #expect(
            verdicts.contains {
                $0.level == .failure && $0.sentence.contains("BadPayload: a notification of push type background")
            })
        // An unknown push type is not a mistake.
        let new = #""alert":"x","push_type":"hologram","topic":"com.example.shop.hologram""#
        #expect(warnings(new, Self.app { $0.strictPayloads = true }).contains { $0.contains("push type hologram") })
        let unclear = #""content_changed":true"#
        #expect(warnings(unclear).contains { $0.contains("both widgets and controls") })
    }

    @Test("warns of a duration that counts from when the job is first seen")
    func undated() {
        #expect(warnings(#""alert":"x","expiration":"1h""#).contains { $0.contains("no `enqueued_at`") })
        #expect(warnings(#""alert":"x","expiration":1900000000"#).isEmpty)
    }

    @Test("warns of tokens that are named twice, and counts each device once")
    func repeated() {
        let tokens = #""tokens":["\#(Self.token)","\#(Self.token.uppercased())","zz","\#(Self.token)"]"#
        let verdicts = verdicts(#""alert":"x""#, token: tokens)
        #expect(verdicts.contains { $0.level == .warning && $0.sentence.contains("2 of its tokens are repeated") })
        #expect(verdicts.contains { $0.level == .ok && $0.sentence.contains("to 1 device") })
        #expect(verdicts.contains { $0.level == .failure && $0.sentence.contains("token 3 ") })
    }

    @Test(
        "names the source of the expiration",
        arguments: [
            (#""expiration":"1h","enqueued_at":1800000000"#, 86_400, "valid until 2027-01-15T09:00:00Z (the job's"),
            (#""enqueued_at":1800000000"#, 86_400, "valid until 2027-01-16T08:00:00Z (the app's `expiration`)"),
            (#""enqueued_at":1800000000"#, 0, "now or never (the app's `expiration`)"),
            (#""enqueued_at":1800000000"#, nil, "no `expiration`: APNs decides"),
            (#""push_type":"voip""#, 86_400, "now or never (the default for this push type)"),
            (#""push_type":"voip""#, nil, "not retried after 30 s"),
        ])
    func expiration(members: String, seconds: Int?, words: String) {
        let verdicts = verdicts(#""alert":"x",\#(members)"#, Self.app { $0.expiration = seconds })
        #expect(verdicts.contains { $0.sentence.contains(words) }, "\(verdicts)")
    }

    @Test("does not give a broadcast the app's expiration, which a channel that stores nothing refuses")
    func broadcast() {
        let members = #""channel":"YQ==","event":"end","timestamp":1"#
        let verdicts = verdicts(members, token: nil, Self.app { $0.expiration = 60 })
        #expect(
            verdicts.contains { $0.sentence.contains("now or never (the default for this push type)") }, "\(verdicts)")
    }

    @Test("names members that the gateway has no field for")
    func gateway() {
        func app(_ frame: GatewayFrame) -> AppConfiguration {
            Self.app {
                var options = GatewayOptions()
                options.frame = frame
                $0.transport = .gateway(options)
            }
        }
        let members =
            #""alert":"x","collapse_id":"c","apns_id":"3c8f5f6c-66e2-8612-a112-eed84b5d80e8","priority":5,"#
            + #""expiration":1900000000"#
        let items = warnings(members, app(.items))
        #expect(items == ["the gateway's frame has no field for `collapse_id` and `apns_id`, omitted"], "\(items)")
        #expect(
            warnings(members, app(.enhanced)).contains { $0.contains("frame enhanced has no field for `priority`:") })
        #expect(warnings(members, app(.simple)).contains { $0.contains("`priority` and `expiration`") })
        let facts = verdicts(members, app(.enhanced)).filter { $0.level == .ok }.map(\.sentence)
        for word in ["collapse id", "3c8f5f6c", "priority 5"] {
            #expect(facts.allSatisfy { !$0.contains(word) }, "\(facts)")
        }
        #expect(warnings(#""alert":"x","priority":1"#, app(.items)).contains { $0.contains("1 is sent as 5") })
    }

    @Test(
        "finds jobs that no worker could send, whatever its apps",
        arguments: [
            (#"{"token":"\#(token)","alert":"x"}"#, nil), (#"{"token":"ab","topic":"a","alert":"x"}"#, nil),
            (#"{"token":"ab","app":"other","alert":"x"}"#, nil), (#"{"alert":"x"}"#, "has no device token"),
            (#"{"token":"xyz","alert":"x"}"#, "not hexadecimal at 0"),
            (#"{"tokens":["ab","a-b"],"alert":"x"}"#, "token 2: "),
            (#"{"token":"ab","alert":"\#(String(repeating: "x", count: 5000))"}"#, "APNs accepts 4096"),
            (#"{"token":"ab","push_type":"voip","alert":"\#(String(repeating: "x", count: 5000))"}"#, nil),
            (#"{"token":"ab","truncate":true,"alert":"\#(String(repeating: "x", count: 5000))"}"#, nil),
            (#"{"token":"ab","alert":"x","push_type":"new"}"#, "`push_type`"),
            (#"{"token":"ab","payload":{"aps":{}},"push_type":"background"}"#, nil),
        ] as [(String, String?)])
    func defects(job: String, words: String?) {
        let defect = JobCheck.review(ByteBuffer(string: job), as: .native, now: 0).defect
        if let words { #expect(defect?.contains(words) == true, "\(defect ?? "nil")") } else { #expect(defect == nil) }
    }
}
