import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// haproxy between the worker and Redis. It asks all servers which is the master, as it often does in production.
    @Suite("Redis behind haproxy")
    struct RedisProxyTests {
        /// A proxy to the server that is the master.
        private final class Proxy: Sendable {
            let port: Int
            private let process: ChildProcess
            private let folder: TemporaryFolder

            init(to servers: [RedisServer]) async throws {
                let port = try RedisServer.freePort()
                self.port = port
                let lines = servers.enumerated().map { index, server in
                    "  server s\(index) 127.0.0.1:\(server.port) check inter 200 fall 1 rise 1 "
                        + "on-marked-down shutdown-sessions"
                }
                let configuration = """
                    defaults
                      mode tcp
                      timeout connect 2s
                      timeout client 1h
                      timeout server 1h
                    listen redis
                      bind 127.0.0.1:\(port)
                      option tcp-check
                      tcp-check send info\\ replication\\r\\n
                      tcp-check expect string role:master
                    \(lines.joined(separator: "\n"))

                    """
                folder = try TemporaryFolder(configuration)
                process = try ChildProcess("haproxy", ["-db", "-f", folder.file])
                try await process.until("it has a server") {
                    // haproxy closes connections until it has found the master.
                    (try? RedisTestConnection(port: port).run("PING")) == .status("PONG")
                }
            }

            deinit { process.kill() }
        }

        @Test("another master takes over: the worker follows, and every job is delivered")
        func failOver() async throws {
            let servers = [try RedisServer(), try RedisServer()]
            try servers[1].run("REPLICAOF", "127.0.0.1", "\(servers[0].port)")
            try await eventually("the replica is in step") {
                try servers[1].run("INFO", "replication").text?.contains("master_link_status:up") == true
            }
            let proxy = try await Proxy(to: servers)
            let simulator = try await SimulatorProcess(options: ["--delay", "60ms±40ms"])
            let jobs = TestJob.many(2000)
            try servers[0].push(Array(jobs.prefix(1000)))
            let worker = try WorkerProcess(
                redis: "redis://127.0.0.1:\(proxy.port)", endpoint: simulator.port,
                options: ["--max-connections", "1", "--max-streams", "50"])
            try await eventually("it is at work") { try servers[0].counted("delivered") > 100 }
            // For a while, there is no master.
            try servers[0].run("REPLICAOF", "127.0.0.1", "\(servers[1].port)")
            try await worker.logs("redis_lost", "check that it has a server")
            try await worker.logs("not_ready")
            try servers[1].run("REPLICAOF", "NO", "ONE")
            try await worker.logs("ready_again")
            try servers[1].push(Array(jobs.suffix(1000)))
            try await eventually("all jobs are delivered") { try QueueContents(servers[1]).isSettled }
            #expect(try QueueContents(servers[1]).dead.isEmpty)
            _ = try await worker.stop()
            let seen = try await simulator.stop()
            #expect(seen.accepted - seen.duplicates == 2000, "\(seen)")
        }
    }
}
