import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// On-call situations, from the first symptom to the solution, using only the program's commands.
    @Suite("On call")
    struct OnCallTests {
        private static let inAnHour = Int(Date().timeIntervalSince1970) + 3600

        /// Returns a job with many tokens.
        private static func fanOut(_ id: String, _ tokens: [String], _ members: String) -> String {
            #"{"id":"\#(id)",\#(members)"tokens":["\#(tokens.joined(separator: #"",""#))"],"alert":"x"}"#
        }

        /// Runs a command and expects its exit status.
        private static func command(
            _ stage: RedisStage, _ arguments: String..., status: Int32 = 0, environment: [String: String] = [:],
            sourceLocation: SourceLocation = #_sourceLocation
        ) async throws -> CommandLineTests.Output {
            let result = try await stage.run(arguments, environment)
            #expect(result.ending == .exited(status), "\(arguments): \(result)", sourceLocation: sourceLocation)
            return result
        }

        @Test(
            "a wrong campaign is stopped: orders continue, and one reminder is cancelled",
            arguments: RedisStage.Kind.allCases)
        func wrongCampaign(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let simulator = try await SimulatorProcess(rules: ["delay=100ms"])
            let worker = try WorkerProcess(
                redis: stage.url, endpoint: simulator.port, options: ["--max-connections", "1", "--max-streams", "10"])
            let wrong = #""campaign":"camp7","#
            var jobs = (0..<2).map { job in
                Self.fanOut("fan-\(job)", (0..<1000).map { TestJob.token("f\(job)", $0) }, wrong)
            }
            jobs += TestJob.many(1000, prefix: "c", members: wrong)
            for order in 0..<40 {
                jobs.insert(TestJob.text(TestJob.token("0d", order), #""id":"order-\#(order)","#), at: 2 + order * 20)
            }
            let server = try stage.server()
            try server.push(jobs)
            try server.push(
                (0..<5).map {
                    TestJob.text(TestJob.token("e", $0), #""id":"remind-\#($0)","send_at":\#(Self.inAnHour),"#)
                })
            try await eventually("it is under way") { try await simulator.account().accepted > 20 }

            // The campaigns with waiting jobs, and the number of these jobs.
            let groups = try await Self.command(stage, "jobs", "list", "--by", "campaign").output
            #expect(groups.contains(/\d+\tcamp7\n/) && groups.contains(/\d+\t-\n/), "\(groups)")
            let cancelled = try await Self.command(stage, "campaign", "cancel", "camp7", "--yes")
            #expect(cancelled.output.contains("campaign camp7 in queue default is cancelled"), "\(cancelled)")
            let atReturn = try await simulator.account().accepted
            try await eventually("the orders are delivered", within: .seconds(60)) {
                let contents = try stage.contents()
                return contents.jobs.isEmpty && contents.claims == 0 && contents.retries.count == 5
            }
            let contents = try stage.contents()
            let delivered = contents.count("delivered")
            #expect(contents.count("cancelled") + delivered == 3040 && delivered <= atReturn + 10 + 40)
            #expect(Set(contents.dead.map(\.reason)) == ["Cancelled"])
            #expect(try await stage.run(["dead", "list", "--id", "order-7"]).output.isEmpty)

            let reminder = try await Self.command(stage, "jobs", "cancel", "--id", "remind-3", "--yes")
            #expect(reminder.output.contains("1"), "\(reminder)")
            try await eventually("four reminders are left") { try stage.contents().retries.count == 4 }
            #expect(try await Self.command(stage, "jobs", "list", "--by", "state").output == "4\tscheduled\n")
            _ = try await worker.stop()
            let account = try await simulator.stop()
            #expect(account.accepted == delivered && account.duplicates == 0)
        }

        @Test(
            "the reason of a retry is shown, and the job is sent when APNs works again",
            arguments: RedisStage.Kind.allCases)
        func retrying(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let simulator = try await SimulatorProcess(
                rules: ["prefix=ab,answer=429"], options: ["--control-port", "0"])
            let worker = try WorkerProcess(
                redis: stage.url, endpoint: simulator.port,
                environment: ["APNS_WORKER_RETRY_BASE": "1h", "APNS_WORKER_RETRY_CAP": "1d"])
            try stage.server().push([
                TestJob.text(TestJob.token("ab", 1), #""id":"late","#), TestJob.text(TestJob.token("0d", 1)),
            ])
            try await eventually("one waits") {
                try stage.contents().retries.count == 1 && stage.contents().count("delivered") == 1
            }
            #expect(try await FleetView(stage.url).queues.first?.later == 1)
            let listed = try #require(try await stage.objects(["jobs", "list", "--state", "retrying", "--json"]).first)
            #expect(listed["id"] as? String == "late" && listed["error"] as? String == "TooManyRequests")
            let key = try #require(listed["key"] as? String)
            let shown = try await Self.command(stage, "jobs", "show", key)
            #expect(shown.output.contains("429 TooManyRequests"), "\(shown)")
            try await simulator.control("DELETE", "/rules")
            // The token has its own pause, which `jobs run` does not shorten.
            try stage.server(of: "push:{shared}:throttled-tokens").run("DEL", "push:{shared}:throttled-tokens")
            _ = try await worker.stop()
            let next = try WorkerProcess(redis: stage.url, endpoint: simulator.port)
            _ = try await Self.command(stage, "jobs", "run", "--id", "late", "--yes")
            try await eventually("it is delivered") { try stage.contents().count("delivered") == 2 }
            _ = try await next.stop()
            #expect(try await simulator.stop().duplicates == 0)
        }

        @Test("did this user get the push? By device, token, job and campaign", arguments: RedisStage.Kind.allCases)
        func delivered(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let simulator = try await SimulatorProcess(rules: ["prefix=dead,answer=410", "prefix=beef,answer=413"])
            // Without a setting: results of failures are kept by default.
            let worker = try WorkerProcess(redis: stage.url, endpoint: simulator.port)
            let (gone, large) = (TestJob.token("dead", 1), TestJob.token("beef", 1))
            let members = #""campaign":"spring","labels":{"user":"4711"},"#
            try stage.server().push([
                TestJob.text(gone, #""id":"promo-1","# + members), TestJob.text(large, #""id":"promo-2","# + members),
                TestJob.text(TestJob.token("0d", 1), #""id":"promo-0","badge":-7,"push_type":"allert","#),
                TestJob.text(TestJob.token("0d", 2), #""id":"promo-3","# + members),
            ])
            try await eventually("they are settled") {
                let contents = try stage.contents()
                return contents.isSettled && contents.count("delivered") == 1
            }
            let page = try await Self.command(stage, "device", gone)
            #expect(page.output.contains(/invalid +since .*: Unregistered, for \S+/), "\(page)")
            #expect(page.output.contains(/invalid_token +Unregistered +410 +default +promo-1/), "\(page)")
            let byToken = try await stage.objects(["results", "--token", large, "--json"])
            #expect(byToken.count == 1 && byToken.first?["reason"] as? String == "PayloadTooLarge")
            #expect((byToken.first?["labels"] as? [String: String])?["user"] == "4711")
            let byCampaign = try await stage.objects(["results", "--campaign", "spring", "--json"])
            #expect(byCampaign.compactMap { $0["id"] as? String }.sorted() == ["promo-1", "promo-2"])
            // A job with an invalid member keeps its ID everywhere.
            let byID = try await stage.objects(["results", "--id", "promo-0", "--json"])
            #expect(byID.first?["outcome"] as? String == "dead", "\(byID)")
            #expect(try await Self.command(stage, "dead", "list", "--id", "promo-0").output.contains("promo-0"))
            _ = try await worker.stop()
        }

        @Test("a broken template is reported at once, repaired, and delivered", arguments: RedisStage.Kind.allCases)
        func brokenTemplate(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis: stage.url, endpoint: simulator.port)
            try stage.server().push(
                (0..<300).map { #"{"id":"job-\#($0)","token":"\#(TestJob.token("0d", $0))","alert":"x","sound":7}"# })
            try await eventually("they are dead") { try stage.contents().dead.count == 300 }
            let problem = try await Self.command(stage, "status", "--check", status: 1)
            #expect(problem.output.hasPrefix("WARNING: queue default: 300 of today's 300"), "\(problem)")
            #expect(problem.output.contains("InvalidMember 300"), "\(problem)")
            #expect(try await Self.command(stage, "dead", "list", "--by", "reason").output.contains("InvalidMember"))

            let keys = try await stage.objects(["dead", "list", "--json", "--limit", "1000"]).compactMap {
                $0["key"] as? String
            }
            #expect(keys.count == 300)
            let jobs = try await stage.objects(["dead", "show", "--json"] + keys).compactMap { $0["job"] as? String }
            let repaired = jobs.map { $0.replacing(#""sound":7"#, with: #""sound":"default""#) }
            try await CommandLineTests.run(
                ["enqueue"], environment: ["APNS_WORKER_REDIS_URL": stage.url],
                input: repaired.joined(separator: "\n") + "\n"
            ).succeeds()
            _ = try await Self.command(stage, "dead", "delete", "--reason", "InvalidMember", "--yes")
            try await eventually("they are delivered") { try stage.contents().count("delivered") == 300 }
            _ = try await Self.command(stage, "status", "--check")
            _ = try await worker.stop()
            #expect(try await simulator.stop().duplicates == 0)
        }
    }
}
