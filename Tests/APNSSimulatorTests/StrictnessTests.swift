import Foundation
import TestSupport
import Testing

@testable import APNSSimulator

private func push(issuedAgo seconds: Int) -> Push {
    Push { $0.authorize(TestTokens.unsigned(issuedAt: TestTokens.now - seconds)) }
}

private func push(token: String, topic: String = "com.example.app") -> Push {
    Push(token: token) { $0.set("apns-topic", topic) }
}

@Suite("By default, like APNs, the simulator", .timeLimit(.minutes(10)))
struct StrictnessTests {
    private static let gone = deviceToken("aa")
    private static let foreign = deviceToken("bb")

    private static func devices() throws -> [RegisteredDevice] {
        [
            try RegisteredDevice("token=\(gone),topic=com.example.app,state=unregistered,since=1700000000123"),
            try RegisteredDevice("token=\(foreign),topic=com.example.other"),
        ]
    }

    @Test("announces the settings that APNs was seen to announce, and grants windows as they are used up")
    func settings() async throws {
        try await withSimulator(streams: 100) { server in
            let tokens = (0..<30).map { "aa" + anyToken.dropFirst(4) + String($0 + 10) }
            let big = #"{"aps":{"alert":""# + String(repeating: "x", count: 4000) + #""}}"#
            let log = try await nghttp(server, tokens: tokens, body: big).output
            for entry in [
                "HEADER_TABLE_SIZE(0x01):4096", "MAX_CONCURRENT_STREAMS(0x03):100", "INITIAL_WINDOW_SIZE(0x04):65535",
                "MAX_FRAME_SIZE(0x05):16384", "MAX_HEADER_LIST_SIZE(0x06):8000",
            ] { #expect(log.contains("SETTINGS_" + entry)) }
            #expect(limits(log) == [100, 1000])
            #expect(log.contains("recv WINDOW_UPDATE frame") && !log.contains("UNKNOWN"))
            #expect(server.account.accepted == 30)
        }
    }

    @Test("allows one stream after a rejection, and all of them again after a success; 410 is not a rejection")
    func streams() async throws {
        for (token, setting, expected) in [
            (Self.foreign, "error-streams=1", [10, 1000, 1, 1000]), (Self.gone, "error-streams=1", [10, 1000]),
            (Self.foreign, "error-streams=off", [10, 1000]), (Self.foreign, "error-streams=7", [10, 1000, 7, 1000]),
        ] {
            try await withSimulator(streams: 10) {
                $0.devices = try Self.devices()
                try $0.settings.change(setting)
            } _: { server in
                let log = try await nghttp(server, tokens: [token, anyToken])
                #expect(limits(log.output) == expected, "\(token) \(setting)")
                #expect(server.account.accepted == 1)
            }
        }
    }

    @Test("answers all requests that a client sent before it received the lower limit")
    func requestsUnderWay() async throws {
        try await withSimulator(streams: 1000) {
            $0.devices = try Self.devices()
            try $0.settings.change("error-limit=off")
        } _: { server in
            let report = try await h2load(server, requests: 500, streams: 100, token: Self.foreign)
            #expect(report.output.contains("500 done, 0 succeeded, 500 failed, 0 errored, 0 timeout"))
            #expect(server.account.answers == ["400 DeviceTokenNotForTopic": 500] && server.account.connections == 1)
        }
    }

    @Test("ends a connection with a GOAWAY after too many errors in a row, sooner for bad device tokens")
    func goAway() async throws {
        try await withSimulator { server in
            let bad = Array(repeating: Push(token: "abcd"), count: 20)
            let answers = try await curl(server, bad + [Push()])
            #expect(answers.prefix(20).allSatisfy { $0.reason == "BadDeviceToken" } && answers.count == 21)
            #expect(answers.map(\.connects) == [1] + Array(repeating: 0, count: 19) + [1])
            #expect(answers.last?.status == 200)
            #expect(server.account.goAways == 1 && server.account.protocolErrors == 0)
        }
        try await withSimulator {
            $0.devices = try Self.devices()
            try $0.settings.change("error-limit=3")
        } _: { server in
            let (foreign, gone) = (push(token: Self.foreign), push(token: Self.gone))
            let sequence = [foreign, foreign, Push(), foreign, gone, gone, gone, foreign, foreign, Push()]
            let answers = try await curl(server, sequence)
            #expect(answers.map(\.connects) == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1])
            try server.service.settings.change("error-limit=off,bad-token-limit=off")
            let patient = try await curl(server, Array(repeating: Push(token: "abcd"), count: 120))
            #expect(patient.count == 120 && patient.dropFirst().allSatisfy { $0.connects == 0 })
        }
    }

    @Test("wedges a connection on which a provider token was too old, until it is closed")
    func expired() async throws {
        try await withSimulator { server in
            let sequence = [push(issuedAgo: 10), push(issuedAgo: 3700), push(issuedAgo: 10), push(issuedAgo: 0)]
            let answers = try await curl(server, sequence)
            #expect(answers.map(\.reason) == [nil] + Array(repeating: "ExpiredProviderToken", count: 3))
            #expect(answers.map(\.connects) == [1, 0, 0, 0])
            #expect(try await push(issuedAgo: 10).send(to: server).status == 200)
            try server.service.settings.change("expired-wedge=off")
            #expect(try await curl(server, sequence).map(\.status) == [200, 403, 200, 200])
        }
    }

    @Test("allows one change of the provider token in 20 minutes, on each connection")
    func updates() async throws {
        try await withSimulator { server in
            let (first, second, third) = (push(issuedAgo: 30), push(issuedAgo: 20), push(issuedAgo: 10))
            let answers = try await curl(server, [first, second, first, third, second])
            let refused = "TooManyProviderTokenUpdates"
            #expect(answers.map(\.reason) == [nil, nil, nil, refused, refused])
            #expect(answers.last?.status == 429 && answers.map(\.connects) == [1, 0, 0, 0, 0])
            #expect(try await curl(server, [third, first]).map(\.status) == [200, 200])
            try server.service.settings.change("token-interval=off")
            #expect(try await curl(server, [first, second, third]).map(\.status) == [200, 200, 200])
        }
    }

    @Test("accepts provider tokens from an hour before to an hour after now")
    func age() async throws {
        try await withSimulator { server in
            let expected: [(Int, String?)] = [
                (3550, nil), (3650, "ExpiredProviderToken"), (-3550, nil), (-3650, "InvalidProviderToken"),
            ]
            for (seconds, reason) in expected {
                #expect(try await push(issuedAgo: seconds).send(to: server).reason == reason)
            }
            try server.service.settings.change("token-age=off")
            for seconds in [100_000, -100_000] {
                #expect(try await push(issuedAgo: seconds).send(to: server).status == 200)
            }
        }
    }

    @Test("checks the topic, the environment and the state of a registered device token")
    func devices() async throws {
        try await withSimulator {
            $0.devices = try Self.devices()
        } _: { server in
            server.service.devices.add([
                try RegisteredDevice("token=\(Self.foreign),topic=com.example.third,environment=sandbox"),
                try RegisteredDevice("token=\(deviceToken("cc")),topic=com.example.app,environment=sandbox"),
                try RegisteredDevice("token=\(deviceToken("dd")),topic=com.example.app,state=expired"),
            ])
            let cases: [(String, String, String?)] = [
                (Self.gone, "com.example.app", "Unregistered"), (Self.foreign, "com.example.other", nil),
                (Self.foreign, "com.example.app", "DeviceTokenNotForTopic"),
                (Self.foreign, "com.example.third", "DeviceTokenNotForTopic"),
                (deviceToken("cc"), "com.example.app", "BadDeviceToken"),
                (deviceToken("dd"), "com.example.app", "ExpiredToken"), (anyToken, "com.example.app", nil),
            ]
            let answers = try await curl(server, cases.map { push(token: $0.0, topic: $0.1) })
            #expect(answers.map(\.reason) == cases.map(\.2))
            #expect(answers.first?.status == 410 && answers.first?.member("timestamp") as? Int == 1_700_000_000_123)
            let now = Date().timeIntervalSince1970 * 1000
            #expect(answers[5].status == 410 && abs((answers[5].member("timestamp") as? Double ?? 0) - now) < 60_000)
            try server.service.settings.change("registered-only=on")
            #expect(try await Push().send(to: server).reason == "BadDeviceToken")
            #expect(try await push(token: Self.foreign, topic: "com.example.other").send(to: server).status == 200)
        }
    }

    @Test("binds a connection to the topics of its first push")
    func topics() async throws {
        try await withSimulator(topics: ["com.example.app"], hasControlPort: true) { server in
            let port = try #require(server.controlPort)
            let more = Push {
                $0.method = "PUT"
                $0.path = "http://127.0.0.1:\(port)/topics"
                $0.body = #"{"topics":["com.example.app","com.example.new"]}"#
                $0.headers = []
            }
            let new = push(token: anyToken, topic: "com.example.new")
            let answers = try await curl(server, [Push(), more, new, Push()])
            #expect(answers.map(\.status) == [200, 200, 400, 200] && answers[2].reason == "TopicDisallowed")
            #expect(answers[2].connects == 0)
            #expect(try await new.send(to: server).status == 200)
            server.service.topics = ["com.example.app"]
            try server.service.settings.change("bind-topics=off")
            #expect(try await curl(server, [Push(), more, new]).map(\.status) == [200, 200, 200])
        }
    }

    @Test("adds an apns-unique-id to answers for devices in the sandbox")
    func uniqueIDs() async throws {
        for (setting, expected) in [
            ("environment=production", false), ("environment=sandbox", true), ("unique-id=on", true),
            ("environment=sandbox,unique-id=off", false),
        ] {
            try await withSimulator {
                try $0.settings.change(setting)
            } _: { server in
                let answers = try await curl(server, [Push(), Push(token: "abcd"), Push()])
                #expect(answers.map(\.status) == [200, 400, 200])
                let ids = answers.compactMap { $0.headers["apns-unique-id"] }
                #expect(Set(ids).count == (expected ? 3 : 0), "\(setting): \(ids)")
                #expect(ids.allSatisfy { UUID(uuidString: $0) != nil })
                #expect(answers.map { $0.headers["apns-id"] } == [anyID, anyID, anyID])
            }
        }
    }
}

@Suite("With credentials, the simulator", .timeLimit(.minutes(10)))
struct CredentialStrictnessTests {
    /// Maps key IDs to files of `scripts/make-certs`.
    private static let files = [
        "TEAMKEY001": "AuthKey_ABC123DEFG.p8", "TEAMKEY002": "client-key.pem", "TOPICKEY01": "server-key.pem",
        "TOPICKEY02": "ca-key.pem", "OTHERTEAM1": "other-ca-key.pem",
    ]

