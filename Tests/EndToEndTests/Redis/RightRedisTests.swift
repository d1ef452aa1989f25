import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Errors about a URL of a wrong server, and problems that `status` reports while a server or a worker does not answer.
    @Suite("The right Redis")
    struct RightRedisTests {
        /// The messages of the problems of `status`, by kind.
        private static func problems(_ url: String, _ more: [String] = []) async throws -> [String: String] {
            let status = try await apnsWorker(url, ["status", "--json"] + more)
            let problems = try #require(try status.objects.first?["problems"] as? [[String: Any]], "\(status)")
            return Dictionary(
                problems.compactMap { problem in
                    (problem["kind"] as? String).map { ($0, problem["message"] as? String ?? "") }
                }, uniquingKeysWith: { one, _ in one })
        }

        @Test("a node of a Cluster that is unavailable hides only its own queues, and is a problem")
        func nodeAway() async throws {
            let cluster = try await RedisCluster()
            func owner(_ queue: String) throws -> RedisServer {
                try cluster.owner(ofSlot: cluster.slot(of: "push:{\(queue)}:jobs"))
            }
            // `status` asks the server of the queue `default` first for all queues.
            let away = try owner("default")
            let other = try #require((0..<100).map { "q\($0)" }.first { try owner($0) !== away })
            // Without this setting, no node answers while one node is down.
            for node in cluster.nodes { try node.run("CONFIG", "SET", "cluster-require-full-coverage", "no") }
            try owner(other).run("RPUSH", "push:{\(other)}:jobs", TestJob.many(1)[0])
            away.kill()
            let url = "redis+cluster://" + cluster.nodes.map { "127.0.0.1:\($0.port)" }.joined(separator: ",")
            for (queues, kind) in [
                (["--queue", "default,\(other)"], "queue_unreadable"), ([], "server_unreachable"),
            ] {
                let options = queues + ["--timeout", "3s"]
                let problems = try await Self.problems(url, options)
                let message = try #require(problems[kind], "\(problems)")
                #expect(message.contains("127.0.0.1:\(away.port)"), "\(message)")
                #expect(problems["no_worker"]?.contains("queue \(other): 1 job waits") == true, "\(problems)")
                try await apnsWorker(url, ["status", "--check"] + options).fails(2).begins("CRITICAL")
            }
            for list in [["jobs", "list"], ["campaign", "list"], ["results"]] {
                try await apnsWorker(url, list + ["--timeout", "3s"]).succeeds().reports(
                    "could not search all servers for queues")
            }
            for list in [["jobs", "list"], ["dead", "list"], ["campaign", "list"], ["results"]] {
                try await apnsWorker(url, list + ["--queue", "default,\(other)", "--timeout", "1s"]).ends(1).reports(
                    "queue default is not included: "
                ).lacks("queue \(other) is")
            }
        }

        @Test("a URL of one server that names a Sentinel or a node of a Cluster gets the right form in the error")
        func wrongTopology() async throws {
            let set = try await RedisSentinelSet()
            try await apnsWorker("redis://127.0.0.1:\(set.sentinels[0].port)", "status").fails(
                69, "a Sentinel listens there", "redis+sentinel://")
            let cluster = try await RedisCluster()
            let problems = try await Self.problems("redis://127.0.0.1:\(cluster.nodes[0].port)", ["--queue", "a,b,c"])
            #expect(problems["redis_is_cluster"] != nil, "\(problems)")
            // A Cluster of one node is not a problem: the node has all slots.
            let alone = try RedisServer(cluster: true)
            try alone.addSlots()
            try await eventually("it is well") {
                try alone.run("CLUSTER", "INFO").text?.contains("cluster_state:ok") == true
            }
            let single = try await Self.problems(alone.url)
            #expect(single["redis_is_cluster"] == nil, "\(single)")
        }
    }
}
