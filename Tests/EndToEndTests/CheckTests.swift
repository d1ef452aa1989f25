import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Checking a configuration")
    struct CheckTests {
        private struct Scene {
            let redis: RedisServer
            let simulator: SimulatorProcess

            init(rules: [String] = [], options: [String] = []) async throws {
                redis = try RedisServer()
                simulator = try await SimulatorProcess(rules: rules, options: options)
            }

            func check(
                _ arguments: [String] = [], _ more: [String: String] = [:], job: String? = nil
            ) async throws -> CommandLineTests.Output {
                let environment = [
                    "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)",
                    "APNS_WORKER_CA": try TestCertificates.path("ca.pem"),
                    "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
                    "APNS_WORKER_TEAM_ID": "TEAM123456", "APNS_WORKER_TOPIC": "com.example.app",
                ]
                return try await CommandLineTests.run(
                    ["check"] + arguments + (job == nil ? [] : ["--job", "-"]),
                    environment: environment.merging(more) { $1 }, input: job)
            }
        }

        @Test("a good one prints a verdict per line, changes nothing in Redis, and exits with 0")
        func good() async throws {
            let scene = try await Scene()
            try scene.redis.push(TestJob.many(3))
            let result = try await scene.check()
            #expect(result.ending == .exited(0), "\(result.errors)\(result.output)")
            for line in [
                "ok       redis: redis://", "ok       redis: memory ", " (no limit), append-only file off",
                "warning  redis: Redis at 127.0.0.1:\(scene.redis.port) keeps no append-only file",
                "ok       redis: queue default: 3 jobs wait",
                "ok       app default: signing key ABC123DEFG of team TEAM123456",
                "ok       app default: connected to localhost:\(scene.simulator.port) with TLS",
                "ok       app default: APNs accepts the key ABC123DEFG for com.example.app",
            ] { #expect(result.output.contains(line), "\(result.output)") }
            #expect(try scene.redis.run("KEYS", "*") == .array(["push:{default}:jobs"]))
        }

        @Test("authorities can be base64, of PEM or of DER")
        func authorities() async throws {
            let scene = try await Scene()
            let pem = try String(contentsOfFile: TestCertificates.path("ca.pem"), encoding: .utf8)
            let lines = pem.split(separator: "\n")
            let start = try #require(lines.firstIndex { $0.hasPrefix("-----BEGIN CERTIFICATE") })
            let der = lines[(start + 1)...].prefix { !$0.hasPrefix("-----") }.joined()
            let result = try await scene.check(
                ["--no-redis"],
                [
                    "APNS_WORKER_APPS": "pem,der,none", "APNS_WORKER_APPS_DER_CA_BASE64": der,
                    "APNS_WORKER_APPS_PEM_CA_BASE64": Data(pem.utf8).base64EncodedString(),
                    "APNS_WORKER_APPS_NONE_CA_BASE64": Data("none".utf8).base64EncodedString(),
                    "APNS_WORKER_APPS_DER_TOPIC": "com.example.der", "APNS_WORKER_APPS_PEM_TOPIC": "com.example.pem",
                    "APNS_WORKER_APPS_NONE_TOPIC": "com.example.none",
                ])
            for app in ["pem", "der"] {
                #expect(
                    result.output.contains("ok       app \(app): connected to localhost:"),
                    "\(result.output)\(result.errors)")
            }
            #expect(
                !result.output.contains("ok       app none: connected to localhost:") && result.ending == .exited(1))
        }

        @Test("an app that APNs refuses or that cannot be reached is named, and the others are still checked")
        func bad() async throws {
            let scene = try await Scene()
            let stranger = try TestCertificates.path("server-key.pem")
            let apps = [
                "APNS_WORKER_APPS": "good,wrong,away", "APNS_WORKER_APPS_WRONG_KEY": stranger,
                "APNS_WORKER_APPS_WRONG_TOPIC": "com.example.wrong", "APNS_WORKER_APPS_WRONG_KEY_ID": "ABC123DEFG",
                "APNS_WORKER_APPS_AWAY_ENDPOINT": "127.0.0.1:1", "APNS_WORKER_APPS_AWAY_TOPIC": "com.example.away",
            ]
            try scene.redis.run("SET", "push:{shared}:apps:good:paused", "maintenance")
            let result = try await scene.check([], apps)
            #expect(result.ending == .exited(1))
            for line in [
                "warning  app good: it is paused: maintenance, until an operator resumes it",
                "ok       app good: APNs accepts the key ABC123DEFG",
                "FAILED   app wrong: APNs refuses the key ABC123DEFG for com.example.wrong: 403 InvalidProviderToken",
                "FAILED   app away: 127.0.0.1:1: ", "Connection refused",
            ] { #expect(result.output.contains(line), "\(result.output)") }
            let noConnect = try await scene.check(["--no-connect", "--no-redis"], apps)
            #expect(noConnect.ending == .exited(0) && !noConnect.output.contains("redis:"))
        }

        @Test(
            "a refused credential is reported with what can be wrong, and with the clock only where it can be",
            arguments: [
                (
                    "ExpiredProviderToken", "so only the clock can be wrong: check this machine's clock, which says 20",
                    true
                ),
                ("InvalidProviderToken", "environment, and this machine's clock, which says 20", true),
                ("TopicDisallowed", "Check the key, key ID, team ID, topic and environment", false),
            ])
        func advice(reason: String, words: String, namesClock: Bool) async throws {
            let scene = try await Scene(rules: ["answer=\(reason)"])
            let result = try await scene.check(["--no-redis"])
            #expect(result.ending == .exited(1) && result.output.contains(words), "\(result.output)")
            #expect(result.output.contains("clock") == namesClock, "\(result.output)")
        }

        @Test("problems with Redis are reported with a suggestion")
        func redis() async throws {
            let scene = try await Scene()
            try scene.redis.run("SET", "push:{default}:retry", "x")
            try scene.redis.run("CONFIG", "SET", "maxmemory", "1gb")
            try scene.redis.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            try scene.redis.run("SET", "push:{default}:paused", "lunch")
            let result = try await scene.check(["--no-connect"])
            #expect(result.ending == .exited(1))
            for words in [
                "FAILED   redis: push:{default}:retry holds a string",
                "evicts any key, waiting jobs included, when its memory is full (maxmemory-policy allkeys-lru): set max",
                "warning  redis: the queue default is paused: lunch",
            ] { #expect(result.output.contains(words), "\(result.output)") }
            let away = try await scene.check(["--no-connect"], ["APNS_WORKER_REDIS_URL": "redis://127.0.0.1:1"])
            #expect(away.output.contains("FAILED   redis: redis://127.0.0.1:1: cannot connect"), "\(away.output)")
            #expect(away.ending == .exited(1))
        }

        @Test("a Redis user with only a worker's permissions is enough")
        func rights() async throws {
            let scene = try await Scene()
            try scene.redis.run(
                "ACL", "SETUSER", "worker", "on", ">s3cret", "~push:*", "+@connection", "+@scripting", "+@read",
                "+@write", "+time", "+select", "+info")
            try scene.redis.run("CONFIG", "SET", "appendonly", "yes")
            let url = scene.redis.url.replacing("redis://", with: "redis://worker:s3cret@")
            let result = try await scene.check(["--no-connect"], ["APNS_WORKER_REDIS_URL": url])
            #expect(result.ending == .exited(0), "\(result.output)")
            #expect(!result.output.contains("warning"), "\(result.output)")
            try scene.redis.run("ACL", "SETUSER", "worker", "-info")
            let blind = try await scene.check(["--no-connect"], ["APNS_WORKER_REDIS_URL": url])
            #expect(blind.ending == .exited(0), "\(blind.output)")
            #expect(
                blind.output.contains(
                    """
                    denies INFO to this user; its memory, eviction policy and persistence are not checked: add +info to the \
                    ACL of the user
                    """), "\(blind.output)")
            #expect(!result.output.contains("s3cret") && !blind.output.contains("s3cret"))
        }

        @Test(
            "the treatment of a job is described",
            arguments: [
                (#"{"id":"x","token":"abcd","alert":"hi"}"#, true, "payload of 22 bytes of at most 4096, made from"),
                (#"{"token":"abcd","payload":{}}"#, true, "it has no `id`"),
                (#"{"id":"x","tokens":["abcd","ef01"],"payload":{},"priority":5}"#, true, "to 2 devices"),
                (
                    #"{"id":"x","token":"abcd","payload":{},"expiration":1}"#, true,
                    "a time that has passed; write a duration as"
                ),
                (
                    #"{"id":"x","token":"abcd","payload":{},"send_at":"2999-01-01T00:00:00Z"}"#, true,
                    "be deferred until 2999-01-01T00:00:00Z"
                ),
                (#"{"id":"x","token":"abcd","alert":"hi"}"#, true, "push type alert (default, without `push_type`"),
                (
                    #"{"id":"x","token":"abcd","alert":"hi","expiration":"1h"}"#, true,
                    "sent at once; at most 10 attempts; valid"
                ),
                (#"{"id":"x","token":"abcd","alert":"hi"}"#, true, "(derived from its `id` and the token)"),
                (#"{"id":"x","token":"abcd","alert":"hi","push_typ":"voip"}"#, true, "did you mean `push_type`?"),
                (#"{"id":"x","tokens":["abcd","x"],"alert":"hi"}"#, false, "token 2 would become a dead letter"),
                (#"{"id":"x","token":"xyz","payload":{}}"#, false, "MalformedToken"),
                (#"{"id":"x","token":"abcd"}"#, false, "MissingPayload"),
                (#"{"id":"x","token":"abcd","payload":{},"app":"other"}"#, false, "UnknownApp"),
                (
                    #"{"id":"x","token":"abcd","push_type":"background","priority":10,"content_available":true}"#,
                    false,
                    "BadPriority"
                ),
                ("{", false, "MalformedJSON"),
            ])
        func job(_ text: String, isGood: Bool, words: String) async throws {
            let scene = try await Scene()
            let result = try await scene.check(["--no-connect", "--no-redis"], job: text)
            #expect(result.ending == .exited(isGood ? 0 : 1), "\(result.output)\(result.errors)")
            #expect(result.output.contains(words), "\(result.output)")
        }

        @Test("a job can be checked without an app and without Redis, with the assumptions listed")
        func withoutApps() async throws {
            let arguments = ["check", "--job", "-", "--no-connect", "--no-redis"]
            let good = try await CommandLineTests.run(arguments, input: #"{"id":"x","token":"abcd","alert":"hi"}"#)
            #expect(good.ending == .exited(0), "\(good.output)\(good.errors)")
            #expect(good.output.contains("warning  configuration: no app is configured"), "\(good.output)")
            #expect(good.output.contains("topic com.example.app"), "\(good.output)")
            // An incomplete configuration is a mistake.
            let half = try await CommandLineTests.run(
                arguments, environment: ["APNS_WORKER_KEY": "/does/not/exist.p8"], input: "{}")
            #expect(half.ending == .exited(1) && half.output.contains("FAILED   configuration:"), "\(half.output)")
        }

        @Test("--send sends a job and prints the answer of APNs, also as JSON")
        func send() async throws {
            let scene = try await Scene(rules: ["prefix=dead,answer=410"], options: ["--set", "unique-id=on"])
            let tokens = [TestJob.token("a", 1), TestJob.token("dead", 2)]
            let job = #"{"id":"x","tokens":["\#(tokens[0])","\#(tokens[1])"],"payload":{"aps":{"alert":"hi"}}}"#
            let result = try await scene.check(["--send", "--json"], job: job)
            #expect(result.ending == .exited(1), "\(result.errors)")
            struct Line: Decodable {
                struct Answer: Decodable {
                    let token: String
                    let status: Int?
                    let reason: String?
                    let apns_id, apns_unique_id: String?
                }
                let level, subject, sentence: String
                let answer: Answer?
            }
            let lines = try result.output.split(separator: "\n").map {
                try JSONDecoder().decode(Line.self, from: Data($0.utf8))
            }
            #expect(lines.contains { $0.level == "ok" && $0.sentence == "APNs answered for a0000000…: 200" })
            let answers = lines.compactMap(\.answer)
            #expect(answers.map(\.token) == tokens && answers.map(\.status) == [200, 410])
            #expect(answers.map(\.reason) == [nil, "Unregistered"] && answers.allSatisfy { $0.apns_id?.count == 36 })
            #expect(answers.allSatisfy { $0.apns_unique_id?.count == 36 && $0.apns_unique_id != $0.apns_id })
            #expect(
                lines.contains {
                    $0.level == "failure" && $0.sentence == "APNs answered for dead0000…: 410 Unregistered"
                })
            #expect(lines.allSatisfy { !$0.sentence.contains(tokens[0]) })
            // The made-up token, which the simulator accepts, and the two of the job.
            #expect(try await scene.simulator.stop().requests == 3)
        }
    }
}
