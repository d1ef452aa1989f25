import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Drain")
    struct DrainTests {
        @Test(
            "finishes the requests in flight, returns the other jobs in their order, and exits with 0",
            arguments: [SIGTERM, SIGINT])
        func drain(signal: Int32) async throws {
            let (redis, simulator) = try await startServers(simulator: ["--delay", "200ms±100ms"])
            let jobs = TestJob.many(2000)
            try redis.push(jobs)
            let worker = try WorkerProcess(redis, simulator, ["--max-connections", "1", "--max-streams", "200"])
            try await eventually("many are under way") {
                let queue = try QueueContents(redis)
                return queue.count("delivered") > 100 && queue.claims > 50
            }
            let account = try await worker.stop(by: signal)
            let queue = try QueueContents(redis)
            let simulated = try await simulator.stop()

            #expect(account.delivered > 100 && account.delivered < jobs.count)
            #expect(simulated.accepted == account.delivered && simulated.duplicates == 0)
            #expect(simulated.acceptedAnswerLost == 0 && simulated.resetsReceived == 0)
            #expect(queue.count("delivered") == account.delivered && account.lostClaims == 0)
            #expect(queue.claims == 0 && queue.workers.isEmpty && queue.retries.isEmpty && queue.dead.isEmpty)
            #expect(!queue.keys.contains { $0.contains("claimed") || $0.contains("inbox") || $0.contains("workers") })
            let rest = jobs.enumerated().filter { simulated.acceptedByToken[TestJob.token("", $0.offset)] == nil }
            #expect(queue.jobs == rest.map { Array($0.element.utf8) })
        }

        @Test(
            "an idle worker exits at once, and one whose APNs never answers exits within its timeout",
            arguments: [true, false])
        func inTime(idle: Bool) async throws {
            let (redis, simulator) = try await startServers(rules: ["answer=silence"])
            if !idle { try redis.push(TestJob.many(50)) }
            let worker = try WorkerProcess(
                redis, simulator, ["--request-timeout", "10m", "--drain-timeout", idle ? "1h" : "500ms"])
            try await eventually("it is at work") {
                let queue = try QueueContents(redis)
                return !queue.workers.isEmpty && (idle || queue.claims == 50)
            }
            if !idle { try await eventually("they are under way") { try await simulator.account().silenced == 50 } }
            let account = try await worker.stop()
            let queue = try QueueContents(redis)
            #expect(queue.claims == 0 && queue.workers.isEmpty)
            // APNs may have accepted each notification, so its job is deferred as uncertain.
            #expect(queue.jobs.count + queue.retries.count == (idle ? 0 : 50))
            #expect(account.possibleDuplicates == (idle ? 0 : 50))
        }
    }
}
