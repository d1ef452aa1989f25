import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The gateway and certificates")
    struct GatewayCertificateTests {
        @Test("two apps, one with the gateway and one with HTTP/2, get their jobs, and faults stay separate")
        func twoApps() async throws {
            let scene = try await GatewayScene(rules: ["prefix=bad,answer=3,times=1"])
            let environment = [
                "APNS_WORKER_APPS": "modern,old", "APNS_WORKER_APPS_MODERN_TOPIC": "com.example.modern",
                "APNS_WORKER_APPS_OLD_TRANSPORT": "gateway", "APNS_WORKER_APPS_OLD_TOPIC": "com.example.app",
                "APNS_WORKER_APPS_OLD_ENDPOINT": "localhost:\(try scene.gatewayPort())",
                "APNS_WORKER_APPS_OLD_CERTIFICATE": try TestCertificates.path("client.pem"),
                "APNS_WORKER_APPS_OLD_CERTIFICATE_KEY": try TestCertificates.path("client-key.pem"),
                "APNS_WORKER_APPS_OLD_GATEWAY_CONFIRM_AFTER": "1000",
            ]
            try scene.redis.push(
                BreakerTests.jobs(20, "old", prefix: "a") + BreakerTests.jobs(1, "old", prefix: "bad")
                    + BreakerTests.jobs(20, "old", prefix: "b"))
            let worker = try WorkerProcess(
                redis: scene.redis.url, endpoint: scene.simulator.port,
                environment: environment)
            try scene.redis.push(BreakerTests.jobs(500, "modern", prefix: "c"))
            try await eventually("all of both are delivered") { try scene.queue().count("delivered") == 541 }
            expectAgreement(try await worker.stop(), try scene.queue())
            let simulated = try await scene.simulator.stop()
            #expect(simulated.answers == ["200": 500] && simulated.acceptedByGateway == 41)
            #expect(simulated.acceptedByToken.count == 541)
        }

        @Test(
            "a certificate from an unknown authority: nothing is sent, the log names likely causes, and the jobs stay",
            arguments: [false, true])
        func stranger(refusedInHandshake: Bool) async throws {
            let scene = try await GatewayScene(options: refusedInHandshake ? ["--refuse-handshake"] : [])
            try scene.redis.push(TestJob.many(20, prefix: "a"))
            let worker = try scene.worker(environment: [
                "APNS_WORKER_CERTIFICATE": try TestCertificates.path("other-ca.pem"),
                "APNS_WORKER_CERTIFICATE_KEY": try TestCertificates.path("other-ca-key.pem"),
            ])
            try await eventually("it is refused some times") {
                try await scene.simulator.account().gateway.refusedClients >= 3
            }
            try await worker.logs("apns_connection_failed", "certificate")
            let account = try await worker.stop()
            let queue = try scene.queue()
            #expect(try scene.kept() == 20 && queue.claims == 0 && queue.dead.isEmpty)
            #expect(account.delivered == 0 && account.dead == 0)
            #expect(try await scene.simulator.stop().gateway.accepted == 0)
        }

        @Test("a certificate of another app: nothing is sent, and the jobs stay")
        func otherApp() async throws {
            let workshop = try OpenSSLWorkshop()
            try workshop.certificate("right", subject: "/UID=com.other.app/CN=Apple Push Services: com.other.app")
            for (name, file) in [("client.pem", "in-use.pem"), ("client-key.pem", "in-use-key.pem")] {
                try FileManager.default.copyItem(atPath: try TestCertificates.path(name), toPath: workshop.path(file))
            }
            let scene = try await GatewayScene()
            try scene.redis.push(TestJob.many(20, prefix: "a"))
            let worker = try scene.worker(
                options: ["--admin-port", "0", "--lanes", "2"],
                environment: [
                    "APNS_WORKER_TOPIC": "com.other.app", "APNS_WORKER_CERTIFICATE": workshop.path("in-use.pem"),
                    "APNS_WORKER_CERTIFICATE_KEY": workshop.path("in-use-key.pem"),
                ])
            let port = try await worker.adminPort()
            try await worker.logs(
                "app_blocked", "CertificateNotForTopic", "the certificate (Apple Push Services: com.example.app)",
                "not for the topic com.other.app")
            let ready = try await MetricsTests.get(port, "/readyz")
            #expect(ready.status == 503 && ready.body.contains("CertificateNotForTopic"), "\(ready.body)")
            try await eventually("status reports it") {
                let view = try await FleetView(scene.redis.url)
                return view.kinds.first == "app_blocked default" && view.apps.first?.state == "blocked"
            }

            // The worker sends nothing although an operator resumes the app.
            try await scene.redis.apnsWorker(["resume", "--app", "default"]).succeeds()
            try await eventually("the jobs are where they were or put off") { try scene.kept() == 20 }
            #expect(try await scene.simulator.account().gateway.frames == [:])
            #expect(try await scene.simulator.account().gateway.accepted == 0)

            // Replaces the files one after the other, as an operator would.
            for (name, file) in [("right.pem", "in-use.pem"), ("right-key.pem", "in-use-key.pem")] {
                try Data(workshop.read(name)).write(to: URL(filePath: workshop.path(file)), options: .atomic)
            }
            try await eventually("the right certificate is taken up, and all is delivered") {
                try scene.queue().count("delivered") == 20
            }
            _ = try await worker.stop()
            #expect(!worker.lines(of: "app_resumed").isEmpty)
            let queue = try scene.queue()
            #expect(queue.isSettled && queue.dead.isEmpty && queue.count("retried") == 0)
            #expect(try await scene.simulator.stop().gateway.accepted == 20)
        }

        @Test("correcting the topic of a running worker lets it send, and breaking it ends that")
        func correctedTopic() async throws {
            let scene = try await GatewayScene()
            let folder = try TemporaryFolder()
            func configuration(_ topic: String) throws -> String {
                "apps:\n  old:\n    topic: \(topic)\n    transport: gateway\n"
                    + "    endpoint: localhost:\(try scene.gatewayPort())\n"
            }
            try folder.write(configuration("com.other.app"))
            let worker = try scene.worker(
                options: ["--config", folder.file], environment: ["APNS_WORKER_TOPIC": "", "APNS_WORKER_ENDPOINT": ""])
            try scene.redis.push(TestJob.many(20, prefix: "a"))
            try await worker.logs("app_blocked")
            #expect(try await scene.simulator.account().gateway.accepted == 0)
            try folder.write(configuration("com.example.app"))
            worker.process.send(SIGHUP)
            try await eventually("all are sent") { try scene.queue().count("delivered") == 20 }
            try await worker.logs("app_resumed")

            try folder.write(configuration("com.other.app"))
            worker.process.send(SIGHUP)
            try await eventually("it is blocked again") { worker.lines(of: "app_blocked").count == 2 }
            try scene.redis.push(TestJob.many(20, prefix: "b"))
            _ = try await worker.stop()
            // The jobs are deferred, or still in the list.
            #expect(try scene.kept() == 20 && scene.queue().dead.isEmpty)
            #expect(try await scene.simulator.stop().gateway.accepted == 20)
        }

        @Test("a PKCS#12 file or an encrypted key in PEM is opened with its passphrase", arguments: ["p12", "pem"])
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
