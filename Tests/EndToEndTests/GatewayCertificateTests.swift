import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The gateway and certificates")
    struct GatewayCertificateTests {
        @Test(
            "of two apps, one by the gateway and one by HTTP/2, each has its jobs, and one's fault is not the other's")
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
                options: ["--pause", "500", "--pause-cap", "500"], environment: environment)
            try await eventually("the gateway's app is paused") { try BreakerTests.pause("old", scene.redis) != nil }
            try scene.redis.push(BreakerTests.jobs(500, "modern", prefix: "c"))
            try await eventually("all of both are delivered") { try scene.queue().count("delivered") == 541 }
            #expect(try BreakerTests.pause("modern", scene.redis) == nil)
            expectAgreement(try await worker.stop(), try scene.queue())
            let simulated = try await scene.simulator.stop()
            #expect(simulated.answers == ["200": 500] && simulated.acceptedByGateway == 41)
            #expect(simulated.acceptedByToken.count == 541)
        }

        @Test(
            "a certificate of a stranger: nothing is taken, the log says what may be wrong, and the jobs stay",
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
            try await eventually("the worker tells") { worker.log.contains("no connection to the gateway: ") }
            #expect(worker.log.contains("certificate"), "\(worker.log)")
            let account = try await worker.stop()
            let queue = try scene.queue()
            #expect(queue.jobs.count + queue.retries.count == 20 && queue.claims == 0 && queue.dead.isEmpty)
            #expect(account.delivered == 0 && account.dead == 0)
            #expect(try await scene.simulator.stop().gateway.accepted == 0)
        }

        @Test("a certificate that names no app pauses the app, and keeps its jobs")
        func withoutTopic() async throws {
            let workshop = try OpenSSLWorkshop()
            try workshop.certificate("bare", subject: "/CN=somebody")
            let scene = try await GatewayScene()
            try scene.redis.push(TestJob.many(20, prefix: "a"))
            let worker = try scene.worker(environment: [
                "APNS_WORKER_CERTIFICATE": workshop.path("bare.pem"),
                "APNS_WORKER_CERTIFICATE_KEY": workshop.path("bare-key.pem"),
            ])
            try await eventually("the app is paused") { try BreakerTests.pause("default", scene.redis) != nil }
            #expect(worker.log.contains("MissingTopic (is the certificate right?)"), "\(worker.log)")
            _ = try await worker.stop()
            let queue = try scene.queue()
            #expect(queue.jobs.count + queue.retries.count == 20 && queue.dead.isEmpty && queue.count("retried") == 0)
        }

        @Test("the gateway's own certificate is verified, and the host name in it")
        func server() async throws {
            let redis = try RedisServer()
            let simulator = try await SimulatorProcess(certificate: "wronghost", gateway: [])
            try redis.push(TestJob.many(20, prefix: "a"))
            let worker = try WorkerProcess(redis: redis.url, gateway: try #require(simulator.gatewayPort))
            try await eventually("the worker tells why it cannot connect") {
                worker.log.contains("no connection to the gateway: ")
            }
            #expect(worker.log.contains("example.invalid"), "\(worker.log)")
            #expect(try await worker.stop().submitted == 0)
            let queue = try QueueContents(redis)
            #expect(queue.jobs.count + queue.retries.count == 20 && queue.dead.isEmpty)
            #expect(try await simulator.stop().gateway.accepted == 0)
        }
    }
}