    private static func key(_ keyID: String, team: String = "TEAM123456", _ scope: String? = nil) throws -> ProviderKey
    {
        let pem = Array(try Data(contentsOf: URL(filePath: try TestCertificates.path(try #require(files[keyID])))))
        return try ProviderKey(
            keyID: keyID, teamID: team, pem: pem,
            scope: try scope.map { try ProviderKey.Scope($0) } ?? ProviderKey.Scope())
    }

    private static func push(
        _ keyID: String, team: String = "TEAM123456", topic: String = "com.example.app"
    ) throws -> Push {
        let token = try TestTokens.signed(keyID: keyID, teamID: team, keyFile: try #require(files[keyID]))
        return Push {
            $0.authorize(token)
            $0.set("apns-topic", topic)
        }
    }

    @Test("accepts tokens of one team's keys on a connection, and of no other team's")
    func teams() async throws {
        try await withSimulator {
            $0.providerKeys = [
                try Self.key("TEAMKEY001"), try Self.key("TEAMKEY002"), try Self.key("OTHERTEAM1", team: "TEAM999999"),
            ]
        } _: { server in
            let (one, two) = (try Self.push("TEAMKEY001"), try Self.push("TEAMKEY002"))
            let other = try Self.push("OTHERTEAM1", team: "TEAM999999")
            let answers = try await curl(server, [one, two, one, other, two])
            #expect(answers.map(\.reason) == [nil, nil, nil, "InvalidProviderToken", nil])
            #expect(answers.map(\.connects) == [1, 0, 0, 0, 0])
            #expect(try await other.send(to: server).status == 200)
        }
    }

    @Test("accepts topic-specific keys for their topics, and not together with others, except the related one")
    func topicKeys() async throws {
        try await withSimulator {
            $0.providerKeys = [
                try Self.key("TEAMKEY001"), try Self.key("TOPICKEY01", "topics=com.example.app+com.example.b"),
                try Self.key("TOPICKEY02", "topics=com.example.c,related=TOPICKEY01"),
                try Self.key("TEAMKEY002", "topics=com.example.d"),
            ]
            // Each request of this test has a new provider token.
            $0.settings.tokenInterval = nil
        } _: { server in
            let (team, topic) = (try Self.push("TEAMKEY001"), try Self.push("TOPICKEY01"))
            let related = try Self.push("TOPICKEY02", topic: "com.example.c")
            let unrelated = try Self.push("TEAMKEY002", topic: "com.example.d")
            let disallowed = try Self.push("TOPICKEY01", topic: "com.example.c")
            let derived = try Self.push("TOPICKEY01", topic: "com.example.b")
            let answers = try await curl(server, [topic, derived, related, disallowed, unrelated, team, topic])
            let reason = "UnrelatedKeyIdInToken"
            #expect(answers.map(\.reason) == [nil, nil, nil, "TopicDisallowed", reason, reason, nil])
            #expect(try await curl(server, [team, topic, team]).map(\.reason) == [nil, reason, nil])
            #expect(try await unrelated.send(to: server).status == 200)
        }
    }

    @Test("refuses a key of the other environment, with the reason that APNs sends")
    func environments() async throws {
        for (environment, reason) in [("production", nil), ("sandbox", "BadEnvironmentKeyInToken")] {
            try await withSimulator {
                $0.providerKeys = [try Self.key("TEAMKEY001", "environment=production")]
                try $0.settings.change("environment=\(environment)")
            } _: { server in
                let answer = try await Self.push("TEAMKEY001").send(to: server)
                #expect(answer.reason == reason && answer.status == (reason == nil ? 200 : 403))
            }
        }
    }

    @Test("prefers a certificate to authorization, and checks its environment")
    func certificates() async throws {
        let workshop = try OpenSSLWorkshop()
        let sandbox = "1.2.840.113635.100.6.3.1=DER:05:00"
        let production = "1.2.840.113635.100.6.3.2=DER:05:00"
        for (name, extensions) in [("sandbox", [sandbox]), ("both", [sandbox, production]), ("neither", [])] {
            try workshop.certificate(name, subject: "/UID=com.example.app/CN=Push", extensions: extensions)
        }
        try await withSimulator(asksForCertificates: true) { server in
            for (name, reason) in [("sandbox", "BadCertificateEnvironment"), ("both", nil), ("neither", nil)] {
                let push = Push {
                    $0.set("authorization", "bearer nonsense")
                    $0.arguments = ["--cert", workshop.path("\(name).pem"), "--key", workshop.path("\(name)-key.pem")]
                }
                let answer = try await push.send(to: server)
                #expect(answer.reason == reason && answer.status == (reason == nil ? 200 : 403), "\(name)")
                try server.service.settings.change("environment=sandbox")
                #expect(try await push.send(to: server).status == 200, "\(name)")
                try server.service.settings.change("environment=production")
            }
        }
    }
}

@Suite("Through its control port the simulator", .timeLimit(.minutes(10)))
struct StateControlTests {
    @Test("shows and changes its settings, topics and devices, and reports mistakes in them")
    func state() async throws {
        try await withSimulator(hasControlPort: true) { server in
            let settings = #"{"settings":"error-limit=5,environment=sandbox"}"#
            let changed = try await server.ask("PATCH", "/settings", settings).json["settings"] as? String
            #expect(changed?.contains("error-limit=5") == true)
            #expect(server.service.settings.environment == .sandbox)
            let wrong = try await server.ask("PATCH", "/settings", #"{"settings":"error-limit=none"}"#)
            #expect(wrong.status == 400)
            #expect(try wrong.error?.hasPrefix("setting 'error-limit=none': error-limit: must be") == true)
            let device = "token=\(anyToken),topic=com.example.other,environment=sandbox,state=active"
            for method in ["PUT", "POST"] {
                let added = try await server.ask(method, "/devices", #"{"devices":["\#(device)"]}"#)
                #expect(try added.texts("devices") == [device])
            }
            #expect(try await Push().send(to: server).reason == "DeviceTokenNotForTopic")
            #expect(try await server.ask("POST", "/devices", #"{"devices":["topic=a"]}"#).status == 400)
            #expect(try await server.ask("DELETE", "/devices").texts("devices") == [])
            #expect(try await Push().send(to: server).status == 200)
            let topics = try await server.ask("PUT", "/topics", #"{"topics":["com.example.b"]}"#)
            #expect(try topics.texts("topics") == ["com.example.b"])
            #expect(try await Push().send(to: server).reason == "TopicDisallowed")
        }
    }
}
