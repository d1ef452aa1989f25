import TestSupport
import Testing

extension EndToEnd {
    /// Commands that an operator needs on a server that has reached its `maxmemory`.
    @Suite("Commands on a Redis whose memory is full")
    struct FullRedisTests {
        private static func fill(_ redis: RedisServer) throws {
            try redis.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
            try redis.run("CONFIG", "SET", "maxmemory", "100000")
            guard case .error = try redis.run("SET", "test", "x") else {
                throw ChildProcess.Failure(description: "the server's memory is not full")
            }
        }

        private static func command(_ redis: RedisServer, _ arguments: String...) async throws
            -> CommandLineTests.Output
        {
            try await CommandLineTests.run(arguments, environment: ["APNS_WORKER_REDIS_URL": redis.url])
        }

        @Test("queues and apps can be paused and resumed, and workers receive commands")
        func control() async throws {
            let redis = try RedisServer()
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis: redis.url, endpoint: simulator.port)
            try await eventually("it is there") { try await FleetView(redis.url).worker(worker) != nil }
            try Self.fill(redis)
            let pid = "\(worker.process.processIdentifier)"
            let name = try #require(try await FleetView(redis.url).worker(worker)?.name)
            for arguments in [["quiet", pid], ["quiet", "--undo", pid]] {
                let result = try await CommandLineTests.run(
                    arguments, environment: ["APNS_WORKER_REDIS_URL": redis.url])
                #expect(result.ending == .exited(0), "\(result.errors)")
                #expect(try redis.run("EXISTS", "push:{default}:order:\(name)") == 1)
            }
            for (flags, key) in [
                (["--queue", "default"], "push:{default}:paused"),
                (["--app", "default"], "push:{shared}:apps:default:paused"),
            ] {
                let pause = try await CommandLineTests.run(
                    ["pause", "--reason", "full"] + flags, environment: ["APNS_WORKER_REDIS_URL": redis.url])
                #expect(pause.ending == .exited(0), "\(pause.errors)")
                #expect(try redis.run("EXISTS", key) == 1)
                let resume = try await CommandLineTests.run(
                    ["resume"] + flags, environment: ["APNS_WORKER_REDIS_URL": redis.url])
                #expect(resume.ending == .exited(0), "\(resume.errors)")
                #expect(try redis.run("EXISTS", key) == 0)
            }
        }

        @Test("nothing is enqueued or requeued, and the error has the cause and a suggestion")
        func refusals() async throws {
            let redis = try RedisServer()
            try redis.bury([.numbered(1)])
            try Self.fill(redis)
            let before = try QueueContents(redis)
            for result in [
                try await Self.command(redis, "enqueue", "--token", TestJob.token("ab", 1), "--alert", "x"),
                try await Self.command(redis, "requeue", "--all", "--yes"),
            ] {
                #expect(result.ending != .exited(0))
                #expect(result.errors.contains("OOM command not allowed when used memory > 'maxmemory'"), "\(result)")
                #expect(result.errors.contains("Redis is full: raise its maxmemory"), "\(result)")
                #expect(!result.errors.contains("user_script"), "\(result)")
            }
            let after = try QueueContents(redis)
            #expect(after.jobs.isEmpty && after.dead.map(\.original) == before.dead.map(\.original))
        }
    }
}
