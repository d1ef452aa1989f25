import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("An idle worker")
    struct IdleTests {
        @Test("with eight lanes and three queues sends few commands to Redis, and only one lane polls")
        func commands() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, ["--lanes", "8", "--queue", "a,b,c", "--lease", "30000"])
            let connection = try redis.connect()
            try await eventually("each lane has a lease on each queue") {
                try ["a", "b", "c"].allSatisfy { try connection.run("ZCARD", "push:{\($0)}:workers") == 8 }
            }
            // A lane has started when it has renewed its leases after its first claim. Renewed leases are long.
            try await eventually("the lanes without claims have long leases") {
                try ["a", "b", "c"].allSatisfy { queue in
                    let later = try connection.run(
                        "EVAL",
                        "local now = redis.call('TIME')[1] * 1000\nreturn redis.call('ZCOUNT', KEYS[1], now + 31000, '+inf')",
                        "1", "push:{\(queue)}:workers")
                    return later == 7
                }
            }
            let (before, start) = (try connection.calls(), ContinuousClock.now)
            try await eventually("some rounds of polls have been made") {
                try connection.calls()["evalsha", default: 0] >= before["evalsha", default: 0] + 9
            }
            let after = try connection.calls()
            let seconds = (ContinuousClock.now - start) / .seconds(1)
            func rate(_ command: String) -> Double {
                Double(after[command, default: 0] - before[command, default: 0]) / seconds
            }
            // One lane polls three times in nine seconds, and each of the seven other lanes renews leases three times in 300 s. The limit
            // is generous: eight polling lanes would need three or more scripts per second.
            #expect(rate("evalsha") < 2, "\(after)")
            #expect(rate("hkeys") == 0, "\(after)")
            #expect(rate("blmove") < 0.5, "\(after)")

            // An idle worker still starts jobs at once.
            for queue in ["a", "b", "c"] { try redis.push(TestJob.many(3, prefix: "a"), queue: queue) }
            try await eventually("the jobs are sent") {
                try ["a", "b", "c"].allSatisfy { try QueueContents(redis, queue: $0).count("delivered") == 3 }
            }
            let account = try await worker.stop()
            #expect(account.delivered == 9 && account.lostClaims == 0)
            #expect(try await simulator.stop().accepted == 9)
            for queue in ["a", "b", "c"] { #expect(try QueueContents(redis, queue: queue).workers.isEmpty) }
        }
    }
}
