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

        private static var now: Int64 { Int64(Date().timeIntervalSince1970) }

        @Test("all workers with one key share one provider token, which is in Redis and in no log")
        func shared() async throws {
            let (redis, simulator) = (try RedisServer(), try await SimulatorProcess())
            let workers = try (0..<4).map { _ in
                try WorkerProcess(redis, simulator, ["--lanes", "2", "--log-level", "trace"])
            }
            try redis.push(TestJob.many(4000))
            try await eventually("all are delivered") { try QueueContents(redis).count("delivered") == 4000 }
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
            let account = try await simulator.stop()
            #expect(account.answers == ["200": 4000])
        }

        @Test("an expired token is renewed once for all, and its requests are repeated without an attempt")
        func expired() async throws {
            let redis = try RedisServer()
            // Delayed, so that all workers have sent requests with the old token before the first is refused.
            let simulator = try await SimulatorProcess(rules: [
                "prefix=e,times=1,answer=ExpiredProviderToken,delay=500ms"
            ])
            let old = Self.now - 25 * 60
            try redis.run("SET", "push:" + Self.key, "\(old) \(try Self.token(issuedAt: old))")
            let workers = try (0..<3).map { _ in
                try WorkerProcess(redis, simulator, ["--log-level", "debug"])
            }
            // Now all later requests are sent at once, with the token that will be refused.
            try redis.push(TestJob.many(1000, prefix: "a"))
            try await eventually("all workers send") { try QueueContents(redis).count("delivered") == 1000 }
            try redis.push(TestJob.many(200, prefix: "e"))
            try await eventually("all are delivered") { try QueueContents(redis).count("delivered") == 1200 }
            for worker in workers { _ = try await worker.stop() }
            #expect(try QueueContents(redis).counters == ["delivered": 1200])
            let account = try await simulator.stop()
            #expect(account.answers == ["200": 1200, "403 ExpiredProviderToken": 200])
            let stored = try #require(redis.run("GET", "push:" + Self.key).text)
            let issuedAt = try #require(stored.split(separator: " ").first.flatMap { Int64($0) })
            #expect(issuedAt > old)
            let signed = workers.reduce(0) { $0 + $1.lines(of: "provider_token_signed").count }
            #expect(signed == 1)
        }

        @Test(
            "a token from Redis is verified, and a worker that finds another value signs its own",
            arguments: ["garbage", "1 x", "foreign", "\r\nx: y", ""])
        func hostile(_ value: String) async throws {
            let (redis, simulator) = (try RedisServer(), try await SimulatorProcess())
            let now = Self.now
            var text = value
            if value == "foreign" {
                let pem = try Data(contentsOf: URL(filePath: TestCertificates.path("server-key.pem")))
                let token = try ProviderToken(
                    key: SigningKey(pem: pem), keyID: "ABC123DEFG", teamID: "TEAM123456", issuedAt: now)
                text = "\(now) \(token.jwt)"
            }
            if value.hasPrefix("\r") { text = "\(now) \(try Self.token(issuedAt: now))\(value)" }
            try redis.run("SET", "push:" + Self.key, text)
            try redis.push(TestJob.many(50))
            let worker = try WorkerProcess(redis, simulator, ["--exit-when-done"])
            #expect(try await worker.finish().delivered == 50)
            #expect(worker.log.contains("event=provider_token_untrusted") == (value == "foreign"), "\(worker.log)")
            #expect(try await simulator.stop().answers == ["200": 50])
        }

        @Test("during a key rotation the next key is used when APNs refuses the first, and nothing is deferred")
        func rotation() async throws {
            let (redis, simulator) = (try RedisServer(), try await SimulatorProcess())
            try redis.push(TestJob.many(500))
            let worker = try WorkerProcess(
                redis, simulator, ["--exit-when-done"],
                environment: [
                    "APNS_WORKER_KEY": try TestCertificates.path("server-key.pem"), "APNS_WORKER_KEY_ID": "OLDKEY1234",
                    "APNS_WORKER_NEXT_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
                ])
            let account = try await worker.finish()
            #expect(account.delivered == 500 && account.deferred == 0 && account.retried == 0)
            #expect(
                worker.lines(of: "key_refused").contains {
                    $0.contains("OLDKEY1234") && $0.contains("InvalidProviderToken")
                }, "\(worker.log)")
            #expect(try redis.run("EXISTS", "push:{shared}:apps:default:paused") == 0)
            _ = try await simulator.stop()
        }

        @Test("when both keys are refused the app is paused")
        func bothRefused() async throws {
            let (redis, simulator) = (try RedisServer(), try await SimulatorProcess())
            let stranger = try TestCertificates.path("server-key.pem")
            let worker = try WorkerProcess(
                redis, simulator,
                environment: [
                    "APNS_WORKER_KEY": stranger, "APNS_WORKER_KEY_ID": "OLDKEY1234",
                    "APNS_WORKER_NEXT_KEY": stranger, "APNS_WORKER_NEXT_KEY_ID": "NEWKEY1234",
                ])
            try redis.push(TestJob.many(20))
            try await eventually("the app is paused") { try BreakerTests.pause("default", redis) != nil }
            _ = try await worker.stop()
            let queue = try QueueContents(redis)
            #expect(queue.jobs.count + queue.retries.count == 20 && queue.dead.isEmpty)
            _ = try await simulator.stop()
        }

        @Test("a certificate can be PEM, PKCS#12, or base64 in variables", arguments: ["pem", "p12", "base64"])
        func certificate(_ form: String) async throws {
            let redis = try RedisServer()
            let workshop = try OpenSSLWorkshop()
            let made = try Self.clientCertificate(workshop)
            let simulator = try await SimulatorProcess(options: ["--client-ca", made.authority])
            var environment = ["APNS_WORKER_KEY": "", "APNS_WORKER_KEY_ID": "", "APNS_WORKER_TEAM_ID": ""]
            switch form {
            case "pem":
                environment["APNS_WORKER_CERTIFICATE"] = made.certificate
                environment["APNS_WORKER_CERTIFICATE_KEY"] = made.key
            case "p12":
                environment["APNS_WORKER_CERTIFICATE"] = made.pkcs12
                environment["APNS_WORKER_CERTIFICATE_PASSPHRASE"] = "secret"
            default:
                let bytes = try Data(contentsOf: URL(filePath: made.pkcs12))
                environment["APNS_WORKER_CERTIFICATE_BASE64"] = bytes.base64EncodedString()
                environment["APNS_WORKER_CERTIFICATE_PASSPHRASE"] = "secret"
            }
            try redis.push(TestJob.many(50))
            let worker = try WorkerProcess(redis, simulator, ["--exit-when-done"], environment: environment)
            #expect(try await worker.finish().delivered == 50)
            #expect(worker.log.contains("expires in"), "\(worker.log)")
            _ = try await simulator.stop()
        }

        @Test("a replaced certificate is used, and working connections stay")
        func replaced() async throws {
            let redis = try RedisServer()
            let workshop = try OpenSSLWorkshop()
            try workshop.certificate("one", subject: "/UID=com.example.app/CN=One")
            try workshop.certificate("two", subject: "/UID=com.example.app/CN=Two")
            let authority = try TestCertificates.path("ca.pem")
            let simulator = try await SimulatorProcess(options: ["--client-ca", authority])
            func put(_ name: String) throws {
                let both = try workshop.read("\(name).pem") + workshop.read("\(name)-key.pem")
                try Data(both).write(to: URL(filePath: workshop.path("current.pem")), options: .atomic)
            }
            try put("one")
            let worker = try WorkerProcess(
                redis, simulator,
                environment: [
                    "APNS_WORKER_KEY": "", "APNS_WORKER_KEY_ID": "", "APNS_WORKER_TEAM_ID": "",
                    "APNS_WORKER_CERTIFICATE": workshop.path("current.pem"),
                ])
            try redis.push(TestJob.many(50, prefix: "a"))
            try await eventually("they are delivered") { try QueueContents(redis).count("delivered") == 50 }
            try put("two")
            try await worker.logs("credential_replaced")
            try redis.push(TestJob.many(50, prefix: "b"))
            try await eventually("they are delivered") { try QueueContents(redis).count("delivered") == 100 }
            #expect(try await simulator.account().connections == 1)
            // An invalid certificate is logged, and the previous one stays.
            try Data("nothing".utf8).write(to: URL(filePath: workshop.path("current.pem")), options: .atomic)
            try await worker.logs("credential_unusable")
            try redis.push(TestJob.many(50, prefix: "c"))
            try await eventually("they are delivered") { try QueueContents(redis).count("delivered") == 150 }
            _ = try await worker.stop()
            #expect(try await simulator.stop().connections == 1)
        }

        /// A client certificate for `com.example.app` that expires in ten days.
        private static func clientCertificate(
            _ workshop: OpenSSLWorkshop
        ) throws -> (authority: String, certificate: String, key: String, pkcs12: String) {
            let path = { (name: String) in workshop.path(name) }
            try workshop.openssl(
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "10",
                "-subj", "/UID=com.example.app/CN=Apple Push Services: com.example.app", "-keyout", path("client.key"),
                "-out", path("client.pem"), "-addext", "basicConstraints=critical,CA:true")
            try workshop.openssl(
                "pkcs12", "-export", "-in", path("client.pem"), "-inkey", path("client.key"), "-out",
                path("client.p12"), "-passout", "pass:secret", "-legacy", "-keypbe", "PBE-SHA1-3DES", "-certpbe",
                "PBE-SHA1-RC2-40")
            return (path("client.pem"), path("client.pem"), path("client.key"), path("client.p12"))
        }

        @Test(
            "mistakes in an app's settings are reported with the name of the variable",
            arguments: [
                (["APNS_WORKER_APPS": "a b"], "not a valid name for an app"),
                (["APNS_WORKER_APPS": ","], "names no app"),
                (["APNS_WORKER_APPS": "a-b,a_b"], "APNS_WORKER_APPS_A_B_"),
                (["APNS_WORKER_APPS": "shop", "APNS_WORKER_TOPIC": ""], "APNS_WORKER_APPS_SHOP_TOPIC"),
                (
                    ["APNS_WORKER_APPS": "shop", "APNS_WORKER_APPS_SHOP_ENDPOINT": "x:y"],
                    "APNS_WORKER_APPS_SHOP_ENDPOINT"
                ),
                (
                    ["APNS_WORKER_APPS": "shop", "APNS_WORKER_APPS_SHOP_MAX_STREAMS": "0"],
                    "APNS_WORKER_APPS_SHOP_MAX_STREAMS"
                ),
                (["APNS_WORKER_APPS": "shop,news"], "shop and news have a topic"),
                (["APNS_WORKER_KEY_BASE64": "!"], "APNS_WORKER_KEY_BASE64"),
                (["APNS_WORKER_KEY": "", "APNS_WORKER_KEY_BASE64": "!"], "APNS_WORKER_KEY_BASE64"),
                (["APNS_WORKER_KEY": "/does/not/exist"], "/does/not/exist"),
                (["APNS_WORKER_PROXY": "https://proxy"], "http://"),
                (["HTTPS_PROXY": "socks5://user:pass@proxy:1"], "http://"),
                (["APNS_WORKER_CERTIFICATE": "./x"], "both a signing key and a certificate"),
                (["APNS_WORKER_MIN_CONNECTIONS": "5"], "connections"),
            ])
        func settings(_ environment: [String: String], _ words: String) async throws {
            var all = [
                "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
                "APNS_WORKER_TEAM_ID": "TEAM123456", "APNS_WORKER_TOPIC": "com.example.app",
                "APNS_WORKER_KEY_ID": "ABC123DEFG", "APNS_WORKER_REDIS_URL": "redis://127.0.0.1:1",
                "APNS_WORKER_ENDPOINT": "127.0.0.1:1",
            ]
            all.merge(environment) { $1 }
            let result = try await CommandLineTests.run(["run"], environment: all)
            #expect(result.ending != .exited(0) && result.errors.contains(words), "\(result.errors)")
            #expect(!result.errors.contains("pass@"))
        }
    }
}
