import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Bad tokens in a list for the gateway")
    struct GatewayListTests {
        @Test("2,000 jobs with 3 % bad tokens, reported late and in single bytes: each good one arrives exactly once")
        func badOnes() async throws {
            var jobs = TestJob.many(2000, prefix: "a")
            var bad: Set<String> = []
            for number in 0..<60 {
                // A quarter of the packets are late, arriving while notifications after the bad one are still being
                // written.
                let token = TestJob.token(number % 4 == 0 ? "dead" : "bad0", number)
                jobs[20 + number * 33] = TestJob.text(token)
                bad.insert(token)
            }
            // A job with many tokens, some of them bad.
            let many = (0..<405).map { TestJob.token($0 % 80 == 50 ? "bad0" : "c", 1000 + $0) }
            bad.formUnion(many.filter { $0.hasPrefix("bad0") })
            jobs.append(TestJob.fanOut(many))
            let result = try await GatewayScene.deliver(
                jobs, rules: ["prefix=dead,answer=8,delay=200ms,split=true", "prefix=bad0,answer=8,split=true"],
                confirmAfter: 3000)
            #expect(result.worker.delivered == 2340 && result.worker.invalidToken == 65 && result.worker.retried == 0)
            #expect(bad.count == 65 && result.queue.invalidTokens == bad && result.queue.dead.isEmpty)
            #expect(result.simulator.gateway.accepted == 2340 && result.simulator.acceptedByToken.count == 2340)
            #expect(result.simulator.gateway.refused["8 InvalidToken"] == 65)
            #expect(result.simulator.gateway.dropped > 0 && result.worker.resent >= result.simulator.gateway.dropped)
            #expect(result.log.lines(of: "scope_slow").isEmpty)
        }

        @Test("a worker in the wrong environment marks no token and sends probes; once corrected, all are delivered")
        func wrongEnvironment() async throws {
            let scene = try await GatewayScene(rules: ["answer=8"])
            try scene.redis.push(TestJob.many(1000, prefix: "a"))
            let wrong = try scene.worker()
            try await wrong.logs("scope_slow", "InvalidToken")
            let before = try await scene.simulator.account().gateway.refused["8 InvalidToken"] ?? 0
            try await eventually("probes are made, and are told the same") {
                try await scene.simulator.account().gateway.refused["8 InvalidToken"] ?? 0 >= before + 2
            }
            let account = try await wrong.stop()
            let queue = try scene.queue()
            #expect(queue.invalidTokens.isEmpty && queue.dead.isEmpty && account.delivered == 0)
            #expect(try scene.kept() == 1000 && queue.claims == 0)
            // Each bad token ends a connection when it is reported.
            #expect(try await scene.simulator.stop().gateway.refused["8 InvalidToken"] ?? 0 < 100)

            let right = try await SimulatorProcess(gateway: [])
            let second = try WorkerProcess(
                redis: scene.redis.url, gateway: try #require(right.gatewayPort),
                options: ["--exit-when-done"])
            let finished = try await second.finish()
            #expect(finished.delivered == 1000 && finished.possibleDuplicates == 0)
            let accepted = try await right.stop()
            #expect(accepted.gateway.accepted == 1000 && accepted.acceptedByToken.count == 1000)
        }

        @Test("a token that the gateway refused is not sent to until its device registers again")
        func suppressed() async throws {
            let bad = TestJob.token("dead", 1)
            let scene = try await GatewayScene(rules: ["prefix=dead,answer=8,times=1"])
            try scene.redis.push(TestJob.many(10, prefix: "a") + [TestJob.text(bad)] + TestJob.many(10, prefix: "b"))
            #expect(try await scene.worker(options: ["--exit-when-done"]).finish().invalidToken == 1)
            let later = Int(Date().timeIntervalSince1970) + 60
            try scene.redis.push([TestJob.text(bad), TestJob.text(bad, #""registered_at":\#(later),"#)])
            let account = try await scene.worker(options: ["--exit-when-done"]).finish()
            #expect(account.suppressed == 1 && account.delivered == 1)
            #expect(try scene.queue().invalidTokens.isEmpty)
            #expect(try await scene.simulator.stop().acceptedByToken[bad] == 1)
        }
    }
}
