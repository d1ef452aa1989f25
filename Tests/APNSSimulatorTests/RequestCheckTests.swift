import APNS
import APNSSimulator
import Foundation
import TLS
import TestSupport
import Testing

@Suite("A request is checked in APNs' order")
struct RequestCheckTests {
    struct Case: CustomTestStringConvertible, Sendable {
        let testDescription: String
        let status: Int
        let reason: String
        let change: @Sendable (inout Push) -> Void

        init(_ name: String, _ status: Int, _ reason: String, _ change: @escaping @Sendable (inout Push) -> Void) {
            testDescription = name
            self.status = status
            self.reason = reason
            self.change = change
        }
    }

    static let refusals: [Case] = [
        Case("another method", 405, "MethodNotAllowed") { $0.method = "PUT" },
        Case("another method comes before a bad path", 405, "MethodNotAllowed") {
            $0.method = "PUT"
            $0.path = "/"
        },
        Case("another path", 404, "BadPath") { $0.path = "/2/device/" + anyToken },
        Case("a path without a token", 400, "MissingDeviceToken") { $0.path = "/3/device/" },
        Case("a header given twice", 400, "DuplicateHeaders") { $0.headers.append("apns-priority: 10") },
        Case("duplicates come before the provider token", 400, "DuplicateHeaders") {
            $0.set("authorization", nil)
            $0.headers.append("apns-topic: com.example.app")
        },
        Case("no provider token", 403, "MissingProviderToken") { $0.set("authorization", nil) },
        Case("no provider token comes before a bad apns-id", 403, "MissingProviderToken") {
            $0.set("authorization", nil)
            $0.set("apns-id", "x")
        },
        Case("another scheme", 403, "MissingProviderToken") { $0.set("authorization", "Basic eDp5") },
        Case("nonsense for a provider token", 403, "InvalidProviderToken") {
            $0.set("authorization", "bearer nonsense")
        },
        Case("another algorithm", 403, "InvalidProviderToken") {
            $0.set("authorization", "bearer " + TestTokens.unsigned(algorithm: "HS256"))
        },
        Case("a team that is a number", 403, "InvalidProviderToken") {
            $0.set("authorization", "bearer " + TestTokens.unsigned(team: "17"))
        },
        Case("a provider token from the future", 403, "InvalidProviderToken") {
            $0.set("authorization", "bearer " + TestTokens.unsigned(issuedAt: TestTokens.now + 4000))
        },
        Case("a provider token more than an hour old", 403, "ExpiredProviderToken") {
            $0.set("authorization", "bearer " + TestTokens.unsigned(issuedAt: TestTokens.now - 3700))
        },
        Case("an apns-id that is no UUID", 400, "BadMessageId") { $0.set("apns-id", "6F9619FF") },
        Case("a bad apns-id comes before a bad expiration", 400, "BadMessageId") {
            $0.set("apns-id", "6F9619FF8B86D011B42D00C04FC964FF0000")
            $0.set("apns-expiration", "tomorrow")
        },
        Case("an expiration that is no number", 400, "BadExpirationDate") { $0.set("apns-expiration", "tomorrow") },
        Case("a negative expiration", 400, "BadExpirationDate") { $0.set("apns-expiration", "-1") },
        Case("a priority of 7", 400, "BadPriority") { $0.set("apns-priority", "7") },
        Case("background with priority 10", 400, "BadPriority") { $0.set("apns-push-type", "background") },
        Case("an unknown push type", 400, "InvalidPushType") { $0.set("apns-push-type", "shout") },
        Case("a collapse id of 65 bytes", 400, "BadCollapseId") {
            $0.set("apns-collapse-id", String(repeating: "c", count: 65))
        },
        Case("no topic", 400, "MissingTopic") { $0.set("apns-topic", nil) },
        Case("a topic with a space", 400, "BadTopic") { $0.set("apns-topic", "com.example app") },
        Case("voip to the bare bundle identifier", 400, "BadTopic") { $0.set("apns-push-type", "voip") },
        Case("a topic that is not on the list", 400, "TopicDisallowed") { $0.set("apns-topic", "com.example.other") },
        Case("a bad topic comes before an empty payload", 400, "BadTopic") {
            $0.set("apns-topic", "!")
            $0.body = ""
        },
        Case("no payload", 400, "PayloadEmpty") { $0.body = "" },
        Case("a payload that is no JSON object", 400, "PayloadEmpty") { $0.body = "[1]" },
        Case("a payload of 4097 bytes", 413, "PayloadTooLarge") { $0.body = Self.payload(4097) },
        Case("a VoIP payload of 5121 bytes", 413, "PayloadTooLarge") {
            $0.set("apns-push-type", "voip")
            $0.set("apns-topic", "com.example.app.voip")
            $0.body = Self.payload(5121)
        },
        Case("too large a payload comes before a bad device token", 413, "PayloadTooLarge") {
            $0.path = "/3/device/zz"
            $0.body = Self.payload(4097)
        },
        Case("a device token that is not hex", 400, "BadDeviceToken") {
            $0.path = "/3/device/" + anyToken.dropLast() + "x"
        },
        Case("a device token of 1,025 bytes", 400, "BadDeviceToken") {
            $0.path = "/3/device/" + String(repeating: "ab", count: 1025)
        },
        Case("a device token that is too short", 400, "BadDeviceToken") { $0.path = "/3/device/abcd" },
    ]

