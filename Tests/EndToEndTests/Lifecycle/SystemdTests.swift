import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("A worker's notices to systemd")
    struct SystemdTests {
        private static func worker(
            _ redis: String, _ endpoint: Int, _ listener: NotifyListener, watchdog: Int? = nil, process: String? = nil,
            options: [String] = []
        ) throws -> WorkerProcess {
            var environment = ["NOTIFY_SOCKET": listener.name]
            environment["WATCHDOG_USEC"] = watchdog.map { "\($0 * 1000)" }
            environment["WATCHDOG_PID"] = process
            return try WorkerProcess(redis: redis, endpoint: endpoint, options: options, environment: environment)
        }

        @Test("report that it is ready, alive and stopping, also during a drain", arguments: [false, true])
        func life(isAbstract: Bool) async throws {
            let (redis, simulator) = try await startServers(rules: ["answer=silence"])
            let listener = try NotifyListener(isAbstract: isAbstract)
            let worker = try Self.worker(
                redis.url, simulator.port, listener, watchdog: 200, options: ["--drain-timeout", "3000"])
            try await eventually("it is ready") { listener.changes == ["READY=1"] }
            var fed = listener.watchdogs
            try await eventually("it goes on to say that it lives") { listener.watchdogs > fed + 2 }
            try redis.push(TestJob.many(3))
            try await eventually("they are under way") { try await simulator.account().silenced == 3 }
            worker.process.send(SIGTERM)
            try await eventually("it drains") { listener.changes == ["READY=1", "STOPPING=1"] }
            fed = listener.watchdogs
            _ = try await worker.finish()
            #expect(listener.watchdogs > fed && listener.changes == ["READY=1", "STOPPING=1"])
        }

        @Test("do not notify a watchdog that is not enabled or is for another process", arguments: [false, true])
        func noWatchdog(isForAnother: Bool) async throws {
            let (redis, simulator) = try await startServers()
            let listener = try NotifyListener()
            let worker = try Self.worker(
                redis.url, simulator.port, listener, watchdog: isForAnother ? 100 : nil,
                process: isForAnother ? "1" : nil)
            try await eventually("it is ready") { listener.changes == ["READY=1"] }
            _ = try await worker.stop()
            #expect(listener.changes == ["READY=1", "STOPPING=1"])
            #expect(listener.watchdogs == 0)
        }

        @Test(
            "report that it has started and is alive although Redis is unavailable, and that it works once it is there")
        func withoutRedis() async throws {
            let (redis, simulator) = try await startServers()
            redis.kill()
            let listener = try NotifyListener()
            let worker = try Self.worker(redis.url, simulator.port, listener, watchdog: 1000)
            try await eventually("it has started") { listener.changes == ["READY=1"] }
            let fed = listener.watchdogs
            try await eventually("it lives") { listener.watchdogs > fed + 2 }
            try await eventually("it says why it does nothing") {
                listener.statuses.last?.hasPrefix("not ready: Redis cannot be reached") == true
            }
            try await worker.logs("redis_lost")
            try await worker.logs("not_ready")
            try redis.start()
            try await eventually("it says that it works") { listener.statuses.last == "ready" }
            try redis.push(TestJob.many(100))
            try await redis.has(100)
            _ = try await redis.stop(worker, simulator)
            worker.expectComplaints(1...3)
        }

        @Test("stop while the process is stopped, and continue with it")
        func stopped() async throws {
            let (redis, simulator) = try await startServers()
            let listener = try NotifyListener()
            let worker = try Self.worker(redis.url, simulator.port, listener, watchdog: 400)
            try await eventually("it lives") { listener.watchdogs > 2 }
            try await worker.process.pause()
            let fed = listener.watchdogs
            // Within five of the usual intervals, no message may arrive.
            try await Task.sleep(for: .seconds(1))
            #expect(listener.watchdogs == fed)
            worker.process.send(SIGCONT)
            try await eventually("it lives again") { listener.watchdogs > fed }
            _ = try await worker.stop()
        }

        @Test("report a reload, whether or not the configuration is valid")
        func reload() async throws {
            let (redis, simulator) = try await startServers()
            let listener = try NotifyListener()
            let folder = try TemporaryFolder("log_level: info\n")
            let worker = try Self.worker(
                redis.url, simulator.port, listener, watchdog: 1000, options: ["--config", folder.file])
            try await eventually("it is ready") { listener.changes == ["READY=1"] }
            worker.process.send(SIGHUP)
            try await eventually("it has loaded it") { listener.changes == ["READY=1", "RELOADING=1", "READY=1"] }
            // systemd matches the message to its reload by these fields.
            let message = try #require(listener.messages.first { $0.contains("RELOADING=1") })
            #expect(message.contains { $0.wholeMatch(of: /MONOTONIC_USEC=[1-9][0-9]*/) != nil })
            try folder.write("log_levle: info\n")
            worker.process.send(SIGHUP)
            let reloads = { (count: Int) in
                ["READY=1"] + Array(repeating: ["RELOADING=1", "READY=1"], count: count).flatMap { $0 }
            }
            try await eventually("it goes on with the configuration before") { listener.changes == reloads(2) }
            try await worker.logs("configuration_refused", "log_levle")
            try folder.write("log_level: debug\n")
            worker.process.send(SIGHUP)
            try await eventually("it has loaded that") { listener.changes == reloads(3) }
            _ = try await worker.stop()
        }

        @Test("a missing socket is logged once, and the worker still works")
        func noSocket() async throws {
            let (redis, simulator) = try await startServers()
            let listener = try NotifyListener()
            let worker = try WorkerProcess(
                redis, simulator, environment: ["NOTIFY_SOCKET": listener.name + "-another", "WATCHDOG_USEC": "200000"])
            try redis.push(TestJob.many(5))
            try await redis.has(5)
            _ = try await worker.stop()
            #expect(worker.lines(of: "systemd_notify_failed").count == 1, "\(worker.log)")
        }
    }
}
