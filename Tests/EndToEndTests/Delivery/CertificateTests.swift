import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("APNs' certificate")
    struct CertificateTests {
        @Test(
            "a bad one is named in the error, and the jobs stay in Redis",
            arguments: [
                ("server", "other-ca", "is not trusted"), ("wronghost", "ca", "example.invalid"),
                ("expired", "ca", "expired"), ("notyet", "ca", "not valid"),
            ])
        func refused(certificate: String, authority: String, words: String) async throws {
            let (redis, simulator) = (try RedisServer(), try await SimulatorProcess(certificate: certificate))
            try redis.push(TestJob.many(20))
            let worker = try WorkerProcess(redis: redis.url, endpoint: simulator.port, authority: authority)
            try await worker.logs("apns_connection_failed", words)
            let account = try await worker.stop()
            let queue = try QueueContents(redis)
            #expect(queue.jobs.count + queue.retries.count == 20 && queue.claims == 0 && queue.dead.isEmpty)
            #expect(account.submitted == 0 && account.dead == 0)
            #expect(try await simulator.stop().requests == 0)
        }

        @Test("a good one is accepted, also a chain of two", arguments: ["server", "chain"])
        func accepted(certificate: String) async throws {
            let (redis, simulator) = (try RedisServer(), try await SimulatorProcess(certificate: certificate))
            try redis.push(TestJob.many(20))
            let account = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            #expect(account.delivered == 20)
        }

        @Test("a simulator with its own certificates is trusted by the worker and trusts it, by key and by certificate")
        func own() async throws {
            let redis = try RedisServer()
            let directory = redis.directory.appending(path: "certificates").path
            let simulator = try ChildProcess(
                try BuiltProgram.path("apns-simulator"),
                ["--write-certificates", directory, "--topic", "com.example.own"])
            struct Announcement: Decodable { let port: Int }
            try await eventually("the simulator listens") { simulator.output.hasSuffix("\n") }
            let port = try JSONDecoder().decode(Announcement.self, from: Data(simulator.output.utf8)).port
            let environment = [
                "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_CA": "\(directory)/ca.pem",
                "APNS_WORKER_TOPIC": "com.example.own", "APNS_WORKER_ENDPOINT": "localhost:\(port)",
            ]
            let key = ["APNS_WORKER_KEY": "\(directory)/AuthKey_ABC123DEFG.p8", "APNS_WORKER_TEAM_ID": "TEAM123456"]
            let certificate = [
                "APNS_WORKER_CERTIFICATE": "\(directory)/client.pem",
                "APNS_WORKER_CERTIFICATE_KEY": "\(directory)/client-key.pem",
            ]
            for (credential, words) in [
                (key, "APNs accepts the key ABC123DEFG"), (certificate, "APNs accepts the cert"),
            ] {
                try await CommandLineTests.run(["check"], environment: environment.merging(credential) { $1 }).succeeds(
                    "ok       app default: \(words)")
            }
        }
    }
}
