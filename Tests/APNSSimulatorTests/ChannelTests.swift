import APNSSimulator
import Foundation
import TestSupport
import Testing

/// Channels of the simulator, with curl as an independent client.
@Suite("Channels of the simulator")
struct ChannelTests {
    static let path = "/1/apps/com.example.app/channels"
    static let allPath = "/1/apps/com.example.app/all-channels"
    private static let unknown = "dHN0LXNyY2gtY2hubA=="

    private static func creation(_ body: String = #"{"message-storage-policy":0,"push-type":"LiveActivity"}"#) -> Push {
        management("POST") { $0.body = body }
    }

    private static func management(
        _ method: String, channel: String? = nil, _ change: (inout Push) -> Void = { _ in }
    ) -> Push {
        Push {
            $0.method = method
            $0.path = path
            $0.body = ""
            $0.headers.removeAll { !$0.hasPrefix("authorization") }
            $0.set("apns-request-id", anyID)
            if let channel { $0.set("apns-channel-id", channel) }
            change(&$0)
        }
    }

    private static func broadcast(channel: String?, _ change: (inout Push) -> Void = { _ in }) -> Push {
        Push {
            $0.path = "/4/broadcasts/apps/com.example.app"
            $0.body = #"{"aps":{"event":"update","timestamp":1,"content-state":{}}}"#
            $0.headers.removeAll { $0.hasPrefix("apns-topic") || $0.hasPrefix("apns-id") }
            $0.set("apns-push-type", "liveactivity")
            $0.set("apns-channel-id", channel)
            $0.set("apns-request-id", anyID)
            change(&$0)
        }
    }

    private static func create(_ policy: Int, on server: APNSSimulatorServer) async throws -> String {
        let body = #"{"push-type":"LiveActivity","message-storage-policy":\#(policy)}"#
        return try #require(try await creation(body).send(to: server).headers["apns-channel-id"])
    }

    private func list(_ server: APNSSimulatorServer) async throws -> [String]? {
        try await Self.management("GET") { $0.path = Self.allPath }.send(to: server).member("channels") as? [String]
    }

    @Test("are created, read, listed and deleted separately for each app")
    func manages() async throws {
        try await withSimulator { server in
            let created = try await Self.creation().send(to: server)
            #expect(created.status == 201 && created.body.isEmpty)
            #expect(created.headers["apns-request-id"] == anyID && created.headers["apns-id"] == nil)
            let first = try #require(created.headers["apns-channel-id"])
            #expect(Data(base64Encoded: first)?.count == 16)
            let second = try await Self.create(1, on: server)
            #expect(try await list(server) == [first, second])
            for (id, policy) in [(first, 0), (second, 1)] {
                let read = try await Self.management("GET", channel: id).send(to: server)
                #expect(read.status == 200)
                #expect(read.member("message-storage-policy") as? Int == policy)
                #expect(read.member("push-type") as? String == "LiveActivity")
            }
            let other = Self.management("GET", channel: first) { $0.path = "/1/apps/com.example.other/channels" }
            #expect(try await other.send(to: server).reason == "BadPath")
            #expect(try await Self.management("DELETE", channel: first).send(to: server).status == 204)
            #expect(try await Self.management("DELETE", channel: first).send(to: server).reason == "BadPath")
            // Only a broadcast distinguishes a deleted channel from one that never existed.
            let late = try await Self.broadcast(channel: first).send(to: server)
            #expect(late.status == 400 && late.reason == "ChannelNotRegistered")
            #expect(try await list(server) == [second])
            let account = server.account
            #expect(account.requests == 1 && account.accepted == 0)
            #expect(account.managementAnswers == ["201": 2, "200": 4, "204": 1, "404 BadPath": 2])
        }
    }

    @Test("are limited per app")
    func limit() async throws {
        try await withSimulator {
            $0.maximumChannels = 2
        } _: { server in
            let first = try await Self.create(0, on: server)
            _ = try await Self.create(0, on: server)
            let third = try await Self.creation().send(to: server)
            #expect(third.status == 400 && third.reason == "CannotCreateChannelConfig")
            _ = try await Self.management("DELETE", channel: first).send(to: server)
            #expect(try await Self.creation().send(to: server).status == 201)
        }
    }

