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
    }
}
