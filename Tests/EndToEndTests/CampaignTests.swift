import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Campaigns")
    struct CampaignTests {
        /// The members of `campaign show --json` and of the commands that change a campaign.
        private struct Shown: Decodable {
            var queue, campaign, state: String
            var before: String?
            var limitPerSecond, total, ended, left, inFlight, unconfirmed: Int?
            var outcomes: [String: Int]
            var by, reason: String?
        }

        private static func run(_ arguments: String..., redis url: String) async throws -> CommandLineTests.Output {
            try await CommandLineTests.run(["campaign"] + arguments, environment: ["APNS_WORKER_REDIS_URL": url])
        }

        private static func show(_ campaign: String, redis url: String) async throws -> Shown {
            try shown(await run("show", campaign, "--json", redis: url).output)
        }

        /// Returns the number of delivered notifications of a campaign; 0 if no queue knows it yet.
        private static func delivered(_ campaign: String, redis url: String) async throws -> Int {
            let result = try await run("show", campaign, "--json", redis: url)
            return result.status == 1 ? 0 : try shown(result.output).outcomes["delivered"] ?? 0
        }

        private static func shown(_ json: String) throws -> Shown {
            let decoder = JSONDecoder()
            decoder.keyDecodingStrategy = .convertFromSnakeCase
            return try decoder.decode(Shown.self, from: Data(json.utf8))
        }

        private static func fanOut(_ number: Int, of count: Int, campaign: String) -> String {
            let tokens = (0..<count).map { TestJob.token("c", number * count + $0) }
            // An array prints like one of JSON.
            return
                #"{"id":"fan-\#(number)","campaign":"\#(campaign)","alert":"x","tokens":\#(tokens)}"#
        }

        /// The number of notifications to cancel. `APNS_WORKER_CAMPAIGN_NOTIFICATIONS` sets another, such as 500000.
        private static let size =
            ProcessInfo.processInfo.environment["APNS_WORKER_CAMPAIGN_NOTIFICATIONS"].flatMap { Int($0) } ?? 50_000

        @Test(
            "after a cancellation four workers send nothing more of a campaign in progress", arguments: [false, true])
        func cancelUnderLoad(inCluster: Bool) async throws {
            let cluster = inCluster ? try await RedisCluster() : nil
            let single = inCluster ? nil : try RedisServer()
            let redis =
                try single ?? #require(try cluster.map { try $0.owner(ofSlot: $0.slot(of: "push:{default}:jobs")) })
            let url = try #require(cluster?.url ?? single?.url)
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
            // With the short lease of tests, a loaded machine could let another worker cancel what was just sent.
            let workers = try (0..<4).map { _ in
                try WorkerProcess(
                    redis: url, endpoint: simulator.port,
                    options: ["--max-connections", "1", "--max-streams", "50", "--lease", "60s"])
            }
            try await eventually("the campaign is under way", within: .seconds(60)) {
                try await simulator.account().accepted > 5000
            }
            let start = ContinuousClock.now
            var change: Shown?
            try await eventually("all lanes have confirmed it") {
                let result = try await Self.run(
                    "cancel", "wrong", "--reason", "wrong price", "--yes", "--json", redis: url)
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
            // Requests in flight are answered within their delay.
            let atReturn = try await simulator.account().accepted
            try await eventually("all jobs are gone", within: .seconds(120)) { try QueueContents(redis).isSettled }
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
            #expect(try await simulator.stop().duplicates == 0)
        }

        @Test("after a cancellation is undone, its notifications are delivered once each, and so is the rest")
        func requeue() async throws {
            let scene = try await DeliveryScene()
            let redis = scene.redis
            func spring(_ count: Int, _ prefix: String) -> [String] {
                TestJob.many(count, prefix: prefix, members: #""campaign":"spring","#)
            }
            try redis.push([Self.fanOut(0, of: 500, campaign: "spring")] + spring(300, ""))
            let worker = try scene.worker()
            try await redis.has(800)
            var result = try await Self.run("cancel", "spring", "--yes", redis: redis.url)
            let words = "campaign spring in queue default is cancelled: 800 notifications were delivered"
            #expect(result.status == 0 && result.output.hasPrefix(words), "\(result)")
            #expect(result.output.contains("apns-worker campaign requeue spring"))
            try redis.push([Self.fanOut(1, of: 50, campaign: "spring")] + spring(20, "e"))
            try await redis.has(70, "cancelled")
            #expect(try QueueContents(redis).dead.count == 21)
            // A job that is requeued before the cancellation ends is still sent, and the others stay cancelled.
            try await redis.output(of: ["requeue", "--id", "job-e2"])
            try await redis.has(801)
            result = try await Self.run("requeue", "spring", redis: redis.url)
            #expect(result.status == 0 && result.output.contains("requeued 20 jobs"), "\(result)")
            try redis.push(spring(5, "f"))
            try await redis.has(875)
            result = try await Self.run("requeue", "spring", redis: redis.url)
            #expect(result.output.contains("was not cancelled") && !result.output.contains("requeued"))
            _ = try await worker.stop()
            let account = try await scene.simulator.stop()
            #expect(account.accepted == 875 && account.duplicates == 0)
        }

        @Test("a campaign is paused, or limited for all workers together, and another continues")
        func slower() async throws {
            let scene = try await DeliveryScene()
            let redis = scene.redis
            var result = try await Self.run("limit", "slow", "--per-second", "5", redis: redis.url)
            #expect(result.output == "campaign slow in queue default is limited to 5 per second\n", "\(result)")
            result = try await Self.run("pause", "spring", "--reason", "wait", redis: redis.url)
            #expect(result.status == 0 && result.output.hasPrefix("campaign spring in queue default is paused"))
            let workers = try (0..<2).map { _ in try scene.worker() }
            let start = ContinuousClock.now
            try redis.push(
                TestJob.many(400, members: #""campaign":"slow","#)
                    + TestJob.many(40, prefix: "c", members: #""campaign":"spring","#)
                    + TestJob.many(100, prefix: "b", members: #""campaign":"fast","#))
            try await eventually("the fast ones are delivered") {
                try await Self.delivered("fast", redis: redis.url) == 100
            }
            let early = try await Self.show("slow", redis: redis.url).outcomes["delivered"] ?? 0
            // The first is sent at once.
            #expect(early <= Int((ContinuousClock.now - start) / .seconds(1)) * 5 + 6)
            try await eventually("the paused ones are deferred") {
                let bodies = try QueueContents(redis).retries.map { String(decoding: $0.body, as: UTF8.self) }
                return bodies.count { $0.contains("CampaignPaused") } == 40
            }
            #expect(try await Self.show("spring", redis: redis.url).state == "paused")
            #expect(try await Self.run("list", redis: redis.url).output.contains("running, 5/s"))

            // Both continue soon, and not only when they would have been due.
            result = try await Self.run("resume", "spring", redis: redis.url)
            #expect(result.status == 0 && result.output.contains("is resumed"), "\(result)")
            try await eventually("the paused ones are delivered", within: .seconds(20)) {
                try await Self.delivered("spring", redis: redis.url) == 40
            }
            result = try await Self.run("resume", "spring", redis: redis.url)
            #expect(result.status == 1 && result.errors.contains("was not paused"))
            result = try await Self.run("limit", "slow", "--off", redis: redis.url)
            #expect(result.output == "campaign slow in queue default has no limit\n")
            try await redis.has(540)
            for worker in workers { _ = try await worker.stop() }
            #expect(try QueueContents(redis).count("retried") == 0)
            #expect(try await scene.simulator.stop().duplicates == 0)
        }

        @Test("mistakes are refused, and names from other programs cannot harm a terminal")
        func mistakes() async throws {
            let redis = try RedisServer()
            for (arguments, status, words) in [
                (["cancel", "spring"], 64, "--yes"), (["limit", "spring"], 64, "--per-second or --off"),
                (["pause", String(repeating: "x", count: 101)], 64, "1 to 100 bytes"),
                (["show", "sprin"], 1, "no queue knows a campaign sprin; there are none\n"),
                (["list"], 0, "there are no campaigns\n"),
            ] as [([String], Int32, String)] {
                let result = try await redis.apnsWorker(["campaign"] + arguments)
                #expect(result.status == status, "\(arguments): \(result)")
                // A sentence is the whole error.
                let isWhole = words.hasSuffix("\n")
                #expect(isWhole ? result.errors == words : result.errors.contains(words), "\(arguments): \(result)")
            }
            #expect(try redis.run("KEYS", "*") == .array([]))
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
