import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Closed connections after which it is unknown what the gateway accepted.
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

        @Test("an uncertain notification is sent again or dropped, as the job requests")
        func onUncertain() async throws {
            let again = TestJob.many(20, prefix: "a", members: #""on_uncertain":"resend","#)
            let drop = TestJob.many(20, prefix: "b", members: #""on_uncertain":"drop","#)
            let last = TestJob.text(TestJob.token("c", 1), #""on_uncertain":"drop","#)
            let mixed = zip(again, drop).flatMap { [$0, $1] }
            let result = try await GatewayScene.deliver(
                mixed + [last], rules: ["prefix=c,answer=close,times=1"], exactlyOnce: false)
            #expect(result.worker.dropped >= 1 && result.worker.dropped + result.worker.delivered == 41)
            #expect(result.worker.possibleDuplicates >= 1 && result.worker.possibleDuplicates <= 20)
            #expect(result.queue.dead.isEmpty)
            let accepted = result.simulator.acceptedByToken
            #expect(accepted.count == 41)
            #expect(accepted.allSatisfy { $0.key.hasPrefix("a") || $0.value == 1 })
        }

        /// Delivers jobs, of which some always end the connection, beside others that go on until those are dead.
        private static func deliver(
            _ jobs: [String], bad: Int, rules: [String], frame: String
        ) async throws -> (good: Int, GatewayScene.Result) {
            let scene = try await GatewayScene(rules: rules)
            try scene.redis.push(jobs)
            let worker = try scene.worker(confirmAfter: 400, options: ["--gateway-frame", frame])
            // An attempt is spent only if others were accepted since the failure before.
            let good = try await scene.redis.pushGoodOnes(until: "the bad ones are dead") {
                try scene.queue().dead.count == bad
            }
            let account = try await worker.stop()
            return (
                good,
                .init(
                    worker: account, queue: try scene.queue(), simulator: try await scene.simulator.stop(),
                    log: worker.log)
            )
        }

        @Test(
            "a notification that always ends the connection runs out of attempts, and those behind it are sent again",
            arguments: [("close,accept=false", "items"), ("8", "simple")])
        func attempts(answer: String, frame: String) async throws {
            let poison = TestJob.text(TestJob.token("e", 1), #""max_attempts":3,"#)
            let (good, result) = try await Self.deliver(
                TestJob.many(20, prefix: "a") + [poison] + TestJob.many(20, prefix: "b"), bad: 1,
                rules: ["prefix=e,answer=\(answer)"], frame: frame)
            #expect(result.worker.delivered == 40 + good && result.simulator.acceptedByToken.count == 40 + good)
            #expect(result.worker.dead == 1 && result.queue.invalidTokens.isEmpty)
            #expect(result.worker.possibleDuplicates >= 1)
            let letter = try #require(result.queue.dead.first)
            #expect(letter.reason == "AttemptsExhausted" && letter.attempts == 3)
            #expect(letter.original == Array(poison.utf8))
        }

        @Test("of many that were lost together only those that end the connection alone run out of attempts")
        func suspects() async throws {
            // The simple frame has no packets: each bad token closes the connection.
            let bad = (0..<3).map { TestJob.text(TestJob.token("e", $0), #""max_attempts":3,"#) }
            let good = TestJob.many(27, prefix: "a", members: #""max_attempts":3,"#)
            let jobs = good.prefix(5) + bad.prefix(1) + good[5..<12] + bad[1...] + good[12...]
            let (others, result) = try await Self.deliver(
                Array(jobs), bad: 3, rules: ["prefix=e,answer=8"], frame: "simple")
            #expect(result.worker.delivered == 27 + others && result.worker.dead == 3)
            #expect(Set(result.queue.dead.map(\.original)) == Set(bad.map { Array($0.utf8) }))
            // Once with all others, once with few, and once alone.
            #expect(result.simulator.acceptedByToken.values.allSatisfy { $0 <= 3 })
        }

        @Test("a gateway that stops reading is detected, and no unread notification is lost")
        func hang() async throws {
            let jobs = (0..<1500).map { number in
                let token = number == 100 ? TestJob.token("c", 1) : TestJob.token("a", number)
                return TestJob.large(token, bytes: 2000)
            }
            // More than the sockets' buffers hold. Acceptance by the gateway's kernel proves nothing, so the hang must
            // be detected before the time for confirmation has passed. A busy machine must not look like a hang.
            let result = try await GatewayScene.deliver(
                jobs, rules: ["prefix=c,answer=hang,times=1"], confirmAfter: 8000,
                options: ["--request-timeout", "2000", "--max-connections", "1"], exactlyOnce: false)
            #expect(result.worker.delivered == 1500 && result.simulator.acceptedByToken.count == 1500)
            #expect(result.simulator.gateway.hangs == 1 && result.worker.possibleDuplicates > 0)
            let events = ["apns_connection_ended", "apns_connection_failed"]
            #expect(events.contains { !result.log.lines(of: $0).isEmpty }, "\(result.log)")
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
