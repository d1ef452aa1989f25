import Foundation
import TestSupport
import Testing

extension EndToEnd.OlderLibrariesTests {
    @Test("retry limits are each job's own")
    func attempts() async throws {
        let jobs = [
            TestJob.text(TestJob.token("f1", 1), #""max_attempts":1,"#),
            TestJob.text(TestJob.token("f3", 1), #""max_attempts":3,"#),
            TestJob.text(TestJob.token("f5", 1)), TestJob.text(TestJob.token("a", 1)),
        ]
        let result = try await EndToEnd.GatewayScene.deliver(
            jobs, rules: ["prefix=f,answer=1"], options: ["--max-attempts", "5"])
        #expect(result.worker.delivered == 1 && result.worker.dead == 3 && result.worker.retried == 2 + 4)
        #expect(result.queue.deadReasons == ["AttemptsExhausted": 3])
        #expect(result.queue.dead.map(\.attempts).sorted() == [1, 3, 5])
        #expect(result.simulator.gateway.refused["1 ProcessingError"] == 1 + 3 + 5)
    }

    @Test("many notifications are one write of at most one TLS record")
    func batches() async throws {
        let scene = try await EndToEnd.GatewayScene()
        let counter = TLSRecords()
        let proxy = try await FaultProxy(to: try scene.gatewayPort(), watch: counter.arrived)
        let jobs = (0..<1000).map {
            #"{"token":"\#(TestJob.token("a", $0))","payload":\#(TestJob.payload(bytes: 150))}"#
        }
        try scene.redis.push(jobs)
        let worker = try WorkerProcess(
            redis: scene.redis.url, gateway: proxy.port,
            options: ["--exit-when-done", "--max-connections", "1", "--gateway-batch-time", "20"])
        let result = try await scene.finish(worker)
        #expect(result.worker.delivered == 1000)
        let records = counter.sizes
        // 200 bytes each, so that 13 records would suffice; the first claims are small.
        #expect(records.count >= 13 && records.count <= 60, "\(records)")
        // The plaintext of a record, and the type and tag that TLS 1.3 adds.
        #expect(records.allSatisfy { $0 <= 16_384 + 1 + 16 }, "\(records)")
        #expect(records.contains { $0 > 14_000 }, "\(records)")
    }

    @Test("batches of any size deliver", arguments: [1, 1 << 20])
    func batchSizes(bytes: Int) async throws {
        let result = try await EndToEnd.GatewayScene.deliver(
            TestJob.many(500, prefix: "a"), confirmAfter: 200,
            options: ["--gateway-batch-bytes", "\(bytes)", "--gateway-batch-time", "0"])
        #expect(result.worker.delivered == 500 && result.simulator.gateway.accepted == 500)
    }

    @Test("UTF-8 payloads with emoji and astral characters arrive intact")
    func emoji() async throws {
        let texts = [
            "😀 👩‍👩‍👧‍👦 🇨🇭 👍🏽", "𝄞 𐍈 𠜎 \u{10FFFF}", "Grüße, 你好, مرحبا, שלום", "e\u{301} \u{200D} \u{FEFF}x",
            #"\ud83d\ude00 \u00e9 \n \""#,
        ]
        let payloads = texts.map { #"{"aps":{"alert":"\#($0)"},"own":{"é😀":[1.50,null]}}"# }
        let jobs = payloads.enumerated().map {
            #"{"token":"\#(TestJob.token("a", $0.offset))","payload":\#($0.element)}"#
        }
        let result = try await EndToEnd.GatewayScene.deliver(jobs, confirmAfter: 200)
        #expect(result.worker.delivered == texts.count && result.simulator.gateway.refused.isEmpty)
        for (record, payload) in zip(result.simulator.gatewayAccepted, payloads) {
            // Compared by bytes, because canonically equivalent characters are equal as text.
            #expect(Array(record.payload.utf8) == Array(payload.utf8))
        }
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
