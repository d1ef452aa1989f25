import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// `status`, `check`, the log and the metrics report a Redis that could lose jobs.
    @Suite("The condition of Redis")
    struct RedisConditionTests {
        private static func check(_ redis: String, queue: String = "default") async throws -> CommandLineTests.Output {
            try await CommandLineTests.run(
                ["check", "--no-connect"],
                environment: [
                    "APNS_WORKER_REDIS_URL": redis, "APNS_WORKER_QUEUE": queue,
                    "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
                    "APNS_WORKER_TEAM_ID": "TEAM123456", "APNS_WORKER_TOPIC": "com.example.app",
                ])
        }

        @Test("a server that has no place for another client is named as such, and not as a port for TLS")
        func clients() async throws {
            let redis = try RedisServer()
            let waiting = try ChildProcess("redis-cli", ["-p", "\(redis.port)", "BLPOP", "x", "0"])
            defer { waiting.kill() }
            try await eventually("a client waits") {
                try redis.run("INFO", "clients").text?.contains("blocked_clients:1") == true
            }
            try redis.run("CONFIG", "SET", "maxclients", "1")
            for _ in 0..<5 {
                try await apnsWorker(redis.url, "status", "--timeout", "1s").fails(
                    69, "Redis answered: ERR max number of clients reached: raise maxclients"
                ).lacks("rediss://")
            }
        }

        @Test(
            "commands that Redis refuses have one advice: to have them under their names",
            arguments: [["EVAL", "EVALSHA"], ["TIME"]])
        func renamed(commands: [String]) async throws {
            let redis = try RedisServer(file: commands.map { "rename-command \($0) \"\"" })
            let advice = "enable EVAL, EVALSHA, TIME and the other commands"
            let page = try await apnsWorker(redis.url, "status", "--queue", "default").output.replacing(
                "\n    ", with: " ")
            #expect(page.contains("workers have the same problem; \(advice)"), "\(page)")
            #expect(!page.contains("00:00:00 UTC"))
            let job = ["enqueue", "--token", TestJob.token("ab", 1), "--alert", "x", "--wait", "2s"]
            let result = try await redis.apnsWorker(job).reports(advice)
            let isInQueue = try QueueContents(redis).jobs.count == 1
            #expect(result.errors.contains("the job is in the queue nevertheless") == isInQueue, "\(result)")
        }

        @Test("a job that is scheduled for more than a year ahead is noted")
        func farAhead() async throws {
            let redis = try RedisServer()
            try redis.run("ZADD", "push:{default}:retry", "99999999999000", "x")
            let note = "queue default has a job that is scheduled for 5138-11-16T09:46:39Z, in more than a year"
            let advice = "`apns-worker jobs list --state scheduled --redis \(redis.url)` shows it"
            #expect(try await FleetView(redis.url).notes == ["\(note); \(advice)"])
        }

        @Test("a full Redis is reported first, with a suggestion, and no advice to start workers")
        func full() async throws {
            let redis = try RedisServer()
            let place = "127.0.0.1:\(redis.port)"
            let simulator = try await SimulatorProcess(options: ["--delay", "1s±900ms"])
            let worker = try WorkerProcess(
                redis, simulator, ["--max-connections", "1", "--max-streams", "5", "--drain-timeout", "500"])
            try redis.push(TestJob.many(3000))
            try await eventually("it has taken some, and others wait") {
                let view = try await FleetView(redis.url)
                return try view.queue("default").waiting > 0 && view.worker(worker)?.in_flight ?? 0 > 0
                    && view.problems.isEmpty
            }
            try redis.run("CONFIG", "SET", "maxmemory", "1mb")
            let view = try await FleetView(redis.url)
            #expect(view.kinds == ["redis_full \(place)"])
            let server = try #require(view.servers.first)
            #expect(server.address == place && server.full && server.queues == ["default"])
            #expect(server.max_memory_bytes == 1 << 20 && server.used_memory_bytes ?? 0 > 1 << 20)
            #expect(server.eviction_policy == "noeviction" && server.append_only == false && server.role == "master")
            #expect(server.writes_refused?.hasPrefix("OOM ") == true && server.error == nil)

            // A stopped worker can't renew its lease.
            try await worker.process.pause()
            try await eventually("its lease ends") {
                try await FleetView(redis.url).worker(worker)?.lease_left_ms ?? 0 < -5000
            }
            let late = try await FleetView(redis.url)
            #expect(late.kinds == ["redis_full \(place)"] && late.worker(worker)?.state == "unknown")
            let page = try await apnsWorker(redis.url, "status").output
            let lines = page.split(separator: "\n")
            #expect(lines[1].hasPrefix("! Redis at \(place) is full: "), "\(page)")
            #expect(
                page.contains(/REDIS (?:Valkey )?\S+  \d+\.\d of 1\.0 MiB \(full, noeviction\)  AOF off\n/), "\(page)")
            #expect(page.contains("; it had 5 jobs; Redis refuses writes, so "), "\(page)")
            #expect(!page.contains("start a worker") && lines.allSatisfy { $0.count <= 80 }, "\(page)")
            try await apnsWorker(redis.url, "status", "--check").fails(2).begins(
                "CRITICAL: Redis at \(place) is full: ")
            try await Self.check(redis.url).ends(1, "FAILED   redis: Redis at \(place) is full: ")

            try redis.run("CONFIG", "SET", "maxmemory", "0")
            worker.process.send(SIGCONT)
            try await eventually("all is well") { try await FleetView(redis.url).problems.isEmpty }
            _ = try await worker.stop()
        }

        @Test("a key that soon can't be moved is named, with its size")
        func largeKey() async throws {
            let redis = try RedisServer()
            let connection = try redis.connect()
            let tokens = (0..<12_000).map { TestJob.token("ab", $0) }
            try connection.run((["SADD", "push:{shared}:invalid-tokens"] + tokens).map { Array($0.utf8) })
            #expect(try await FleetView(redis.url).kinds.isEmpty)
            try connection.run("CONFIG", "SET", "proto-max-bulk-len", "1mb")
            let view = try await FleetView(redis.url)
            #expect(view.kinds == ["large_key push:{shared}:invalid-tokens"])
            #expect(view.problems.first?.message.contains("from about 1.0 MiB on") == true, "\(view.problems)")
            try await apnsWorker(redis.url, "status", "--check").ends(1)
        }

        @Test(
            "an eviction policy is reported by status and check, and once by the worker when it starts",
            arguments: [
                ("allkeys-lru", "evicts any key, waiting jobs included, when"),
                ("volatile-ttl", "evicts keys with an expiry when"),
            ])
        func eviction(policy: String, words: String) async throws {
            let redis = try RedisServer(arguments: ["--maxmemory-policy", policy])
            let place = "127.0.0.1:\(redis.port)"
            // Without maxmemory, Redis evicts nothing.
            #expect(try await FleetView(redis.url).problems.isEmpty)
            try redis.run("CONFIG", "SET", "maxmemory", "1gb")
            let view = try await FleetView(redis.url)
            #expect(view.kinds == ["redis_evicts \(place)"] && view.problems[0].message.contains(words))
            try await apnsWorker(redis.url, "status", "--check").fails(1)
            try await Self.check(redis.url).ends(1, words)

            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis, simulator, ["--lanes", "2", "--queue", "a,b"])
            try await worker.logs("redis_evicts")
            let lines = worker.lines(of: "redis_evicts")
            #expect(lines.count == 1 && lines[0].contains(" error ") && lines[0].contains(place), "\(worker.log)")
            #expect(lines[0].contains("maxmemory-policy"))
            _ = try await worker.stop()
        }

        // MARK: Several servers

        @Test("behind Sentinels a master without replicas, or with writes that no replica has, is reported")
        func sentinel() async throws {
            let set = try await RedisSentinelSet(replicas: 1, arguments: ["--appendonly", "yes"])
            let master = set.servers[0]
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis: set.url, endpoint: simulator.port)
            try await worker.logs("redis_no_min_replicas", "min-replicas-to-write")
            try await eventually("it is seen") { try await FleetView(set.url).worker(worker)?.redis == "sentinel" }
            try await Self.check(set.url).succeeds(
                "accepts jobs that no replica has (min-replicas-to-write is 0)"
            ).shows(", append-only file on, 1 replica\n")
            try master.run("CONFIG", "SET", "min-replicas-to-write", "1")
            try await Self.check(set.url).succeeds().lacks("warning")
            try await apnsWorker(set.url, "status").shows(":\(master.port)  ").matches(
                /AOF on\s+1 replica, 1 in sync\n/)
            _ = try await worker.stop()
            try set.servers[1].run("REPLICAOF", "NO", "ONE")
            try master.run("CONFIG", "SET", "min-replicas-to-write", "0")
            try await eventually("the replica is gone") {
                let check = try await Self.check(set.url)
                return check.output.contains("has no replica, so a failover is impossible")
            }
        }

        @Test("in a Cluster each server affects only its own queues")
        func cluster() async throws {
            let cluster = try await RedisCluster()
            let owners = try ["a", "b"].map { try cluster.owner(ofSlot: cluster.slot(of: "push:{\($0)}:jobs")) }
            for (queue, owner) in zip(["a", "b"], owners) { try owner.push(TestJob.many(1), queue: queue) }
            try owners[0].run("CONFIG", "SET", "maxmemory", "1")
            let view = try await FleetView(cluster.url)
            #expect(view.kinds == ["redis_full 127.0.0.1:\(owners[0].port)", "no_worker a", "no_worker b"])
            #expect(view.problems[1].advice.hasPrefix("fix Redis first"))
            #expect(view.problems[2].advice == "start a worker with --queue b")
            #expect(view.servers.map(\.full) == [true, false] && view.servers.map(\.queues) == [["a"], ["b"]])
            let page = try await apnsWorker(cluster.url, "status").output
            #expect(page.split(separator: "\n").allSatisfy { $0.count <= 80 }, "\(page)")
            #expect(page.contains(/REDIS (?:Valkey )?\S+  127\.0\.0\.1:\d+  .*full.*\s.*0 replicas  a\n/), "\(page)")
            #expect(page.contains(/REDIS (?:Valkey )?\S+  127\.0\.0\.1:\d+  .*no limit.*  0 replicas  b\n/), "\(page)")
            let check = try await Self.check(cluster.url, queue: "a,b")
            #expect(check.output.components(separatedBy: "has no replica").count == 3, "\(check.output)")
        }
    }
}
