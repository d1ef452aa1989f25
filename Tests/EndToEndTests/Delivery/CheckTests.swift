import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Checking a configuration")
    struct CheckTests {
        private static func check(
            _ redis: RedisServer, _ simulator: SimulatorProcess, _ arguments: [String] = [],
            _ more: [String: String] = [:], job: String? = nil
        ) async throws -> CommandLineTests.Output {
            try await redis.apnsWorker(
                ["check"] + arguments + (job == nil ? [] : ["--job", "-"]),
                environment: keyEnvironment(redis, simulator).merging(more) { $1 }, input: job)
        }

        @Test("a good one prints a verdict per line, changes nothing in Redis, and exits with 0")
        func good() async throws {
            let (redis, simulator) = try await startServers()
            try redis.push(TestJob.many(3))
            try await Self.check(redis, simulator).succeeds(
                "ok       redis: redis://", "ok       redis: memory ", " (no limit), append-only file off",
                "warning  redis: Redis at 127.0.0.1:\(redis.port) keeps no append-only file",
                "ok       redis: queue default: 3 jobs wait",
                "ok       app default: signing key ABC123DEFG of team TEAM123456",
                "ok       app default: connected to localhost:\(simulator.port) with TLS",
                "ok       app default: APNs accepts the key ABC123DEFG for com.example.app")
            #expect(try redis.run("KEYS", "*") == .array(["push:{default}:jobs"]))
        }

        static func der(_ pem: String) -> String {
            let lines = pem.split(separator: "\n").drop { !$0.hasPrefix("-----BEGIN CERTIFICATE") }.dropFirst()
            return lines.prefix { !$0.hasPrefix("-----") }.joined()
        }

        @Test("authorities can be base64, of PEM or of DER")
        func authorities() async throws {
            let (redis, simulator) = try await startServers()
            let pem = try String(contentsOfFile: TestCertificates.path("ca.pem"), encoding: .utf8)
            var environment: [String: String] = [:]
            for (app, value) in [
                ("PEM", Data(pem.utf8).base64EncodedString()), ("DER", Self.der(pem)),
                ("NONE", Data("none".utf8).base64EncodedString()),
            ] {
                environment["APNS_WORKER_APPS_\(app)_CA_BASE64"] = value
                environment["APNS_WORKER_APPS_\(app)_TOPIC"] = "com.example.\(app.lowercased())"
            }
            environment["APNS_WORKER_APPS"] = "pem,der,none"
            let result = try await Self.check(redis, simulator, ["--no-redis"], environment)
            for app in ["pem", "der", "none"] {
                let isConnected = result.output.contains("ok       app \(app): connected to localhost:")
                #expect(isConnected == (app != "none"), "\(app): \(result)")
            }
            #expect(result.ending == .exited(1))
        }

        @Test("an app that APNs refuses or that cannot be reached is named, and the others are still checked")
        func bad() async throws {
            let (redis, simulator) = try await startServers()
            let stranger = try TestCertificates.path("server-key.pem")
            let apps = [
                "APNS_WORKER_APPS": "good,wrong,away", "APNS_WORKER_APPS_WRONG_KEY": stranger,
                "APNS_WORKER_APPS_WRONG_TOPIC": "com.example.wrong", "APNS_WORKER_APPS_WRONG_KEY_ID": "ABC123DEFG",
                "APNS_WORKER_APPS_AWAY_ENDPOINT": "127.0.0.1:1", "APNS_WORKER_APPS_AWAY_TOPIC": "com.example.away",
            ]
            try redis.run("SET", "push:{shared}:apps:good:paused", "maintenance")
            try await Self.check(redis, simulator, [], apps).fails(1).shows(
                "warning  app good: it is paused: maintenance, until an operator resumes it",
                "ok       app good: APNs accepts the key ABC123DEFG",
                "FAILED   app wrong: APNs refuses the key ABC123DEFG for com.example.wrong: 403 InvalidProviderToken",
                "FAILED   app away: 127.0.0.1:1: ", "Connection refused")
            try await Self.check(redis, simulator, ["--no-connect", "--no-redis"], apps).succeeds().lacks("redis:")
        }

        @Test(
            "a refused credential is reported with what can be wrong, and with the clock only where it can be",
            arguments: [
                ("ExpiredProviderToken", "so only the clock can be wrong: check this machine's clock, which says 20"),
                ("InvalidProviderToken", "environment, and this machine's clock, which says 20"),
                ("TopicDisallowed", "Check the key, key ID, team ID, topic and environment"),
            ])
        func advice(reason: String, words: String) async throws {
            let (redis, simulator) = try await startServers(rules: ["answer=\(reason)"])
            let result = try await Self.check(redis, simulator, ["--no-redis"]).ends(1, words)
            #expect(result.output.contains("clock") == words.contains("clock"), "\(result.output)")
        }

        @Test("problems with Redis are reported with a suggestion")
        func redis() async throws {
            let (redis, simulator) = try await startServers()
            try redis.run("SET", "push:{default}:retry", "x")
            try redis.run("CONFIG", "SET", "maxmemory", "1gb")
            try redis.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            try redis.run("SET", "push:{default}:paused", "lunch")
            try await Self.check(redis, simulator, ["--no-connect"]).fails(1).shows(
                "FAILED   redis: push:{default}:retry holds a string",
                "evicts any key, waiting jobs included, when its memory is full (maxmemory-policy allkeys-lru): set max",
                "warning  redis: the queue default is paused: lunch")
            try await Self.check(
                redis, simulator, ["--no-connect"], ["APNS_WORKER_REDIS_URL": "redis://127.0.0.1:1"]
            ).ends(1, "FAILED   redis: redis://127.0.0.1:1: cannot connect")
        }

        @Test("a Redis user with only a worker's permissions is enough")
        func rights() async throws {
            let (redis, simulator) = try await startServers()
            try redis.run(
                "ACL", "SETUSER", "worker", "on", ">s3cret", "~push:*", "+@connection", "+@scripting", "+@read",
                "+@write", "+time", "+select", "+info")
            try redis.run("CONFIG", "SET", "appendonly", "yes")
            let url = redis.url.replacing("redis://", with: "redis://worker:s3cret@")
            let result = try await Self.check(redis, simulator, ["--no-connect"], ["APNS_WORKER_REDIS_URL": url])
                .succeeds().lacks("warning")
            try redis.run("ACL", "SETUSER", "worker", "-info")
            let blind = try await Self.check(redis, simulator, ["--no-connect"], ["APNS_WORKER_REDIS_URL": url])
                .succeeds()
            let words = "denies INFO to this user; its memory, eviction policy and persistence are not checked: "
            #expect(blind.output.contains(words + "add +info to the ACL of the user"), "\(blind.output)")
            #expect(!result.output.contains("s3cret") && !blind.output.contains("s3cret"))
        }

        @Test(
            "the treatment of a job is described",
            arguments: [
                (
                    #"{"id":"x","token":"abcd","alert":"hi"}"#, 0,
                    [
                        "payload of 22 bytes of at most 4096, made from", "(derived from its `id` and the token)",
                        "push type alert (default, without `push_type`",
                    ]
                ),
                (#"{"token":"abcd","payload":{}}"#, 0, ["it has no `id`"]),
                (#"{"id":"x","tokens":["abcd","ef01"],"payload":{},"priority":5}"#, 0, ["to 2 devices"]),
                (
                    #"{"id":"x","token":"abcd","payload":{},"send_at":"2999-01-01T00:00:00Z"}"#, 0,
                    ["be deferred until 2999-01-01T00:00:00Z"]
                ),
                (
                    #"{"id":"x","token":"abcd","alert":"hi","expiration":"1h"}"#, 0,
                    ["sent at once; at most 10 attempts; valid"]
                ),
                (#"{"id":"x","token":"abcd","alert":"hi","push_typ":"voip"}"#, 0, ["did you mean `push_type`?"]),
                (#"{"id":"x","token":"xyz","payload":{}}"#, 1, ["MalformedToken"]), ("{", 1, ["MalformedJSON"]),
                (#"{"id":"x","token":"abcd"}"#, 1, ["MissingPayload"]),
                (#"{"id":"x","token":"abcd","payload":{},"app":"other"}"#, 1, ["UnknownApp"]),
                (
                    #"{"id":"x","token":"abcd","push_type":"background","priority":10,"content_available":true}"#, 1,
                    ["BadPriority"]
                ),
            ] as [(String, Int32, [String])])
        func job(_ text: String, status: Int32, words: [String]) async throws {
            let (redis, simulator) = try await startServers()
            let result = try await Self.check(redis, simulator, ["--no-connect", "--no-redis"], job: text).ends(status)
            for part in words { #expect(result.output.contains(part), "\(result)") }
        }

        @Test("a job can be checked without an app and without Redis, with the assumptions listed")
        func withoutApps() async throws {
            let arguments = ["check", "--job", "-", "--no-connect", "--no-redis"]
            try await CommandLineTests.run(arguments, input: #"{"id":"x","token":"abcd","alert":"hi"}"#).succeeds(
                "warning  configuration: no app is configured", "topic com.example.app")
            // Half of a configuration is a mistake.
            try await CommandLineTests.run(
                arguments, environment: ["APNS_WORKER_KEY": "/does/not/exist.p8"], input: "{}"
            ).ends(1, "FAILED   configuration:")
        }

        @Test("--send sends a job and prints the answer of APNs, also as JSON")
        func send() async throws {
            let (redis, simulator) = try await startServers(
                rules: ["prefix=dead,answer=410"], simulator: ["--set", "unique-id=on"])
            let tokens = [TestJob.token("a", 1), TestJob.token("dead", 2)]
            let job = #"{"id":"x","tokens":["\#(tokens[0])","\#(tokens[1])"],"payload":{"aps":{"alert":"hi"}}}"#
            let result = try await Self.check(redis, simulator, ["--send", "--json"], job: job).fails(1)
            let lines = try result.objects
            func has(_ level: String, _ sentence: String) -> Bool {
                lines.contains { $0["level"] as? String == level && $0["sentence"] as? String == sentence }
            }
            #expect(has("ok", "APNs answered for a0000000…: 200"))
            #expect(has("failure", "APNs answered for dead0000…: 410 Unregistered"))
            #expect(lines.allSatisfy { $0["subject"] is String })
            let answers = lines.compactMap { $0["answer"] as? [String: Any] }
            #expect(answers.map { $0["token"] as? String } == tokens)
            #expect(answers.map { $0["status"] as? Int } == [200, 410])
            #expect(answers.map { $0["reason"] as? String } == [nil, "Unregistered"])
            for answer in answers {
                let ids = ["apns_id", "apns_unique_id"].map { answer[$0] as? String }
                #expect(ids[0]?.count == 36 && ids[1]?.count == 36 && ids[0] != ids[1])
            }
            #expect(lines.allSatisfy { ($0["sentence"] as? String)?.contains(tokens[0]) == false })
            // One request for the made-up token, which the simulator accepts, and two for the job's tokens.
            #expect(try await simulator.stop().requests == 3)
        }
    }
}
