import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The admin port and file descriptors")
    struct AdminPortTests {
        @Test("a worker that ends right after its start leaves nothing on a loop that has ended")
        func strictEnd() async throws {
            let (redis, simulator) = try await startServers()
            for _ in 0..<10 {
                // With this variable, NIO crashes instead of printing an error if a task is scheduled on a loop that has ended.
                let worker = try WorkerProcess(
                    redis, simulator, ["--admin-port", "0"], environment: ["SWIFTNIO_STRICT": "1"])
                try await worker.logs("started")
                _ = try await worker.stop()
                #expect(!worker.log.contains("ERROR: "), "\(worker.log)")
            }
        }

        @Test("a worker raises its soft limit of file descriptors to the hard one")
        func limit() async throws {
            let (redis, simulator) = try await startServers()
            // The soft limit is 64, and the hard limit is 512.
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: simulator.port, options: ["--admin-port", "0"], descriptors: "64:512")
            let page = try await MetricsTests.page(try await worker.adminPort())
            #expect(page.value("process_max_fds") == 512)
            _ = try await worker.stop()
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
