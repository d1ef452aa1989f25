import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// The effect of the gateway's statuses on jobs in Redis.
    @Suite("The gateway's statuses")
    struct GatewayStatusTests {
        @Test("each status has its effect: a retry, a dead letter with its reason, or an invalid token")
        func ends() async throws {
            let statuses = ["01", "02", "04", "05", "07", "08", "0a", "c8", "ff"]
            var jobs = TestJob.many(50, prefix: "a")
            // One at a time among good ones, as in a real list.
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
            // 1 twice each, 200 and 255 once each.
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

        @Test("8 for devices of another topic or environment and for expired ones; uninstalled apps are feedback")
        func registry() async throws {
            func device(_ prefix: String, _ rest: String) -> [String] {
                ["--device", "token=\(TestJob.token(prefix, 1)),topic=\(rest)"]
            }
            let bad = ["b1", "b2", "b3"].map { TestJob.token($0, 1) }
            var jobs = TestJob.many(120, prefix: "a") + ["d1", "d2"].map { TestJob.text(TestJob.token($0, 1)) }
            // Among good ones, as in a real list.
            for (index, token) in bad.enumerated() { jobs.insert(TestJob.text(token), at: 30 + index * 20) }
            let result = try await GatewayScene.deliver(
                jobs,
                simulatorOptions: device("b1", "com.example.other")
                    + device("b2", "com.example.app,environment=sandbox")
                    + device("b3", "com.example.app,state=expired") + device("d1", "com.example.app,state=unregistered")
                    + device("d2", "com.example.app") + ["--feedback-port", "0"])
            #expect(result.worker.delivered == 122 && result.worker.invalidToken == 3 && result.worker.retried == 0)
            #expect(result.queue.invalidTokens == Set(bad) && result.queue.dead.isEmpty)
            #expect(result.simulator.gateway.refused == ["8 InvalidToken": 3])
            #expect(result.simulator.feedback.waiting == 1)
        }

        @Test("3, 6 and 128 for one job keep it, spend no attempt, and stop no other")
        func refused() async throws {
            // The tests mostly wait for the job to return, so they run concurrently.
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (status, word, detail) in [
                    (3, "MissingTopic", "is the certificate right"),
                    (6, "InvalidTopicSize", "is the certificate right"),
                    (128, "ProtocolError", "does the gateway support this frame format"),
                ] { group.addTask { try await Self.refuse(status, word, detail) } }
                try await group.waitForAll()
            }
        }

        private static func refuse(_ status: Int, _ word: String, _ detail: String) async throws {
            let scene = try await GatewayScene(rules: ["prefix=bad,answer=\(status),times=1"])
            let jobs = TestJob.many(20, prefix: "a") + TestJob.many(1, prefix: "bad") + TestJob.many(40, prefix: "b")
            try scene.redis.push(jobs)
            let worker = try scene.worker(options: ["--exit-when-done"])
            let result = try await scene.finish(worker)
            #expect(worker.lines(of: "scope_slow").isEmpty, "\(worker.log)")
            #expect(result.worker.delivered == 61 && result.simulator.gateway.accepted == 61)
            #expect(result.worker.retried == 1 && result.worker.possibleDuplicates == 0)
            #expect(result.queue.dead.isEmpty && result.queue.invalidTokens.isEmpty)
            #expect(result.simulator.gateway.refused["\(status) \(word)"] == 1)
        }

        @Test("10 confirms the notification it names, and later ones are sent again: nothing lost, nothing twice")
        func shutdown() async throws {
            let jobs = TestJob.many(400, prefix: "a") + TestJob.many(3, prefix: "b") + TestJob.many(100, prefix: "c")
            // With the second rule, the packet names the last notification before the one that triggered it.
            let result = try await GatewayScene.deliver(
                jobs, rules: ["prefix=b,answer=10,accept=false,times=1", "after=60,answer=10"])
            #expect(result.worker.delivered == 503 && result.simulator.gateway.accepted == 503)
            #expect(result.worker.retried == 0 && result.queue.count("retried") == 0)
            #expect(result.simulator.gateway.packets["10 Shutdown"] ?? 0 >= 8)
            #expect(!result.log.contains(" error "), "\(result.log)")
        }

        @Test("a gateway that shuts down with 10 and returns gets the rest, and nothing twice")
        func restart() async throws {
            let redis = try RedisServer()
            let port = try RedisServer.freePort()
            let first = try await GatewayScene.gateway(on: port)
            try redis.push(TestJob.many(3000, prefix: "a"))
            // Slow enough that the first gateway gets only part of the jobs.
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
            // The packet did not name the notifications written when it arrived, and the gateway did not accept them.
            #expect(Set(before.acceptedByToken.keys).union(after.acceptedByToken.keys).count == 3000)
            #expect(before.accepted + after.accepted - 3000 <= account.possibleDuplicates)
            #expect(account.possibleDuplicates == 0 && account.retried == 0)
        }
    }
}
