import TestSupport
import Testing

extension EndToEnd {
    /// Connections to APNs through a third-party proxy.
    @Suite("Proxies")
    struct ProxyTests {
        @Test(
            "an HTTP proxy is used, with and without a password, by setting and by the usual variables",
            arguments: [true, false], ["APNS_WORKER_PROXY", "HTTPS_PROXY", "https_proxy"])
        func proxied(hasPassword: Bool, variable: String) async throws {
            let (redis, simulator) = try await startServers()
            let proxy = try await TinyproxyServer(user: hasPassword ? ("worker", "s3cret") : nil)
            let user = hasPassword ? "worker:s3%63ret@" : ""
            try redis.push(TestJob.many(200))
            let worker = try WorkerProcess(
                redis, simulator, ["--exit-when-done", "--log-level", "debug"],
                environment: [variable: "http://\(user)127.0.0.1:\(proxy.port)"])
            #expect(try await worker.finish().delivered == 200)
            let log = try proxy.log()
            #expect(log.contains("CONNECT localhost:\(simulator.port)"), "\(log)")
            #expect(!worker.log.contains("s3"))
            #expect(try await simulator.stop().accepted == 200)
        }

        @Test("a proxy with another password is named, and the jobs stay in Redis")
        func refused() async throws {
            let (redis, simulator) = try await startServers()
            let proxy = try await TinyproxyServer(user: ("worker", "right"))
            try redis.push(TestJob.many(20))
            let worker = try WorkerProcess(
                redis, simulator, environment: ["APNS_WORKER_PROXY": "http://worker:wrong@127.0.0.1:\(proxy.port)"])
            try await worker.logs("apns_connection_failed")
            #expect(worker.log.contains("127.0.0.1:\(proxy.port)") && !worker.log.contains("wrong"), "\(worker.log)")
            _ = try await worker.stop()
            let queue = try QueueContents(redis)
            #expect(queue.jobs.count + queue.retries.count == 20 && queue.dead.isEmpty)
            #expect(try await simulator.stop().connections == 0)
        }

        @Test("connections to excepted hosts are direct", arguments: ["localhost", "*", ".host,localhost"])
        func excepted(_ list: String) async throws {
            let (redis, simulator) = try await startServers()
            try redis.push(TestJob.many(20))
            let worker = try WorkerProcess(
                redis, simulator, ["--exit-when-done"],
                environment: ["HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": list])
            #expect(try await worker.finish().delivered == 20)
        }
    }
}
