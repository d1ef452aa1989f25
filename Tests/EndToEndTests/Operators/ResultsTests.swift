import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Results, as producers read them.
    @Suite("Results")
    struct ResultsTests {
        private func outcomes(_ results: [[String: String]]) -> [String: Int] {
            results.reduce(into: [:]) { $0[$1["outcome"] ?? "none", default: 0] += 1 }
        }

        @Test("record the outcome of each notification with all details, and match the counters and the simulator")
        func allOutcomes() async throws {
            let (redis, simulator) = try await startServers(rules: [
                "prefix=dead,answer=410", "prefix=1,answer=BadCollapseId", "prefix=5,answer=429",
                "prefix=6,answer=silence", "prefix=7,answer=429,times=1",
            ])
            let known = TestJob.token("c0", 1)
            try redis.run("SADD", "push:{shared}:invalid-tokens", known)
            let jobs =
                TestJob.many(20, prefix: "a") + TestJob.many(5, prefix: "dead") + TestJob.many(4, prefix: "1")
                + TestJob.many(3, prefix: "5", members: #""max_attempts":2,"#)
                + TestJob.many(2, prefix: "6", members: #""on_uncertain":"drop","#) + TestJob.many(6, prefix: "7")
                + TestJob.many(3, prefix: "b", members: #""expiration":1000000000,"#) + [
                    "no job", TestJob.text("xyz", #""id":"no token","#), TestJob.text(known, #""id":"known","#),
                    TestJob.fanOut(["a", "dead", "1", "zz"].map { TestJob.token($0, 77) }, #""id":"fan","#),
                    #"{"id":"old","tokens":["aa","bb","cc"],"expiration":1,"payload":{}}"#,
                    TestJob.text(TestJob.token("e", 1), #""id":"once","unique_for":"1h","#),
                    TestJob.text(TestJob.token("e", 2), #""id":"once","unique_for":"1h","#),
                ]
            try redis.push(jobs)
            let worker = try WorkerProcess(redis, simulator, ["--results", "all", "--request-timeout", "1000"])
            let good = try await redis.pushGoodOnes(until: "those with two attempts have ended") {
                try QueueContents(redis).deadReasons["AttemptsExhausted"] == 3
            }
            let (account, _, seen) = try await redis.stop(worker, simulator)
            let results = try storedResults(redis)

            #expect(
                outcomes(results) == [
                    "delivered": account.delivered, "invalid_token": account.invalidToken,
                    "suppressed": account.suppressed,
                    "dead": account.dead, "expired": account.expired, "dropped": account.dropped,
                ])
            #expect(account.delivered == 28 + good && account.invalidToken == 6 && account.suppressed == 1)
            #expect(account.dead == 4 + 3 + 2 + 2 && account.expired == 6 && account.dropped == 3)
            let delivered = results.filter { $0["outcome"] == "delivered" }
            #expect(Set(delivered.compactMap { $0["token"] }) == Set(seen.acceptedByToken.keys))
            #expect(Set(delivered.compactMap { $0["apns_id"]?.lowercased() }).count == 28 + good)
            #expect(delivered.allSatisfy { $0["status"] == "200" && $0["app"] == "default" && $0["reason"] == nil })
            func one(_ id: String, _ token: String? = nil) throws -> [String: String] {
                let found = results.filter { $0["id"] == id && (token == nil || $0["token"] == token) }
                return try #require(found.first, "\(id)")
            }
            let noToken = try one("no token")
            #expect(noToken["reason"] == "MalformedToken" && noToken["token"] == "xyz" && noToken["attempt"] == "0")
            #expect(try one("known")["reason"] == "Suppressed")
            #expect(try one("fan", TestJob.token("dead", 77))["reason"] == "Unregistered")
            #expect(try one("fan", TestJob.token("dead", 77))["status"] == "410")
            #expect(try one("fan", TestJob.token("1", 77))["reason"] == "BadCollapseId")
            #expect(try one("fan", TestJob.token("zz", 77))["reason"] == "MalformedToken")
            #expect(results.filter { $0["id"] == "old" }.compactMap { $0["token"] } == ["aa", "bb", "cc"])
            #expect(
                results.filter { $0["id"] == "once" }.compactMap { $0["outcome"] }.sorted() == ["delivered", "dropped"])
            #expect(results.filter { $0["reason"] == "AttemptsExhausted" && $0["attempt"] == "2" }.count == 3)
            #expect(
                results.filter { $0["reason"] == "MalformedJSON" && $0["token"] == nil && $0["id"] == nil }.count == 1)
        }

        @Test("are kept by each queue's own setting or else by the common one, failures by default, and are capped")
        func ofQueues() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=1,answer=BadCollapseId"])
            let queues = ["silent", "audit", "other"]
            for (queue, count) in zip(queues, [10, 10, 1500]) {
                try redis.push(TestJob.many(20, prefix: "a") + TestJob.many(count, prefix: "1"), queue: queue)
            }
            _ = try await WorkerProcess(
                redis, simulator,
                ["--queue", queues.joined(separator: ","), "--results-limit", "100", "--exit-when-done"],
                environment: ["APNS_WORKER_QUEUES_AUDIT_RESULTS": "all", "APNS_WORKER_QUEUES_SILENT_RESULTS": "off"]
            ).finish()
            let kept = try queues.map { outcomes(try storedResults(redis, queue: $0)) }
            #expect(kept[0] == [:] && kept[1] == ["delivered": 20, "dead": 10])
            #expect(kept[2].count == 1 && (100..<1000).contains(kept[2]["dead"] ?? 0), "\(kept[2])")
            #expect(try redis.run("EXISTS", "push:{silent}:results") == 0)
        }
    }
}
