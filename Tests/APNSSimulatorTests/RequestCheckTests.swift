import APNS
import APNSSimulator
import Foundation
import PushJob
import TLS
import TestSupport
import Testing

@Suite("A request is checked in APNs' order")
struct RequestCheckTests {
    static let refusals: [PushCase] = [
        PushCase("another method", 405, "MethodNotAllowed", method: "PUT"),
        PushCase("another method comes before a bad path", 405, "MethodNotAllowed", method: "PUT", path: "/"),
        PushCase("another path", 404, "BadPath", path: "/2/device/" + anyToken),
        PushCase("a path without a token", 400, "MissingDeviceToken", path: "/3/device/"),
        PushCase("a header given twice", 400, "DuplicateHeaders") { $0.headers.append("apns-priority: 10") },
        PushCase("duplicates come before the provider token", 400, "DuplicateHeaders") {
            $0.set("authorization", nil)
            $0.headers.append("apns-topic: com.example.app")
        },
        PushCase("no provider token", 403, "MissingProviderToken", ["authorization": nil]),
        PushCase(
            "no provider token comes before a bad apns-id", 403, "MissingProviderToken",
            ["authorization": nil, "apns-id": "x"]),
        PushCase("another scheme", 403, "MissingProviderToken", ["authorization": "Basic eDp5"]),
        PushCase("nonsense for a provider token", 403, "InvalidProviderToken", ["authorization": "bearer nonsense"]),
        PushCase("another algorithm", 403, "InvalidProviderToken") {
            $0.authorize(TestTokens.unsigned(algorithm: "HS256"))
        },
        PushCase("a team that is a number", 403, "InvalidProviderToken") {
            $0.authorize(TestTokens.unsigned(team: "17"))
        },
        PushCase("an apns-id that is no UUID", 400, "BadMessageId", ["apns-id": "6F9619FF"]),
        PushCase(
            "a bad apns-id comes before a bad expiration", 400, "BadMessageId",
            ["apns-id": "6F9619FF8B86D011B42D00C04FC964FF0000", "apns-expiration": "tomorrow"]),
        PushCase("an expiration that is no number", 400, "BadExpirationDate", ["apns-expiration": "tomorrow"]),
        PushCase("a negative expiration", 400, "BadExpirationDate", ["apns-expiration": "-1"]),
        PushCase("a priority of 7", 400, "BadPriority", ["apns-priority": "7"]),
        PushCase("background with priority 10", 400, "BadPriority", ["apns-push-type": "background"]),
        PushCase("an unknown push type", 400, "InvalidPushType", ["apns-push-type": "shout"]),
        PushCase("the worker's word for unknown push types", 400, "InvalidPushType", ["apns-push-type": "other"]),
        PushCase("a collapse id of 65 bytes", 400, "BadCollapseId", ["apns-collapse-id": text(65)]),
        PushCase("no topic", 400, "MissingTopic", ["apns-topic": nil]),
        PushCase("a topic with a space", 400, "BadTopic", ["apns-topic": "com.example app"]),
        PushCase("voip to the bare bundle identifier", 400, "BadTopic", ["apns-push-type": "voip"]),
        PushCase("a topic that is not on the list", 400, "TopicDisallowed", ["apns-topic": "com.example.other"]),
        PushCase("a bad topic comes before an empty payload", 400, "BadTopic", ["apns-topic": "!"], body: ""),
        PushCase("no payload", 400, "PayloadEmpty", body: ""),
        PushCase("a payload that is no JSON object", 400, "PayloadEmpty", body: "[1]"),
        PushCase("a payload of 4097 bytes", 413, "PayloadTooLarge", body: payload(4097)),
        PushCase("a VoIP payload of 5121 bytes", 413, "PayloadTooLarge", voip, body: payload(5121)),
        PushCase(
            "too large a payload comes before a bad device token", 413, "PayloadTooLarge", path: "/3/device/zz",
            body: payload(4097)),
        PushCase("a device token that is not hex", 400, "BadDeviceToken", path: "/3/device/\(anyToken.dropLast())x"),
        PushCase("a device token of 1,025 bytes", 400, "BadDeviceToken", path: "/3/device/" + text(2050)),
        PushCase("a device token that is too short", 400, "BadDeviceToken", path: "/3/device/abcd"),
    ]

    static let acceptances: [PushCase] = [
        PushCase("an alert", 200, nil),
        PushCase("the least of headers", 200, nil) {
            $0.headers = ["authorization: bearer " + TestTokens.unsigned(), "apns-topic: com.example.app"]
        },
        PushCase("background with priority 5", 200, nil, ["apns-push-type": "background", "apns-priority": "5"]),
        PushCase("a payload of 4096 bytes", 200, nil, body: payload(4096)),
        PushCase("a VoIP payload of 5120 bytes", 200, nil, voip, body: payload(5120)),
        PushCase("a collapse id of 64 bytes", 200, nil, ["apns-collapse-id": text(64)]),
        PushCase("a device token of 100 bytes in capitals", 200, nil, path: "/3/device/" + text(200, of: "AB")),
        PushCase("a device token of 1,024 bytes", 200, nil, path: "/3/device/" + text(2048)),
        PushCase(
            "a Live Activity with priority 1", 200, nil,
            [
                "apns-push-type": "liveactivity", "apns-topic": "com.example.app.push-type.liveactivity",
                "apns-priority": "1",
            ]),
    ]

