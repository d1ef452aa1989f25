import TestSupport
import Testing

extension EndToEnd {
    @Suite("A job for many devices")
    struct BigJobTests {
        private static let count = 20_000

        private func bigJob() -> String {
            let tokens = (0..<Self.count).map { "\"\(TestJob.token("b", $0))\"" }.joined(separator: ",")
            return #"{"id":"big","tokens":[\#(tokens)],"payload":{"aps":{"alert":"to all"}}}"#
        }

        @Test("is shared by workers, and after a crash only the pieces in flight are sent twice")
        func crash() async throws {
            let (redis, simulator) = try await startServers(simulator: ["--delay", "100ms±50ms"])
            try redis.push([bigJob()])
            let options = ["--max-connections", "1", "--max-streams", "300"]
            let first = try WorkerProcess(redis, simulator, options)
            try await eventually("the first piece is done") { try redis.counted("delivered") >= 1000 }
            let second = try WorkerProcess(redis, simulator, options + ["--exit-when-done"])
            try await eventually("both have pieces") {
                try redis.connect().run("ZCARD", "push:{default}:workers").number == 2
                    && redis.counted("delivered") >= 3000
            }
            first.process.kill()
            let claims = try QueueContents(redis).claims
            let account = try await second.finish()
            let queue = try QueueContents(redis)
            let accepted = try await simulator.stop()

            #expect(queue.isSettled && queue.workers.isEmpty && queue.dead.isEmpty)
            #expect(queue.count("split") == 1)
            #expect(queue.count("delivered") == Self.count)
            #expect(accepted.distinctTokens == Self.count && accepted.distinctIDs == Self.count)
            #expect(accepted.duplicates <= claims * 1000)
            #expect(account.delivered > 0 && account.delivered < Self.count)
        }

        @Test("are claimed in parts when the server limits its answers, and the log names the setting")
        func limitedAnswers() async throws {
            let (redis, simulator) = try await startServers()
            let filler = String(repeating: "x", count: 60_000)
            try redis.push(
                (0..<30).map {
                    #"{"id":"\#($0)","token":"\#(TestJob.token("f", $0))","alert":"hi","own":"\#(filler)"}"#
                })
            try redis.run("CONFIG", "SET", "client-output-buffer-limit", "normal 262144 0 0")
            let worker = try WorkerProcess(redis, simulator)
            try await eventually("all are delivered") { try await simulator.account().distinctTokens == 30 }
            let account = try await worker.stop()
            #expect(account.delivered == 30 && account.possibleDuplicates == 0)
            #expect(worker.process.errors.contains("client-output-buffer-limit"), "\(worker.process.errors)")
            let accepted = try await simulator.stop()
            #expect(accepted.duplicates == 0 && accepted.distinctTokens == 30)
        }

        @Test("does not delay the jobs behind it")
        func smallJobBehind() async throws {
            let redis = try RedisServer()
            // 200 at once, each answered after 400 ms: the big job takes forty seconds.
            let simulator = try await SimulatorProcess(options: ["--delay", "400ms±50ms"])
            try redis.push([bigJob()] + TestJob.many(20, prefix: "5"))
            let worker = try WorkerProcess(redis, simulator, ["--max-connections", "1", "--max-streams", "200"])
            try await eventually("the small jobs are delivered") {
                let taken = try await simulator.account().acceptedByToken
                return (0..<20).allSatisfy { taken[TestJob.token("5", $0)] == 1 }
            }
            let soFar = try await simulator.account().distinctTokens
            #expect(soFar < Self.count)
            _ = try await worker.stop()
            // The unsent part of the piece is returned, and nothing is sent twice.
            let accepted = try await simulator.stop()
            let queue = try QueueContents(redis)
            #expect(accepted.duplicates == 0)
            #expect(queue.count("delivered") == accepted.distinctTokens)
            #expect(queue.claims == 0 && queue.workers.isEmpty)
        }
    }
}
