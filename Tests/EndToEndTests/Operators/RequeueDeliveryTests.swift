import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Requeued jobs and workers")
    struct RequeueDeliveryTests {
        private static func requeue(_ redis: RedisServer, _ flags: String...) async throws {
            try await RequeueTool.command.run(flags, redis: redis).succeeds()
        }

        @Test("refused jobs are delivered once each when APNs accepts them, while a worker runs")
        func delivered() async throws {
            let redis = try RedisServer()
            // Only the first request for each of these devices is refused.
            let simulator = try await SimulatorProcess(rules: ["prefix=f5,answer=413,times=1"])
            let worker = try WorkerProcess(redis, simulator)
            try redis.push(TestJob.many(200, prefix: "f5") + TestJob.many(100))
            try await eventually("all are settled") { try QueueContents(redis).isSettled }
            let before = try QueueContents(redis)
            #expect(before.deadReasons == ["PayloadTooLarge": 200] && before.count("delivered") == 100)
            try await Self.requeue(redis, "--reason", "PayloadTooLarge", "--app", "default")
            try await redis.has(300)
            let account = try await worker.stop()
            let accepted = try await simulator.stop()
            let queue = try QueueContents(redis)
            #expect(queue.isSettled && queue.dead.isEmpty && queue.count("requeued") == 200)
            #expect(account.delivered == 300 && account.dead == 200)
            #expect(accepted.accepted == 300 && accepted.distinctTokens == 300 && accepted.duplicates == 0)
        }

        @Test("only the devices that did not get a job get it")
        func someTokens() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=f5,answer=413,times=1"])
            let jobs = (0..<30).map { job in
                let tokens = (0..<6).map { TestJob.token($0 % 3 == 0 ? "f5" : "", job * 6 + $0) }
                return TestJob.fanOut(tokens, #""id":"j\#(job)","#)
            }
            try redis.push(jobs)
            _ = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            let letters = try QueueContents(redis).dead
            #expect(letters.count == 30 && letters.allSatisfy { $0.tokens.count == 2 })
            #expect(Set(letters.map(\.original)) == Set(jobs.map { Array($0.utf8) }))
            try await Self.requeue(redis, "--all", "--yes")
            #expect(try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish().delivered == 60)
            let accepted = try await simulator.stop()
            #expect(accepted.accepted == 180 && accepted.distinctTokens == 180 && accepted.duplicates == 0)
            #expect(try QueueContents(redis).dead.isEmpty)
        }

        @Test("pieces of a big job that are refused unsent keep their devices, also when requeued")
        func pieces() async throws {
            let (redis, simulator) = try await startServers()
            let tokens = (0..<2500).map { TestJob.token("", $0) }
            let payload = TestJob.payload(bytes: 5000)
            try redis.push([#"{"tokens":["\#(tokens.joined(separator: "\",\""))"],"payload":\#(payload)}"#])
            for round in 0..<2 {
                if round > 0 { try await Self.requeue(redis, "--reason", "PayloadTooLarge", "--reason", "BadPayload") }
                #expect(try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish().dead == 2500)
                let queue = try QueueContents(redis)
                #expect(queue.isSettled && queue.dead.count == 3)
                #expect(queue.dead.flatMap(\.tokens).sorted() == tokens)
            }
            let listed = try await redis.apnsWorker(["dead", "list", "--json"])
            #expect(listed.output.components(separatedBy: #""requeues":1"#).count == 4, "\(listed.output)")
        }

        @Test("in a Cluster and behind Sentinels, by the command and by the script")
        func topologies() async throws {
            let cluster = try await RedisCluster()
            let owner = try cluster.owner(ofSlot: cluster.slot(of: "push:{default}:jobs"))
            let other = try #require(cluster.nodes.first { $0 !== owner })
            let set = try await RedisSentinelSet()
            try await set.failOver()
            let master = try set.master()
            for (server, url, client) in [
                (owner, cluster.url, "redis-cli -c -p \(other.port)"), (master, set.url, "redis-cli -p \(master.port)"),
            ] {
                try server.bury((0..<500).map { TestLetter.numbered($0) })
                func run(_ arguments: String...) async throws -> CommandLineTests.Output {
                    try await CommandLineTests.run(arguments, environment: ["APNS_WORKER_REDIS_URL": url])
                }
                try await run("dead", "list", "--by", "reason").prints("500\tUnknownApp\n")
                try await run("requeue", "--all", "--yes", "--limit", "200").prints(
                    "requeued 200 jobs of queue default: 200 UnknownApp\n")
                try await CommandLineTests.run(
                    ["--all", "--yes", "--limit", "299", "--redis-cli", client], of: RequeueTool.scriptPath
                ).prints("requeued 299 jobs of queue default: 299 UnknownApp\n")
                try await run("dead", "delete", "--all", "--yes").prints(
                    "deleted 1 dead letter of queue default: 1 UnknownApp\n")
                #expect(try QueueContents(server).jobs.count == 499)
            }
            try owner.bury([.numbered(1)])
            try await CommandLineTests.run(
                ["--all", "--yes", "--redis-cli", "redis-cli -p \(other.port)"], of: RequeueTool.scriptPath
            ).fails(1, "add -c")
        }
    }
}
