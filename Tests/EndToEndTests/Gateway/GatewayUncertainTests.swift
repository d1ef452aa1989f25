import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// The gateway closes a connection, and does not report which notifications it has accepted.
    @Suite("A gateway that closes without a usable error packet")
    struct GatewayUncertainTests {
        @Test(
            "a close, a reset, half a packet or an unknown identifier: all are delivered, possible duplicates counted")
        func wordless() async throws {
            let answers = [
                "c0": "close", "c1": "close,accept=false", "c2": "reset", "c3": "reset,accept=true",
                "c4": "8,packet=half", "c5": "8,identifier=wrong", "c6": "8,identifier=0",
            ]
            var jobs = TestJob.many(210, prefix: "a")
            for (index, prefix) in answers.keys.sorted().enumerated() {
                jobs.insert(TestJob.text(TestJob.token(prefix, index)), at: 20 + index * 31)
            }
            let result = try await GatewayScene.deliver(
                jobs, rules: answers.sorted { $0.key < $1.key }.map { "prefix=\($0.key),answer=\($0.value),times=1" },
                confirmAfter: 400, options: ["--max-attempts", "100"], exactlyOnce: false)
            #expect(result.worker.delivered == 217 && result.simulator.acceptedByToken.count == 217)
            #expect(result.queue.dead.isEmpty && result.queue.invalidTokens.isEmpty)
            #expect(result.worker.possibleDuplicates >= 7)
            #expect(result.simulator.gateway.resets == 2)
            #expect(result.simulator.gateway.packets["8 InvalidToken"] == 3)
        }

        @Test(
            "a notification that always ends the connection runs out of attempts, and those behind it are sent again",
            arguments: [("close,accept=false", "items"), ("8", "simple")])
        func attempts(answer: String, frame: String) async throws {
            let poison = TestJob.text(TestJob.token("e", 1), #""max_attempts":3,"#)
            let scene = try await GatewayScene(rules: ["prefix=e,answer=\(answer)"])
            try scene.redis.push(TestJob.many(20, prefix: "a") + [poison] + TestJob.many(20, prefix: "b"))
            let worker = try scene.worker(confirmAfter: 400, options: ["--gateway-frame", frame])
            // A failure spends an attempt only if the gateway has accepted other notifications since the previous failure.
            let good = try await scene.redis.pushGoodOnes(until: "the bad one is dead") {
                try scene.queue().dead.count == 1
            }
            let (account, queue) = (try await worker.stop(), try scene.queue())
            #expect(account.delivered == 40 + good)
            #expect(try await scene.simulator.stop().acceptedByToken.count == 40 + good)
            #expect(account.dead == 1 && queue.invalidTokens.isEmpty)
            #expect(account.possibleDuplicates >= 1)
            let letter = try #require(queue.dead.first)
            #expect(letter.reason == "AttemptsExhausted" && letter.attempts == 3)
            #expect(letter.original == Array(poison.utf8))
        }

        @Test("connections that the network cuts or resets lose nothing")
        func network() async throws {
            let scene = try await GatewayScene()
            let proxy = try await FaultProxy(to: try scene.gatewayPort())
            try scene.redis.push(TestJob.many(4000, prefix: "a"))
            let worker = try WorkerProcess(
                redis: scene.redis.url, gateway: proxy.port, confirmAfter: 300,
                options: ["--exit-when-done", "--max-per-second", "1500", "--max-attempts", "100"])
            for round in 1...4 {
                let before = try await scene.simulator.account().accepted
                try await eventually("more are accepted") {
                    try await scene.simulator.account().accepted >= min(before + 300, 4000)
                }
                if round % 2 == 0 { try await proxy.cut() } else { try await proxy.reset() }
            }
            let result = try await scene.finish(worker, exactlyOnce: false)
            #expect(result.worker.delivered == 4000 && result.simulator.acceptedByToken.count == 4000)
            #expect(result.queue.dead.isEmpty && result.simulator.gateway.connections >= 4)
        }
    }
}
