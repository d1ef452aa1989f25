import NIOCore
import NIOPosix
import PushJob
import TestSupport
import Testing

@testable import APNS

/// Apple, "Sending notification requests to APNs": the fields as they arrive at the server.
@Suite("A request's header fields", .timeLimit(.minutes(10)))
struct RequestHeadersTests {
    private func sent(
        _ notifications: [Notification], token: String? = "e30.e30.c2ln"
    ) async throws -> (requests: [[HeaderField]], bodies: [String], authority: String) {
        var port = 0
        let seen = try await withPool(against: answersAll) { client, peer in
            port = peer.port
            try await client.ask { $0.setProviderToken(token) }
            for notification in notifications { _ = try await client.send(notification).get() }
        }
        let bodies = seen.frames(.data).map { String(decoding: $0.payload, as: UTF8.self) }
        return (seen.frames(.headers).map(\.headers), bodies, "127.0.0.1:\(port)")
    }

    private func values(_ name: String, of notifications: [Notification]) async throws -> [String] {
        try await sent(notifications).requests.flatMap { $0 }.filter { $0.name == name }.map(\.value)
    }

    private func examples<Value>(
        _ values: some Sequence<Value>, _ change: (inout Notification, Value) throws -> Void
    ) rethrows -> [Notification] {
        try values.map { value in
            var notification = Notification.example()
            try change(&notification, value)
            return notification
        }
    }

    private func lines(_ fields: [HeaderField]) -> [String] { fields.map(\.description) }

