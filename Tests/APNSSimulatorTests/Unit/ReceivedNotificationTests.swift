import Foundation
import Testing

@testable import APNSSimulator

@Suite("A recorded notification as JSON")
struct ReceivedNotificationTests {
    private func text(_ change: (inout ReceivedNotification) -> Void) -> String {
        var notification = received(5)
        change(&notification)
        return String(decoding: notification.json(sequence: 7), as: UTF8.self)
    }

    private func members(_ change: (inout ReceivedNotification) -> Void) throws -> [String: Any] {
        let text = text(change)
        #expect(!text.contains("\n"))
        return try #require(JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
    }

    private func payload(_ bytes: [UInt8], size: Int? = nil) -> (inout ReceivedNotification) -> Void {
        { notification in
            notification.payload = bytes
            notification.payloadSize = size ?? bytes.count
        }
    }

    @Test("has only members with values")
    func all() {
        let bare = text { _ in }
        #expect(
            bare == #"{"sequence":7,"time":5,"transport":"http2","connection":1,"payload_bytes":0,"accepted":true,"#
                + #""outcome":{"status":200}}"#)
        let full = text {
            $0.transport = .gateway
            $0.token = "ab"
            $0.topic = "com.example.app"
            $0.pushType = "alert"
            $0.priority = 5
            $0.expiration = 0
            $0.collapseID = "a\"b\\c\u{1}"
            $0.apnsID = "id"
            $0.identifier = .max
            $0.malformedHeaders = ["b": "2", "a": "1"]
            $0.accepted = false
            $0.outcome = .answered(status: 8, reason: "InvalidToken")
            payload(Array(#"{"aps":{}}"#.utf8))(&$0)
        }
        #expect(
            full
                == #"{"sequence":7,"time":5,"transport":"gateway","connection":1,"token":"ab","topic":"com.example.app","#
                + #""push_type":"alert","priority":5,"expiration":0,"collapse_id":"a\"b\\c\u0001","apns_id":"id","#
                + #""identifier":4294967295,"malformed_headers":{"a":"1","b":"2"},"payload":{"aps":{}},"payload_bytes":10,"#
                + #""accepted":false,"outcome":{"status":8,"reason":"InvalidToken"}}"#)
    }

    @Test("has the payload unchanged, except for line breaks")
    func verbatim() {
        let json = "{\r\n\"b\":1.0,\"a\":12345678901234567890,\"😀\":\"\\n🇫🇷\"}"
        #expect(
            text(payload(Array(json.utf8)))
                .contains("\"payload\":{  \"b\":1.0,\"a\":12345678901234567890,\"😀\":\"\\n🇫🇷\"},"))
    }

    @Test(
        "has a payload as text if it is not a JSON object, not UTF-8, or incomplete",
        arguments: [
            (Array("[1]".utf8), nil, "[1]"), (Array("{\"a\":".utf8), nil, "{\"a\":"),
            ([0x7B, 0x00, 0x0A], nil, "{\u{0}\n"),
            (Array("{\"a\":\"".utf8) + [0xFF] + Array("\"}".utf8), nil, "{\"a\":\"\u{FFFD}\"}"),
            (Array("{}".utf8), 9000, "{}"),
        ] as [([UInt8], Int?, String)])
    func noObject(_ bytes: [UInt8], size: Int?, text: String) throws {
        let members = try members(payload(bytes, size: size))
        #expect(members["payload_text"] as? String == text)
        #expect(members["payload"] == nil)
        #expect(members["payload_bytes"] as? Int == size ?? bytes.count)
    }

    @Test(
        "has a name for outcomes that are not answers",
        arguments: [
            (.reset, "reset"), (.goAway, "goaway"), (.dropped, "dropped"), (.silenced, "silenced"), (.closed, "closed"),
        ] as [(ReceivedNotification.Outcome, String)])
    func words(_ outcome: ReceivedNotification.Outcome, _ word: String) throws {
        #expect(try members { $0.outcome = outcome }["outcome"] as? String == word)
    }
}
