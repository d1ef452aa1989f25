import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Metrics and probes")
    struct MetricsTests {
        @Test("metrics match exactly the notifications that were sent and their outcomes")
        func agreement() async throws {
            let (redis, simulator) = try await startServers(rules: [
                "prefix=dead,answer=410", "prefix=bad0,answer=BadDeviceToken", "prefix=5,answer=503,times=1",
                "prefix=c,answer=418,reason=NewReason",
            ])
            let dead = (0..<20).map { TestJob.text(TestJob.token("dead", $0)) }
            let bad = (0..<3).map { TestJob.text(TestJob.token("bad0", $0)) }
            let retried = (0..<10).map { TestJob.text(TestJob.token("5", $0)) }
            let unknown = (0..<4).map { TestJob.text(TestJob.token("c", $0)) }
            let good = TestJob.many(200, prefix: "a")
            let background = (0..<7).map { number in
                #"{"token":"\#(TestJob.token("b", number))","payload":{"aps":{"content-available":1}}}"#
            }
            let tooLarge = (0..<3).map { number in TestJob.large(TestJob.token("a", 900 + number), bytes: 4097) }
            let tokens =
                ((0..<30).map { TestJob.token("a", 1000 + $0) } + (0..<5).map { TestJob.token("dead", 100 + $0) })
            let fanOut = TestJob.fanOut(tokens)
            let broken = ["{", #"{"token":"ab","app":"nobody","payload":{}}"#]
            let jobs = dead + bad + retried + unknown + good + background + tooLarge + [fanOut] + broken
            try redis.push(jobs)

            let worker = try WorkerProcess(
                redis, simulator, ["--admin-port", "0", "--lanes", "2"])
            let port = try await worker.adminPort()
            let more = try await redis.pushGoodOnes(until: "the unknown ones have ended") {
                try QueueContents(redis).dead.count == 3 + 4 + 2
            }
            let ends = jobs.count - 1 + tokens.count + more
            var retries = 0.0
            try await eventually("all have ended") {
                let page = try await Self.page(port)
                retries = page.sum("apns_worker_notifications_total", ["outcome": "retried"])
                return page.sum("apns_worker_notifications_total") - retries == Double(ends)
            }
            let text = try await Self.get(port, "/metrics").body
            let page = try Exposition(text)
            func count(_ outcome: String, _ reason: String = "", pushType: String = "alert", app: String = "default")
                -> Double?
            {
                page.value(
                    "apns_worker_notifications_total",
                    ["app": app, "queue": "default", "push_type": pushType, "outcome": outcome, "reason": reason])
            }
            #expect(count("delivered") == 240 + Double(more))
            #expect(count("delivered", pushType: "background") == 7)
            #expect(count("invalid_token", "Unregistered") == 25 && count("invalid_token", "BadDeviceToken") == 3)
            #expect(count("retried", "ServiceUnavailable") == 10)
            #expect(count("dead", "PayloadTooLarge", pushType: "") == 3)
            #expect(count("retried", "other") ?? 0 >= 3 * 4, "a reason that nobody knows is no series of its own")
            #expect(count("dead", "AttemptsExhausted", pushType: "") == 4)
            #expect(count("dead", "MalformedJSON", pushType: "", app: "") == 1)
            #expect(count("dead", "UnknownApp", pushType: "", app: "") == 1)
            func jobCount(_ outcome: String) -> Double? {
                page.value("apns_worker_jobs_total", ["queue": "default", "outcome": outcome])
            }
            #expect(
                jobCount("delivered") == 217 + Double(more) && jobCount("invalid_token") == 23 && jobCount("mixed") == 1
            )
            #expect(jobCount("retried") == retries && jobCount("dead") == 9)
            // The last failures are not followed by retries.
            let claimed = Double(jobs.count + more) + retries - 4
            #expect(page.value("apns_worker_jobs_claimed_total", ["queue": "default"]) == claimed)

            let answered = page.value("apns_worker_send_seconds_count", ["app": "default"])
            #expect(answered == page.value("apns_worker_requests_total"))
            // Each notification that was sent is counted once. Retries are not counted, because they waited for other reasons.
            #expect(page.value("apns_worker_queue_seconds_count", ["queue": "default"]) == Double(ends) - 5)
            #expect(try #require(page.value("apns_worker_send_seconds_sum", ["app": "default"])) > 0)
            #expect(page.value("apns_worker_app_state", ["app": "default", "state": "sending"]) == 1)
            #expect(try #require(page.value("apns_worker_connections", ["app": "default", "state": "usable"])) >= 2)
            #expect(page.value("apns_worker_in_flight", ["app": "default"]) == 0)
            #expect(page.value("apns_worker_lanes") == 2 && page.value("apns_worker_lanes_stuck") == 0)
            #expect(page.value("apns_worker_redis_up", ["queue": "default"]) == 1)
            #expect(page.value("apns_worker_ready") == 1)
            #expect(try #require(page.value("apns_worker_provider_token_age_seconds", ["app": "default"])) < 3600)
            // A lane without claims may not report this metric.
            #expect((1...2).contains(page.families["apns_worker_lease_age_seconds"]?.samples.count ?? 0))

            // The page has neither a device token nor a payload.
            #expect(!text.contains(/[0-9a-f]{32}/) && !text.contains("Hello") && !text.contains("NewReason"))
            #expect(try await Promtool.check(text).isEmpty)
            #expect(page.families.values.allSatisfy { $0.help?.isEmpty == false })
            let labels = Set(page.families.values.flatMap(\.samples).flatMap(\.labels.keys))
            let known: Set = [
                "app", "queue", "push_type", "outcome", "reason", "state", "lane", "version", "server", "le", "event",
            ]
            #expect(known.isSuperset(of: labels), "\(labels)")

            let account = try await worker.stop()
            let simulated = try await simulator.stop()
            #expect(account.delivered == 247 + more && simulated.accepted == 247 + more)
            #expect(answered == Double(simulated.requests))
        }

        @Test("the state in Redis is shown: depth by state, age of the oldest job, pauses and invalid tokens")
        func depth() async throws {
            let (redis, simulator) = try await startServers()
            let connection = try redis.connect()
            try connection.run("SET", "push:{default}:paused", "why")
            try connection.run("SADD", "push:{shared}:invalid-tokens", "aa", "bb")
            try connection.run("ZADD", "push:{default}:dead", "1", "x", "2", "y", "3", "z")
            try connection.run("SET", "push:{default}:dead-bytes", "3")
            try connection.run("ZADD", "push:{default}:retry", "99999999999999", "a")
            let enqueued = Int(Date.now.timeIntervalSince1970) - 5000
            try redis.push(TestJob.many(4, members: #""enqueued_at":\#(enqueued),"#))
            let worker = try WorkerProcess(redis, simulator, ["--admin-port", "0"])
            let port = try await worker.adminPort()
            // The first page may come before the worker's first look at Redis, which it repeats every ten seconds.
            try await eventually("the queue has been looked at") {
                try await Self.page(port).value("apns_worker_queue_paused", ["queue": "default"]) == 1
            }
            let page = try await Self.page(port)
            let depth = ["waiting": 4, "scheduled": 1, "retrying": 0, "claimed": 0, "dead": 3]
            for (state, count) in depth {
                #expect(page.value("apns_worker_queue_jobs", ["queue": "default", "state": state]) == Double(count))
            }
            #expect(page.value("apns_worker_dead_letters_bytes", ["queue": "default"]) == 3)
            #expect(page.value("apns_worker_invalid_tokens") == 2)
            let age = try #require(page.value("apns_worker_queue_oldest_seconds", ["queue": "default"]))
            #expect((4990...6000).contains(age))
            _ = try await worker.stop()
        }

        @Test("a worker without Redis is alive but not ready, with the reason, and ready when Redis is back")
        func redisGone() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, ["--admin-port", "0"])
            let port = try await worker.adminPort()
            try await eventually("it is ready") { try await Self.get(port, "/readyz").status == 200 }
            #expect(try await Self.get(port, "/readyz").body == "ready\n")

            redis.pause()
            try await eventually("a Redis that hangs is seen") { try await Self.get(port, "/readyz").status == 503 }
            let body = try await Self.get(port, "/readyz").body
            #expect(body.hasPrefix("not ready\n- Redis ") && body.contains("queue default") && body.contains(" s)\n"))
            #expect(try await Self.get(port, "/healthz").status == 200)
            #expect(try await Self.get(port, "/metrics").status == 200)
            redis.resume()
            try await eventually("it is ready again") { try await Self.get(port, "/readyz").status == 200 }

            redis.kill()
            try await eventually("a Redis that is gone is seen") {
                try await Self.get(port, "/readyz").body.contains("Redis cannot be reached for the queue default")
            }
            #expect(try await Self.page(port).value("apns_worker_redis_up", ["queue": "default"]) == 0)
            #expect(try await Self.page(port).value("apns_worker_ready") == 0)
            #expect(try await Self.page(port).sum("apns_worker_redis_failures_total") >= 1)
            #expect(try await Self.get(port, "/healthz").body == "alive\n")
            try redis.restart()
            try await eventually("it is ready once more") { try await Self.get(port, "/readyz").status == 200 }
            _ = try await worker.stop()
        }

        @Test("a draining worker is not ready, and answers until it exits")
        func draining() async throws {
            let (redis, simulator) = try await startServers(rules: ["answer=silence"])
            try redis.push(TestJob.many(10))
            let worker = try WorkerProcess(redis, simulator, ["--admin-port", "0", "--drain-timeout", "10000"])
            let port = try await worker.adminPort()
            try await eventually("they are under way") { try await simulator.account().silenced == 10 }
            #expect(try await Self.page(port).value("apns_worker_in_flight", ["app": "default"]) == 10)
            worker.process.send(SIGTERM)
            try await eventually("it says that it drains") {
                try await Self.get(port, "/readyz").body.hasPrefix("draining\n- the worker is draining (")
            }
            #expect(try await Self.get(port, "/readyz").status == 503)
            #expect(try await Self.get(port, "/healthz").status == 200)
            #expect(try await Self.get(port, "/metrics").status == 200)
            _ = try await worker.finish()
        }

        @Test(
            "nothing listens by default, and then only on the loopback address",
            .enabled(if: geteuid() == 0, "only root sees the sockets of a process whose memory is private"))
        func closed() async throws {
            let (redis, simulator) = try await startServers()
            for isOpen in [false, true] {
                let worker = try WorkerProcess(redis, simulator, isOpen ? ["--admin-port", "0"] : [])
                try await worker.logs("started")
                // `0100007F` is 127.0.0.1 as the kernel writes it.
                let expected =
                    isOpen ? ["0100007F:" + String(try await worker.adminPort(), radix: 16, uppercase: true)] : []
                // The kernel's list may lack a socket while others open and close.
                try await eventually("it listens on \(expected)") {
                    try worker.listeningAddresses().map { $0.replacing(/:0+/, with: ":") } == expected
                }
                _ = try await worker.stop()
            }
        }

        @Test(
            "a port in use ends the start with an error that names it",
            arguments: [
                ("--admin-port", 1, "the admin port"),
                ("--simulate-control-port", 64, "--simulate-control-port: the control port"),
            ])
        func taken(flag: String, status: Int32, port: String) async throws {
            let redis = try RedisServer()
            try await redis.apnsWorker(["run", "--simulate", flag, "\(redis.port)"]).fails(
                status,
                "\(port) cannot listen on 127.0.0.1:\(redis.port)\(status == 1 ? ": Address already in use" : "")")
        }

        @Test("the health command works without an HTTP client: 0 if healthy, 1 with the reason if not")
        func command() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, environment: ["APNS_WORKER_ADMIN_PORT": "0"])
            let port = "\(try await worker.adminPort())"
            try await eventually("it is ready") {
                try await CommandLineTests.run(["health", "--ready", "--admin-port", port]).ending == .exited(0)
            }
            // As in a container, the port is in the environment, which overrides the file.
            let alive = try await CommandLineTests.run(
                ["health"], environment: ["APNS_WORKER_ADMIN_PORT": port, "APNS_WORKER_CONFIG": "/nowhere.yaml"])
            #expect(alive.ending == .exited(0) && alive.output == "alive\n" && alive.errors.isEmpty)

            redis.kill()
            try await eventually("it is not ready any more") {
                let answer = try await CommandLineTests.run(["health", "--ready", "--admin-port", port])
                return answer.ending == .exited(1) && answer.output.contains("Redis cannot be reached")
            }
            _ = try await worker.process.stopAndWait()
            try await CommandLineTests.run(["health", "--admin-port", port]).fails(
                1, "nothing answers at 127.0.0.1:\(port): Connection refused")
            try await CommandLineTests.run(["health"]).fails(64, "APNS_WORKER_ADMIN_PORT")
        }

        @Test("the health command does not accept another server's silence or garbage", arguments: ["silent", "redis"])
        func otherServer(kind: String) async throws {
            let redis = try RedisServer()
            if kind == "silent" { redis.pause() }
            try await CommandLineTests.run(
                ["health", "--admin-port", "\(redis.port)", "--timeout", kind == "silent" ? "300ms" : "20s"]).fails(1)
                .reports(kind == "silent" ? "does not answer within 300 ms" : "127.0.0.1:\(redis.port)")
            if kind == "silent" { redis.resume() }
        }

        // MARK: Requests

        static func get(_ port: Int, _ path: String) async throws -> RawConnection.Answer {
            try await RawConnection.request(path, port: port)
        }

        static func page(_ port: Int) async throws -> Exposition { try Exposition(await get(port, "/metrics").body) }
    }
}