    struct Refusal: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var status: Int
        var reason: String
        var push: @Sendable () -> Push
    }

    static let managementRefusals: [Refusal] = [
        Refusal(testDescription: "another method", status: 405, reason: "MethodNotAllowed") { management("PUT") },
        Refusal(testDescription: "a list by POST", status: 405, reason: "MethodNotAllowed") {
            management("POST") { $0.path = allPath }
        },
        Refusal(testDescription: "no app", status: 404, reason: "BadPath") {
            management("POST") { $0.path = "/1/apps//channels" }
        },
        Refusal(testDescription: "no provider token", status: 403, reason: "MissingProviderToken") {
            management("GET") { $0.set("authorization", nil) }
        },
        Refusal(testDescription: "another app", status: 403, reason: "TopicMismatch") {
            management("GET") { $0.path = "/1/apps/com.example.other/all-channels" }
        },
        Refusal(testDescription: "a push type's ending", status: 400, reason: "TopicDisallowed") {
            management("GET") { $0.path = "/1/apps/com.example.app.push-type.liveactivity/all-channels" }
        },
        Refusal(testDescription: "a request id that is none", status: 400, reason: "BadMessageId") {
            management("GET") { $0.set("apns-request-id", "1") }
        },
        Refusal(testDescription: "no channel", status: 400, reason: "MissingChannelId") { management("GET") },
        Refusal(testDescription: "a channel that is none", status: 400, reason: "BadChannelId") {
            management("DELETE", channel: "no base64")
        },
        Refusal(testDescription: "no channel of the app's", status: 404, reason: "BadPath") {
            management("GET", channel: unknown)
        },
        Refusal(testDescription: "a channel to delete that is none of the app's", status: 404, reason: "BadPath") {
            management("DELETE", channel: unknown)
        },
        Refusal(testDescription: "no JSON", status: 400, reason: "BadRequestPayload") { creation("{") },
        Refusal(testDescription: "no body", status: 400, reason: "BadRequestPayload") { creation("") },
        Refusal(testDescription: "an unknown attribute", status: 400, reason: "BadRequestParams") {
            creation(#"{"message-storage-policy":0,"push-type":"LiveActivity","x":1}"#)
        },
        Refusal(testDescription: "an unknown policy", status: 400, reason: "BadRequestParams") {
            creation(#"{"message-storage-policy":2,"push-type":"LiveActivity"}"#)
        },
        Refusal(testDescription: "no push type", status: 400, reason: "MissingPushType") {
            creation(#"{"message-storage-policy":0}"#)
        },
        Refusal(testDescription: "another push type", status: 400, reason: "InvalidPushType") {
            creation(#"{"message-storage-policy":0,"push-type":"alert"}"#)
        },
    ]

    @Test("reject management requests that APNs would refuse", arguments: managementRefusals)
    func refusesManagement(_ example: Refusal) async throws {
        try await withSimulator {
            $0.topics = ["com.example.app"]
        } _: { server in
            let answer = try await example.push().send(to: server)
            #expect(answer.status == example.status)
            #expect(answer.reason == example.reason)
            // A request with an unknown path may have been a notification.
            #expect(server.account.requests == (example.testDescription == "no app" ? 1 : 0))
        }
    }

    @Test("accept broadcasts, which are counted by channel and as broadcasts")
    func broadcasts() async throws {
        try await withSimulator {
            $0.topics = ["com.example.app"]
        } _: { server in
            let (bare, storing) = (try await Self.create(0, on: server), try await Self.create(1, on: server))
            for (channel, expiration) in [(bare, "0"), (storing, "0"), (storing, "1792800000")] {
                let answer = try await Self.broadcast(channel: channel) { $0.set("apns-expiration", expiration) }
                    .send(to: server)
                #expect(answer.status == 200 && answer.body.isEmpty)
                #expect(answer.headers["apns-request-id"] == anyID && answer.headers["apns-id"] == nil)
            }
            let account = server.account
            #expect(account.requests == 3 && account.accepted == 3 && account.broadcasts == 3)
            #expect(account.accepted(channel: bare) == 1 && account.accepted(channel: storing) == 2)
            #expect(account.duplicates == 2 && account.distinctTokens == 0)
            #expect(account.answers == ["200": 3])
            let json = try JSONSerialization.jsonObject(with: Data(try account.json(details: true).utf8))
            #expect((json as? [String: Any])?["accepted_by_channel"] as? [String: Int] == [bare: 1, storing: 2])
        }
    }

    struct BroadcastRefusal: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var status = 400
        var reason: String
        var change: @Sendable (inout Push) -> Void
    }

    static let broadcastRefusals: [BroadcastRefusal] = [
        BroadcastRefusal(testDescription: "GET", status: 405, reason: "MethodNotAllowed") { $0.method = "GET" },
        BroadcastRefusal(testDescription: "no app", status: 404, reason: "BadPath") { $0.path = "/4/broadcasts/apps/" },
        BroadcastRefusal(testDescription: "no provider token", status: 403, reason: "MissingProviderToken") {
            $0.set("authorization", nil)
        },
        BroadcastRefusal(testDescription: "another app", status: 403, reason: "TopicMismatch") {
            $0.path = "/4/broadcasts/apps/com.example.other"
        },
        BroadcastRefusal(testDescription: "a push type's ending", reason: "TopicDisallowed") {
            $0.path = "/4/broadcasts/apps/com.example.app.push-type.liveactivity"
        },
        BroadcastRefusal(testDescription: "a field twice", reason: "DuplicateHeaders") {
            $0.headers.append("apns-priority: 5")
        },
        BroadcastRefusal(testDescription: "no channel", reason: "MissingChannelId") { $0.set("apns-channel-id", nil) },
        BroadcastRefusal(testDescription: "a channel that is none", reason: "BadChannelId") {
            $0.set("apns-channel-id", "YQ")
        },
        BroadcastRefusal(testDescription: "a channel that never was", reason: "BadChannelId") {
            $0.set("apns-channel-id", unknown)
        },
        BroadcastRefusal(testDescription: "no push type", reason: "MissingPushType") { $0.set("apns-push-type", nil) },
        BroadcastRefusal(testDescription: "another push type", reason: "InvalidPushType") {
            $0.set("apns-push-type", "alert")
        },
        BroadcastRefusal(testDescription: "no expiration", reason: "BadExpirationDate") {
            $0.set("apns-expiration", nil)
        },
        BroadcastRefusal(testDescription: "an expiration where nothing is stored", reason: "BadExpirationDate") {
            $0.set("apns-expiration", "1792800000")
        },
        BroadcastRefusal(testDescription: "no priority", reason: "BadPriority") { $0.set("apns-priority", nil) },
        BroadcastRefusal(testDescription: "a priority that is none", reason: "BadPriority") {
            $0.set("apns-priority", "7")
        },
        BroadcastRefusal(testDescription: "a request id that is none", reason: "BadMessageId") {
            $0.set("apns-request-id", "x")
        },
        BroadcastRefusal(testDescription: "no payload", reason: "PayloadEmpty") { $0.body = "" },
        BroadcastRefusal(testDescription: "no JSON", reason: "BadRequestPayload") { $0.body = "x" },
        BroadcastRefusal(testDescription: "5121 bytes", status: 413, reason: "PayloadTooLarge") {
            $0.body = #"{"aps":"\#(String(repeating: "x", count: 5121 - 10))"}"#
        },
    ]

    @Test("refuse broadcasts as APNs would", arguments: broadcastRefusals)
    func refusesBroadcasts(_ example: BroadcastRefusal) async throws {
        try await withSimulator {
            $0.topics = ["com.example.app"]
        } _: { server in
            let channel = try await Self.create(0, on: server)
            let answer = try await Self.broadcast(channel: channel, example.change).send(to: server)
            #expect(answer.status == example.status)
            #expect(answer.reason == example.reason)
            #expect(answer.headers["apns-request-id"]?.count == 36 || example.reason == "BadPath")
            #expect(server.account.accepted == 0)
        }
    }

    @Test("accept payloads as large as APNs does")
    func largestPayload() async throws {
        try await withSimulator { server in
            let channel = try await Self.create(0, on: server)
            let answer = try await Self.broadcast(channel: channel) {
                $0.body = #"{"aps":"\#(String(repeating: "x", count: 5120 - 10))"}"#
            }.send(to: server)
            #expect(answer.status == 200, "\(answer.body)")
        }
    }

    @Test("are matched by rules without a device")
    func rules() async throws {
        try await withSimulator(rules: ["prefix=00,answer=410", "times=1,answer=FeatureNotEnabled"]) { server in
            let (one, two) = (try await Self.create(0, on: server), try await Self.create(0, on: server))
            var reasons: [String?] = []
            for channel in [one, one, two, two] {
                reasons.append(try await Self.broadcast(channel: channel).send(to: server).reason)
            }
            #expect(reasons == ["FeatureNotEnabled", nil, "FeatureNotEnabled", nil])
        }
    }

    @Test("have separate rules for their management, which broadcasts do not match")
    func managementRules() async throws {
        try await withSimulator(rules: ["at=channels,times=1,answer=Service Unavailable", "answer=410,after=1000"]) {
            server in
            let refused = try await Self.creation().send(to: server)
            #expect(refused.status == 503 && refused.reason == "Service Unavailable")
            #expect(try await list(server) == [])
            let channel = try await Self.create(0, on: server)
            server.setRules([try FaultRule("at=channels,answer=CannotCreateChannelConfig")])
            for push in [Self.creation(), Self.management("DELETE", channel: channel)] {
                #expect(try await push.send(to: server).reason == "CannotCreateChannelConfig")
            }
            let sent = try await Self.broadcast(channel: channel).send(to: server)
            #expect(sent.status == 200)
            // Carried out, although there is no answer.
            server.setRules([try FaultRule("at=channels,answer=drop")])
            #expect(try await Self.management("DELETE", channel: channel).send(to: server).status == 0)
            server.setRules([])
            #expect(try await list(server) == [])
        }
    }

    @Test("are refused to an app without the capability, with the reason that APNs sends")
    func capability() async throws {
        try await withSimulator { server in
            let channel = try await Self.create(0, on: server)
            try server.settings.change("no-broadcasts=com.example.app+com.example.other")
            let pushes = [
                Self.creation(), Self.management("GET") { $0.path = Self.allPath }, Self.broadcast(channel: channel),
            ]
            for push in pushes {
                let answer = try await push.send(to: server)
                #expect(answer.status == 400 && answer.reason == "BroadcastFeatureNotEnabled")
            }
            try server.settings.change("no-broadcasts=com.example.other")
            #expect(try await Self.broadcast(channel: channel).send(to: server).status == 200)
        }
    }

    @Test("answer broadcasts with apns-unique-id in every environment")
    func uniqueIDs() async throws {
        try await withSimulator { server in
            let channel = try await Self.create(0, on: server)
            var ids: Set<String> = []
            for _ in 0..<2 {
                ids.insert(
                    try #require(try await Self.broadcast(channel: channel).send(to: server).headers["apns-unique-id"]))
            }
            #expect(ids.count == 2 && ids.allSatisfy { UUID(uuidString: $0) != nil && $0 != anyID })
        }
    }

    @Test("belong to the certificate's app if the credential is a certificate")
    func certificates() async throws {
        let arguments = [
            "--cert", try TestCertificates.path("client.pem"), "--key", try TestCertificates.path("client-key.pem"),
        ]
        try await withSimulator {
            $0.clientTrust = .file(try TestCertificates.path("ca.pem"))
        } _: { server in
            for (app, status) in [("com.example.app", 200), ("com.example.other", 403)] {
                let answer = try await Self.management("GET") {
                    $0.path = "/1/apps/\(app)/all-channels"
                    $0.set("authorization", nil)
                    $0.arguments = arguments
                }.send(to: server)
                #expect(answer.status == status)
            }
        }
    }
}
