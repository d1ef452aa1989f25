import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("An APNs that fails, or does not answer")
    struct EndpointOutageTests {
        private let redis: RedisServer

        init() throws { redis = try RedisServer() }

        /// Returns a simulator that allows many streams before its first answer.
        private func simulator(_ rule: String) async throws -> SimulatorProcess {
            try await SimulatorProcess(rules: [rule], options: ["--initial-streams", "100", "--control-port", "0"])
        }

        private func body(_ port: Int) async throws -> String { try await MetricsTests.get(port, "/readyz").body }

        /// Waits until `status` reports exactly these kinds of problems.
        private func reports(_ kinds: String...) async throws {
            try await eventually("status reports \(kinds)") { try await FleetView(redis.url).kinds == kinds }
        }

        @Test(
            "answers every request with a server error, for longer than ten attempts take: no job becomes a dead letter"
        )
        func serverErrors() async throws {
            let simulator = try await simulator("answer=503")
            let worker = try WorkerProcess(
                redis, simulator, ["--admin-port", "0", "--max-connections", "1", "--max-attempts", "1"])
            let port = try await worker.adminPort()
            try redis.push(TestJob.many(500))
            try await eventually("it is not ready") {
                try await body(port).contains("- APNs accepts nothing of the app default: ServiceUnavailable (")
            }
            try await reports("endpoint_slow localhost:\(simulator.port)")
            let view = try await FleetView(redis.url)
            #expect(view.apps.first?.state == "unavailable")
            #expect(view.problems.first?.message.contains("503 ServiceUnavailable") == true, "\(view.problems)")
            let page = try await MetricsTests.page(port)
            #expect(page.value("apns_worker_app_state", ["app": "default", "state": "unavailable"]) == 1)
            try await redis.apnsWorker(["status", "--check"]).ends(2, "ServiceUnavailable")

            // From now on, the worker sends one request at a time.
            let before = try await simulator.account().requests
            #expect(before <= 300)
            try await eventually("probes go on") { try await simulator.account().requests >= before + 12 }
            #expect(try QueueContents(redis).dead.isEmpty)
            try await simulator.control("DELETE", "/rules")
            try await redis.has(500)
            try await eventually("it is ready again") { try await body(port) == "ready\n" }
            try await reports()
            let (account, _, _) = try await redis.stop(worker, simulator)
            #expect(account.delivered == 500 && account.dead == 0 && account.possibleDuplicates == 0)
            let lines = worker.log.split(separator: "\n")
            #expect(lines.count { $0.contains(" error ") && $0.contains("event=scope_slow") } == 1, "\(worker.log)")
            #expect(lines.count { $0.contains("event=scope_good") } >= 1)
        }

        @Test("answers nothing on its first connection: that is detected, and all is delivered after the deadline")
        func wedge() async throws {
            let simulator = try await simulator("at=connect,connection=1,answer=wedge")
            let worker = try WorkerProcess(redis, simulator, ["--admin-port", "0", "--results", "all"])
            let port = try await worker.adminPort()
            try await eventually("it is ready") { try await body(port) == "ready\n" }
            try redis.push(TestJob.many(20))
            let start = ContinuousClock.now
            try await reports("endpoint_slow localhost:\(simulator.port)")
            let view = try await FleetView(redis.url)
            #expect(view.apps.first?.state == "unavailable" && view.apps.first?.lanes_slow == 1)
            try await redis.has(20)
            // The worker gives up the requests of the first connection after 20 s.
            #expect(ContinuousClock.now - start > .seconds(19))
            // The worker is ready until it has received no answer for 30 s.
            #expect(try await body(port) == "ready\n")
            try await reports()
            let page = try await MetricsTests.page(port)
            #expect(page.sum("apns_worker_connection_failures_total", ["reason": "Unresponsive"]) == 1)
            let (account, _, accepted) = try await redis.stop(worker, simulator)
            #expect(account.delivered == 20 && account.retried == 20 && account.possibleDuplicates == 20)
            #expect(accepted.connections == 2 && accepted.silenced == 20 && accepted.duplicates == 0)
            let began = worker.lines(of: "scope_slow")
            #expect(began.count == 1 && began.first?.contains(" error ") == true, "\(worker.log)")
            #expect(worker.lines(of: "scope_good").count >= 1)
            worker.expectComplaints(1...2)
        }

        @Test("sends no SETTINGS: the worker is not ready within seconds, and no attempt is spent")
        func noSettings() async throws {
            let simulator = try await simulator("at=connect,answer=no-settings")
            let worker = try WorkerProcess(
                redis, simulator, ["--admin-port", "0", "--max-connections", "8", "--max-attempts", "1"])
            let port = try await worker.adminPort()
            try redis.push(TestJob.many(200))
            try await eventually("it is not ready") {
                try await body(port).contains("- the app default has no connection to APNs (")
            }
            try await worker.logs("apns_connection_failed", "SETTINGS", " endpoint=localhost:\(simulator.port) ")
            try await reports("app_unconnected default")
            #expect(try await FleetView(redis.url).apps.first?.failure?.contains("sent no HTTP/2 SETTINGS") == true)
            #expect(worker.complaints.count <= 2, "\(worker.log)")
            try await simulator.control("DELETE", "/rules")
            try await redis.has(200)
            let (account, _, accepted) = try await redis.stop(worker, simulator)
            #expect(account.delivered == 200 && account.retried == 0 && account.possibleDuplicates == 0)
            #expect(accepted.requests == 200)
        }

        @Test("never begins TLS: the worker gives up after connect_timeout, and tries again within reconnect_cap")
        func silentServer() async throws {
            let attempts = Counter()
            let server = try await FaultProxy(to: redis.port) { _ in _ = attempts.next() }
            try await server.begin(.blackHole)
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: server.port,
                options: ["--connect-timeout", "200ms", "--reconnect-base", "10ms", "--reconnect-cap", "40ms"])
            try redis.push(TestJob.many(3))
            try await eventually("many connections are tried") { attempts.last >= 8 }
            try await worker.logs("apns_connection_failed")
            let line = try #require(worker.lines(of: "apns_connection_failed").first)
            let pause = try #require(line.firstMatch(of: /retry_in_ms=(\d+)/).flatMap { Int($0.1) })
            #expect(pause <= 40 && line.contains("200 ms"), "\(line)")
            let account = try await worker.stop()
            #expect(account.delivered == 0 && account.dead == 0)
            #expect(try QueueContents(redis).jobs.count + QueueContents(redis).retries.count == 3)
        }
    }
}
