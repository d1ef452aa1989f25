import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// On-call situations, from the first symptom to the solution, using only the program's commands.
    @Suite("On call")
    struct OnCallTests {
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
            try await stage.run(["jobs", "show", key]).succeeds("429 TooManyRequests")
            try await simulator.control("DELETE", "/rules")
            // The token has its own pause, which `jobs run` does not shorten.
            try stage.server(of: "push:{shared}:throttled-tokens").run("DEL", "push:{shared}:throttled-tokens")
            _ = try await worker.stop()
            let next = try WorkerProcess(redis: stage.url, endpoint: simulator.port)
            try await stage.run(["jobs", "run", "--id", "late", "--yes"]).succeeds()
            try await eventually("it is delivered") { try stage.contents().count("delivered") == 2 }
            _ = try await next.stop()
            #expect(try await simulator.stop().duplicates == 0)
        }

        @Test("a broken template is reported at once, repaired, and delivered", arguments: RedisStage.Kind.allCases)
        func brokenTemplate(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis: stage.url, endpoint: simulator.port)
            try stage.server().push(
                (0..<300).map { #"{"id":"job-\#($0)","token":"\#(TestJob.token("0d", $0))","alert":"x","sound":7}"# })
            try await eventually("they are dead") { try stage.contents().dead.count == 300 }
            try await stage.run(["status", "--check"]).ends(1, "InvalidMember 300").begins(
                "WARNING: queue default: 300 of today's 300")
            try await stage.run(["dead", "list", "--by", "reason"]).succeeds("InvalidMember")

            let keys = try await stage.objects(["dead", "list", "--json", "--limit", "1000"]).compactMap {
                $0["key"] as? String
            }
            #expect(keys.count == 300)
            let jobs = try await stage.objects(["dead", "show", "--json"] + keys).compactMap { $0["job"] as? String }
            let repaired = jobs.map { $0.replacing(#""sound":7"#, with: #""sound":"default""#) }
            try await stage.run(["enqueue"], input: repaired.joined(separator: "\n") + "\n").succeeds()
            try await stage.run(["dead", "delete", "--reason", "InvalidMember", "--yes"]).succeeds()
            try await eventually("they are delivered") { try stage.contents().count("delivered") == 300 }
            try await stage.run(["status", "--check"]).succeeds()
            _ = try await worker.stop()
            #expect(try await simulator.stop().duplicates == 0)
        }
    }
}
