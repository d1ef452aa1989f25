import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("A configuration that changes while a worker runs")
    struct ReloadTests {
        private static func scene(_ redis: RedisServer, _ yaml: String) throws -> FileWorker {
            try FileWorker(redis, yaml, environment: ["APNS_WORKER_RETRY_BASE": ""])
        }

        private static func shop(_ port: Int, _ more: String = "") -> String {
            "apps:\n  shop:\n    topic: com.example.app\n    endpoint: localhost:\(port)\n\(more)"
        }

        private static let news = "  news:\n    topic: com.example.news\n"

        private static func jobs(_ count: Int, _ app: String, prefix: String) -> [String] {
            TestJob.many(count, prefix: prefix, members: #""app":"\#(app)","#)
        }

        @Test("apps are added and changed under load, and every job is sent once", arguments: 1...2)
        func underLoad(lanes: Int) async throws {
            let redis = try RedisServer()
            let (one, other) = (
                try await SimulatorProcess(options: ["--delay", "20ms±5ms"]),
                try await SimulatorProcess(options: ["--delay", "20ms±5ms"])
            )
            let scene = try Self.scene(redis, "lanes: \(lanes)\n" + Self.shop(one.port))
            try redis.push(Self.jobs(20_000, "shop", prefix: "a"))
            try await eventually("some are sent") { try redis.counted("delivered") > 500 }
            // The new file has another server, fewer streams, and another app.
            try await scene.reload(
                "lanes: \(lanes)\n"
                    + Self.shop(
                        other.port, "    max_streams: 500\n" + Self.news + "    endpoint: localhost:\(one.port)\n"))
            #expect(try redis.counted("delivered") < 20_000, "too late to see anything")
            try redis.push(Self.jobs(1000, "news", prefix: "b") + Self.jobs(1000, "shop", prefix: "c"))
            try await redis.has(22_000)
            #expect(scene.worker.log.contains("apps_added=news") && scene.worker.log.contains("apps_changed=shop"))
            let account = try await scene.worker.stop()
            #expect(account.delivered == 22_000 && account.retried == 0 && account.possibleDuplicates == 0)
            let queue = try QueueContents(redis)
            #expect(queue.isSettled && queue.dead.isEmpty)
            let accounts = [try await one.stop(), try await other.stop()]
            #expect(accounts.map(\.accepted).reduce(0, +) == 22_000 && accounts.allSatisfy { $0.duplicates == 0 })
            #expect(accounts[1].accepted >= 1000 && accounts[0].accepted >= 1500)
        }

        @Test("a removed app finishes its jobs; later jobs become dead letters until it is configured again")
        func removed() async throws {
            // With this delay, even a busy machine shows all claims before the first answer.
            let (redis, simulator) = try await startServers(simulator: ["--delay", "3s"])
            let both = Self.shop(simulator.port, Self.news + "    endpoint: localhost:\(simulator.port)\n")
            let scene = try Self.scene(redis, both)
            try redis.push(Self.jobs(300, "news", prefix: "a"))
            try await eventually("they are under way") { try QueueContents(redis).claims == 300 }
            try await scene.reload(Self.shop(simulator.port))
            #expect(scene.worker.log.contains("apps_removed=news"))
            try await redis.has(300)
            try redis.push(Self.jobs(10, "news", prefix: "b") + Self.jobs(10, "shop", prefix: "c"))
            try await redis.has(310)
            try await eventually("those for it are kept") { try QueueContents(redis).dead.count == 10 }
            try await scene.reload(both)
            try redis.push(Self.jobs(10, "news", prefix: "d"))
            try await redis.has(320)
            _ = try await scene.worker.stop()
            #expect(try await simulator.stop().accepted == 320)
        }

        @Test("a changed file is applied automatically; one with mistakes is not, and the previous one stays")
        func byItself() async throws {
            let (redis, simulator) = try await startServers()
            let scene = try Self.scene(redis, Self.shop(simulator.port))
            try redis.push(Self.jobs(1, "shop", prefix: "a"))
            try await redis.has(1)
            try scene.write(Self.shop(simulator.port, "    max_conections: 3\n"))
            try await scene.worker.logs("configuration_refused", "worker.yaml:5", "apps.shop.max_conections")
            func problems() async throws -> [String] {
                try await FleetView(redis.url).problems.filter { $0.kind == "reload_refused" }.map(\.message)
            }
            try await eventually("status says so") {
                try await problems().contains { $0.contains("apps.shop.max_conections") }
            }
            try redis.push(Self.jobs(1, "shop", prefix: "b"))
            try await redis.has(2)
            try scene.write(Self.shop(simulator.port, "    max_connections: 3\n"))
            try await eventually("what is right again is taken up") {
                scene.worker.log.contains("apps_changed=shop")
            }
            try await eventually("status has no problem any more") { try await problems().isEmpty }
            // A configuration is refused if the key file of an app does not exist.
            try scene.write(Self.shop(simulator.port, "    key: /no/such.p8\n"))
            scene.worker.process.send(SIGHUP)
            try await scene.worker.logs("configuration_refused", "/no/such.p8")
            try redis.push(Self.jobs(1, "shop", prefix: "c"))
            try await redis.has(3)
            _ = try await scene.worker.stop()
        }

        @Test("a signal that arrives while the settings are read neither ends the worker nor is forgotten")
        func early() async throws {
            let (redis, simulator) = try await startServers()
            let folder = try TemporaryFolder()
            // The worker waits for a writer of this named pipe while it reads its settings.
            let pipe = folder.path("ca.pem")
            #expect(mkfifo(pipe, 0o600) == 0)
            let authority = try Data(contentsOf: URL(filePath: try TestCertificates.path("ca.pem")))
            let file = try folder.write(String(decoding: authority, as: UTF8.self), as: "file.pem")
            let worker = try WorkerProcess(redis, simulator, environment: ["APNS_WORKER_CA": pipe])
            try await eventually("the worker reads its settings") {
                let descriptor = open(pipe, O_WRONLY | O_NONBLOCK)
                guard descriptor >= 0 else { return false }
                defer { close(descriptor) }
                worker.process.send(SIGHUP)
                // After the signal, the worker reads a file with the name of the pipe.
                try #require(rename(file, pipe) == 0)
                let written = authority.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
                // The signal may have interrupted the opening of the pipe. Then the worker has opened the file instead.
                #expect(written == authority.count || errno == EPIPE)
                return true
            }
            try await worker.logs("configuration_reloaded", "SIGHUP")
            try redis.push(Self.jobs(1, "default", prefix: "a"))
            try await redis.has(1)
            _ = try await worker.stop()
            withExtendedLifetime(folder) {}
        }

        @Test("the log level changes at once, and changes that need a restart are named")
        func level() async throws {
            // Without an append-only file, the worker would log a warning.
            let (redis, simulator) = try await startServers(redis: ["--appendonly", "yes"])
            let scene = try Self.scene(redis, "log_level: warning\n" + Self.shop(simulator.port))
            try await eventually("it is there") { try !QueueContents(redis).workers.isEmpty }
            #expect(scene.worker.log.isEmpty, "\(scene.worker.log)")
            try await scene.reload(
                "log_level: debug\nlease: 8000\nqueue_order: strict\nmax_attempts: 3\n" + Self.shop(simulator.port))
            // `lease` needs no restart: WorkerProcess sets its variable, which overrides the file.
            try await scene.worker.logs("restart_needed", "queue_order")
            _ = try await scene.worker.stop()
            #expect(scene.worker.log.contains("log_level, max_attempts"))
            #expect(scene.worker.lines(of: "drained").count == 1)
        }

        @Test("an app that APNs refuses is tried again at once after its settings change")
        func limits() async throws {
            let redis = try RedisServer()
            let good = try await SimulatorProcess()
            let refusing = try await SimulatorProcess(rules: ["answer=InvalidProviderToken"])
            let scene = try Self.scene(redis, Self.shop(refusing.port))
            try redis.push(Self.jobs(200, "shop", prefix: "a"))
            try await eventually("the credential is slow") { !scene.worker.lines(of: "scope_slow").isEmpty }
            try await scene.reload(Self.shop(good.port, "    max_per_second: 50\n"))
            try await eventually("it sends again") { try redis.counted("delivered") > 0 }
            _ = try await scene.worker.stop()
        }
    }
}
