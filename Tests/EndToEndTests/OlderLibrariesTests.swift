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
    }
}
