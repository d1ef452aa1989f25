import APNSSimulator
import Foundation
import TestSupport
import Testing

@Suite("The recording of the gateway", .timeLimit(.minutes(10)))
struct GatewayRecordingTests {
    @Test("has all fields of the three kinds of frame")
    func members() async throws {
        let payload = Array(#"{"aps":{"alert":"Grüße 😀"},"n":1.50}"#.utf8)
        let recorder = Recorder()
        try await withGateway {
            $0.recorder = recorder
        } _: { server in
            let client = try await server.connect(
                sending: GatewayBytes.simple() + GatewayBytes.enhanced(7, expiration: 1_700_000_000)
                    + GatewayBytes.frame(
                        8, token: GatewayBytes.token(0xAB), payload: payload, expiration: .max, priority: 5))
            try await eventually("all have come") { recorder.count >= 3 }
            try await client.close()
        }
        let all = recorder.notifications().entries.map(\.notification)
        let hex = GatewayBytes.token.map { String(format: "%02x", $0) }.joined()
        #expect(all.allSatisfy { $0.transport == .gateway && $0.connection == 1 })
        #expect(all.map(\.token) == [hex, hex, String(repeating: "ab", count: 32)])
        #expect(all.map(\.identifier) == [nil, 7, 8])
        #expect(all.map(\.expiration) == [nil, 1_700_000_000, Int64(UInt32.max)])
        #expect(all.map(\.priority) == [nil, nil, 5])
        #expect(all.map(\.payload) == [GatewayBytes.payload, GatewayBytes.payload, payload])
        #expect(all.allSatisfy { $0.payloadSize == $0.payload.count })
        // The protocol has no topic, so the certificate's topic is recorded.
        #expect(all.allSatisfy { $0.topic == "com.example.app" })
        #expect(all.allSatisfy { $0.accepted && $0.outcome == .answered(status: 0, reason: nil) })
        #expect(all.allSatisfy { abs(Double($0.time) / 1000 - Date().timeIntervalSince1970) < 600 })
        #expect(all.allSatisfy { $0.pushType == nil && $0.apnsID == nil && $0.request == nil })
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
}
