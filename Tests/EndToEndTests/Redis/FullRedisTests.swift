import TestSupport
import Testing

extension EndToEnd {
    @Suite("Commands on a Redis whose memory is full")
    struct FullRedisTests {
        private static func fill(_ redis: RedisServer) throws {
            try redis.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
            try redis.run("CONFIG", "SET", "maxmemory", "100000")
            guard case .error = try redis.run("SET", "test", "x") else {
                throw ChildProcess.Failure(description: "the server's memory is not full")
            }
        }

        @Test("nothing is enqueued or requeued; the error has the cause and a suggestion, and the exit status is 69")
        func refusals() async throws {
            let redis = try RedisServer()
            try redis.bury([.numbered(1)])
            try Self.fill(redis)
            let before = try QueueContents(redis)
            let enqueue = ["enqueue", "--token", TestJob.token("ab", 1), "--alert", "x"]
            for command in [enqueue, ["requeue", "--all", "--yes"]] {
                let result = try await redis.apnsWorker(command)
                #expect(result.ending == .exited(69), "\(result)")
                #expect(result.errors.contains("OOM command not allowed when used memory > 'maxmemory'"), "\(result)")
                #expect(result.errors.contains("Redis is full: raise its maxmemory"), "\(result)")
                for word in ["user_script", "Usage"] { #expect(!result.errors.contains(word), "\(result)") }
            }
            let after = try QueueContents(redis)
            #expect(after.jobs.isEmpty && after.dead.map(\.original) == before.dead.map(\.original))
        }
    }
}
