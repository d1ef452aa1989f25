import APNS
import LegacyAPNS
import Testing

@testable import APNSSimulator

@Suite("The gateway's checks")
struct GatewayCheckTests {
    private func status(
        _ check: GatewayCheck = GatewayCheck(), token: [UInt8]? = GatewayBytes.token,
        payload: [UInt8]? = GatewayBytes.payload, priority: UInt8? = nil
    ) -> GatewayStatus? { judge(check, token: token, payload: payload, priority: priority).status }

    private func judge(
        _ check: GatewayCheck, token: [UInt8]?, payload: [UInt8]?, priority: UInt8? = nil
    ) -> (status: GatewayStatus?, id: String?) {
        (token ?? []).withUnsafeBufferPointer { tokenBytes in
            (payload ?? []).withUnsafeBufferPointer { payloadBytes in
                let verdict = check.judge(
                    GatewayNotification(
                        command: 2, priority: priority, token: token == nil ? nil : tokenBytes,
                        payload: payload == nil ? nil : payloadBytes))
                return switch verdict {
                case .refused(let status): (status, nil)
                case .good(_, let id): (nil, id.map { String(decoding: $0, as: UTF8.self) })
                }
            }
        }
    }

    @Test("each fault has its status, and the first in their order decides")
    func order() {
        #expect(status() == nil)
        #expect(status(token: nil, payload: nil) == .missingDeviceToken)
        #expect(status(token: []) == .missingDeviceToken)
        #expect(status(token: Array(GatewayBytes.token.dropLast()), payload: nil) == .invalidTokenSize)
        #expect(status(token: Array(repeating: 7, count: 101)) == .invalidTokenSize)
        #expect(status(GatewayCheck(hasTopic: false), payload: nil) == .missingTopic)
        #expect(status(payload: nil) == .missingPayload)
        #expect(status(payload: []) == .missingPayload)
        #expect(status(token: GatewayBytes.token(0), payload: [0x7B]) == .processingError)
        #expect(status(token: GatewayBytes.token(0)) == .invalidToken)
    }

    @Test("a payload may have the maximum length", arguments: [256, 2048])
    func limit(_ limit: Int) {
        func payload(_ count: Int) -> [UInt8] { Array(#"{"aps":{}}"#.utf8) + Array(repeating: 0x20, count: count - 10) }
        let check = GatewayCheck(maximumPayloadSize: limit)
        #expect(status(check, payload: payload(limit)) == nil)
        #expect(status(check, payload: payload(limit + 1)) == .invalidPayloadSize)
    }

    @Test(
        "a payload must be a JSON object with aps in it",
        arguments: [
            (#"{"aps":{}}"#, true), (#" {"a":[{"aps":{}}],"aps" : {"alert":"🚀"}} "#, true),
            (#"{"a":{"aps":{}}}"#, false), (#"{"aps":1}"#, false), (#"{"aps":{}"#, false), (#"[{"aps":{}}]"#, false),
            ("{}", false), ("x", false), (#"{"aps":{}}x"#, false),
        ])
    func payloads(_ text: String, _ isGood: Bool) {
        #expect(status(payload: Array(text.utf8)) == (isGood ? nil : .processingError))
    }

    @Test("a token has 32 to 100 bytes, all of which are kept", arguments: [32, 33, 80, 100])
    func tokens(_ count: Int) {
        let token = Array((0..<UInt8(count)).map { $0 &* 7 &+ 1 })
        let kept = token.withUnsafeBufferPointer { SimulatedToken(bytes: $0) }
        #expect(kept.bytes == token && kept.byteCount == count)
        #expect(status(token: token) == nil)
        #expect(status(token: Array(repeating: 0, count: count)) == .invalidToken)
    }

    @Test(
        "priority 10 is an error for a background push",
        arguments: [
            (#"{"aps":{"content-available":1}}"#, 10, true),
            (#"{"a":{"b":1},"aps":{"content-available":1}}"#, 10, true),
            (#"{"aps":{"content-available":1}}"#, 5, false), (#"{"aps":{"content-available":1}}"#, nil, false),
            (#"{"aps":{"content-available":1,"alert":"x"}}"#, 10, false), (#"{"aps":{"alert":"x"}}"#, 10, false),
            (#"{"aps":{"alert":"x"},"z":{"content-available":1}}"#, 10, false),
        ] as [(String, UInt8?, Bool)])
    func background(_ text: String, _ priority: UInt8?, isRefused: Bool) {
        #expect(status(payload: Array(text.utf8), priority: priority) == (isRefused ? .processingError : nil))
    }

    @Test("the ID is the member of the payload itself, a string or any other value")
    func ids() {
        let check = GatewayCheck(idMember: Array("id".utf8))
        func id(_ text: String) -> String? { judge(check, token: GatewayBytes.token, payload: Array(text.utf8)).id }
        #expect(id(#"{"aps":{"id":"inner"},"id":"outer"}"#) == "outer")
        #expect(id(#"{"id":17,"aps":{}}"#) == "17")
        #expect(id(#"{"aps":{"id":"inner"},"ids":1}"#) == nil)
    }

    @Test("statuses are read by number and by name, and packets carry them")
    func statuses() {
        #expect(GatewayStatus("8") == .invalidToken && GatewayStatus("InvalidToken") == .invalidToken)
        #expect(GatewayStatus("Shutdown") == .shutdown && GatewayStatus("42")?.label == "42")
        #expect(GatewayStatus("UnknownError") == .unknown && GatewayStatus("42") == .other(42))
        #expect(GatewayStatus("256") == nil && GatewayStatus("Oops") == nil && GatewayStatus("-1") == nil)
        #expect(GatewayStatus.invalidToken.label == "8 InvalidToken")
        #expect(GatewayStatus.shutdown.packet(identifier: 0x0102_0304) == [8, 10, 1, 2, 3, 4])
    }

    @Test(
        "a client is identified by its certificate's topic",
        arguments: [
            ("com.a", nil, [], GatewayClient.taken(topic: "com.a")),
            ("com.a", "Apple Push Services: com.b", ["com.a"], .taken(topic: "com.a")),
            (nil, "Apple Push Services: com.b", ["com.b"], .taken(topic: "com.b")),
            (nil, "localhost", [], .taken(topic: nil)), (nil, nil, ["com.a"], .taken(topic: nil)),
            ("com.a.voip", nil, ["com.a"], .taken(topic: "com.a.voip")), ("com.ab", nil, ["com.a"], .refused),
            ("com.c", nil, ["com.a", "com.b"], .refused), (nil, "Something: ", [], .taken(topic: nil)),
        ] as [(String?, String?, [String], GatewayClient)])
    func clients(_ userID: String?, _ commonName: String?, _ topics: [String], _ client: GatewayClient) {
        #expect(GatewayClient(userID: userID, commonName: commonName, topics: topics) == client)
    }
}
