import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// An APNs that fails for a long time: every job waits, and all are delivered once it recovers.
    @Suite("A failing APNs")
    struct EndpointOutageTests {
        private let redis: RedisServer
        private let simulator: SimulatorProcess

        init() async throws {
            redis = try RedisServer()
            simulator = try await SimulatorProcess(options: ["--initial-streams", "100", "--control-port", "0"])
        }

        /// Returns a worker with one connection.
        private func worker(_ options: [String] = []) throws -> WorkerProcess {
            try WorkerProcess(redis, simulator, ["--admin-port", "0", "--max-connections", "1"] + options)
        }

        private func body(_ port: Int) async throws -> String { try await MetricsTests.get(port, "/readyz").body }

        @Test(
            "answers every request with a server error, for longer than ten attempts take: no job becomes a dead letter"
        )
        func serverErrors() async throws {
            try await simulator.control("POST", "/rules", #"{"rule":"answer=503"}"#)
            let worker = try worker(["--max-attempts", "1"])
            let port = try await worker.adminPort()
            try redis.push(TestJob.many(500))
            try await eventually("it is not ready") {
                try await body(port).contains("- APNs accepts nothing of the app default: ServiceUnavailable (")
            }
            try await eventually("status reports it") {
                try await FleetView(redis.url).kinds == ["endpoint_slow localhost:\(simulator.port)"]
            }
            let view = try await FleetView(redis.url)
            #expect(view.apps.first?.state == "unavailable")
            #expect(view.problems.first?.message.contains("503 ServiceUnavailable") == true, "\(view.problems)")
            let page = try await MetricsTests.page(port)
            #expect(page.value("apns_worker_app_state", ["app": "default", "state": "unavailable"]) == 1)
            try await redis.apnsWorker(["status", "--check"]).ends(2, "ServiceUnavailable")

            // From now on, one request at a time.
            let before = try await simulator.account().requests
            #expect(before <= 300)
            try await eventually("probes go on") { try await simulator.account().requests >= before + 12 }
            #expect(try QueueContents(redis).dead.isEmpty)
            try await simulator.control("DELETE", "/rules")
            try await redis.has(500)
            try await eventually("it is ready again") { try await body(port) == "ready\n" }
            try await eventually("status is well again") { try await FleetView(redis.url).problems.isEmpty }
            let (account, _, _) = try await redis.stop(worker, simulator)
            #expect(account.delivered == 500 && account.dead == 0 && account.possibleDuplicates == 0)
            let lines = worker.log.split(separator: "\n")
            #expect(lines.count { $0.contains(" error ") && $0.contains("event=scope_slow") } == 1, "\(worker.log)")
            #expect(lines.count { $0.contains("event=scope_good") } >= 1)
        }

        @Test("answers no request, for as long: no job becomes a dead letter, and few are sent again")
        func silence() async throws {
            try await simulator.control("POST", "/rules", #"{"rule":"answer=silence"}"#)
            let worker = try worker(["--max-attempts", "2", "--request-timeout", "1000", "--max-streams", "20"])
            let port = try await worker.adminPort()
            try redis.push(TestJob.many(500))
            try await eventually("it is not ready") {
                try await body(port).contains("- the app default gets no answers from APNs (")
            }
            let before = try await simulator.account().requests
            // Each probe has a new connection, and the pauses between connections grow.
            try await eventually("probes go on") { try await simulator.account().requests >= before + 4 }
            #expect(try await simulator.account().requests < 500)
            // The problem is reported between probes, too.
            try await eventually("it is reported between probes") {
                try await body(port).contains("gets no answers from APNs")
            }
            try await eventually("status reports it") {
                try await FleetView(redis.url).kinds == ["endpoint_slow localhost:\(simulator.port)"]
            }
            #expect(try QueueContents(redis).dead.isEmpty)
            try await simulator.control("DELETE", "/rules")
            try await redis.has(500)
            try await eventually("it is ready again") { try await body(port) == "ready\n" }
            let (account, _, accepted) = try await redis.stop(worker, simulator)
            #expect(account.delivered == 500 && account.dead == 0)
            #expect(account.possibleDuplicates == accepted.silenced && accepted.silenced < 500)
            #expect(worker.log.split(separator: "\n").count { $0.contains(" error ") } == 1, "\(worker.log)")
        }

        @Test(
            "stops answering on one connection: its requests are repeated on another without spending an attempt",
            arguments: ["UnrelatedKeyIdInToken", "TooManyProviderTokenUpdates"])
        func connection(reason: String) async throws {
            try await simulator.control("POST", "/rules", "{\"rule\":\"connection=1,answer=\(reason)\"}")
            let worker = try worker(["--max-attempts", "1", "--results", "all"])
            try redis.push(TestJob.many(300))
            try await redis.has(300)
            let (account, _, accepted) = try await redis.stop(worker, simulator)
            #expect(account.delivered == 300 && account.retried == 0 && account.deferred == 0 && account.dead == 0)
            #expect(account.resent >= 1 && accepted.connections == 2)
            #expect(worker.log.contains("event=connection_refused"))
        }

        @Test("is another server: an HTML page for every request slows the app down, and no attempt is spent")
        func notAPNs() async throws {
            try await simulator.control("POST", "/rules", #"{"rule":"answer=404,body=text"}"#)
            let worker = try worker(["--max-attempts", "1"])
            let port = try await worker.adminPort()
            try redis.push(TestJob.many(200))
            try await worker.logs("scope_slow", "HTTP404")
            try await eventually("it is not ready") { try await body(port).contains("HTTP404") }
            try await simulator.control("DELETE", "/rules")
            try await redis.has(200)
            let account = try await worker.stop()
            #expect(account.delivered == 200 && account.dead == 0)
        }
    }
}