extension WorkerProcess {
    /// Returns the admin port from the log.
    func adminPort() async throws -> Int {
        try await logs("admin_port_opened")
        let line = lines(of: "admin_port_opened").first ?? ""
        let match = try #require(line.firstMatch(of: /port=(\d+)/), "\(line)")
        return try #require(Int(match.1))
    }

    /// Returns the TCP addresses on which the process listens, as the kernel writes them. Works only for root, because other users can't
    /// read the process' open files.
    fileprivate func listeningAddresses() throws -> [String] {
        let process = "/proc/\(process.processIdentifier)"
        let own = Set(
            try FileManager.default.contentsOfDirectory(atPath: process + "/fd").compactMap {
                // A descriptor may be closed before it is read.
                try? FileManager.default.destinationOfSymbolicLink(atPath: "\(process)/fd/\($0)")
            })
        return try ["tcp", "tcp6"].flatMap { family in
            try Self.sockets("\(process)/net/\(family)").compactMap { fields -> String? in
                // 0A means LISTEN.
                guard fields.count > 9, fields[3] == "0A", own.contains("socket:[\(fields[9])]") else { return nil }
                return fields[1]
            }
        }
    }

    /// Reads the kernel's list of sockets line by line. The file has no size, and thousands of lines after some tests.
    private static func sockets(_ path: String) throws -> [[String]] {
        guard let file = fopen(path, "r") else { throw ChildProcess.Failure(description: "\(path) cannot be read") }
        defer { fclose(file) }
        var (lines, line, capacity): ([[String]], UnsafeMutablePointer<CChar>?, Int) = ([], nil, 0)
        defer { free(line) }
        while getline(&line, &capacity, file) > 0, let text = line {
            lines.append(String(cString: text).split(whereSeparator: \.isWhitespace).map(String.init))
        }
        return lines
    }
}

extension ChildProcess {
    fileprivate func stopAndWait() async throws -> Ending {
        send(SIGTERM)
        return try await wait()
    }
}