    @Test("include all fields of a notification that sets everything, and the payload byte for byte")
    func everything() async throws {
        let payload = "{ \"aps\" : {\"alert\":\"Grüße \\u2603\"},\n \"x\":[1.0,1e3] }"
        let hex = String(repeating: "ab", count: 100)
        let notification = Notification(
            deviceToken: try DeviceToken(hex), payload: ByteBuffer(string: payload),
            topic: ByteBuffer(string: "com.example.app.voip"), pushType: .voip, priority: 5, expiration: 1_792_800_000,
            collapseID: ByteBuffer(string: "a collapse id of up to 64 bytes"),
            apnsID: APNSID(high: 0x0011_2233_4455_6677, low: 0x8899_AABB_CCDD_EEFF))
        let sent = try await sent([notification])
        #expect(
            lines(try #require(sent.requests.first)) == [
                ":method: POST", ":scheme: https", ":authority: \(sent.authority)", ":path: /3/device/\(hex)",
                "authorization: bearer e30.e30.c2ln", "apns-topic: com.example.app.voip", "apns-push-type: voip",
                "apns-priority: 5", "apns-expiration: 1792800000",
                "apns-collapse-id: a collapse id of up to 64 bytes", "apns-id: 00112233-4455-6677-8899-aabbccddeeff",
            ])
        #expect(sent.bodies == [payload])
    }

    @Test("are only the needed ones for a notification that sets nothing, without a provider token")
    func nothing() async throws {
        var notification = Notification.example(10)
        notification.topic = ByteBuffer()
        let sent = try await sent([notification], token: nil)
        #expect(
            lines(try #require(sent.requests.first)) == [
                ":method: POST", ":scheme: https", ":authority: \(sent.authority)",
                ":path: /3/device/" + String(repeating: "0", count: 63) + "a", "apns-push-type: alert",
            ])
    }

    private static func broadcast(_ topic: String = "com.example.app.push-type.liveactivity") throws -> Notification {
        Notification(
            deviceToken: .none, payload: ByteBuffer(string: #"{"aps":{"event":"update"}}"#),
            topic: ByteBuffer(string: topic), pushType: .liveactivity,
            broadcast: try BroadcastTarget(
                channelID: ByteBuffer(string: "dHN0LXNyY2gtY2hubA=="), topic: ByteBuffer(string: topic)))
    }

    /// Apple, "Sending broadcast push notification requests to APNs".
    @Test("of a broadcast are those that Apple requires, with the app in the path and no topic")
    func broadcast() async throws {
        var notification = try Self.broadcast()
        notification.priority = 5
        notification.expiration = 1_792_800_000
        notification.collapseID = ByteBuffer(string: "there is no such field")
        notification.apnsID = APNSID(high: 0x0011_2233_4455_6677, low: 0x8899_AABB_CCDD_EEFF)
        let sent = try await sent([notification])
        #expect(
            lines(try #require(sent.requests.first)) == [
                ":method: POST", ":scheme: https", ":authority: \(sent.authority)",
                ":path: /4/broadcasts/apps/com.example.app", "authorization: bearer e30.e30.c2ln",
                "apns-channel-id: dHN0LXNyY2gtY2hubA==", "apns-push-type: liveactivity", "apns-priority: 5",
                "apns-expiration: 1792800000", "apns-request-id: 00112233-4455-6677-8899-aabbccddeeff",
            ])
        #expect(sent.bodies == [#"{"aps":{"event":"update"}}"#])
    }

    @Test("of a broadcast always include priority and expiration, which are required")
    func bareBroadcast() async throws {
        let longest = String(repeating: "a", count: 255)
        let notifications = try [Self.broadcast(), Self.broadcast("com.example.app"), Self.broadcast(longest)]
        let sent = try await sent(notifications + [Notification.example()], token: nil)
        for (fields, app) in zip(sent.requests, ["com.example.app", "com.example.app", longest]) {
            #expect(
                lines(fields) == [
                    ":method: POST", ":scheme: https", ":authority: \(sent.authority)",
                    ":path: /4/broadcasts/apps/\(app)", "apns-channel-id: dHN0LXNyY2gtY2hubA==",
                    "apns-push-type: liveactivity", "apns-priority: 10", "apns-expiration: 0",
                ])
        }
        #expect(sent.requests.last?.contains { $0.value.hasPrefix("/3/device/") } == true)
    }

    @Test("of a notification for no device have a path without one, which APNs refuses")
    func noDevice() async throws {
        var notification = Notification.example()
        notification.deviceToken = .none
        #expect(try await values(":path", of: [notification]) == ["/3/device/"])
    }

    @Test("have the whole token in the path, however long it is", arguments: [64, 200, 202, 512, 2048])
    func longTokens(digits: Int) async throws {
        let notifications = try examples(["a", "b", "c"]) {
            $0.deviceToken = try DeviceToken(String(repeating: $1, count: digits))
            $0.expiration = 7
        }
        let sent = try await sent(notifications)
        let paths = sent.requests.flatMap { $0 }.filter { $0.name == ":path" }.map(\.value)
        #expect(paths == ["a", "b", "c"].map { "/3/device/" + String(repeating: $0, count: digits) })
        #expect(sent.requests.allSatisfy { $0.contains { $0.name == "apns-expiration" && $0.value == "7" } })
    }

    @Test("name a push type that this version does not know")
    func unknownPushType() async throws {
        var notification = Notification.example()
        notification.pushType = .other
        notification.unknownPushType = UnknownPushType(ByteBuffer(string: "hologram"))
        #expect(try await values("apns-push-type", of: [notification]) == ["hologram"])
        for name in ["", "Hologram", "a b", "a\r\nb", String(repeating: "a", count: 33)] {
            #expect(UnknownPushType(ByteBuffer(string: name)) == nil)
        }
    }

    @Test("name each push type")
    func pushTypes() async throws {
        let names = try await values("apns-push-type", of: examples(PushType.allCases) { $0.pushType = $1 })
        #expect(names == PushType.allCases.map(\.name))
    }

    @Test("write numbers as decimal digits, including the smallest and the largest")
    func numbers() async throws {
        let expirations: [Int64] = [
            0, 1, 9, 10, 99, 100, 1_792_800_000, 999_999_999_999_999_999, .max - 1, .max, -1, .min,
        ]
        // A time before 1970 becomes 0, which also means "now or never".
        let written = try await values("apns-expiration", of: examples(expirations) { $0.expiration = $1 })
        #expect(written == expirations.map { "\(max($0, 0))" })
        let priorities = try await values("apns-priority", of: examples([10, 5, 1]) { $0.priority = $1 })
        #expect(priorities == ["10", "5", "1"])
    }

    @Test("stay right for hundreds of different notifications in flight together")
    func manyAtOnce() async throws {
        var generator = SeededGenerator(seed: 5)
        let notifications = (0..<600).map { number in
            var notification = Notification.example(number, payload: #"{"number":\#(number)}"#)
            notification.topic = ByteBuffer(string: "topic.\(number % 7)")
            notification.collapseID = ByteBuffer(string: "collapse \(number)")
            notification.expiration = Int64(number)
            notification.apnsID = APNSID(high: generator.next(), low: UInt64(number))
            return notification
        }
        let seen = try await withPool(against: answersAll) { client, _ in
            for future in client.send(notifications) { try await expect(future, .delivered) }
        }
        var bodies: [Int32: [UInt8]] = [:]
        for frame in seen.frames(.data) { bodies[frame.stream, default: []] += frame.payload }
        for frame in seen.frames(.headers) {
            let fields = Dictionary(frame.headers.map { ($0.name, $0.value) }) { first, _ in first }
            let number = try #require(fields["apns-expiration"].flatMap { Int($0) })
            let notification = notifications[number]
            #expect(fields[":path"] == "/3/device/" + String(buffer: notification.deviceToken.hex))
            #expect(fields["apns-topic"] == "topic.\(number % 7)")
            #expect(fields["apns-collapse-id"] == "collapse \(number)")
            #expect(fields["apns-id"] == notification.apnsID?.description)
            #expect(String(decoding: bodies[frame.stream] ?? [], as: UTF8.self) == #"{"number":\#(number)}"#)
        }
    }

    @Test("carry a new provider token from the next request on, and keep changing fields out of the tables")
    func providerTokens() async throws {
        let seen = try await withPool(against: answersAll) { client, _ in
            for number in 0..<20 {
                try await client.ask { $0.setProviderToken("token\(number / 5)") }
                var notification = Notification.example(number)
                notification.apnsID = APNSID(high: 1, low: UInt64(number))
                notification.collapseID = ByteBuffer(string: "collapse")
                notification.expiration = 5
                try await expect(client.send(notification), .delivered)
            }
        }
        let fields = seen.frames(.headers).flatMap(\.headers)
        let tokens = fields.filter { $0.name == "authorization" }.map(\.value)
        #expect(tokens == (0..<20).map { "bearer token\($0 / 5)" })
        let neverIndexed = Set(fields.filter(\.isNeverIndexed).map(\.name))
        // No table may store a secret (RFC 7541 §7.1.3).
        #expect(neverIndexed == [":path", "authorization", "apns-id", "apns-collapse-id", "apns-expiration"])
    }
}