    static let acceptances: [Case] = [
        Case("an alert", 200, "") { _ in },
        Case("the least of headers", 200, "") {
            $0.headers = ["authorization: bearer " + TestTokens.unsigned(), "apns-topic: com.example.app"]
        },
        Case("background with priority 5", 200, "") {
            $0.set("apns-push-type", "background")
            $0.set("apns-priority", "5")
        },
        Case("a payload of 4096 bytes", 200, "") { $0.body = Self.payload(4096) },
        Case("a VoIP payload of 5120 bytes", 200, "") {
            $0.set("apns-push-type", "voip")
            $0.set("apns-topic", "com.example.app.voip")
            $0.body = Self.payload(5120)
        },
        Case("a collapse id of 64 bytes", 200, "") { $0.set("apns-collapse-id", String(repeating: "c", count: 64)) },
        Case("a device token of 100 bytes in capitals", 200, "") {
            $0.path = "/3/device/" + String(repeating: "AB", count: 100)
        },
        Case("a device token of 1,024 bytes", 200, "") {
            $0.path = "/3/device/" + String(repeating: "ab", count: 1024)
        },
        Case("a Live Activity with priority 1", 200, "") {
            $0.set("apns-push-type", "liveactivity")
            $0.set("apns-topic", "com.example.app.push-type.liveactivity")
            $0.set("apns-priority", "1")
        },
        Case("a provider token from 58 minutes ahead", 200, "") {
            $0.set("authorization", "bearer " + TestTokens.unsigned(issuedAt: TestTokens.now + 3500))
        },
    ]

    static func payload(_ size: Int) -> String { #"{"aps":{"alert":"\#(String(repeating: "x", count: size - 20))"}}"# }

    @Test("and refused with its reason", arguments: refusals)
    func refuses(_ example: Case) async throws {
        try await withSimulator {
            $0.topics = ["com.example.app"]
        } _: { server in
            let answer = try await Push(example.change).send(to: server)
            #expect(answer.status == example.status)
            #expect(answer.reason == example.reason)
            #expect(answer.headers["content-type"] == "application/json")
            #expect(answer.headers["apns-id"]?.count == 36)
            #expect(server.account.answers == ["\(example.status) \(example.reason)": 1])
            #expect(server.account.accepted == 0)
        }
    }

    @Test("and accepted with an empty body", arguments: acceptances)
    func accepts(_ example: Case) async throws {
        try await withSimulator {
            $0.topics = ["com.example.app"]
        } _: { server in
            let answer = try await Push(example.change).send(to: server)
            #expect(answer.status == 200)
            #expect(answer.body.isEmpty)
            #expect(answer.headers["apns-id"]?.count == 36)
            #expect(server.account.accepted == 1)
        }
    }

    @Test("and its apns-id is returned as it was written")
    func echoesID() async throws {
        try await withSimulator { server in
            let id = "6f9619ff-8B86-d011-b42d-00c04fc964ff"
            let accepted = try await Push { $0.set("apns-id", id) }.send(to: server)
            let refused = try await Push {
                $0.set("apns-id", id)
                $0.body = ""
            }.send(to: server)
            #expect(accepted.headers["apns-id"] == id)
            #expect(refused.headers["apns-id"] == id)
        }
    }

    @Test("and a provider token counts only if the right key signed it for the right team")
    func verifiesSignatures() async throws {
        let pem = Array(try Data(contentsOf: URL(filePath: try TestCertificates.path("AuthKey_ABC123DEFG.p8"))))
        let key = try ProviderKey(keyID: TestTokens.keyID, teamID: TestTokens.teamID, pem: pem)
        try await withSimulator {
            $0.providerKeys = [key]
        } _: { server in
            let tokens: [(String, Int)] = [
                (try await TestTokens.signed(), 200),
                (TestTokens.unsigned(), 403),
                (try await TestTokens.signed(keyID: "ZZZ123DEFG"), 403),
                (try await TestTokens.signed(teamID: "OTHERTEAM1"), 403),
                (try await TestTokens.signed(keyFile: "client-key.pem"), 403),
            ]
            for (token, status) in tokens {
                let answer = try await Push { $0.set("authorization", "bearer " + token) }.send(to: server)
                #expect(answer.status == status)
                #expect(answer.reason == (status == 200 ? nil : "InvalidProviderToken"))
            }
            let old = try await TestTokens.signed(issuedAt: TestTokens.now - 3700)
            let expired = try await Push { $0.set("authorization", "bearer " + old) }.send(to: server)
            #expect(expired.reason == "ExpiredProviderToken")
        }
    }

    @Test("and every push type is for topics with its suffix", arguments: PushType.allCases)
    func pushTypes(_ type: PushType) async throws {
        try await withSimulator { server in
            let answer = try await Push {
                $0.set("apns-push-type", type.rawValue)
                $0.set("apns-topic", "com.example.app" + type.topicSuffix)
                $0.set("apns-priority", "5")
            }.send(to: server)
            #expect(answer.status == 200, "\(answer.body)")
        }
    }

    @Test("and a client certificate is valid for its own topic and the derived ones")
    func takesCertificates() async throws {
        let certificate = ["--cert", try TestCertificates.path("client.pem"), "--key"]
        let arguments = certificate + [try TestCertificates.path("client-key.pem")]
        try await withSimulator {
            $0.clientTrust = .file(try TestCertificates.path("ca.pem"))
        } _: { server in
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
                #expect(answer.reason == example.reason)
                #expect(answer.status == (example.reason == nil ? 200 : 400))
            }
            let without = try await Push { $0.set("authorization", nil) }.send(to: server)
            #expect(without.reason == "MissingProviderToken")
        }
    }
}
