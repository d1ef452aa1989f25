import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// The effects of the gateway's statuses on jobs.
    @Suite("The gateway's statuses")
    struct GatewayStatusTests {
        @Test("each status has its effect: a retry, a dead letter with its reason, or an invalid token")
        func ends() async throws {
            let statuses = ["01", "02", "04", "05", "07", "08", "0a", "c8", "ff"]
            var jobs = TestJob.many(50, prefix: "a")
            // Each bad job is among good ones, as in a real list.
            for (index, prefix) in (statuses + statuses).enumerated() {
                jobs.insert(TestJob.text(TestJob.token(prefix, index)), at: 10 + index * 2)
            }
            let before = Int64(Date().timeIntervalSince1970 * 1000)
            let result = try await GatewayScene.deliver(
                jobs,
                rules: [
                    "prefix=01,answer=1,times=2", "prefix=02,answer=2", "prefix=04,answer=4", "prefix=05,answer=5",
                    "prefix=07,answer=7", "prefix=08,answer=8", "prefix=0a,answer=10,times=1",
                    "prefix=c8,answer=200,times=1", "prefix=ff,answer=255,times=1",
                ])
            #expect(
                result.queue.deadReasons == [
                    "MissingDeviceToken": 2, "MissingPayload": 2, "InvalidTokenSize": 2, "InvalidPayloadSize": 2,
                ])
            #expect(result.queue.dead.allSatisfy { $0.attempts == 1 })
            #expect(Set(result.queue.dead.map(\.original)).isSubset(of: Set(jobs.map { Array($0.utf8) })))
            // Two jobs with status 1 are retried twice, and two jobs each with statuses 200 and 255 once.
            #expect(result.worker.retried == 2 * 2 + 2 + 2 && result.queue.count("retried") == 8)
            for reason in ["ProcessingError", "GatewayStatus200", "UnknownError"] {
                #expect(result.queue.counters.keys.contains { $0.contains(reason) }, "\(result.queue.counters)")
            }
            #expect(result.worker.delivered == 50 + 2 * 4 && result.simulator.gateway.accepted == 58)
            #expect(result.simulator.acceptedByToken.count == 58)

            let bad = Set(jobs.indices.filter { jobs[$0].contains(#""token":"08"#) }.map { jobs[$0] })
            #expect(bad.count == 2 && result.worker.invalidToken == 2)
            #expect(result.queue.invalidTokens == [TestJob.token("08", 5), TestJob.token("08", 14)])
            for token in result.queue.invalidTokens {
                let details = try #require(result.queue.invalidTokenDetails[token])
                #expect(details.facts.source == "gateway" && details.facts.reason == "InvalidToken")
                #expect(details.facts.topic == "com.example.app")
                #expect((before...Int64(Date().timeIntervalSince1970 * 1000)).contains(details.at))
                #expect(details.facts.environment?.hasPrefix("localhost:") == true)
            }
        }

        @Test("a gateway that shuts down with 10 and returns gets the rest, and nothing twice")
        func restart() async throws {
            let redis = try RedisServer()
            let port = try RedisServer.freePort()
            let first = try await GatewayScene.gateway(on: port)
            try redis.push(TestJob.many(3000, prefix: "a"))
            // The worker is so slow that the first gateway gets only a part of the jobs.
            let worker = try WorkerProcess(
                redis: redis.url, gateway: port, options: ["--exit-when-done", "--max-per-second", "1500"])
            try await eventually("some have been accepted") { try await first.account().accepted > 100 }
            let before = try await first.stop()
            let second = try await GatewayScene.gateway(on: port)
            let account = try await worker.finish()
            let after = try await second.stop()
            expectAgreement(account, try QueueContents(redis))
            #expect(before.gateway.packets["10 Shutdown"] ?? 0 >= 1)
            #expect(account.delivered == 3000 && after.accepted > 0)
            // The Shutdown packet names the last accepted notification. The second gateway gets all later notifications.
            #expect(Set(before.acceptedByToken.keys).union(after.acceptedByToken.keys).count == 3000)
            #expect(before.accepted + after.accepted - 3000 <= account.possibleDuplicates)
            #expect(account.possibleDuplicates == 0 && account.retried == 0)
        }

        @Test("payload limits: 2048 bytes, or 256 where that is configured", arguments: [2048, 256])
        func payloadLimits(limit: Int) async throws {
            func job(_ number: Int, bytes: Int) -> String { TestJob.large(TestJob.token("a", number), bytes: bytes) }
            let tooLarge = job(2, bytes: limit + 1)
            let result = try await GatewayScene.deliver(
                [job(1, bytes: limit), tooLarge, job(3, bytes: limit)], confirmAfter: 200,
                options: limit == 2048 ? [] : ["--gateway-payload-limit", "\(limit)"],
                simulatorOptions: ["--gateway-payload-limit", "\(limit)"])
            #expect(result.worker.delivered == 2 && result.simulator.gateway.refused.isEmpty)
            #expect(result.queue.deadReasons == ["PayloadTooLarge": 1])
            let letter = try #require(result.queue.dead.first)
            #expect(letter.original == Array(tooLarge.utf8) && letter.detail?.contains("\(limit)") == true)
        }

        @Test("2,000 jobs with 3 % bad tokens, reported late and in single bytes: each good one arrives exactly once")
        func badOnes() async throws {
            var jobs = TestJob.many(2000, prefix: "a")
            var bad: Set<String> = []
            for number in 0..<60 {
                // A quarter of the error packets come late, while the worker still writes notifications.
                let token = TestJob.token(number % 4 == 0 ? "dead" : "bad0", number)
                jobs[20 + number * 33] = TestJob.text(token)
                bad.insert(token)
            }
            // This job has many tokens, and some are bad.
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
    }
}
