import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Features and known bugs of older libraries for the binary protocol.
    @Suite("Features of older libraries")
    struct OlderLibrariesTests {
        @Test("FIFO order is kept across resends")
        func order() async throws {
            var jobs = TestJob.many(600, prefix: "a")
            for number in 0..<12 { jobs.insert(TestJob.text(TestJob.token("dead", number)), at: 40 + number * 45) }
            let result = try await GatewayScene.deliver(
                jobs, rules: ["prefix=dead,answer=8,delay=20ms", "after=97,answer=10"],
                options: ["--max-connections", "1"])
            #expect(result.worker.delivered == 600 && result.worker.invalidToken == 12 && result.worker.resent > 0)
            result.simulator.expectOrder(600, prefix: "a")
        }

        @Test("a gateway that is unreachable at first is tried again after growing pauses, and then gets everything")
        func reconnectDelay() async throws {
            let redis = try RedisServer()
            let port = try RedisServer.freePort()
            try redis.push(TestJob.many(200, prefix: "a"))
            let worker = try WorkerProcess(redis: redis.url, gateway: port, options: ["--exit-when-done"])
            try await worker.logs("apns_connection_failed", " endpoint=localhost:\(port) ", " retry_in_ms=")
            let simulator = try await GatewayScene.gateway(on: port)
            let account = try await worker.finish()
            expectAgreement(account, try QueueContents(redis))
            #expect(worker.lines(of: "apns_connection_restored").count == 1)
            #expect(worker.lines(of: "apns_connection_failed").count == 1, "\(worker.log)")
            #expect(account.delivered == 200 && account.retried == 0 && account.possibleDuplicates == 0)
            #expect(try await simulator.stop().gateway.accepted == 200)
        }

        @Test("a certificate that the gateway accepts and then drops at once is reported, and all jobs are kept")
        func droppedAtConnect() async throws {
            let result = try await GatewayScene.deliver(
                TestJob.many(50, prefix: "a"), rules: ["at=connect,answer=close,times=4"], confirmAfter: 400,
                exactlyOnce: false)
            #expect(result.worker.delivered == 50 && result.simulator.gateway.accepted == 50)
            #expect(result.queue.dead.isEmpty)
            #expect(!result.log.lines(of: "apns_connection_failed").isEmpty, "\(result.log)")
            // At most once for the first connection, and then one at a time.
            #expect(result.worker.retried <= 50 + 4)
        }

        @Test("batches of any size deliver", arguments: [1, 1 << 20])
        func batchSizes(bytes: Int) async throws {
            let result = try await GatewayScene.deliver(
                TestJob.many(500, prefix: "a"), confirmAfter: 200,
                options: ["--gateway-batch-bytes", "\(bytes)", "--gateway-batch-time", "0"])
            #expect(result.worker.delivered == 500 && result.simulator.gateway.accepted == 500)
        }

        @Test("payload limits: 2048 bytes, or 256 where that is configured", arguments: [2048, 256])
        func payloadLimits(limit: Int) async throws {
            func job(_ number: Int, bytes: Int) -> String { TestJob.large(TestJob.token("a", number), bytes: bytes) }
            let tooLarge = job(2, bytes: limit + 1)
            let result = try await GatewayScene.deliver(
                [job(1, bytes: limit), tooLarge, job(3, bytes: limit)], confirmAfter: 200,
                options: limit == 2048 ? [] : ["--gateway-payload-limit", "\(limit)"],
                simulatorOptions: ["--gateway-payload-limit", "\(limit)"])
            #expect(result.worker.delivered == 2 && result.simulator.gateway.refused.isEmpty)
            #expect(result.queue.deadReasons == ["PayloadTooLarge": 1])
            let letter = try #require(result.queue.dead.first)
            #expect(letter.original == Array(tooLarge.utf8) && letter.detail?.contains("\(limit)") == true)
        }

        @Test("passphrases: a PKCS#12 file, and an encrypted key in PEM", arguments: ["p12", "pem"])
        func passphrases(form: String) async throws {
            let workshop = try OpenSSLWorkshop()
            var environment = ["APNS_WORKER_CERTIFICATE_KEY": ""]
            if form == "p12" {
                try workshop.openssl(
                    "pkcs12", "-export", "-in", try TestCertificates.path("client.pem"), "-inkey",
                    try TestCertificates.path("client-key.pem"), "-passout", "pass:pässwörd", "-out", "client.p12")
                environment["APNS_WORKER_CERTIFICATE"] = workshop.path("client.p12")
                environment["APNS_WORKER_CERTIFICATE_PASSPHRASE"] = "pässwörd"
            } else {
                try workshop.write(Data("secret\n".utf8), to: "passphrase")
                environment["APNS_WORKER_CERTIFICATE_KEY"] = try TestCertificates.path("client-key-encrypted.pem")
                environment["APNS_WORKER_CERTIFICATE_PASSPHRASE_FILE"] = workshop.path("passphrase")
            }
            let result = try await GatewayScene.deliver(
                TestJob.many(20, prefix: "a"), confirmAfter: 200, environment: environment)
            #expect(result.worker.delivered == 20 && result.simulator.gateway.accepted == 20)
            #expect(!result.log.contains("secret") && !result.log.contains("pässwörd"))

            environment["APNS_WORKER_CERTIFICATE_PASSPHRASE"] = "wrong"
            environment["APNS_WORKER_CERTIFICATE_PASSPHRASE_FILE"] = ""
            let worker = try WorkerProcess(redis: "redis://127.0.0.1:1", gateway: 1, environment: environment)
            #expect(try await worker.process.wait() != .exited(0))
            #expect(worker.log.contains("passphrase"), "\(worker.log)")
        }
    }
}
