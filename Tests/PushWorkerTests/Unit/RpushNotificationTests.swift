import NIOCore
import PushJob
import Testing

@testable import PushWorker

@Suite("Notifications of rpush as jobs")
struct RpushNotificationTests {
    private static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
    private static let now: Int64 = 1_795_000_000_000
    private static let type = "Rpush::Client::Redis::Apnsp8::Notification"
    private static var check: JobCheck {
        JobCheck([AppConfiguration(name: "shop", topic: "com.example.shop", credential: .providerTokens([]))])
    }

    /// A value of MessagePack. Lengths are at most 255, and numbers at most 2^32.
    private enum Packed {
        case none, flag(Bool), number(UInt32), text(String), list([Packed]), map([(String, Packed)])

        func write(_ buffer: inout ByteBuffer) {
            switch self {
            case .none: buffer.writeInteger(UInt8(0xC0))
            case .flag(let flag): buffer.writeInteger(UInt8(flag ? 0xC3 : 0xC2))
            case .number(let number): buffer.writeMultipleIntegers(UInt8(0xCE), number)
            case .text(let text):
                buffer.writeMultipleIntegers(UInt8(0xD9), UInt8(text.utf8.count))
                buffer.writeString(text)
            case .list(let values):
                buffer.writeInteger(UInt8(0x90) | UInt8(values.count))
                for value in values { value.write(&buffer) }
            case .map(let members):
                buffer.writeInteger(UInt8(0x80) | UInt8(members.count))
                for (name, value) in members {
                    Packed.text(name).write(&buffer)
                    value.write(&buffer)
                }
            }
        }
    }

    private static func read(_ fields: [(String, Packed)], type: String = type) throws -> RpushNotification {
        let all = [("id", .number(42)), ("type", .text(type)), ("device_token", .text(token))] + fields
        return try RpushNotification(
            hash: all.map { name, value in
                var buffer = ByteBuffer()
                value.write(&buffer)
                return (name, buffer)
            })
    }

    private static func row(_ members: String, type: String = "Rpush::Client::ActiveRecord::Apnsp8::Notification")
        throws
        -> RpushNotification
    {
        try RpushNotification(
            row: ByteBuffer(
                string: #"{"id":42,"type":"\#(type)","device_token":"\#(token)","delivered":false,"failed":false"#
                    + (members.isEmpty ? "" : ",") + members + "}"))
    }

    /// Returns the job without its ID and token, and the reasons of the findings.
    private static func job(_ notification: RpushNotification, topic: String? = nil) throws -> (String, [String]) {
        let translation = try notification.translation(topic: topic, now: now)
        let start = #"{"id":"42","token":"\#(token)","#
        let text = String(buffer: translation.job.text)
        #expect(text.hasPrefix(start), "\(text)")
        return ("{" + text.dropFirst(start.count), translation.findings.map(\.reason))
    }

