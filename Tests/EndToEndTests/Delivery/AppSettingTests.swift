import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Settings that change an app's notifications, at the start and after a reload.
    @Suite("Settings of an app")
    struct AppSettingTests {
        private struct Received: Decodable {
            let token: String
            let expiration: Int64?
        }

        private static func received(_ record: String) throws -> [String: Received] {
            let lines = try String(contentsOfFile: record, encoding: .utf8).split(separator: "\n")
            let all = try lines.map { try JSONDecoder().decode(Received.self, from: Data($0.utf8)) }
            return Dictionary(all.map { ($0.token, $0) }) { _, last in last }
        }

        /// A worker with a configuration file, and a simulator that records.
        private final class Scene {
            let redis: RedisServer
            let simulator: SimulatorProcess
            private let file: FileWorker

            var worker: WorkerProcess { file.worker }
            var record: String { redis.directory.appending(path: "record").path }

            /// - Parameter settings: the lines of the app's settings.
            init(_ settings: String...) async throws {
                redis = try RedisServer()
                simulator = try await SimulatorProcess(
                    options: ["--record", redis.directory.appending(path: "record").path])
                file = try FileWorker(redis, Self.file(settings, simulator.port), ["--results", "all"])
            }

            private static func file(_ settings: [String], _ port: Int) -> String {
                "apps:\n  shop:\n    topic: com.example.app\n    endpoint: localhost:\(port)\n"
                    + settings.map { "    \($0)\n" }.joined()
            }

            func reload(_ settings: String...) async throws {
                try await file.reload(Self.file(settings, simulator.port))
            }

            func finish(_ jobs: [String], ended: Int) async throws {
                try redis.push(jobs)
                try await eventually("\(ended) have ended") { try storedResults(redis).count == ended }
            }

            func stop() async throws -> WorkerProcess.Account { try await redis.stop(worker, simulator).0 }
        }

        @Test("strict_payloads turns hints into refusals, also after a reload")
        func strictPayloads() async throws {
            func jobs(_ digit: String) -> [String] {
                [
                    #""push_type":"background","payload":{"aps":{"alert":"x"}}"#,
                    #""push_type":"liveactivity","payload":{"aps":{"event":"update"}}"#,
                    #""push_type":"background","content_available":true"#,
                    // A Wallet pass.
                    #""push_type":"background","payload":{},"topic":"pass.com.example.shop""#,
                ].enumerated().map { #"{"token":"\#(TestJob.token(digit, $0 + 1))",\#($1)}"# }
            }
            let scene = try await Scene()
            try await scene.finish(jobs("a"), ended: 4)
            #expect(try QueueContents(scene.redis).counters["delivered"] == 4)
            try await scene.worker.logs("payload_hint")
            try await scene.reload("strict_payloads: on")
            try await scene.finish(jobs("b"), ended: 8)
            let queue = try QueueContents(scene.redis)
            #expect(queue.deadReasons == ["BadPayload": 2] && queue.count("delivered") == 6)
            #expect(Set(queue.dead.map(\.original)) == Set(jobs("b").prefix(2).map { Array($0.utf8) }))
            #expect(queue.dead.allSatisfy { $0.detail?.isEmpty == false }, "\(queue.dead)")
            let received = try Self.received(scene.record)
            #expect(received[TestJob.token("b", 1)] == nil && received[TestJob.token("b", 2)] == nil)
            try await scene.reload("strict_payloads: off")
            try await scene.finish(jobs("c"), ended: 12)
            let account = try await scene.stop()
            #expect(account.delivered == 10 && account.dead == 2)
        }

        @Test("expiration applies to jobs without their own, and a reload changes it for later jobs")
        func expiration() async throws {
            let now = Int64(Date().timeIntervalSince1970)
            func jobs(_ digit: String) -> [String] {
                [
                    #""alert":"x","enqueued_at":\#(now - 100)"#,
                    #""alert":"x","enqueued_at":\#(now),"expiration":"5m""#, #""alert":"x","expiration":0"#,
                    #""payload":{"aps":{}},"push_type":"voip""#, #""alert":"x""#,
                ].enumerated().map { #"{"token":"\#(TestJob.token(digit, $0 + 1))",\#($1)}"# }
            }
            let scene = try await Scene("expiration: 1h")
            var ended = 0
            /// Sends new jobs, and returns their expirations relative to now, in the order of the jobs.
            func expirations(_ digit: String) async throws -> [Int64?] {
                ended += 5
                try await scene.finish(jobs(digit), ended: ended)
                let received = try Self.received(scene.record)
                return (1...4).map { number in
                    received[TestJob.token(digit, number)]?.expiration.map { $0 == 0 ? 0 : $0 - now }
                }
            }
            #expect(try await expirations("a") == [3500, 300, 0, 0])
            // A job without enqueued_at expires an hour after a worker saw it first.
            let seen = try #require(try Self.received(scene.record)[TestJob.token("a", 5)]?.expiration)
            #expect((3600...3660).contains(seen - now))
            try await scene.reload("expiration: 2d")
            #expect(try await expirations("b") == [172_700, 300, 0, 0])
            try await scene.reload("expiration: 0")
            #expect(try await expirations("c") == [0, 300, 0, 0])
            try await scene.reload("expiration: 60")
            _ = try await expirations("d")
            #expect(try scene.redis.counted("expired") == 1, "it was made 100 seconds ago")
            try await scene.reload()
            #expect(try await expirations("e") == [nil, 300, 0, 0])
            let account = try await scene.stop()
            #expect(account.delivered == 24 && account.expired == 1)
        }

        @Test("status counts jobs with a relative duration and no enqueued_at")
        func undated() async throws {
            func job(_ digit: String, _ number: Int, _ members: String) -> String {
                #"{"token":"\#(TestJob.token(digit, number))","alert":"x"\#(members)}"#
            }
            let scene = try await Scene()
            try await scene.finish(
                [
                    job("a", 1, #","expiration":"1h","enqueued_at":1900000000"#),
                    job("a", 2, #","expiration":2000000000"#), job("a", 3, ""),
                ], ended: 3)
            #expect(try await FleetView(scene.redis.url).notes.isEmpty)
            try await scene.finish((0..<3).map { job("b", $0, #","expiration":"1h""#) }, ended: 6)
            // Workers report the count with a heartbeat.
            try await eventually("status counts them") {
                try await FleetView(scene.redis.url).notes.contains {
                    $0.hasPrefix("3 jobs had a duration as `expiration` and no `enqueued_at`")
                }
            }
            let page = try await scene.redis.apnsWorker(["status"]).succeeds().output
            // The command wraps lines.
            let words = page.split(whereSeparator: \.isWhitespace).joined(separator: " ")
            #expect(words.contains("have producers set `enqueued_at`"), "\(page)")
            // A note is not a problem.
            try await scene.redis.apnsWorker(["status", "--check"]).succeeds()
            #expect(try await scene.stop().delivered == 6)
        }

        @Test(
            "the name of a key's file gives its ID, also that of a copy, and a key for another service is named",
            arguments: [
                ("AuthKey_ABC123DEFG.p8", nil), ("AuthKey_ABC123DEFG (1).p8", nil), ("APNsAuthKey_ABC123DEFG.p8", nil),
                ("AuthKey_ABC123DEFG copy.p8", nil), ("AuthKey_short.p8", "needs its ID"), ("key.p8", "needs its ID"),
                ("SubscriptionKey_ABC123DEFG.p8", "is a key for in-app purchases by its name"),
            ] as [(String, String?)])
        func keyNames(name: String, problem: String?) async throws {
            let folder = try TemporaryFolder()
            let key = try String(contentsOfFile: TestCertificates.path("AuthKey_ABC123DEFG.p8"), encoding: .utf8)
            let file = try folder.write(key, as: name)
            let config = try await CommandLineTests.run(
                ["config", "--json"],
                environment: [
                    "APNS_WORKER_TOPIC": "com.example.app", "APNS_WORKER_TEAM_ID": "TEAM123456",
                    "APNS_WORKER_KEY": file,
                ])
            #expect((config.ending == .exited(0)) == (problem == nil), "\(config.errors)")
            if let problem { #expect(config.errors.contains(problem), "\(config.errors)") }
        }

        @Test("a credential that can't be used is refused with the first thing to do")
        func unusable() async throws {
            let folder = try TemporaryFolder()
            let openssl = try ChildProcess(
                "/bin/sh",
                [
                    "-c",
                    """
                    cd "$0" && openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -subj /CN=x 2>/dev/null &&
                    openssl pkcs12 -export -in c.pem -inkey k.pem -passout pass:secret -out c.p12 &&
                    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes256 -pass pass:secret -out AuthKey_ABC123DEFG.p8
                    """, folder.url.path,
                ])
            #expect(try await openssl.wait() == .exited(0), "\(openssl.errors)")
            for (variable, name, message) in [
                ("KEY", "none.p8", "cannot read \(folder.url.path)/none.p8: No such file"),
                ("KEY", "AuthKey_ABC123DEFG.p8", "set its passphrase (key_passphrase_file"),
                ("CERTIFICATE", "c.p12", "Set its passphrase. (certificate_passphrase_file)"),
            ] {
                let check = try await CommandLineTests.run(
                    ["check"],
                    environment: [
                        "APNS_WORKER_TOPIC": "com.example.app", "APNS_WORKER_TEAM_ID": "TEAM123456",
                        "APNS_WORKER_\(variable)": folder.path(name),
                    ])
                #expect((check.output + check.errors).contains(message), "\(name): \(check)")
            }
        }

        @Test("apps of two teams never share a connection, which APNs would refuse")
        func teams() async throws {
            let other = try TestCertificates.path("server-key.pem")
            let (redis, simulator) = try await startServers(simulator: [
                "--provider-key", "OTHERKEY12:OTHERTEAM1:\(other)",
            ])
            func jobs(_ app: String, _ prefix: String) -> [String] {
                TestJob.many(500, prefix: prefix, members: #""app":"\#(app)","#)
            }
            try redis.push(zip(jobs("one", "a"), jobs("two", "b")).flatMap { [$0, $1] })
            let account = try await WorkerProcess(
                redis, simulator, ["--exit-when-done"],
                environment: [
                    "APNS_WORKER_APPS": "one,two", "APNS_WORKER_TOPIC": "",
                    "APNS_WORKER_APPS_ONE_TOPIC": "com.example.one",
                    "APNS_WORKER_APPS_TWO_TOPIC": "com.example.two", "APNS_WORKER_APPS_TWO_KEY": other,
                    "APNS_WORKER_APPS_TWO_KEY_ID": "OTHERKEY12", "APNS_WORKER_APPS_TWO_TEAM_ID": "OTHERTEAM1",
                ]
            ).finish()
            #expect(account.delivered == 1000)
            let seen = try await simulator.stop()
            #expect(seen.answers == ["200": 1000] && seen.connections >= 2, "\(seen.answers)")
        }

        @Test(
            "redis.ca_base64 verifies a Redis with TLS, as PEM or DER, and other authorities are refused",
            arguments: ["pem", "der", "file", "other"])
        func redisAuthorities(form: String) async throws {
            let redis = try RedisServer(tls: true)
            let simulator = try await SimulatorProcess()
            let url = "rediss://localhost:\(try #require(redis.tlsPort))"
            let name = form == "other" ? "other-ca" : "ca"
            let pem = try String(contentsOfFile: TestCertificates.path("\(name).pem"), encoding: .utf8)
            let text = Data(pem.utf8).base64EncodedString()
            let folder = try TemporaryFolder("redis:\n  ca_base64: \(text)\n")
            let options = form == "file" ? ["--config", folder.file] : []
            var environment = form == "file" ? [:] : ["APNS_WORKER_REDIS_CA_BASE64": text]
            if form == "der" { environment["APNS_WORKER_REDIS_CA_BASE64"] = CheckTests.der(pem) }
            try redis.push(TestJob.many(50))
            let worker = try WorkerProcess(
                redis: url, endpoint: simulator.port, options: ["--exit-when-done"] + options, environment: environment)
            guard form != "other" else {
                try await eventually("the worker logs why, or ends for it") {
                    worker.log.contains("certificate") && (worker.process.ending ?? .exited(1)) != .exited(0)
                }
                #expect(try QueueContents(redis).jobs.count == 50)
                return
            }
            #expect(try await worker.finish().delivered == 50)
            environment.merge([
                "APNS_WORKER_REDIS_URL": url, "APNS_WORKER_TOPIC": "com.example.app",
                "APNS_WORKER_TEAM_ID": "TEAM123456",
                "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
            ]) { $1 }
            try await CommandLineTests.run(["config", "--json"] + options, environment: environment).succeeds(
                "redis.ca_base64"
            ).lacks(String(text.prefix(40)))
        }
    }
}
