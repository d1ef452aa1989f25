import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// What operators are told when a URL names the wrong server, or a server is away.
    @Suite("The right Redis")
    struct RightRedisTests {
        private static func run(_ url: String, _ arguments: String...) async throws -> CommandLineTests.Output {
            try await CommandLineTests.run(arguments, environment: ["APNS_WORKER_REDIS_URL": url])
        }

        /// The kinds of problems of `status`.
        private static func problems(_ url: String, _ more: [String] = []) async throws -> [String: String] {
            let status = try await CommandLineTests.run(
                ["status", "--json"] + more, environment: ["APNS_WORKER_REDIS_URL": url])
            let json = try #require(
                JSONSerialization.jsonObject(with: Data(status.output.utf8)) as? [String: Any], "\(status)")
            let problems = try #require(json["problems"] as? [[String: Any]])
            return Dictionary(
                problems.compactMap { problem in
                    (problem["kind"] as? String).map { ($0, problem["message"] as? String ?? "") }
                }, uniquingKeysWith: { one, _ in one })
        }

        @Test("a node of a Cluster that is away hides only its own queues, and is a problem")
        func nodeAway() async throws {
            let cluster = try await RedisCluster()
            var owners: [String: RedisServer] = [:]
            for number in 0..<100 where Set(owners.values.map(\.port)).count < 2 {
                let queue = "q\(number)"
                let owner = try cluster.owner(ofSlot: cluster.slot(of: "push:{\(queue)}:jobs"))
                if !owners.values.contains(where: { $0 === owner }) { owners[queue] = owner }
            }
            let shared = try cluster.owner(ofSlot: cluster.slot(of: "push:{shared}:throttled-tokens"))
            let away = try #require(owners.first { $0.value !== shared } ?? owners.first)
            let other = try #require(owners.first { $0.key != away.key })
            // Otherwise no node answers.
            for node in cluster.nodes { try node.run("CONFIG", "SET", "cluster-require-full-coverage", "no") }
            try other.value.run("RPUSH", "push:{\(other.key)}:jobs", TestJob.many(1)[0])
            away.value.kill()
            let url = "redis+cluster://" + cluster.nodes.map { "127.0.0.1:\($0.port)" }.joined(separator: ",")
            let queues = ["--queue", "\(away.key),\(other.key)"]
            let problems = try await Self.problems(url, queues)
            let message = try #require(problems["queue_unreadable"], "\(problems)")
            #expect(message.contains("queue \(away.key) cannot be read") && message.contains("\(away.value.port)"))
            #expect(problems["no_worker"]?.contains("queue \(other.key): 1 job waits") == true, "\(problems)")
            let check = try await CommandLineTests.run(
                ["status", "--check"] + queues, environment: ["APNS_WORKER_REDIS_URL": url])
            #expect(check.ending == .exited(2) && check.output.hasPrefix("CRITICAL"), "\(check)")
        }

        @Test("a URL of one server that names a Sentinel or a node of a Cluster gets the right form in the error")
        func wrongTopology() async throws {
            let set = try await RedisSentinelSet()
            let sentinel = try await Self.run("redis://127.0.0.1:\(set.sentinels[0].port)", "status")
            #expect(sentinel.ending == .exited(69), "\(sentinel)")
            #expect(
                sentinel.errors.contains("a Sentinel listens there")
                    && sentinel.errors.contains("redis+sentinel://"), "\(sentinel)")
            let cluster = try await RedisCluster()
            let problems = try await Self.problems("redis://127.0.0.1:\(cluster.nodes[0].port)", ["--queue", "a,b,c"])
            #expect(problems["redis_is_cluster"] != nil, "\(problems)")
            // One node with all slots is as good as a single server.
            let alone = try RedisServer(cluster: true)
            try alone.run("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            try await eventually("it is well") {
                try alone.run("CLUSTER", "INFO").text?.contains("cluster_state:ok") == true
            }
            let single = try await Self.problems(alone.url)
            #expect(single["redis_is_cluster"] == nil, "\(single)")
        }

        @Test("a worker that is stopped is reported long before its lease ends, and its own statements count no more")
        func silentWorker() async throws {
            let redis = try RedisServer()
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: simulator.port, environment: ["APNS_WORKER_LEASE": "600s"])
            try await eventually("it is well") { try await Self.problems(redis.url).isEmpty }
            try await worker.process.pause()
            try await eventually("it is reported", within: .seconds(90)) {
                try await Self.problems(redis.url)["worker_silent"] != nil
            }
            let check = try await Self.run(redis.url, "status", "--check")
            #expect(check.ending != .exited(0), "\(check)")
            worker.process.send(SIGCONT)
            try await eventually("it is well again") { try await Self.problems(redis.url).isEmpty }
            _ = try await worker.stop()
        }

        @Test("an address that accepts connections and says nothing is left for another of the same name")
        func muteAddress() async throws {
            let (redis, simulator) = (try RedisServer(), try await SimulatorProcess())
            // Both ports are also at 127.0.0.3, where the kernel accepts connections that no program reads.
            let files = try OpenSSLWorkshop()
            try files.write(Array("127.0.0.3 twins\n127.0.0.1 twins\n".utf8), to: "hosts")
            let script = """
                mount --bind "$0/hosts" /etc/hosts && exec python3 -c '
                import os, socket, sys
                for port in sys.argv[1:3]:
                    mute = socket.socket()
                    mute.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    mute.bind(("127.0.0.3", int(port)))
                    mute.listen(64)
                    os.set_inheritable(mute.fileno(), True)
                os.execvp(sys.argv[3], sys.argv[3:])
                ' "$@"
                """
            let worker = try ChildProcess(
                "unshare",
                [
                    "-m", "sh", "-c", script, files.directory.path, "\(redis.port)", "\(simulator.port)",
                    BuiltProgram.path("apns-worker"), "run", "--redis", "redis://twins:\(redis.port)",
                ],
                environment: [
                    "APNS_WORKER_ENDPOINT": "twins:\(simulator.port)",
                    "APNS_WORKER_CA": try TestCertificates.path("ca.pem"), "APNS_WORKER_CONNECT_TIMEOUT": "1s",
                    "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
                    "APNS_WORKER_KEY_ID": "ABC123DEFG", "APNS_WORKER_TEAM_ID": "TEAM123456",
                    "APNS_WORKER_TOPIC": "com.example.app", "APNS_WORKER_LANES": "1",
                    "APNS_WORKER_LOG_FORMAT": "text",
                ])
            try redis.push(TestJob.many(3))
            try await eventually("the other address of Redis is used", within: .seconds(60)) {
                if let ending = worker.ending { throw worker.failure("ended with \(ending)") }
                return try redis.run("LLEN", "push:{default}:jobs") == 0
            }
            // The simulator's certificate is not for that name: it is reached, and its address is named.
            try await eventually("the other address of APNs is used", within: .seconds(60)) {
                worker.errors.contains("the certificate is for")
            }
            #expect(worker.errors.contains("127.0.0.3"), "\(worker.errors)")
            worker.kill()
        }
    }
}
