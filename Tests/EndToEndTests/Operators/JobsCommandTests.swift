import Foundation
import TestSupport
import Testing

/// A single Redis server or a Cluster for a test and its commands.
struct RedisStage {
    enum Kind: CaseIterable, Sendable { case single, cluster }

    let url: String
    private let single: RedisServer?
    private let cluster: RedisCluster?

    init(_ kind: Kind) async throws {
        switch kind {
        case .single:
            let server = try RedisServer()
            (url, single, cluster) = (server.url, server, nil)
        case .cluster:
            let servers = try await RedisCluster()
            (url, single, cluster) = (servers.url, nil, servers)
        }
    }

    func server(of key: String) throws -> RedisServer {
        if let single { return single }
        let cluster = try #require(cluster)
        return try cluster.owner(ofSlot: cluster.slot(of: key))
    }

    var servers: [RedisServer] { single.map { [$0] } ?? cluster?.nodes ?? [] }

    func server(ofQueue queue: String = "default") throws -> RedisServer { try server(of: "push:{\(queue)}:jobs") }

    func contents(_ queue: String = "default") throws -> QueueContents {
        try QueueContents(server(ofQueue: queue), queue: queue)
    }

    func run(
        _ arguments: [String], _ environment: [String: String] = [:], input: String? = nil
    ) async throws -> EndToEnd.CommandLineTests.Output {
        try await apnsWorker(url, arguments, environment: environment, input: input)
    }

    /// Returns the objects printed by a command.
    func objects(_ arguments: [String], _ environment: [String: String] = [:]) async throws -> [[String: Any]] {
        try await run(arguments, environment).objects
    }
}

extension EndToEnd {
    @Suite("The jobs commands")
    struct JobsCommandTests {
        private static let hostile = #"{"id":"evil \u001b[31m\u202e","token":"abcd","alert":"<b>\u0007</b>"}"#

        private static func wrapped(_ job: String, _ members: String) -> String {
            #"{"apns_worker":1,\#(members)"job":\#(job)}"#
        }

