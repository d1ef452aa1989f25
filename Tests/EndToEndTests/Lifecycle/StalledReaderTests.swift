import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Programs write to a pipe without a reader, as with a log driver that has stalled.
    @Suite("Readers that stall")
    struct StalledReaderTests {
        @Test(
            "A worker delivers and ends at SIGTERM, whatever happens to its log, and counts the lines that it lost",
            arguments: [["--log-level", "info"], ["--log-level", "info", "--progress"], ["--log-level", "trace"]])
        func worker(options: [String]) async throws {
            let (redis, simulator) = try await startServers()
            // At the level `trace`, the worker's log fills the pipe.
            let fills = options.contains("trace")
            let pipe = try StalledPipe(isFull: !fills)
            let port = try RedisServer.freePort()
            try redis.push(TestJob.many(10_000) + ["nonsense"])
            let worker = try WorkerProcess(redis, simulator, options + ["--admin-port", "\(port)"], logsTo: pipe)
            try await redis.has(10_000)
            if fills {
                try await eventually("lost lines") {
                    try await MetricsTests.page(port).value("apns_worker_log_lines_lost_total") ?? 0 > 0
                }
            }
            #expect(try await worker.stop().delivered == 10_000)
            #expect(try await simulator.stop().accepted == 10_000)
        }

        /// Commands that run until they are stopped. `output` is the descriptor of the pipe.
        static let commands: [(output: Int, arguments: [String])] = [
            (2, ["web", "--port", "0"]), (1, ["status", "--watch", "--json"]), (1, ["status", "--watch"]),
            (1, ["results", "--follow"]), (2, ["results", "--exec", "cat >/dev/null"]),
            (1, ["campaign", "show", "spring", "--watch", "--json"]), (1, ["campaign", "show", "spring", "--watch"]),
        ]

        @Test("A command that runs until it is stopped ends at SIGTERM", arguments: commands.indices)
        func command(index: Int) async throws {
            let (output, arguments) = Self.commands[index]
            let (redis, simulator) = try await startServers()
            try redis.push(TestJob.many(50, members: #""campaign":"spring","keep_result":true,"#))
            _ = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            let pipe = try StalledPipe()
            defer { withExtendedLifetime(pipe) {} }
            let line = pipe.command(output) + [try BuiltProgram.path("apns-worker")] + arguments
            let process = try ChildProcess(line, environment: ["APNS_WORKER_REDIS_URL": redis.url])
            try await eventually("it reads from Redis") {
                try redis.run("CLIENT", "LIST").text?.contains("name=apns-worker:") == true
            }
            process.send(SIGTERM)
            try await process.wait()
        }

        @Test("A simulator answers and ends at SIGTERM, and reports that it can't record", arguments: [1, 2])
        func simulator(output: Int) async throws {
            let redis = try RedisServer()
            let port = try RedisServer.freePort()
            let pipe = try StalledPipe()
            defer { withExtendedLifetime(pipe) {} }
            let line =
                pipe.command(output) + [
                    try BuiltProgram.path("apns-simulator"), "--port", "\(port)", "--control-port", "0",
                    "--certificate", try TestCertificates.path("server.pem"), "--key",
                    try TestCertificates.path("server-key.pem"),
                ] + (output == 1 ? ["--record", "-"] : [])
            let simulator = try ChildProcess(line)
            try redis.push(TestJob.many(2000))
            let account = try await WorkerProcess(redis: redis.url, endpoint: port, options: ["--exit-when-done"])
                .finish()
            #expect(account.delivered == 2000)
            simulator.send(SIGTERM)
            #expect(try await simulator.wait() == .exited(0))
        }
    }
}