    @Test("have the payload that rpush sends, with the default sound, the marks in data and its other members")
    func payload() throws {
        let (plain, none) = try Self.job(Self.read([("alert", .text("Hé"))]))
        #expect(plain == #"{"expiration":0,"payload":{"aps":{"alert":"Hé","sound":"default"}}}"# && none.isEmpty)
        let (full, findings) = try Self.job(
            Self.read([
                ("alert", .map([("title", .text("t")), ("body", .text("b"))])), ("badge", .number(0)), ("sound", .none),
                ("category", .text("c")), ("thread_id", .text("th")), ("url_args", .list([.text("u")])),
                ("content_available", .flag(false)),
                (
                    "data",
                    .map([
                        ("__rpush_mutable_content__", .flag(true)), ("__rpush_content_available__", .flag(true)),
                        ("order", .number(7)),
                    ])
                ),
            ]), topic: "com.example.shop")
        #expect(
            full
                == #"{"topic":"com.example.shop","expiration":0,"payload":{"aps":{"alert":{"title":"t","body":"b"},"badge":0,"#
                + #""category":"c","url-args":["u"],"thread-id":"th","mutable-content":1,"content-available":1},"order":7}}"#
        )
        #expect(findings.isEmpty)
        let (mdm, _) = try Self.job(Self.read([("data", .map([("__rpush_mdm__", .text("magic"))]))]))
        #expect(mdm == #"{"expiration":0,"payload":{"mdm":"magic"}}"#)
        let (own, _) = try Self.job(Self.read([("data", .map([("aps", .map([("badge", .number(1))]))]))]))
        #expect(own == #"{"expiration":0,"payload":{"aps":{"badge":1}}}"#)
    }

    @Test("have the headers in data, which are not a part of the payload")
    func headers() throws {
        let headers: [(String, Packed)] = [
            ("apns-topic", .text("com.example.shop.voip")), ("apns-push-type", .text("voip")),
            ("apns-priority", .text("5")), ("apns-expiration", .number(1_800_000_000)),
            ("apns-collapse-id", .text("c")),
            ("Apns-Id", .text("7b2d1f3e-0000-4000-8000-000000000000")), ("x-other", .text("x")),
        ]
        let (job, findings) = try Self.job(
            Self.read([("sound", .none), ("data", .map([("headers", .map(headers))]))]), topic: "com.example.shop")
        #expect(
            job == #"{"topic":"com.example.shop.voip","push_type":"voip","priority":5,"expiration":1800000000,"#
                + #""collapse_id":"c","apns_id":"7b2d1f3e-0000-4000-8000-000000000000","payload":{"aps":{}}}"#)
        #expect(findings == ["header"])
    }

    @Test("name the fields that rpush treats in another way than a job")
    func differences() throws {
        let background: Packed = .map([("__rpush_content_available__", .flag(true))])
        let cases: [([(String, Packed)], String?)] = [
            ([("expiry", .number(3600))], "expiry"), ([("expiry", .number(86_400))], nil),
            ([("priority", .number(5))], "priority"), ([("priority", .number(10))], nil),
            ([("sound", .none), ("data", background)], "push_type"), ([("data", background)], nil),
            ([("fail_after", .list([.number(2027)]))], "fail_after"),
            ([("deliver_after", Self.time(year: 2030))], "deliver_after"),
            ([("deliver_after", Self.time(year: 2030)), ("retries", .number(1))], nil),
            ([("deliver_after", Self.time(year: 2020))], nil),
        ]
        for (fields, reason) in cases {
            let (job, findings) = try Self.job(Self.read(fields))
            #expect(findings == (reason.map { [$0] } ?? []), "\(fields)")
            let isLater = fields.contains { name, _ in name == "retries" } || reason == "deliver_after"
            // 2030-01-31T12:00:00+02:00.
            #expect(job.contains(#""send_at":1896084000"#) == isLater, "\(job)")
        }
    }

    private static func time(year: UInt32) -> Packed {
        .list([.number(year), .number(1), .number(31), .number(12), .number(0), .number(0), .text("+02:00")])
    }

    @Test("of the binary gateway have its priority and expiry")
    func binary() throws {
        let notification = try Self.read(
            [("priority", .number(5)), ("expiry", .number(60))], type: "Rpush::Client::Redis::Apns::Notification")
        let (job, findings) = try Self.job(notification)
        #expect(job == #"{"expiration":1795000060,"priority":5,"payload":{"aps":{"sound":"default"}}}"#)
        #expect(findings.isEmpty)
    }

    @Test("are read from rows of its table, with JSON in text columns")
    func rows() throws {
        let (job, findings) = try Self.job(
            Self.row(
                #""alert":"{\"body\":\"b\"}","alert_is_json":true,"sound":"default","sound_is_json":false,"badge":null,"#
                    + #""expiry":86400,"data":"{\"order\":7}","deliver_after":"2030-01-31 10:00:00","bundle_id":"com.example.a""#
            ))
        #expect(
            job
                == #"{"topic":"com.example.a","expiration":0,"payload":{"aps":{"alert":{"body":"b"},"sound":"default"},"#
                + #""order":7},"send_at":1896084000}"#)
        #expect(findings.isEmpty)
        let (text, _) = try Self.job(Self.row(#""alert":"{}","alert_is_json":false"#))
        #expect(text.contains(#""alert":"{}""#))
    }

    @Test("are skipped if they are for another service or have ended, and are reported if they can't be read")
    func others() throws {
        func findings(_ notification: RpushNotification) -> [String] {
            notification.forecast(by: Self.check, now: Self.now).findings.map { "\($0.effect.rawValue) \($0.reason)" }
        }
        #expect(
            findings(try Self.read([], type: "Rpush::Client::Redis::Fcm::Notification")) == ["skipped other_service"])
        #expect(findings(try Self.read([("delivered", .flag(true))])) == ["skipped ended"])
        #expect(findings(try Self.row(#""failed":1"#)) == ["skipped ended"])
        #expect(findings(try Self.row(#""data":"no""#)) == ["not_sent unreadable"])
        #expect(findings(try Self.row(#""url_args":"---\n- a\n""#)) == ["not_sent unreadable"])
        #expect(throws: RpushNotification.Unreadable.self) {
            try RpushNotification(hash: [("alert", ByteBuffer(bytes: [0xC1]))])
        }
        #expect(throws: RpushNotification.Unreadable.self) { try RpushNotification(row: ByteBuffer(string: "[]")) }
    }

    @Test("are sent as they are if nothing differs, and never show their token")
    func forecast() throws {
        let good = try Self.read([("alert", .text("x"))]).forecast(
            by: Self.check, topic: "com.example.shop", now: Self.now)
        #expect(good.notifications == 1 && good.findings.isEmpty, "\(good)")
        let long = try Self.row(#""alert":"\#(String(repeating: "a", count: 5000))""#).forecast(
            by: Self.check, now: Self.now)
        #expect(long.findings.map(\.reason) == ["PayloadTooLarge"] && long.notifications == 0, "\(long)")
        #expect(!"\(long)".contains(Self.token) && !"\(long)".contains("aaaaa"))
    }
}
