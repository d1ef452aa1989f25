import Foundation
import TestSupport
import Testing

extension EndToEnd.OlderLibrariesTests {
    @Test("batches of any size deliver", arguments: [1, 1 << 20])
    func batchSizes(bytes: Int) async throws {
        let result = try await EndToEnd.GatewayScene.deliver(
            TestJob.many(500, prefix: "a"), confirmAfter: 200,
            options: ["--gateway-batch-bytes", "\(bytes)", "--gateway-batch-time", "0"])
        #expect(result.worker.delivered == 500 && result.simulator.gateway.accepted == 500)
    }

    @Test("payload limits: 2048 bytes, or 256 where that is configured", arguments: [2048, 256])
    func payloadLimits(limit: Int) async throws {
        func job(_ number: Int, bytes: Int) -> String {
            #"{"token":"\#(TestJob.token("a", number))","payload":\#(TestJob.payload(bytes: bytes))}"#
        }
        let tooLarge = job(2, bytes: limit + 1)
        let result = try await EndToEnd.GatewayScene.deliver(
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
        let result = try await EndToEnd.GatewayScene.deliver(
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
