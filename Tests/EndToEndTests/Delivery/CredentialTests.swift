import APNS
import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Credentials")
    struct CredentialTests {
        private static let key = "{shared}:provider-token:TEAM123456:ABC123DEFG"

        private static func token(issuedAt: Int64) throws -> String {
            let pem = try Data(contentsOf: URL(filePath: TestCertificates.path("AuthKey_ABC123DEFG.p8")))
            let key = try SigningKey(pem: pem)
            return try ProviderToken(key: key, keyID: "ABC123DEFG", teamID: "TEAM123456", issuedAt: issuedAt).jwt
        }

        private static let keyless = ["APNS_WORKER_KEY": "", "APNS_WORKER_KEY_ID": "", "APNS_WORKER_TEAM_ID": ""]

        private static var now: Int64 { Int64(Date().timeIntervalSince1970) }

        @Test("all workers with one key share one provider token, which is in Redis and in no log")
        func shared() async throws {
            let (redis, simulator) = try await startServers()
            let workers = try (0..<4).map { _ in
                try WorkerProcess(redis, simulator, ["--lanes", "2", "--log-level", "trace"])
            }
            try redis.push(TestJob.many(4000))
            try await redis.has(4000)
            let stored = try #require(redis.run("GET", "push:" + Self.key).text)
            let parts = stored.split(separator: " ")
            #expect(parts.count == 2)
            let issuedAt = try #require(Int64(parts[0]))
            #expect(abs(Self.now - issuedAt) < 120)
            let life = try #require(redis.run("TTL", "push:" + Self.key).number)
            #expect(life > 3400 && life <= 3600)
            for worker in workers { _ = try await worker.stop() }
            let signature = try #require(parts[1].split(separator: ".").last)
            #expect(workers.allSatisfy { !$0.log.contains(parts[1].prefix(40)) && !$0.log.contains(signature) })
            #expect(try await simulator.stop().answers == ["200": 4000])
        }

        @Test("an expired token is renewed once for all, and its requests are repeated without an attempt")
        func expired() async throws {
            let redis = try RedisServer()
            // The delay lets all workers send requests with the old token before the first is refused.
            let simulator = try await SimulatorProcess(rules: [
                "prefix=e,times=1,answer=ExpiredProviderToken,delay=500ms"
            ])
            let old = Self.now - 25 * 60
            try redis.run("SET", "push:" + Self.key, "\(old) \(try Self.token(issuedAt: old))")
            let workers = try (0..<3).map { _ in
                try WorkerProcess(redis, simulator, ["--log-level", "debug"])
            }
            // All later requests are sent at once, with the token that will be refused.
            try redis.push(TestJob.many(1000, prefix: "a"))
            try await redis.has(1000)
            try redis.push(TestJob.many(200, prefix: "e"))
            try await redis.has(1200)
            for worker in workers { _ = try await worker.stop() }
            #expect(try QueueContents(redis).counters == ["delivered": 1200])
            #expect(try await simulator.stop().answers == ["200": 1200, "403 ExpiredProviderToken": 200])
            let stored = try #require(redis.run("GET", "push:" + Self.key).text)
            #expect(try #require(stored.split(separator: " ").first.flatMap { Int64($0) }) > old)
            #expect(workers.map { $0.lines(of: "provider_token_signed").count }.reduce(0, +) == 1)
        }

        @Test(
            "the next key is used when APNs refuses the first, unknown or of the other environment, and nothing is deferred",
            arguments: ["InvalidProviderToken", "BadEnvironmentKeyInToken"])
        func rotation(reason: String) async throws {
            let old = try TestCertificates.path("server-key.pem")
            // Both keys are valid, but one is for the sandbox, and this simulator is the production service.
            let sandbox = ["--provider-key", "OLDKEY1234:TEAM123456:\(old),environment=sandbox"]
            let (redis, simulator) = try await startServers(simulator: reason == "InvalidProviderToken" ? [] : sandbox)
            try redis.push(TestJob.many(500, members: #""max_attempts":1,"#))
            let worker = try WorkerProcess(
                redis, simulator, ["--exit-when-done"],
                environment: [
                    "APNS_WORKER_KEY": old, "APNS_WORKER_KEY_ID": "OLDKEY1234",
                    "APNS_WORKER_NEXT_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
                ])
            let (account, seen) = (try await worker.finish(), try await simulator.stop())
            expectAgreement(account, try QueueContents(redis), seen)
            #expect(account.delivered == 500 && account.deferred == 0 && account.retried == 0)
            #expect((seen.answers["403 \(reason)"] ?? 0) >= 1, "\(seen.answers)")
            #expect(
                worker.lines(of: "key_refused").contains { $0.contains("OLDKEY1234") && $0.contains(reason) },
                "\(worker.log)")
            #expect(try redis.run("EXISTS", "push:{shared}:apps:default:paused") == 0)
        }

        @Test("a certificate can be PEM, PKCS#12, or base64 in variables", arguments: ["pem", "p12", "base64"])
        func certificate(_ form: String) async throws {
            let workshop = try OpenSSLWorkshop()
            // The certificate is for com.example.app, and expires in ten days.
            try workshop.openssl(
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "10",
                "-subj", "/UID=com.example.app/CN=Apple Push Services: com.example.app", "-keyout", "client.key",
                "-out", "client.pem", "-addext", "basicConstraints=critical,CA:true")
            try workshop.openssl(
                "pkcs12", "-export", "-in", "client.pem", "-inkey", "client.key", "-out", "client.p12", "-passout",
                "pass:secret", "-legacy", "-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-RC2-40")
            let (redis, simulator) = try await startServers(simulator: ["--client-ca", workshop.path("client.pem")])
            let settings =
                switch form {
                case "pem": ["": workshop.path("client.pem"), "_KEY": workshop.path("client.key")]
                case "p12": ["": workshop.path("client.p12"), "_PASSPHRASE": "secret"]
                default:
                    ["_BASE64": Data(try workshop.read("client.p12")).base64EncodedString(), "_PASSPHRASE": "secret"]
                }
            var environment = Self.keyless
            for (name, value) in settings { environment["APNS_WORKER_CERTIFICATE\(name)"] = value }
            try redis.push(TestJob.many(50))
            let worker = try WorkerProcess(redis, simulator, ["--exit-when-done"], environment: environment)
            #expect(try await worker.finish().delivered == 50)
            #expect(worker.log.contains("expires in"), "\(worker.log)")
        }

        @Test(
            "a replaced certificate is used for new requests, and a file that can't be used is a problem until it is replaced"
        )
        func replaced() async throws {
            let (redis, workshop) = (try RedisServer(), try OpenSSLWorkshop())
            try workshop.certificate("one", subject: "/UID=com.example.app/CN=One")
            try workshop.certificate("two", subject: "/UID=com.example.app/CN=Two")
            let simulator = try await SimulatorProcess(options: ["--client-ca", try TestCertificates.path("ca.pem")])
            func put(_ name: String) throws {
                try workshop.write(workshop.read("\(name).pem") + workshop.read("\(name)-key.pem"), to: "current.pem")
            }
            try put("one")
            let worker = try WorkerProcess(
                redis, simulator,
                environment: Self.keyless.merging(["APNS_WORKER_CERTIFICATE": workshop.path("current.pem")]) { $1 })
            try redis.push(TestJob.many(50, prefix: "a"))
            try await redis.has(50)
            try put("two")
            try await worker.logs("credential_replaced")
            try redis.push(TestJob.many(50, prefix: "b"))
            try await redis.has(100)
            // The worker has replaced the idle connection, which presented the old certificate.
            #expect(try await simulator.account().connections == 2)
            // If the file is invalid, the worker keeps the previous certificate.
            try workshop.write("nothing".utf8, to: "current.pem")
            try await worker.logs("credential_unusable")
            func isProblem() async throws -> Bool {
                try await FleetView(redis.url).kinds.contains("credential_wrong default")
            }
            try await eventually("it is a problem") { try await isProblem() }
            try redis.push(TestJob.many(50, prefix: "c"))
            try await redis.has(150)
            #expect(try await isProblem())
            try put("one")
            try await eventually("the problem has ended") { try await !isProblem() }
            _ = try await worker.stop()
            #expect(try await simulator.stop().connections == 3)
        }

        @Test(
            "mistakes in an app's settings are reported with the name of the variable",
            arguments: [
                (["APPS": "a b"], "not a valid name for an app"), (["APPS": ","], "names no app"),
                (["APPS": "a-b,a_b"], "APNS_WORKER_APPS_A_B_"),
                (["APPS": "shop", "TOPIC": ""], "APNS_WORKER_APPS_SHOP_TOPIC"),
                (["APPS": "shop", "APPS_SHOP_ENDPOINT": "x:y"], "APNS_WORKER_APPS_SHOP_ENDPOINT"),
                (["APPS": "shop", "APPS_SHOP_MAX_STREAMS": "0"], "APNS_WORKER_APPS_SHOP_MAX_STREAMS"),
                (["APPS": "shop,news"], "shop and news have a topic"),
                (["KEY_BASE64": "!"], "APNS_WORKER_KEY_BASE64"),
                (["KEY": "", "KEY_BASE64": "!"], "APNS_WORKER_KEY_BASE64"),
                (["KEY": "/does/not/exist"], "/does/not/exist"), (["PROXY": "https://proxy"], "http://"),
                (["HTTPS_PROXY": "socks5://user:pass@proxy:1"], "http://"),
                (["CERTIFICATE": "./x"], "both a signing key and a certificate"),
                (["MIN_CONNECTIONS": "5"], "connections"),
            ])
        func settings(_ changes: [String: String], _ words: String) async throws {
            let own = [
                "KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"), "TEAM_ID": "TEAM123456",
                "TOPIC": "com.example.app", "KEY_ID": "ABC123DEFG", "REDIS_URL": "redis://127.0.0.1:1",
                "ENDPOINT": "127.0.0.1:1",
            ]
            let variables = own.merging(changes) { $1 }.map { ($0 == "HTTPS_PROXY" ? $0 : "APNS_WORKER_\($0)", $1) }
            let environment = Dictionary(uniqueKeysWithValues: variables)
            try await CommandLineTests.run(["run"], environment: environment).fails(words).lacks("pass@")
        }
    }
}
