import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("nginx as APNs")
    struct NginxTests {
        /// The number of jobs. `APNS_WORKER_TEST_NGINX_JOBS=50000` makes a longer run.
        private static let count =
            ProcessInfo.processInfo.environment["APNS_WORKER_TEST_NGINX_JOBS"].flatMap(Int.init) ?? 5000

        @Test("loses nothing, although each connection ends after 1,000 requests")
        func none() async throws {
            let nginx = try await NginxServer(requestsPerConnection: 1000)
            let redis = try RedisServer()
            try redis.push(TestJob.many(Self.count))
            let worker = try WorkerProcess(redis: redis.url, endpoint: nginx.port, options: ["--exit-when-done"])
            let account = try await worker.finish(within: .seconds(200))
            let queue = try QueueContents(redis)
            let requests = try nginx.requests().filter { $0.status == "200" }

            #expect(queue.isSettled && queue.dead.isEmpty && queue.count("delivered") == Self.count)
            #expect(account.delivered == Self.count && account.lostClaims == 0)
            // Notifications that a closing connection refuses are sent over the next one at once. They are deferred only if
            // that one refuses them too, because it closes at almost the same time.
            #expect(account.deferred == queue.count("deferred:GoAway") && account.deferred < account.resent)
            let paths = Set(requests.map(\.path))
            #expect(paths.count == Self.count && Set(requests.map(\.id)).count == Self.count)
            #expect(paths.contains("/3/device/\(TestJob.token("", 0))"))
            #expect(requests.count - Self.count <= account.possibleDuplicates)
        }
    }
}