        private static func fill(_ stage: RedisStage) throws {
            let server = try stage.server(ofQueue: "default")
            let jobs = (0..<60).map { number in
                TestJob.text(
                    TestJob.token("a", number), #""id":"job-\#(number)","campaign":"c\#(number % 2)","app":"shop","#)
            }
            try server.push(jobs + [hostile, "{broken", "\u{1B}]0;title\u{07}"])
            let error = #""attempt":7,"error":{"status":503,"reason":"ServiceUnavailable","at":1795279247000},"#
            let far = "4000000000000"
            let limited = #""wait":{"reason":"CampaignLimited","at":1795279247001},"#
            for (set, job) in [
                ("failed", wrapped(TestJob.text(TestJob.token("b", 1), #""id":"again","#), error + limited)),
                ("retry", wrapped(TestJob.text(TestJob.token("b", 2), #""id":"later","#), #""attempt":1,"#)),
                ("retry", wrapped(TestJob.text(TestJob.token("b", 3), #""id":"off","#), limited)),
            ] { try server.run("ZADD", "push:{default}:\(set)", far, job) }
        }

        @Test(
            "list, count and show jobs with their state, and hostile ones cannot harm a terminal",
            arguments: RedisStage.Kind.allCases)
        func list(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            try Self.fill(stage)
            let list = try await stage.run(["jobs", "list"])
            let lines = list.output.split(separator: "\n")
            #expect(lines.count == 51 && list.errors.contains("there are more"), "\(list.errors)")
            #expect(
                lines[0].contains(/STATE +KEY +AGE +NEXT +ATTEMPT +APP +ID +CAMPAIGN +TOKENS +LAST ERROR +DEFERRED/))
            // The job's ID is not valid, so no ID is shown.
            try await stage.run(["jobs", "list", "--limit", "100"]).lacks("\u{1B}", "\u{07}").matches(
                /waiting +[0-9a-f]{10} +- +- +1 +- +- +- +abcd… +unreadable/)
            try await stage.run(["jobs", "list", "--count"]).prints("66\n")
            try await stage.run(["jobs", "list", "--by", "state"]).prints(
                "63\twaiting\n1\tdeferred\n1\tretrying\n1\tscheduled\n")
            try await stage.run(["jobs", "list", "--by", "campaign,app", "--state", "waiting"]).prints(
                "30\tc0\tshop\n30\tc1\tshop\n3\t-\t-\n")
            let reasons = try await stage.objects(["jobs", "list", "--by", "reason", "--json"])
            #expect(reasons.contains { $0["count"] as? Int == 1 && $0["reason"] as? String == "ServiceUnavailable" })
            let retrying = try #require(
                try await stage.objects(["jobs", "list", "--state", "retrying", "--json"]).first)
            #expect(retrying["due_at"] as? Int == 4_000_000_000_000 && retrying["attempt"] as? Int == 7)
            #expect(retrying["status"] as? Int == 503 && retrying["error"] as? String == "ServiceUnavailable")
            #expect(retrying["failed_at"] as? Int == 1_795_279_247_000 && retrying["id"] as? String == "again")
            #expect(retrying["deferral"] as? String == "CampaignLimited")
            #expect(retrying["deferred_at"] as? Int == 1_795_279_247_001)
            let deferrals = try await stage.objects(["jobs", "list", "--by", "deferral", "--json"])
            #expect(deferrals.contains { $0["count"] as? Int == 2 && $0["deferral"] as? String == "CampaignLimited" })
            #expect(retrying["job"] == nil && retrying["queue"] as? String == "default")

            try await stage.run(["jobs", "show", try #require(retrying["key"] as? String)]).matches(
                /last error +503 ServiceUnavailable\nfailed +2026-/
            ).matches(/deferred +CampaignLimited\ndeferred at +2026-/).matches(
                /next attempt +2096-\d\d-\d\dT[\d:]+Z, in \d+d\n/
            ).matches(/check +payload of \d+ bytes/)
            let broken = try await stage.objects(["jobs", "list", "--match", "{BROKEN", "--json"])
            let brokenKey = try #require(broken.first?["key"] as? String)
            let object = try #require(try await stage.objects(["jobs", "show", "--json", brokenKey]).first)
            let check = try #require(object["check"] as? [[String: Any]])
            #expect(object["job"] as? String == "{broken" && check.first?["level"] as? String == "failure")
            try await stage.run(["jobs", "show", "--id", "nobody"]).fails(1, "no job matches (66 searched")
            try await stage.run(["status"]).succeeds("  of due and later: 1 retrying, 1 scheduled, 1 deferred\n")
            let queues = try await stage.objects(["status", "--json"]).first?["queues"] as? [[String: Any]]
            #expect(queues?.first?["retrying"] as? Int == 1 && queues?.first?["deferred"] as? Int == 1)
            try await stage.run(["jobs", "list", "--state", "waitin"]).fails("did you mean waiting?")
        }

        @Test(
            "cancel makes dead letters, which requeue returns; export and enqueue do the same",
            arguments: RedisStage.Kind.allCases)
        func cancel(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            try Self.fill(stage)
            try await stage.run(["jobs", "cancel", "--campaign", "c1"]).fails("pass --yes")
            try await stage.run(["jobs", "cancel", "--yes"]).fails("or pass --all")
            try await stage.run(["jobs", "cancel", "--campaign", "c1", "--dry-run"]).prints(
                "would have cancelled 30 jobs of queue default (30 waiting)\n")
            let before = try stage.contents()
            #expect(before.jobs.count == 63 && before.dead.isEmpty)

            try await stage.run(["jobs", "cancel", "--campaign", "c1", "--yes"]).prints(
                "cancelled 30 jobs of queue default (30 waiting)\n")
            let after = try stage.contents()
            #expect(after.deadReasons == ["Cancelled": 30] && after.count("cancelled") == 30)
            #expect(after.jobs == before.jobs.filter { !String(decoding: $0, as: UTF8.self).contains(#""c1""#) })
            try await stage.run(["requeue", "--reason", "Cancelled"]).shows("requeued 30 jobs")

            let exported = try await stage.run(["jobs", "export", "--campaign", "c1"])
            #expect(exported.output.split(separator: "\n").count == 30)
            let discarded = try #require(
                try await stage.objects(["jobs", "cancel", "--campaign", "c1", "--discard", "--yes", "--json"]).first)
            #expect(discarded["count"] as? Int == 30 && discarded["action"] as? String == "deleted")
            #expect(discarded["by_state"] as? [String: Int] == ["waiting": 30])
            #expect(try stage.contents().dead.isEmpty && stage.contents().jobs.count == 33)
            try await stage.run(["enqueue", "--unchecked"], input: exported.output).succeeds()
            #expect(Set(try stage.contents().jobs) == Set(before.jobs))

            try await stage.run(["jobs", "cancel", "--id", "later", "--yes"]).prints(
                "cancelled 1 job of queue default (1 scheduled)\n")
            #expect(try stage.contents().retries.count == 2)
            try await stage.run(["jobs", "cancel", "--id", "later", "--undo"]).shows("ended the cancellation of 1 ID")
        }

        @Test("a check knows the apps of the queue's workers, or says that it does not")
        func checkedApps() async throws {
            let stage = try await RedisStage(.single)
            let simulator = try await SimulatorProcess()
            let inAnHour = Int(Date().timeIntervalSince1970) + 3600
            try stage.server().push([
                TestJob.text(TestJob.token("a", 1), #""id":"plain","send_at":\#(inAnHour),"#),
                TestJob.text(TestJob.token("a", 2), #""id":"other","app":"shpo","send_at":\#(inAnHour),"#),
            ])
            let unknown = try await stage.run(["jobs", "show", "--id", "plain"])
            unknown.succeeds(
                "the apps of the queue's workers are not known", "if a worker has an app for it", "the app's topic")
            #expect(!unknown.output.contains("com.example.app") && !unknown.output.contains("push.apple.com"))
            let worker = try WorkerProcess(redis: stage.url, endpoint: simulator.port)
            try await eventually("the worker reports its app") {
                try await stage.run(["jobs", "show", "--id", "plain"]).output.contains(
                    "through the app default (localhost:\(simulator.port)), the only one")
            }
            try await stage.run(["jobs", "show", "--id", "other"]).succeeds("would become a dead letter, UnknownApp")
            _ = try await worker.stop()
        }

        @Test("run sends a scheduled job at once, and only once", arguments: RedisStage.Kind.allCases)
        func run(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis: stage.url, endpoint: simulator.port)
            let inAnHour = Int(Date().timeIntervalSince1970) + 3600
            let server = try stage.server()
            try server.push([
                TestJob.text(TestJob.token("a", 1), #""id":"one","send_at":\#(inAnHour),"#),
                TestJob.text(TestJob.token("a", 2), #""id":"two","send_at":\#(inAnHour),"#),
            ])
            try await eventually("both are scheduled") { try stage.contents().retries.count == 2 }
            try await stage.run(["jobs", "list", "--by", "state"]).prints("2\tscheduled\n")
            try await stage.run(["jobs", "run", "--id", "one", "--yes"]).prints(
                "made due 1 job of queue default (1 scheduled)\n")
            try await eventually("it is delivered") { try stage.contents().count("delivered") == 1 }
            try await stage.run(["jobs", "run", "--state", "waiting", "--yes"]).fails("can be made due")
            #expect(try await worker.stop().delivered == 1)
            try await stage.run(["jobs", "list", "--by", "state"]).prints("1\tscheduled\n")
            #expect(try await simulator.stop().accepted == 1)
        }

        @Test("move puts jobs into the other queue", arguments: RedisStage.Kind.allCases)
        func move(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            try Self.fill(stage)
            try await stage.run(["jobs", "move", "--app", "shop", "--to-queue", "bulk", "--yes", "--force"]).prints(
                "moved 60 jobs of queue default (60 waiting)\n")
            #expect(try stage.contents().jobs.count == 3 && stage.contents("bulk").jobs.count == 60)
            try await stage.run(["jobs", "move", "--id", "later", "--to-queue", "bulk", "--yes"]).succeeds()
            #expect(try stage.contents("bulk").retries.map(\.due) == [4_000_000_000_000])
            try await stage.run(["jobs", "list", "--queue", "default,bulk", "--by", "queue,state"]).prints(
                "60\tbulk\twaiting\n3\tdefault\twaiting\n1\tbulk\tscheduled\n1\tdefault\tdeferred\n1\tdefault\tretrying\n"
            )
            let queues = ["APNS_WORKER_QUEUE": "default,bulk"]
            try await stage.run(["jobs", "cancel", "--all", "--yes"], queues).fails("--all-queues")
            try await stage.run(["jobs", "move", "--all", "--to-queue", "default", "--yes"]).fails("one of the queues")
            try await stage.run(["jobs", "cancel", "--all", "--yes", "--all-queues"], queues).succeeds()
            #expect(try stage.contents().isSettled && stage.contents("bulk").isSettled)
        }
    }
}