    private static let voip = ["apns-push-type": "voip", "apns-topic": "com.example.app.voip"]

    private static func text(_ length: Int, of piece: String = "c") -> String {
        String(repeating: piece, count: length / piece.count)
    }

    static func payload(_ size: Int) -> String { #"{"aps":{"alert":"\#(text(size - 20, of: "x"))"}}"# }

    @Test("and refused with its reason", arguments: refusals)
    func refuses(_ example: PushCase) async throws {
        try await withSimulator(topics: ["com.example.app"]) { server in
            let answer = try await Push(example.change).send(to: server)
            #expect(answer.status == example.status && answer.reason == example.reason)
            #expect(answer.headers["content-type"] == "application/json" && answer.headers["apns-id"]?.count == 36)
            #expect(server.account.answers == ["\(example.status) \(try #require(example.reason))": 1])
            #expect(server.account.accepted == 0)
        }
    }

    @Test("and accepted with an empty body", arguments: acceptances)
    func accepts(_ example: PushCase) async throws {
        try await withSimulator(topics: ["com.example.app"]) { server in
            let answer = try await Push(example.change).send(to: server)
            #expect(answer.status == 200 && answer.body.isEmpty && answer.headers["apns-id"]?.count == 36)
            #expect(server.account.accepted == 1)
        }
    }

    @Test("and its apns-id is returned as it was written")
    func echoesID() async throws {
        try await withSimulator { server in
            let id = "6f9619ff-8B86-d011-b42d-00c04fc964ff"
            for body in ["{}", ""] {
                let answer = try await Push {
                    $0.set("apns-id", id)
                    $0.body = body
                }.send(to: server)
                #expect(answer.status == (body.isEmpty ? 400 : 200) && answer.headers["apns-id"] == id)
            }
        }
    }

    @Test("and a provider token counts only if the right key signed it for the right team")
    func verifiesSignatures() async throws {
        let pem = Array(try Data(contentsOf: URL(filePath: try TestCertificates.path("AuthKey_ABC123DEFG.p8"))))
        let key = try ProviderKey(keyID: TestTokens.keyID, teamID: TestTokens.teamID, pem: pem)
        try await withSimulator {
            $0.providerKeys = [key]
        } _: { server in
            let tokens: [(String, String?)] = [
                (try TestTokens.signed(), nil), (TestTokens.unsigned(), "InvalidProviderToken"),
                (try TestTokens.signed(keyID: "ZZZ123DEFG"), "InvalidProviderToken"),
                (try TestTokens.signed(teamID: "OTHERTEAM1"), "InvalidProviderToken"),
                (try TestTokens.signed(keyFile: "client-key.pem"), "InvalidProviderToken"),
                (try TestTokens.signed(issuedAt: TestTokens.now - 3700), "ExpiredProviderToken"),
            ]
            for (token, reason) in tokens {
                let answer = try await Push { $0.authorize(token) }.send(to: server)
                #expect(answer.status == (reason == nil ? 200 : 403) && answer.reason == reason)
            }
        }
    }

    @Test("and every push type is for topics with its suffix", arguments: PushType.allCases)
    func pushTypes(_ type: PushType) async throws {
        try await withSimulator { server in
            let answer = try await Push {
                $0.set("apns-push-type", type.name)
                $0.set("apns-topic", "com.example.app" + type.topicSuffix)
                $0.set("apns-priority", "5")
            }.send(to: server)
            #expect(answer.status == 200, "\(answer.body)")
        }
    }

    @Test("and a client certificate is valid for its own topic and the derived ones")
    func takesCertificates() async throws {
        let arguments = try Push.certificate.get()
        try await withSimulator(asksForCertificates: true) { server in
            let cases: [(topic: String?, type: String, reason: String?)] = [
                ("com.example.app", "alert", nil), (nil, "alert", nil), ("com.example.app.voip", "voip", nil),
                (nil, "voip", "MissingTopic"), ("com.example.other", "alert", "TopicDisallowed"),
                ("com.example.app.location-query", "location", "TopicDisallowed"),
            ]
            for example in cases {
                let answer = try await Push {
                    $0.set("authorization", nil)
                    $0.set("apns-topic", example.topic)
                    $0.set("apns-push-type", example.type)
                    $0.arguments = arguments
                }.send(to: server)
                #expect(answer.reason == example.reason && answer.status == (example.reason == nil ? 200 : 400))
            }
            let without = try await Push { $0.set("authorization", nil) }.send(to: server)
            #expect(without.reason == "MissingProviderToken")
        }
    }
}
