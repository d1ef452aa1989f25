import APNS
import LegacyAPNS
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker

/// Notifications of an app with the gateway transport. They need no credential here.
@Suite("A job for the gateway")
struct GatewayRulesTests {
    private static let token = String(repeating: "ab", count: 32)

    private func router(_ change: (inout GatewayOptions) -> Void = { _ in }) -> RoutedApp {
        var app = AppConfiguration(name: "old", topic: "com.example.old", credential: .providerTokens([]))
        var options = GatewayOptions()
        change(&options)
        app.transport = .gateway(options)
        app.otherTopics = ["com.example.older"]
        return RoutedApp(app)
    }

    private func notification(
        _ members: String, token: String = token, _ router: RoutedApp? = nil
    ) throws -> Notification {
        let job = try JobDecoder.decode(ByteBuffer(string: #"{"token":"\#(token)",\#(members)}"#))
        return try (router ?? self.router()).notification(
            for: job, identity: ByteBuffer(string: "job"), firstSeen: 1_000_000_000)
    }

    private func refusal(_ members: String, token: String = token, _ router: RoutedApp? = nil) -> Reason? {
        do {
            _ = try notification(members, token: token, router)
            return nil
        } catch { return error as? Reason }
    }

    @Test("is stored for 30 days without an expiration, and not at all with `expires` 0")
    func expiration() throws {
        #expect(try notification(#""payload":{"aps":{}}"#).expiration == 1_000_000 + 30 * 86_400)
        #expect(try notification(#""payload":{"aps":{}},"expiration":0"#).expiration == 0)
        #expect(try notification(#""payload":{"aps":{}},"expiration":"30m""#).expiration == 1_000_000 + 1800)
        #expect(try notification(#""payload":{"aps":{}},"expiration":"1d""#).expiration == 1_000_000 + 86_400)
    }

    @Test("may be as large as the gateway accepts: 2048 bytes, or the configured size", arguments: [2048, 256])
    func payloadLimit(limit: Int) throws {
        let router = router { $0.payloadLimit = limit }
        func member(_ size: Int) -> String {
            let frame = #"{"aps":{"alert":""}}"#
            return #""payload":"# + frame.dropLast(3) + String(repeating: "x", count: size - frame.utf8.count) + #""}}"#
        }
        #expect(try notification(member(limit), router).payload.readableBytes == limit)
        let refusal = refusal(member(limit + 1), router)
        #expect(refusal?.code.text == "PayloadTooLarge")
        #expect(refusal?.detail?.contains("\(limit)") == true)
    }

    @Test("with short forms is shortened to the gateway's limit")
    func truncate() throws {
        let body = String(repeating: "Grüße 🎈 ", count: 100)
        let router = router { $0.payloadLimit = 256 }
        let notification = try notification(#""alert":"\#(body)","truncate":true"#, router)
        #expect(notification.payload.readableBytes <= 256)
        #expect(notification.payload.getString(at: 0, length: notification.payload.readableBytes) != nil)
    }

    @Test("has a token of 32 to 100 bytes, or is never sent", arguments: [2, 62, 64, 66, 128, 200, 202, 512])
    func tokenSize(digits: Int) {
        let refusal = refusal(#""payload":{"aps":{}}"#, token: String(repeating: "a", count: digits))
        #expect(refusal?.code.text == ((64...200).contains(digits) ? nil : "MalformedToken"))
        guard refusal != nil else { return }
        #expect(refusal?.detail?.contains("\(digits) hex digits; the binary gateway accepts 64 to 200") == true)
    }

    @Test(
        "has only the certificate's topic",
        arguments: [("com.example.old", true), ("com.example.older", true), ("com.example.new", false)])
    func topic(topic: String, isTaken: Bool) {
        #expect(refusal(#""payload":{"aps":{}},"topic":"\#(topic)""#)?.code.text == (isTaken ? nil : "TopicDisallowed"))
    }

    @Test("has a push type that the protocol supported", arguments: PushType.allCases)
    func pushTypes(type: PushType) {
        let payloads: [PushType: String] = [
            .background: #"{"aps":{"content-available":1}}"#, .mdm: #"{"mdm":"magic"}"#,
            .fileprovider: #"{"container-identifier":"x"}"#,
        ]
        let isNew = [.accessory, .controls, .liveactivity, .location, .pushtotalk, .widgets].contains(type)
        let refusal = refusal(
            #""push_type":"\#(type.name)","payload":\#(payloads[type] ?? #"{"aps":{"alert":"x"}}"#)"#)
        #expect((refusal?.code.text == "InvalidPushType") == isNew)
        #expect((refusal == nil) == !isNew)
    }

    @Test("has no channel")
    func channel() throws {
        let job = try JobDecoder.decode(
            ByteBuffer(
                string: #"""
                    {"channel":"dHN0LXNyY2gtY2hubA==","event":"update","timestamp":1,"content-state":{}}
                    """#))
        #expect(throws: Reason.self) {
            try router().notification(for: job, identity: ByteBuffer(string: "job"), firstSeen: 0)
        }
    }
}
