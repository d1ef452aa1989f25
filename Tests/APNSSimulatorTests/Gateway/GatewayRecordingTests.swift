import APNSSimulator
import Foundation
import TestSupport
import Testing

@Suite("The recording of the gateway", .timeLimit(.minutes(2)))
struct GatewayRecordingTests {
    typealias Outcome = ReceivedNotification.Outcome

    /// Returns the recording once it has so many notifications.
    private func recorded(
        _ count: Int, _ rules: [String] = [], _ change: @escaping (inout SimulatorConfiguration) -> Void = { _ in },
        sending bytes: [UInt8]
    ) async throws -> [ReceivedNotification] {
        let recorder = Recorder()
        var notifications: [ReceivedNotification] = []
        try await withGateway(rules) {
            $0.recorder = recorder
            change(&$0)
        } _: { server in
            let client = try await server.connect(sending: bytes)
            try await eventually("all have come") { recorder.count >= UInt64(count) }
            notifications = recorder.notifications().entries.map(\.notification)
            try await client.close()
        }
        #expect(notifications.count == count)
        return notifications
    }

    @Test("has all fields of the three kinds of frame")
    func members() async throws {
        let payload = Array(#"{"aps":{"alert":"Grüße 😀"},"n":1.50}"#.utf8)
        let all = try await recorded(
            3,
            sending: GatewayBytes.simple() + GatewayBytes.enhanced(7, expiration: 1_700_000_000)
                + GatewayBytes.frame(
                    8, token: GatewayBytes.token(0xAB), payload: payload, expiration: .max, priority: 5))
        let hex = GatewayBytes.token.map { String(format: "%02x", $0) }.joined()
        #expect(all.allSatisfy { $0.transport == .gateway && $0.connection == 1 })
        #expect(all.map(\.token) == [hex, hex, String(repeating: "ab", count: 32)])
        #expect(all.map(\.identifier) == [nil, 7, 8])
        #expect(all.map(\.expiration) == [nil, 1_700_000_000, Int64(UInt32.max)])
        #expect(all.map(\.priority) == [nil, nil, 5])
        #expect(all.map(\.payload) == [GatewayBytes.payload, GatewayBytes.payload, payload])
        #expect(all.allSatisfy { $0.payloadSize == $0.payload.count })
        // The topic is the certificate's, because the protocol has none.
        #expect(all.allSatisfy { $0.topic == "com.example.app" })
        #expect(all.allSatisfy { $0.accepted && $0.outcome == .answered(status: 0, reason: nil) })
        #expect(all.allSatisfy { abs(Double($0.time) / 1000 - Date().timeIntervalSince1970) < 600 })
        #expect(all.allSatisfy { $0.pushType == nil && $0.apnsID == nil && $0.request == nil })
    }

    @Test(
        "has the error that the gateway reports, and the notifications after it",
        arguments: [
            (GatewayBytes.frame(2, token: []), .answered(status: 2, reason: "MissingDeviceToken")),
            (GatewayBytes.frame(2, payload: []), .answered(status: 4, reason: "MissingPayload")),
            (GatewayBytes.frame(2, token: [1, 2]), .answered(status: 5, reason: "InvalidTokenSize")),
            (GatewayBytes.enhanced(2, payload: [0x7B]), .answered(status: 1, reason: "ProcessingError")),
            // Command 0 has no error packets.
            (GatewayBytes.simple(payload: []), .closed),
        ] as [([UInt8], Outcome)])
    func refused(_ bytes: [UInt8], _ outcome: Outcome) async throws {
        let all = try await recorded(
            4, sending: GatewayBytes.frame(1) + bytes + GatewayBytes.frame(3) + GatewayBytes.simple())
        #expect(all.map(\.outcome) == [.answered(status: 0, reason: nil), outcome, .dropped, .dropped])
        #expect(all.map(\.accepted) == [true, false, false, false])
        #expect(all[1].token?.isEmpty != true)
        #expect(all[2].identifier == 3 && all[2].payload == GatewayBytes.payload && all[2].token?.count == 64)
    }

    @Test("has the readable parts of bytes that are not a notification")
    func unreadable() async throws {
        let frame = GatewayBytes.frame([GatewayBytes.item(3, GatewayBytes.big(UInt32(9))), GatewayBytes.item(6, [1])])
        let all = try await recorded(2, sending: GatewayBytes.frame(1) + frame + GatewayBytes.frame(3))
        let last = try #require(all.last)
        #expect(last.identifier == 9 && last.token == nil && last.payload.isEmpty && !last.accepted)
        #expect(last.outcome == .answered(status: 128, reason: "ProtocolError"))
        let unknown = try #require(try await recorded(1, sending: [3, 0, 0, 0, 1]).last)
        #expect(unknown.identifier == nil && unknown.outcome == .answered(status: 128, reason: "ProtocolError"))
    }

    @Test("has at most as much of a payload as APNs accepts, and its size")
    func longPayload() async throws {
        let payload = [UInt8](repeating: 0x20, count: 9000)
        let notification = try #require(try await recorded(1, sending: GatewayBytes.frame(1, payload: payload)).first)
        #expect(notification.payload.count == 5120 && notification.payloadSize == 9000)
        #expect(notification.outcome == .answered(status: 7, reason: "InvalidPayloadSize"))
    }

    @Test(
        "has the effect of a rule",
        arguments: [
            ("answer=8", .answered(status: 8, reason: "InvalidToken"), false),
            ("answer=8,split=true,delay=1ms", .answered(status: 8, reason: "InvalidToken"), false),
            ("answer=77", .answered(status: 77, reason: "GatewayStatus77"), false),
            ("answer=10", .answered(status: 10, reason: "Shutdown"), true),
            // The packet names the previous notification, so this one was not processed.
            ("answer=10,accept=false", .dropped, false), ("answer=close", .closed, true),
            ("answer=close,accept=false", .closed, false), ("answer=reset", .reset, false),
            ("answer=reset,accept=true", .reset, true), ("answer=hang", .silenced, false),
            ("answer=hang,accept=true", .silenced, true), ("answer=feedback", .answered(status: 0, reason: nil), true),
        ] as [(String, Outcome, Bool)])
    func rules(_ rule: String, _ outcome: Outcome, accepted: Bool) async throws {
        let all = try await recorded(
            2, ["prefix=dd," + rule],
            sending: GatewayBytes.frame(1) + GatewayBytes.frame(2, to: 0xDD))
        #expect(all.map(\.outcome) == [.answered(status: 0, reason: nil), outcome])
        #expect(all.map(\.accepted) == [true, accepted])
    }

    @Test("has the number of its gateway connection, and exists before the packet is sent")
    func connections() async throws {
        let recorder = Recorder()
        try await withGateway(["answer=8"]) {
            $0.recorder = recorder
        } _: { server in
            for number in 1...3 {
                if number != 2 {
                    // A notification is recorded before its packet is sent.
                    let ending = try await server.connect(sending: GatewayBytes.frame(UInt32(number))).ending()
                    #expect(ending.bytes == GatewayBytes.packet(8, UInt32(number)))
                    #expect(recorder.notifications().entries.last?.notification.connection == number)
                } else {
                    let client = try await BinaryClient.connect(server.gatewayPort)
                    try await eventually("it is counted") { server.account.gateway.connections == 2 }
                    try await client.close()
                }
            }
            #expect(recorder.count == 2)
        }
    }

    @Test("has one JSON line for each, in one file with the notifications over HTTP/2")
    func file() async throws {
        let path = FileManager.default.temporaryDirectory.appending(path: "record-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: path) }
        let recorder = Recorder(file: try RecordFile(path: path) { Issue.record("\($0)") })
        try await withGateway {
            $0.recorder = recorder
        } _: { server in
            #expect(try await Push().send(to: server).status == 200)
            _ = try await server.connect(sending: GatewayBytes.frame(5, token: [])).ending()
        }
        let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n")
        let objects = try lines.map {
            try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
        }
        #expect(objects.map { $0["transport"] as? String } == ["http2", "gateway"])
        #expect(objects.map { $0["sequence"] as? Int } == [1, 2] && objects.last?["identifier"] as? Int == 5)
        let outcome = try #require(objects.last?["outcome"] as? [String: Any])
        #expect(outcome["status"] as? Int == 2 && outcome["reason"] as? String == "MissingDeviceToken")
    }
}
