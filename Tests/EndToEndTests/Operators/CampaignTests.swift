import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Campaigns")
    struct CampaignTests {
        /// The JSON of `campaign show` and of the commands that change a campaign.
        private struct Shown: Decodable {
            var queue, campaign, state: String
            var before: String?
            var limitPerSecond, total, ended, left, inFlight, unconfirmed: Int?
            var outcomes: [String: Int]
            var by, reason: String?
        }

        private static func show(_ campaign: String, redis url: String) async throws -> Shown {
            try shown(try await apnsWorker(url, "campaign", "show", campaign, "--json").output)
        }

        /// Returns how many notifications of a campaign were delivered; 0 if the queue does not know the campaign yet.
        private static func delivered(
            _ campaign: String, _ redis: RedisServer, queue: String = "default"
        ) throws -> Int {
            try redis.run("HGET", "push:{\(queue)}:campaign:\(campaign)", "delivered").number ?? 0
        }

        private static func shown(_ json: String) throws -> Shown {
            let decoder = JSONDecoder()
            decoder.keyDecodingStrategy = .convertFromSnakeCase
            return try decoder.decode(Shown.self, from: Data(json.utf8))
        }

        private static func fanOut(_ number: Int, of count: Int, campaign: String) -> String {
            let tokens = (0..<count).map { TestJob.token("c", number * count + $0) }
            return
                #"{"id":"fan-\#(number)","campaign":"\#(campaign)","tokens":["\#(tokens.joined(separator: #"",""#))"],"alert":"x"}"#
        }

        /// The number of notifications that are cancelled. `APNS_WORKER_CAMPAIGN_NOTIFICATIONS` sets another number, such as 500000.
        private static let size =
            ProcessInfo.processInfo.environment["APNS_WORKER_CAMPAIGN_NOTIFICATIONS"].flatMap { Int($0) } ?? 30_000

        @Test(
            "After a cancellation is confirmed, each of two workers' lanes sends nothing more of the campaign.",
            arguments: RedisStage.Kind.allCases)
        func cancelUnderLoad(kind: RedisStage.Kind) async throws {
            let stage = try await RedisStage(kind)
            let (redis, url) = (try stage.server(), stage.url)
            let simulator = try await SimulatorProcess(manyTokens: true, options: ["--delay", "30ms±20ms"])
            let (jobs, size, others) = ((Self.size - 5100) / 1000, 1000, 200)
            var pushed = (0..<jobs).map { Self.fanOut($0, of: size, campaign: "wrong") }
            pushed += TestJob.many(5000, prefix: "b", members: #""campaign":"wrong","#)
            pushed.insert(contentsOf: TestJob.many(others, prefix: "a", members: #""campaign":"right","#), at: jobs / 2)
            pushed += TestJob.many(50, prefix: "a5", members: #""campaign":"right","#)
            try redis.push(pushed)
            let scheduled = Int(Date().timeIntervalSince1970) + 3
            try redis.push(TestJob.many(100, prefix: "d", members: #""campaign":"wrong","send_at":\#(scheduled),"#))
            let total = jobs * size + 5100
            try redis.run("HSET", "push:{default}:campaign:wrong", "total", "\(total)")
            // On a loaded machine the tests' short lease could end. Then another worker would cancel what was just sent.
            let workers = try (0..<2).map { _ in
                try WorkerProcess(
                    redis: url, endpoint: simulator.port,
                    options: ["--lanes", "2", "--max-connections", "1", "--max-streams", "50", "--lease", "60s"])
            }
            try await eventually("the campaign is under way") {
                try await simulator.account().accepted > 5000
            }
            let start = ContinuousClock.now
            let cancel = ["campaign", "cancel", "wrong", "--reason", "wrong price", "--yes", "--json"]
            var change: Shown?
            try await eventually("all lanes have confirmed it") {
                let result = try await apnsWorker(url, cancel)
                let before = change?.state ?? "running"
                change = try Self.shown(result.output)
                #expect(change?.state == "cancelled" && change?.before == before)
                // A loaded machine may need longer than the command's wait.
                let isConfirmed = change?.unconfirmed == 0
                #expect(result.ending == .exited(isConfirmed ? 0 : 1), "\(result.errors)")
                return isConfirmed
            }
            let duration = ContinuousClock.now - start
            #expect(change?.inFlight ?? 0 <= 4 * 50)
            // Answers to requests in flight come within the simulator's delay.
            let atReturn = try await simulator.account().accepted
            try await eventually("all jobs are gone") { try QueueContents(redis).isSettled }
            let account = try await simulator.account()
            #expect(account.accepted - atReturn <= (change?.inFlight ?? 0) + others + 50, "\(duration)")
            let campaign = try await Self.show("wrong", redis: url)
            #expect(campaign.ended == total && campaign.left == 0 && campaign.state == "cancelled")
            #expect(campaign.reason == "wrong price" && campaign.by?.isEmpty == false)
            let delivered = campaign.outcomes["delivered"] ?? 0
            #expect(delivered + (campaign.outcomes["cancelled"] ?? 0) == total)
            #expect(account.accepted == delivered + others + 50)
            #expect(try await Self.show("right", redis: url).outcomes["delivered"] == others + 50)
            let queue = try QueueContents(redis)
            #expect(queue.count("cancelled") == campaign.outcomes["cancelled"] && queue.count("dead") == 0)
            #expect(Set(queue.dead.map(\.reason)) == ["Cancelled"])
            for worker in workers { _ = try await worker.stop() }
            let sent = try await simulator.stop()
            #expect(sent.duplicates == 0)
        }

        @Test("a campaign is paused and resumed without spending attempts, while another continues")
        func pause() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis: redis.url, endpoint: simulator.port)
            try await apnsWorker(redis.url, "campaign", "pause", "spring", "--reason", "wait").succeeds()
                .begins("campaign spring in queue default is paused")
            try redis.push(
                TestJob.many(40, members: #""campaign":"spring","#)
                    + TestJob.many(10, prefix: "b", members: #""campaign":"autumn","#))
            try await eventually("the others are delivered") {
                let queue = try QueueContents(redis)
                return queue.count("delivered") == 10 && queue.count("deferred") == 40
            }
            let retries = try QueueContents(redis).retries
            #expect(
                retries.count == 40
                    && retries.allSatisfy { String(decoding: $0.body, as: UTF8.self).contains("CampaignPaused") })
            #expect(try await Self.show("spring", redis: redis.url).state == "paused")
            try await apnsWorker(redis.url, "campaign", "resume", "spring").succeeds("is resumed")
            // The deferred jobs are sent soon, not when they would be due.
            try await redis.has(50)
            try await apnsWorker(redis.url, "campaign", "resume", "spring").fails(1, "was not paused")
            _ = try await worker.stop()
            #expect(try await simulator.stop().duplicates == 0)
        }

        @Test("a limit applies to all workers together, and not to other campaigns")
        func limit() async throws {
            let (redis, simulator) = try await startServers()
            try await apnsWorker(redis.url, "campaign", "limit", "slow", "--per-second", "5").succeeds()
                .prints("campaign slow in queue default is limited to 5 per second\n")
            let workers = try (0..<2).map { _ in try WorkerProcess(redis: redis.url, endpoint: simulator.port) }
            let start = ContinuousClock.now
            try redis.push(
                TestJob.many(400, members: #""campaign":"slow","#)
                    + TestJob.many(100, prefix: "b", members: #""campaign":"fast","#))
            try await eventually("the fast ones are delivered") {
                try Self.delivered("fast", redis) == 100
            }
            let early = try await Self.show("slow", redis: redis.url).outcomes["delivered"] ?? 0
            // The campaign may begin with one more notification.
            #expect(early <= Int((ContinuousClock.now - start) / .seconds(1)) * 5 + 6)
            try await apnsWorker(redis.url, "campaign", "list").shows("running, 5/s")
            try await apnsWorker(redis.url, "campaign", "limit", "slow", "--off").prints(
                "campaign slow in queue default has no limit\n")
            // The jobs are sent soon, not when their turns at the old limit come.
            try await eventually("all are delivered") {
                try Self.delivered("slow", redis) == 400
            }
            for worker in workers { _ = try await worker.stop() }
            #expect(try await simulator.stop().duplicates == 0)
        }

        @Test("a campaign that finishes adds one result, although workers are killed, and a command reads it")
        func finish() async throws {
            let (redis, simulator) = try await startServers(
                rules: ["prefix=dead,answer=410"], simulator: ["--delay", "30ms±20ms"])
            let (count, dead) = (3000, 100)
            let jobs =
                TestJob.many(count - dead, members: #""campaign":"spring","#)
                + TestJob.many(dead, prefix: "dead", members: #""campaign":"spring","#)
            try redis.run("HSET", "push:{default}:campaign:spring", "total", "\(count)")
            try redis.push(jobs)
            let options = ["--max-connections", "1", "--max-streams", "50", "--results", "off"]
            for kill in 1...3 {
                let worker = try WorkerProcess(redis, simulator, options, environment: WorkerProcess.reclaimsSoon)
                try await eventually("it has sent a part") {
                    try redis.counted("delivered") >= kill * 500
                }
                worker.process.kill()
                try redis.endLeases()
            }
            _ = try await WorkerProcess(
                redis, simulator, options + ["--exit-when-done"], environment: WorkerProcess.reclaimsSoon
            ).finish()
            let events = try storedResults(redis).filter { $0["event"] == "campaign_finished" }
            #expect(events.count == 1 && events.first?["campaign"] == "spring" && events.first?["outcome"] == nil)
            let report = try #require(events.first?["report"])
            #expect(
                report.contains(#""ended":\#(count),"#) && report.contains(#""total":\#(count)"#), "\(report)")

            #expect(report.contains(#""latency_p99_ms":"#) && report.contains(#""ended_per_second":"#), "\(report)")

            // The result of the campaign has no outcome, so a filter by outcome omits it.
            let output = redis.directory.appending(path: "results")
            for filter in [["--outcome", "invalid_token"], ["--event", "campaign_finished"]] {
                try await redis.apnsWorker(
                    ["results", "--exec", "cat >> '\(output.path)'", "--once", "--since", "1h", "--group", filter[1]]
                        + filter
                ).succeeds()
            }
            let lines = try String(contentsOf: output, encoding: .utf8).split(separator: "\n")
            #expect(lines.count == 1 && lines[0].contains(#""event":"campaign_finished""#), "\(lines)")
            #expect(lines.first?.contains(#""report":{"total":\#(count),"#) == true, "\(lines)")

            try await apnsWorker(redis.url, "campaign", "report", "spring").succeeds().matches(
                /State +finished/)
            let object = try #require(
                try await apnsWorker(redis.url, "campaign", "report", "spring", "--json").objects.first)
            #expect(object["finished"] as? Bool == true && object["ended"] as? Int == count)
            // The simulator answers after at least 10 ms.
            let half = try #require(object["latency_p50_ms"] as? Int)
            #expect(half >= 8 && object["latency_p99_ms"] as? Int ?? 0 >= half, "\(object)")
            let rates = try #require(object["rates"] as? [[String: Any]])
            #expect(rates.reduce(0) { $0 + ($1["ended"] as? Int ?? 0) } == count, "\(rates)")
            try await apnsWorker(redis.url, "campaign", "report", "spring", "--html").shows("<svg").begins(
                "<!DOCTYPE html>"
            ).lacks("<script")
        }

        @Test("a campaign whose lines are enqueued twice finishes, because duplicates count as dropped")
        func duplicates() async throws {
            let (redis, simulator) = try await startServers()
            try redis.run("HSET", "push:{default}:campaign:own", "total", "3")
            // This job is of a producer that pushes jobs to Redis itself.
            let pushed = TestJob.text(TestJob.token("a", 1), #""campaign":"own","id":"o","unique_for":"1h","#)
            try redis.push([pushed, pushed, pushed])
            let lines = (0..<100).map { number in
                TestJob.text(
                    TestJob.token("a", number), #""campaign":"lines","id":"\#(number % 50)","unique_for":"1h","#)
            }.joined(separator: "\n")
            try await redis.apnsWorker(["enqueue"], input: lines).succeeds()
            _ = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            let events = try storedResults(redis).filter { $0["event"] != nil }
            #expect(Set(events.map { $0["campaign"] }) == ["own", "lines"] && events.count == 2, "\(events)")
            for (campaign, total, dropped) in [("own", 3, 2), ("lines", 100, 50)] {
                let shown = try await Self.show(campaign, redis: redis.url)
                #expect(shown.total == total && shown.left == 0 && shown.outcomes["dropped"] == dropped, "\(shown)")
            }
        }

        @Test("a campaign of enqueued lines finishes after the last line, and one of single jobs does not")
        func enqueued() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, ["--results", "failures"])
            let lines = TestJob.many(2500, members: #""campaign":"lines","#).joined(separator: "\n")
            try await redis.apnsWorker(["enqueue"], input: lines).succeeds()
            let single = ["enqueue", "--token", TestJob.token("b", 1), "--alert", "x", "--campaign", "single"]
            #expect(try await redis.apnsWorker(single).ending == .exited(0))
            try await redis.has(2501)
            _ = try await worker.stop()
            let events = try storedResults(redis).filter { $0["event"] != nil }
            #expect(events.map { $0["campaign"] } == ["lines"])
            #expect(events.first?["report"]?.contains(#""total":2500"#) == true, "\(events)")
        }

        @Test(
            "a guard pauses a campaign whose tokens are invalid, in all queues, before the rest is sent",
            arguments: RedisStage.Kind.allCases)
        func guarded(kind: RedisStage.Kind) async throws {
            // In a Cluster, each queue is on another server.
            let redis = try await RedisStage(kind)
            // A third of the tokens is invalid.
            let simulator = try await SimulatorProcess(
                rules: ["prefix=dead,answer=410"], options: ["--delay", "30ms±20ms"])
            let (count, minimum, streams) = (6000, 300, 50)
            try await apnsWorker(
                redis.url, "campaign", "guard", "spring", "--stop-if", "invalid_token>5%", "--min", "\(minimum)",
                "--queue", "a,b"
            ).succeeds("is paused if invalid_token>5%")
            for queue in ["a", "b"] {
                try redis.server(ofQueue: queue).push(
                    (0..<count).map { number in
                        let token = TestJob.token((number % 3 == 0 ? "dead" : "a") + queue, number)
                        return TestJob.text(token, #""campaign":"spring","#)
                    }, queue: queue)
                try redis.server(ofQueue: queue).push(
                    TestJob.many(100, prefix: "c\(queue)", members: #""campaign":"autumn","#), queue: queue)
            }
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: simulator.port,
                options: ["--queue", "a,b", "--max-connections", "1", "--max-streams", "\(streams)", "--lanes", "1"])
            func campaigns() async throws -> [Shown] {
                let text = try await apnsWorker(redis.url, "campaign", "show", "spring", "--json").output
                return try text.split(separator: "\n").map { try Self.shown(String($0)) }
            }
            try await eventually("both parts are paused") {
                try await campaigns().filter { $0.state == "stopped" }.count == 2
            }
            try await eventually("the other campaign is delivered") {
                try await apnsWorker(redis.url, "campaign", "show", "autumn", "--json").output
                    .split(separator: "\n").allSatisfy { try Self.shown(String($0)).outcomes["delivered"] == 100 }
            }
            let parts = try await campaigns()
            #expect(parts.allSatisfy { $0.by == "guard" && $0.reason?.hasPrefix("invalid_token is ") == true })
            // One queue had enough notifications for the guard, and both queues still have jobs.
            #expect(parts.contains { $0.ended ?? 0 >= minimum })
            #expect(parts.allSatisfy { $0.ended ?? 0 < count / 2 }, "\(parts)")
            #expect(
                worker.process.errors.contains("campaign_stopped") || worker.process.output.contains("campaign_stopped")
            )
            try await apnsWorker(redis.url, "status").shows("campaign spring is paused by its guard in")

            try await apnsWorker(redis.url, "campaign", "guard", "spring", "--off").succeeds()
            try await apnsWorker(redis.url, "campaign", "resume", "spring").succeeds()
            // A third of the jobs has invalid tokens.
            try await eventually("all others are delivered") {
                try ["a", "b"].allSatisfy { queue in
                    let server = try redis.server(ofQueue: queue)
                    return try Self.delivered("spring", server, queue: queue) == count * 2 / 3
                }
            }
            try await eventually("all have ended") {
                try await campaigns().allSatisfy { $0.ended == count }
            }
            _ = try await worker.stop()
            #expect(try await simulator.stop().duplicates == 0)
        }

        @Test("mistakes are refused, and names from other programs cannot harm a terminal")
        func mistakes() async throws {
            let redis = try RedisServer()
            try await apnsWorker(redis.url, "campaign", "cancel", "spring").fails(64, "--yes")
            #expect(try redis.run("KEYS", "*") == .array([]))
            let unknown = try await apnsWorker(redis.url, "campaign", "show", "sprin").fails(1)
            #expect(unknown.errors == "no queue knows a campaign sprin; there are none\n")
            try await apnsWorker(redis.url, "campaign", "limit", "spring").fails(
                64, "--per-second or --off")
            try await apnsWorker(redis.url, "campaign", "pause", String(repeating: "x", count: 101)).fails(
                64, "1 to 100 bytes")
            #expect(try await apnsWorker(redis.url, "campaign", "list").succeeds().errors == "there are no campaigns\n")
            try redis.run("ZADD", "push:{default}:campaigns", "1", "\u{1B}[31mred")
            try redis.run(
                "HSET", "push:{default}:campaign:\u{1B}[31mred", "delivered", "3", "dead:\u{1B}x", "1", "total", "x")
            try redis.run(
                "HSET", "push:{default}:job-commands", "campaign:\u{1B}y",
                #"{"state":"paused","at":1e15,"by":"\u001b"}"#)
            for arguments in [["list"], ["list", "--json"], ["show", "red"]] {
                let result = try await redis.apnsWorker(["campaign"] + arguments)
                #expect(!(result.output + result.errors).contains("\u{1B}"), "\(arguments)")
            }
        }
    }
}
