import Foundation
import TestSupport
import Testing

@testable import APNSSimulator

/// Manages the simulator's channels with curl, an independent client.
@Suite("Channels of the simulator")
struct ChannelTests {
    private static let path = "/1/apps/com.example.app/channels"
    private static let allPath = "/1/apps/com.example.app/all-channels"
    private static let unknown = "dHN0LXNyY2gtY2hubA=="

    private static func creation(policy: Int = 0) -> Push {
        management("POST") { $0.body = #"{"message-storage-policy":\#(policy),"push-type":"LiveActivity"}"# }
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
        try #require(try await creation(policy: policy).send(to: server).headers["apns-channel-id"])
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
                #expect(read.status == 200 && read.member("message-storage-policy") as? Int == policy)
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

    /// Changes a request for channels that has no channel ID and no body.
    static let managementRefusals: [PushCase] = [
        PushCase("another method", 405, "MethodNotAllowed", method: "PUT"),
        PushCase("a list by POST", 405, "MethodNotAllowed", method: "POST", path: allPath),
        PushCase("no app", 404, "BadPath", method: "POST", path: "/1/apps//channels"),
        PushCase("no provider token", 403, "MissingProviderToken", ["authorization": nil]),
        PushCase("another app", 403, "TopicMismatch", path: "/1/apps/com.example.other/all-channels"),
        PushCase(
            "a push type's ending", 400, "TopicDisallowed",
            path: "/1/apps/com.example.app.push-type.liveactivity/all-channels"),
        PushCase("a request id that is none", 400, "BadMessageId", ["apns-request-id": "1"]),
        PushCase("no channel", 400, "MissingChannelId"),
        PushCase("a channel that is none", 400, "BadChannelId", ["apns-channel-id": "no base64"], method: "DELETE"),
        PushCase("no channel of the app's", 404, "BadPath", ["apns-channel-id": unknown]),
        PushCase("deletion of an unknown channel", 404, "BadPath", ["apns-channel-id": unknown], method: "DELETE"),
        PushCase("no JSON", 400, "BadRequestPayload", method: "POST", body: "{"),
        PushCase("no body", 400, "BadRequestPayload", method: "POST", body: ""),
        PushCase(
            "an unknown attribute", 400, "BadRequestParams", method: "POST",
            body: #"{"message-storage-policy":0,"push-type":"LiveActivity","x":1}"#),
        PushCase(
            "an unknown policy", 400, "BadRequestParams", method: "POST",
            body: #"{"message-storage-policy":2,"push-type":"LiveActivity"}"#),
        PushCase("no push type", 400, "MissingPushType", method: "POST", body: #"{"message-storage-policy":0}"#),
        PushCase(
            "another push type", 400, "InvalidPushType", method: "POST",
            body: #"{"message-storage-policy":0,"push-type":"alert"}"#),
    ]

    @Test("reject management requests that APNs would refuse", arguments: managementRefusals)
    func refusesManagement(_ example: PushCase) async throws {
        try await withSimulator(topics: ["com.example.app"]) { server in
            let answer = try await Self.management("GET", example.change).send(to: server)
            #expect(answer.status == example.status && answer.reason == example.reason)
            // A request with an unknown path is counted, because it may be meant as a notification.
            #expect(server.account.requests == (example.testDescription == "no app" ? 1 : 0))
        }
    }

    @Test("accept broadcasts, which are counted by channel and as broadcasts, and recorded")
    func broadcasts() async throws {
        let recorder = Recorder()
        try await withSimulator(topics: ["com.example.app"], recorder: recorder) { server in
            let (bare, storing) = (try await Self.create(0, on: server), try await Self.create(1, on: server))
            // The third reason is spelled as in Apple's sample.
            for (channel, expiration, type) in [
                (bare, "0", "liveactivity"), (storing, "0", "liveactivity"), (storing, "1792800000", "Liveactivity"),
            ] {
                let answer = try await Self.broadcast(channel: channel) {
                    $0.set("apns-expiration", expiration)
                    $0.set("apns-push-type", type)
                }.send(to: server)
                #expect(answer.status == 200 && answer.body.isEmpty)
                #expect(answer.headers["apns-request-id"] == anyID && answer.headers["apns-id"] == nil)
            }
            let account = server.account
            #expect(account.requests == 3 && account.accepted == 3 && account.broadcasts == 3)
            #expect(account.accepted(channel: bare) == 1 && account.accepted(channel: storing) == 2)
            #expect(account.duplicates == 2 && account.distinctTokens == 0)
            #expect(account.answers == ["200": 3])
            let counts = try server.accountPage(details: true)["accepted_by_channel"] as? [String: Int]
            #expect(counts == [bare: 1, storing: 2])
            // Requests that manage channels are not recorded.
            let recorded = recorder.notifications().entries.map(\.notification)
            #expect(recorded.map(\.channel) == [bare, storing, storing])
            #expect(recorded.allSatisfy { $0.token == nil && $0.apnsID == anyID && $0.accepted })
            #expect(recorded.allSatisfy { $0.topic == "com.example.app" })
        }
    }

    /// Changes of a valid broadcast.
    static let broadcastRefusals: [PushCase] = [
        PushCase("GET", 405, "MethodNotAllowed", method: "GET"),
        PushCase("no app", 404, "BadPath", path: "/4/broadcasts/apps/"),
        PushCase("no provider token", 403, "MissingProviderToken", ["authorization": nil]),
        PushCase("another app", 403, "TopicMismatch", path: "/4/broadcasts/apps/com.example.other"),
        PushCase(
            "a push type's ending", 400, "TopicDisallowed",
            path: "/4/broadcasts/apps/com.example.app.push-type.liveactivity"),
        PushCase("a field twice", 400, "DuplicateHeaders") { $0.headers.append("apns-priority: 5") },
        PushCase("no channel", 400, "MissingChannelId", ["apns-channel-id": nil]),
        PushCase("a channel that is none", 400, "BadChannelId", ["apns-channel-id": "YQ"]),
        PushCase("a channel that never was", 400, "BadChannelId", ["apns-channel-id": unknown]),
        PushCase("no push type", 400, "MissingPushType", ["apns-push-type": nil]),
        PushCase("another push type", 400, "InvalidPushType", ["apns-push-type": "alert"]),
        PushCase("no expiration", 400, "BadExpirationDate", ["apns-expiration": nil]),
        PushCase("an expiration where nothing is stored", 400, "BadExpirationDate", ["apns-expiration": "1792800000"]),
        PushCase("no priority", 400, "BadPriority", ["apns-priority": nil]),
        PushCase("a priority that is none", 400, "BadPriority", ["apns-priority": "7"]),
        PushCase("a request id that is none", 400, "BadMessageId", ["apns-request-id": "x"]),
        PushCase("no payload", 400, "PayloadEmpty", body: ""),
        PushCase("no JSON", 400, "BadRequestPayload", body: "x"),
        PushCase("5121 bytes", 413, "PayloadTooLarge", body: RequestCheckTests.payload(5121)),
    ]

    @Test("refuse broadcasts as APNs would", arguments: broadcastRefusals)
    func refusesBroadcasts(_ example: PushCase) async throws {
        try await withSimulator(topics: ["com.example.app"]) { server in
            let channel = try await Self.create(0, on: server)
            let answer = try await Self.broadcast(channel: channel, example.change).send(to: server)
            #expect(answer.status == example.status && answer.reason == example.reason)
            #expect(answer.headers["apns-request-id"]?.count == 36 || example.reason == "BadPath")
            #expect(server.account.accepted == 0)
        }
    }

    @Test("accept payloads as large as APNs does")
    func largestPayload() async throws {
        try await withSimulator { server in
            let channel = try await Self.create(0, on: server)
            let push = Self.broadcast(channel: channel) { $0.body = RequestCheckTests.payload(5120) }
            #expect(try await push.send(to: server).status == 200)
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
            server.service.rules.replace([try FaultRule("at=channels,answer=CannotCreateChannelConfig")])
            for push in [Self.creation(), Self.management("DELETE", channel: channel)] {
                #expect(try await push.send(to: server).reason == "CannotCreateChannelConfig")
            }
            #expect(try await Self.broadcast(channel: channel).send(to: server).status == 200)
            // The channel was created, although curl received no answer.
            server.service.rules.replace([try FaultRule("at=channels,answer=drop")])
            #expect(try await Self.management("DELETE", channel: channel).send(to: server).status == 0)
            server.service.rules.replace([])
            #expect(try await list(server) == [])
        }
    }

    @Test("are refused to an app without the capability, with the reason that APNs sends")
    func capability() async throws {
        try await withSimulator { server in
            let channel = try await Self.create(0, on: server)
            try server.service.settings.change("no-broadcasts=com.example.app+com.example.other")
            for push in [
                Self.creation(), Self.management("GET") { $0.path = Self.allPath }, Self.broadcast(channel: channel),
            ] {
                let answer = try await push.send(to: server)
                #expect(answer.status == 400 && answer.reason == "BroadcastFeatureNotEnabled")
            }
            try server.service.settings.change("no-broadcasts=com.example.other")
            #expect(try await Self.broadcast(channel: channel).send(to: server).status == 200)
        }
    }

    @Test("answer broadcasts with apns-unique-id in every environment")
    func uniqueIDs() async throws {
        try await withSimulator { server in
            let channel = try await Self.create(0, on: server)
            var ids: Set<String> = []
            for _ in 0..<2 {
                let answer = try await Self.broadcast(channel: channel).send(to: server)
                ids.insert(try #require(answer.headers["apns-unique-id"]))
            }
            #expect(ids.count == 2 && ids.allSatisfy { UUID(uuidString: $0) != nil && $0 != anyID })
        }
    }

    @Test("belong to the certificate's app if the credential is a certificate")
    func certificates() async throws {
        let arguments = try Push.certificate.get()
        try await withSimulator(asksForCertificates: true) { server in
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
