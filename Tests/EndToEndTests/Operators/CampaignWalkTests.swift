import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// All commands of a campaign, one after the other, on a server and on a Cluster. Other suites have the special cases of each
    /// command.
    @Suite("A campaign from its list to its report")
    struct CampaignWalkTests {
        private static let count = 4000

        /// Writes a job and a table of tokens. Every third token is invalid.
        /// - Returns: the arguments of `campaign send`.
        private static func send(_ redis: RedisServer) throws -> [String] {
            let (job, table) = (
                redis.directory.appending(path: "job.json"), redis.directory.appending(path: "list.csv")
            )
            try Data(#"{"alert":"Hello"}"#.utf8).write(to: job)
            let lines = (0..<count).map { "\($0),\(TestJob.token($0 % 3 == 0 ? "dead" : "a", $0))\n" }
            try Data(("id,token\n" + lines.joined()).utf8).write(to: table)
            return [
                "campaign", "send", "spring", "--job", job.path, "--tokens", table.path, "--column", "token",
                "--job-size", "20", "--ahead", "20", "--canary", "10%", "--stop-if", "invalid_token>5%", "--min", "200",
                "--wait", "60s",
            ]
        }

        private static func next(_ redis: RedisServer) throws -> Int {
            try redis.run("HGET", "push:{default}:campaign-list:spring", "next").text.flatMap { Int($0) } ?? 0
        }

        @Test(
            "It is stopped by its canary, resumed, killed, sent to each device once, reported, and a device forgotten.",
            arguments: RedisStage.Kind.allCases)
        func walk(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let redis = try stage.server()

            // These are the jobs of a system that apns-worker replaces.
            let old = TestJob.text(TestJob.token("b", 1))
            try stage.server(of: "queue:push").run(
                "RPUSH", "queue:push", #"{"class":"PushJob","args":[\#(old)],"jid":"1","queue":"push"}"#,
                #"{"class":"PushJob","args":[{"token":"x"}],"jid":"2","queue":"push"}"#)
            try await stage.run(["check", "--jobs-from", "queue:push", "--format", "sidekiq"]).ends(
                1, "2 jobs from queue:push: 1 would be sent")

            // A third of the canary's tokens is invalid.
            let simulator = try await SimulatorProcess(manyTokens: true, options: ["--control-port", "0"])
            let worker = try WorkerProcess(
                redis: stage.url, endpoint: simulator.port, environment: ["APNS_WORKER_RESULTS": "failures"])
            let send = try Self.send(redis)
            try await simulator.control("PUT", "/rules", #"{"rules":["prefix=dead,answer=410"]}"#)
            try await stage.run(send).fails(1, "campaign spring was paused by its guard: invalid_token is")
            let canary = try Self.next(redis)
            #expect(canary < Self.count / 20 / 2)
            try await stage.run(["status"]).shows("campaign spring is paused by its guard in default: invalid_token is")
            try await eventually("nothing is in flight") { try stage.contents().claims == 0 }
            try await simulator.control("PUT", "/rules", #"{"rules":[]}"#)
            try await stage.run(["campaign", "resume", "spring"]).succeeds()

            // `campaign send` is killed three times while another program enqueues jobs.
            let web = try await WebProcess(
                stage.url, ["shop": ["--role", "producer", "--queue", "default"]])
            let orders = TestJob.many(10, prefix: "c", members: #""campaign":"orders","#).joined(separator: "\n")
            for round in 1...3 {
                let before = try Self.next(redis)
                let process = try ChildProcess(
                    BuiltProgram.path("apns-worker"), send, environment: ["APNS_WORKER_REDIS_URL": stage.url])
                try await eventually("it sends, round \(round)") {
                    try Self.next(redis) > before || process.ending != nil
                }
                process.kill()
                let answer = try await web.post("shop", orders, "", ["Idempotency-Key: orders"])
                #expect(answer.status == 202, "\(answer)")
            }
            try await stage.run(send).succeeds()
            try await eventually("all have ended") {
                let shown = try await stage.objects(["campaign", "show", "spring", "--json"]).first
                // The repeated requests have pushed the orders only once.
                return try shown?["left"] as? Int == 0 && stage.contents().count("delivered") >= 10
            }
            try await stage.run(send).succeeds().prints("")

            func report() async throws -> [String: Any] {
                try #require(try await stage.objects(["campaign", "report", "spring", "--json"]).first)
            }
            #expect(try stage.contents().count("dropped") == 0)
            let results = try storedResults(redis)
            #expect(results.filter { $0["event"] == "campaign_finished" }.map { $0["campaign"] } == ["spring"])
            let invalid = results.filter { $0["outcome"] == "invalid_token" }.compactMap { $0["token"] }
            #expect(invalid.count >= 10)
            let object = try await report()
            #expect(object["finished"] as? Bool == true && object["total"] as? Int == Self.count, "\(object)")
            #expect((object["outcomes"] as? [String: Int])?["invalid_token"] == invalid.count, "\(object)")

            let token = try #require(invalid.first)
            let exported = try #require(try await stage.objects(["device", "export", token]).first)
            #expect((exported["results"] as? [Any])?.count == 1, "\(exported)")
            try await stage.run(["device", "forget", token, "--yes"]).succeeds()
            let forgotten = try #require(try await stage.objects(["device", "export", token]).first)
            #expect((forgotten["results"] as? [Any])?.isEmpty == true && forgotten["invalid"] == nil, "\(forgotten)")
            #expect(try await report()["ended"] as? Int == Self.count)

            _ = try await worker.stop()
            let account = try await simulator.stop()
            #expect(account.answers["410 Unregistered"] == invalid.count && account.duplicates == 0)
            #expect(account.accepted == Self.count - invalid.count + 10 && account.distinctTokens == account.accepted)
        }
    }
}
