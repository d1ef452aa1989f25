import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The admin port and clients that hold its connections")
    struct AdminPortTests {
        /// Clients that send a request head byte by byte, and reconnect after each hang-up.
        private final class Drippers {
            private let port: Int
            private var connections: [RawConnection] = []

            init(_ count: Int, port: Int) throws {
                self.port = port
                for _ in 0..<count { connections.append(try Self.dripper(port)) }
            }

            private static func dripper(_ port: Int) throws -> RawConnection {
                let connection = try RawConnection(port: port)
                connection.send("GET /metrics HTTP/1.1\r\nHo")
                return connection
            }

            /// Each client sends a byte or reconnects.
            func drip() throws {
                for (index, connection) in connections.enumerated() {
                    connection.send("s")
                    if connection.hasEnded() { connections[index] = try Self.dripper(port) }
                }
            }
        }

        /// Sends a request with the timeout of a probe.
        private static func probe(_ port: Int, _ path: String) async throws -> Int? {
            let flags = ["-sS", "-m", "3", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}"]
            let curl = try ChildProcess("curl", flags + ["http://127.0.0.1:\(port)\(path)"])
            return try await curl.wait() == .exited(0) ? Int(curl.output) : nil
        }

        @Test("1,200 slow connections neither delay a probe nor block the worker's connections to APNs")
        func drippers() async throws {
            let (redis, simulator) = (try RedisServer(), try await SimulatorProcess())
            // The soft limit and the hard one.
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: simulator.port, options: ["--admin-port", "0"], descriptors: "64:256")
            let port = try await worker.adminPort()
            let descriptors = try await MetricsTests.page(port).value("process_max_fds")
            #expect(descriptors == 256, "the worker raises its soft limit to the hard one")
            try redis.push(TestJob.many(50, prefix: "a"))
            try await redis.has(50)

            let drippers = try Drippers(1200, port: port)
            func probe(_ path: String, is expected: Int) async throws {
                try drippers.drip()
                let status = try await Self.probe(port, path)
                #expect(status == expected, "\(path)")
            }
            for _ in 0..<5 {
                try await probe("/healthz", is: 200)
                try await probe("/readyz", is: 200)
            }
            simulator.process.kill()
            try await eventually("the worker has noticed that APNs is away") {
                try await probe("/healthz", is: 200)
                return try await Self.probe(port, "/readyz") == 503
            }
            #expect(!worker.log.contains("file descriptor"))
            let other = try await SimulatorProcess(options: ["--port", "\(simulator.port)"])
            try redis.push(TestJob.many(50, prefix: "b"))
            try await eventually("the worker is connected again within seconds", within: .seconds(30)) {
                try await probe("/healthz", is: 200)
                return try QueueContents(redis).count("delivered") == 100
            }
            try await eventually("it is ready") { try await Self.probe(port, "/readyz") == 200 }
            #expect(!worker.lines(of: "port_full").isEmpty)
            _ = try await worker.stop()
            #expect(try await other.stop().accepted == 50)
        }

        @Test("a worker that ends right after its start leaves nothing on a loop that has ended")
        func strictEnd() async throws {
            let scene = try await DeliveryScene()
            for _ in 0..<10 {
                // NIO then traps where it would print an error.
                let worker = try scene.worker(["--admin-port", "0"], environment: ["SWIFTNIO_STRICT": "1"])
                try await worker.logs("started")
                _ = try await worker.stop()
                #expect(!worker.log.contains("ERROR: "), "\(worker.log)")
            }
        }

        @Test("a limit of file descriptors that is too low is named, and nothing traps")
        func tooFewDescriptors() async throws {
            for command in [["run", "--simulate"], ["status"], ["web", "--port", "0"]] {
                let process = try ChildProcess("prlimit", ["--nofile=12", BuiltProgram.path("apns-worker")] + command)
                #expect(try await process.wait() == .exited(78))
                #expect(process.errors.contains("may open only 12 files"), "\(process.errors)")
            }
        }
    }
}
