import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The results command")
    struct ResultsCommandTests {
        private static func results(_ arguments: [String], _ redis: RedisServer) async throws -> CommandLineTests.Output
        {
            try await redis.apnsWorker(["results"] + arguments)
        }

        private static func ids(_ arguments: [String], _ redis: RedisServer) async throws -> [String] {
            try await results(arguments + ["--json"], redis).objects.map { try #require($0["id"] as? String) }
        }

        /// Adds a result as a worker does.
        /// - Parameter at: milliseconds since 1970.
        private static func add(
            _ id: String, at time: Int64, _ redis: RedisServer, queue: String = "default", token: String = "aabb",
            outcome: String = "dead", reason: String = "BadTopic", app: String = "shop", campaign: String = "",
            attempt: Int = 1
        ) throws {
            try redis.run(
                "XADD", "push:{\(queue)}:results", "\(time)-*", "id", id, "token", token, "outcome", outcome, "reason",
                reason, "status", "400", "apns_id", "", "app", app, "attempt", "\(attempt)", "time", "\(time)",
                "trace_id", "", "parent_id", "", "apns_unique_id", "", "campaign", campaign, "labels",
                campaign.isEmpty ? "" : #"{"u":"1"}"#)
        }

        @Test("finds them by ID, token, outcome, reason, app, campaign and attempt, in any order")
        func filters() async throws {
            let redis = try RedisServer()
            let empty = try await Self.results([], redis)
            #expect(
                empty.ending == .exited(0)
                    && empty.errors.hasPrefix("queue default has no results\nnote: no worker has recorded yet"))
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            try Self.add("a", at: now - 4000, redis, token: TestJob.token("a", 1))
            try Self.add("b", at: now - 3000, redis, outcome: "delivered", reason: "", campaign: "spring")
            try Self.add("c", at: now - 2000, redis, reason: "BadPriority", app: "news", campaign: "spring", attempt: 3)
            try Self.add(
                "d", at: now - 1000, redis, token: "no token", outcome: "invalid_token", reason: "Unregistered")
            #expect(try await Self.ids([], redis) == ["a", "b", "c", "d"])
            #expect(try await Self.ids(["--newest-first"], redis) == ["d", "c", "b", "a"])
            #expect(try await Self.ids(["--newest-first", "--limit", "2"], redis) == ["d", "c"])
            #expect(try await Self.ids(["--limit", "1"], redis) == ["a"])
            #expect(try await Self.ids(["--id", "c", "--id", "a"], redis) == ["a", "c"])
            #expect(try await Self.ids(["--token", TestJob.token("a", 1).uppercased()], redis) == ["a"])
            #expect(try await Self.ids(["--token", "no token"], redis) == ["d"])
            #expect(try await Self.ids(["--reason", "Bad*"], redis) == ["a", "c"])
            #expect(try await Self.ids(["--reason", "BadTopic", "--reason", "Unregistered"], redis) == ["a", "d"])
            #expect(try await Self.ids(["--app", "news"], redis) == ["c"])
            #expect(try await Self.ids(["--campaign", "spring", "--outcome", "dead"], redis) == ["c"])
            #expect(try await Self.ids(["--attempt", "3"], redis) == ["c"])
            #expect(try await Self.ids(["--outcome", "dead", "--outcome", "expired"], redis) == ["a", "c"])
            let object = try #require(try await Self.results(["--id", "a", "--json"], redis).objects.first)
            #expect(object["token"] as? String == TestJob.token("a", 1) && object["status"] as? Int == 400)
            try await Self.results(["--id", "a"], redis).shows(" dead BadTopic status=400 ", "token=a0000000…").lacks(
                TestJob.token("a", 1))
            try await Self.results(["--campaign", "spring", "--limit", "1"], redis).shows(
                #" delivered status=400 app=shop id=b campaign=spring attempt=1 labels={"u":"1"} "#)
            let none = try await Self.results(["--campaign", "autumn"], redis)
            #expect(
                none.ending == .exited(0) && none.errors.hasPrefix("no results match (4 searched in queue default)\n"))
            // If a search names a job or a device, finding no result is a failure.
            try await Self.results(["--id", "nosuch"], redis).fails(1)
        }

        @Test("finds those of a period, by time or by duration, in pages and in both directions")
        func period() async throws {
            let redis = try RedisServer()
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            for number in 0..<1203 { try Self.add("\(number)", at: now - 2_000_000 + Int64(number) * 1000, redis) }
            let all = (0..<1203).map { "\($0)" }
            #expect(try await Self.ids([], redis) == all)
            #expect(try await Self.ids(["--newest-first"], redis) == all.reversed())
            let recent = try await Self.ids(["--since", "20m"], redis)
            #expect((380...403).contains(recent.count) && recent.last == "1202")
            // The time 20 minutes ago moves between the queries.
            let earlier = try await Self.ids(["--until", "20m"], redis)
            #expect((1203...1206).contains(earlier.count + recent.count) && earlier.first == "0")
            let second = now / 1000 - 2000 + 5
            let iso = Date(timeIntervalSince1970: Double(second)).formatted(.iso8601)
            #expect(
                try await Self.ids(["--until", "\(second)"], redis) == (try await Self.ids(["--until", iso], redis)))
            #expect(try await Self.ids(["--since", "1d", "--until", iso], redis).count == 5)
            let empty = try await Self.results(["--since", "1s"], redis)
            #expect(empty.errors.hasPrefix("no results match (0 searched in queue default)\n"))
            for (flags, part) in [
                (["--since", "soon"], "--since must be"),
                (["--since", "1m", "--until", "2m"], "--until is before --since"),
                (["--follow", "--until", "1s"], "--until"),
                (["--outcome", "gone"], "--outcome is gone; it must be delivered, "),
                (["--id", ""], "--id is empty"), (["--attempt=-1"], "--attempt"), (["--limit", "0"], "--limit"),
            ] {
                try await Self.results(flags, redis).fails(64, part)
            }
        }

        @Test("shows those of all queues or of the named ones, in order of time")
        func queues() async throws {
            let redis = try RedisServer()
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            for number in 0..<600 {
                try Self.add(
                    "\(number)", at: now - 1_000_000 + Int64(number), redis,
                    queue: ["critical", "bulk", "default"][number % 3])
            }
            #expect(try await Self.ids([], redis) == (0..<600).map { "\($0)" })
            #expect(try await Self.ids(["--newest-first", "--limit", "3"], redis) == ["599", "598", "597"])
            #expect(try await Self.ids(["--queue", "bulk,critical", "--limit", "3"], redis) == ["0", "1", "3"])
            try await Self.results(["--limit", "2"], redis).shows(" dead BadTopic queue=critical ", " queue=bulk ")
            try await Self.results(["--queue", "bulk", "--limit", "1"], redis).lacks("queue=")
            let none = try await Self.results(["--app", "x"], redis)
            #expect(none.errors.hasPrefix("no results match (600 searched in 3 queues)\n"))
            // If a queue keeps no deliveries, the command does not report that nothing was delivered.
            for (queue, kept) in [("bulk", "failures"), ("critical", "all"), ("default", "off")] {
                try redis.run(
                    "SET", "push:{\(queue)}:source",
                    #"{"list":"push:{\#(queue)}:jobs","head":"LEFT","format":"native","max_dead_letters":1,"max_dead_letter_age_ms":1,"max_dead_letter_bytes":1,"results":"\#(kept)","max_results":10}"#
                )
            }
            try await Self.results(["--id", "nosuch"], redis).reports(
                "note: deliveries are not kept (`results: failures`) in bulk\n",
                "note: no results are kept (`results: off`) in default\n"
            ).lacks("critical")
            try await Self.results(["--by", "queue,outcome"], redis).shows("\tbulk\t", "\tcritical\tdead\n")
            let follower = try redis.startCommand(["results", "--follow", "--json", "--since", "1s"])
            for queue in ["bulk", "critical"] {
                try redis.run("XADD", "push:{\(queue)}:results", "*", "id", "new-\(queue)", "outcome", "dead")
            }
            try await eventually("it has both") {
                follower.output.contains("new-bulk") && follower.output.contains("new-critical")
            }
            #expect(follower.output.split(separator: "\n").count == 2)
        }

        @Test("any entry of the stream is shown without harm to a terminal or to JSON")
        func hostile() async throws {
            let redis = try RedisServer()
            for (labels, time) in [
                (#"{"a":1"#, "x"), ("\u{1B}[2J", "1e9"), ("{}\n{}", "007"), (#"{"u":{"deep":[1]}}"#, "-5"),
            ] {
                try redis.run(
                    "XADD", "push:{default}:results", "*", "id", "a\u{1B}[2J", "labels", labels, "time", time,
                    "outcome", "\u{202E}", "status", "4e2", "attempt", "00")
            }
            try redis.run("XADD", "push:{default}:results", "*", "other", "fields")
            let text = try await Self.results([], redis)
            #expect(text.output.split(separator: "\n").count == 5 && !text.output.contains("\u{1B}"))
            #expect(!text.output.contains("\u{202E}"))
            #expect(try await Self.results(["--json"], redis).objects.count == 5)
        }

        @Test("a job with one bad member keeps its ID, app, token, campaign and labels everywhere")
        func badMember() async throws {
            let redis = try RedisServer()
            let job = #"""
                {"id":"promo-0","priority":7,"token":"aabb","app":"default","campaign":"spring","labels":{"user": "4711"},"alert":"x"}
                """#
            try redis.push([job])
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis, simulator, ["--exit-when-done", "--log-level", "debug"])
            #expect(try await worker.finish().dead == 1)
            // By default, failures are kept.
            let stored = try #require(try storedResults(redis).first)
            #expect(stored["id"] == "promo-0" && stored["token"] == "aabb" && stored["app"] == "default")
            #expect(stored["campaign"] == "spring" && stored["labels"] == #"{"user":"4711"}"#)
            #expect(stored["reason"] == "InvalidMember" && stored["outcome"] == "dead")
            let line = try #require(worker.lines(of: "notification_dead").first)
            #expect(
                line.contains("job=promo-0") && line.contains("campaign=spring") && line.contains("4711"), "\(line)")
            try await CommandLineTests.run(["dead", "list", "--redis", redis.url]).matches(
                #/InvalidMember +default +promo-0 +0/#)
            try await CommandLineTests.run(["dead", "show", "--id", "promo-0", "--redis", redis.url]).matches(
                /campaign +spring\n/
            ).matches(/labels +user=4711\n/)
            try await CommandLineTests.run(["dead", "list", "--json", "--redis", redis.url]).shows(
                #""campaign":"spring""#, #""labels":{"user":"4711"}"#)
        }
    }
}
