import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Unique jobs")
    struct UniqueJobTests {
        @Test("are sent once, however often they are enqueued and however many workers run")
        func once() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=f5,answer=503,times=1"])
            let jobs = (0..<300).map { number in
                TestJob.text(
                    TestJob.token(number % 3 == 0 ? "f5" : "", number), #""id":"u\#(number)","unique_for":"1h","#)
            }
            try redis.push(jobs + jobs.shuffled() + jobs)
            let workers = try (0..<3).map { _ in try WorkerProcess(redis, simulator, ["--exit-when-done"]) }
            var accounts: [WorkerProcess.Account] = []
            for worker in workers { accounts.append(try await worker.finish()) }
            let queue = try QueueContents(redis)
            let accepted = try await simulator.stop()
            #expect(queue.isSettled && queue.dead.isEmpty)
            #expect(queue.count("delivered") == 300 && queue.count("dropped:Duplicate") == 600)
            #expect(accounts.reduce(0) { $0 + $1.dropped } == 600)
            #expect(accepted.accepted == 300 && accepted.distinctTokens == 300 && accepted.duplicates == 0)
        }

        @Test("are still sent if the worker that reserved them is killed or drained")
        func reservedElsewhere() async throws {
            let (redis, simulator) = try await startServers(simulator: ["--delay", "400ms±100ms"])
            let jobs = (0..<600).map { TestJob.text(TestJob.token("", $0), #""id":"u\#($0)","unique_for":"1h","#) }
            try redis.push(jobs)
            let options = ["--max-connections", "1", "--max-streams", "100"]
            let killed = try WorkerProcess(redis, simulator, options)
            try await eventually("jobs are reserved") { try QueueContents(redis).claims > 50 }
            killed.process.kill()
            let drained = try WorkerProcess(redis, simulator, options + ["--drain-timeout", "0"])
            try await eventually("more are") { try QueueContents(redis).workers.count == 2 }
            _ = try await drained.stop()
            try redis.push(jobs)
            _ = try await WorkerProcess(redis, simulator, options + ["--exit-when-done"]).finish()
            let queue = try QueueContents(redis)
            let accepted = try await simulator.stop()
            #expect(queue.isSettled && queue.dead.isEmpty && queue.workers.isEmpty)
            #expect(accepted.distinctTokens == 600)
            #expect(queue.count("delivered") == 600 && queue.count("dropped:Duplicate") == 600)
        }
    }
}
