import NIOCore
import PushJob
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("Commands about jobs and the counters of campaigns", .queue)
struct JobCommandsTests {
    private let queue = QueueScope.queue

    private let spring = JobCommands.Target.campaign("spring")

    @discardableResult
    private func change(
        _ change: JobCommands.Change, of targets: JobCommands.Target...
    ) async throws -> [JobCommands.Command?] {
        try await JobCommands.change(change, of: targets, by: "eve", reason: "wrong price", queue.client, queue.keys)
            .previous
    }

    private func commands() async throws -> JobCommands { try await JobCommands.read(queue.client, queue.keys) }

    private func counts(_ campaign: String = "spring") async throws -> CampaignCounts {
        try await CampaignCounts.read(campaign, queue.client, queue.keys)
    }

    @Test("are returned to the claim of a lane that does not have them, and only then")
    func withClaims() async throws {
        let worker = queue.worker("w")
        try queue.push(["a"])
        #expect(try await worker.claim(1).commands == nil)
        try await change(.cancel(discard: false), of: spring, .id("j:1"))
        try queue.push(["b"])
        let claimed = try await worker.claim(1, first: 2)
        let commands = try #require(claimed.commands)
        #expect(claimed.bodies.map { String(buffer: $0) } == ["b"])
        let command = try #require(commands.commands[spring])
        #expect(command.state == .cancelled && !command.discards && command.by == "eve")
        #expect(command.reason == "wrong price" && command.since > 0 && command.at == command.since)
        #expect(commands.commands[.id("j:1")] == command)
        #expect(try await worker.claim(0, knownCommands: commands.version).commands == nil)
        // If the commands end because their key expires or is deleted, the lane forgets them.
        try queue.redis.run("DEL", queue.keys.jobCommands)
        let none = try #require(try await worker.claim(0, knownCommands: commands.version).commands)
        #expect(none.isEmpty && none.version.isEmpty)
    }

    @Test("concern jobs with an id or of a campaign, and no others")
    func matching() throws {
        var cancelled = JobCommands.Command()
        cancelled.state = .cancelled
        let commands = JobCommands(version: "1", [spring: cancelled, .id("x"): cancelled])
        func command(_ members: String) throws -> JobCommands.Target? {
            let job = try JobDecoder.decode(ByteBuffer(string: #"{\#(members)"token":"ab","alert":"x"}"#))
            return commands.command(for: job)?.target
        }
        #expect(try command("") == nil)
        #expect(try command(#""campaign":"sprin","#) == nil)
        #expect(try command(#""campaign":"spring","#) == spring)
        #expect(try command(#""campaign":"\u0073pring","#) == spring)
        #expect(try command(#""id":"spring","#) == nil)
        #expect(try command(#""id":"x","campaign":"spring","#) == .id("x"))
    }

    @Test("replace each other: pause, limit, cancel, and back")
    func changes() async throws {
        #expect(try await change(.pause, of: spring) == [nil])
        try await change(.limit(perSecond: 50), of: spring)
        var command = try #require(try await commands().commands[spring])
        #expect(command.state == .paused && command.perSecond == 50 && command.limitedAt > 0)
        try await change(.resume, of: spring)
        command = try #require(try await commands().commands[spring])
        #expect(command.state == .running && command.perSecond == 50)
        try await change(.cancel(discard: true), of: spring)
        // A cancelled campaign is neither paused nor resumed.
        try await change(.pause, of: spring)
        #expect(try await change(.resume, of: spring).first??.state == .cancelled)
        command = try #require(try await commands().commands[spring])
        #expect(command.state == .cancelled && command.discards)
        try await change(.uncancel, of: spring)
        try await change(.limit(perSecond: nil), of: spring)
        let commands = try await commands()
        #expect(commands.isEmpty && !commands.version.isEmpty)
    }

    @Test("end after seven days, and are at most a thousand")
    func bounds() async throws {
        try queue.redis.run(
            "HSET", queue.keys.jobCommands, "campaign:old", #"{"state":"cancelled","at":1}"#, "id:old", #"{"at":1}"#)
        try await change(.cancel(discard: false), of: spring)
        #expect(
            try await commands().commands.keys.map(\.description) == ["campaign spring"]
        )
        #expect(try queue.redis.run("PTTL", queue.keys.jobCommands).number ?? 0 > 6 * 86_400_000)
        let ids = (0..<1000).map { JobCommands.Target.id("\($0)") }
        _ = try await JobCommands.change(.cancel(discard: false), of: ids, by: "eve", queue.client, queue.keys)
        await #expect(throws: RedisError.self) { try await change(.pause, of: .id("more")) }
        try await change(.cancel(discard: true), of: spring)
        #expect(try await commands().commands.count == 1001)
    }

    @Test("of a hostile key are ignored by claims, and refused by operators' commands")
    func hostile() async throws {
        try queue.push(["a", "b"])
        try queue.redis.run("SET", queue.keys.jobCommands, "x")
        let worker = queue.worker("w")
        let claimed = try await worker.claim(1)
        #expect(claimed.bodies.count == 1 && claimed.commands == nil)
        await #expect(throws: RedisError.self) { try await change(.pause, of: spring) }
        try queue.redis.run("DEL", queue.keys.jobCommands)
        try queue.redis.run(
            "HSET", queue.keys.jobCommands, "version", "x", "campaign:a", "nonsense", "other", "1", "id:", "[]",
            "campaign:b", #"{"state":"exploded","per_second":-3,"since":1e300,"by":"\u001b[31m"}"#)
        let commands = try #require(try await worker.claim(1).commands)
        #expect(commands.commands[.campaign("a")]?.state == .paused)
        let command = try #require(commands.commands[.campaign("b")])
        #expect(command.state == .paused && command.isDamaged && command.perSecond == nil)
        #expect(command.by?.contains("\u{1b}") == false)
    }

    /// Asks for turns at a time in milliseconds.
    private func turns(
        _ perSecond: Int, since: Int64 = 1, _ amounts: [Int], goFirst: Bool = false, at time: Int64
    ) async throws -> [Int] {
        let clock = queue.sharedKeys.campaignRate("clock")
        try queue.redis.run("SET", clock, "\(1_800_000_000_000 + time)")
        return try await queue.limit(
            "spring", perSecond, since: since, amounts, goFirst: goFirst, clock: .key(clock))
    }

    @Test("schedule the jobs of a limited campaign one after the other, and start again for another limit")
    func turns() async throws {
        #expect(try await turns(100, [1, 10, 5], at: 0) == [0, 10, 110])
        #expect(try await turns(100, [1], at: 20) == [140])
        #expect(try await turns(1, since: 2, [1, 1], at: 30) == [0, 1000])
        // A clock that was set back by an hour does not delay the jobs.
        #expect(try await turns(1, since: 2, [1], at: -3_600_000) == [2000])
    }

    @Test("Jobs that come back for their turn are before new ones, and those that do not come back leave no gap.")
    func unusedTurns() async throws {
        let some = Array(repeating: 1, count: 1000)
        #expect(try await turns(5, some, at: 0) == (0..<1000).map { $0 * 200 })
        #expect(try await turns(5, [1], at: 200) == [199_800])
        #expect(try await turns(5, [1, 1, 1], goFirst: true, at: 200) == [0, 200, 400])
        #expect(try await turns(5, [1], goFirst: true, at: 390) == [0])
        // The other jobs were cancelled, or have expired.
        #expect(try await turns(5, [1, 1, 1], at: 1300) == [0, 200, 400])
    }

    @Test("limit a campaign to one rate in all queues, which learn of the limit at different times")
    func fleetRate() async throws {
        #expect(try await queue.limit("spring", 1, since: 7, [2]) == [0])
        // Another queue's command was written a moment later.
        #expect(try await queue.limit("spring", 1, since: 8, [3]) == [0])
        let wait = try #require(try await queue.limit("spring", 1, since: 7, [1]).first)
        #expect(wait > 0 && wait <= 3000)
        let next = try #require(try await queue.limit("spring", 1, since: 8, [1]).first)
        #expect(next > wait && next <= 4000)
    }

    // MARK: Counters

    @Test("are counted by outcome, for each campaign of a settlement, and not twice")
    func counters() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b", "c", "d", "e", "f", "g"])
        let settle: (inout Settlement) -> Void = { settlement in
            settlement.end(1, .delivered)
            settlement.use(campaign: ByteBuffer(string: "spring"))
            settlement.end(2, .delivered)
            settlement.end(3, .delivered)
            settlement.use(campaign: ByteBuffer(string: "autumn"))
            settlement.bury(4, reason: "BadPayload")
            settlement.bury(5, as: .cancelled, reason: "Cancelled", attempts: 0, members: ByteBuffer(), original: 0..<1)
            settlement.addCount("cancelled", 2)
            settlement.use(campaign: ByteBuffer(string: "spring"))
            settlement.end(6, .expired, notifications: 3)
            settlement.use(campaign: nil)
            settlement.end(7, .delivered)
        }
        try await worker.settle(settle)
        let spring = try await counts()
        #expect(spring.counters == ["delivered": 2, "expired": 3])
        #expect(spring.ended == 5 && spring.total == nil && spring.left == nil)
        #expect(spring.startedAt ?? 0 > 0 && spring.updatedAt ?? 0 >= spring.startedAt ?? 0)
        let autumn = try await counts("autumn")
        #expect(autumn.counters == ["dead": 1, "dead:BadPayload": 1, "cancelled": 3])
        #expect(try queue.stats() == ["delivered": 4, "expired": 3, "dead": 1, "dead:BadPayload": 1, "cancelled": 3])
        #expect(try queue.dead().count == 2)
        #expect(Set(try await CampaignCounts.names(10, queue.client, queue.keys)) == ["spring", "autumn"])
        #expect(try await worker.settle(settle) == 7)
        #expect(try await counts().counters == spring.counters)
        try await CampaignCounts.addTotal(100, of: "spring", queue.client, queue.keys)
        // A campaign is known from its first job on, before any of its notifications has ended.
        try await CampaignCounts.addTotal(1, of: "summer", queue.client, queue.keys)
        #expect(try await CampaignCounts.names(1, queue.client, queue.keys) == ["summer"])
        let left = try await counts()
        #expect(left.total == 100 && left.left == 95)
        #expect(try queue.redis.run("PTTL", queue.keys.campaign("spring")).number ?? 0 > 89 * 86_400_000)
    }

    @Test("add up the times of deliveries, each once, and the end has their percentiles")
    func latencies() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b", "c", "d"])
        let key = queue.keys.campaign("spring")
        // Another client has written this hash.
        try queue.redis.run("HSET", key, "total", "3", "latency", #"{"4":"x","7":1}"#)
        let first: (inout Settlement) -> Void = { settlement in
            settlement.use(campaign: ByteBuffer(string: "spring"))
            settlement.addLatency(3)
            settlement.addLatency(90)
            settlement.end(1, .delivered)
            settlement.end(2, .delivered)
            settlement.use(campaign: nil)
            settlement.addLatency(5)
            settlement.end(4, .delivered)
        }
        try await worker.settle(first)
        #expect(try await worker.settle(first) == 3)
        try await worker.settle { settlement in
            settlement.use(campaign: ByteBuffer(string: "spring"))
            var latencies = LatencyCounts()
            latencies.record(90)
            settlement.addLatencies(latencies)
            settlement.end(3, .delivered)
        }
        let counts = try await counts()
        #expect(counts.latencies.buckets.map(\.bound) == [4, 96] && counts.latencies.buckets.map(\.count) == [1, 2])
        let report = try #require(try await finished().first?["report"])
        #expect(report.contains(#""latency_p50_ms":"#) && report.contains(#""latency_p99_ms":"#), "\(report)")
        let summary = CampaignSummary([CampaignStatus(counts, nil, queue: "default", now: 0)])
        #expect(summary.latencyP50Ms == 72 && summary.latencyP99Ms == 96, "\(summary)")
    }

    @Test("count what ended in periods that get longer with the age of the campaign")
    func periods() async throws {
        let ages: [(hours: Int64, length: Int64)] = [(0, 60), (3, 600), (48, 7200), (400, 86_400)]
        let worker = try await queue.worker("w", claiming: ages.map { "\($0.hours)" })
        let key = queue.keys.campaign("spring")
        for (index, age) in ages.enumerated() {
            let time = try #require(try queue.redis.run("TIME").elements?.first?.text.flatMap { Int64($0) })
            try queue.redis.run("HSET", key, "started_at", "\((time - age.hours * 3600) * 1000)")
            try await worker.settle { settlement in
                settlement.use(campaign: ByteBuffer(string: "spring"))
                settlement.end(worker.id(index + 1), .delivered, notifications: index + 1)
            }
        }
        let periods = try await counts().periods
        #expect(periods.sorted { $0.length < $1.length }.map(\.length) == ages.map(\.length))
        #expect(periods.sorted { $0.length < $1.length }.map(\.ended) == [1, 2, 3, 4])
    }

    @Test(
        "add up times beside whatever another client has written in their place",
        arguments: [
            #"{"1":1e999}"#, #"{"1":null,"7":[]}"#, "[1,2]", #"{"1":"nan","2":"inf"}"#, #"{"1":-5,"+96":9}"#, "x",
            String(repeating: "{", count: 2000), #"{"\#(String(repeating: "x", count: 5000))":1}"#,
        ])
    func hostileLatencies(text: String) async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b"])
        try queue.redis.run("HSET", queue.keys.campaign("spring"), "total", "2", "latency", text)
        for claim in 1...2 {
            try await worker.settle { settlement in
                settlement.use(campaign: ByteBuffer(string: "spring"))
                settlement.addLatency(90)
                settlement.end(claim, .delivered)
            }
        }
        let counts = try await counts()
        let own = counts.latencies.buckets.first { $0.bound == 96 }
        #expect(own?.count == 2, "\(counts.latencies)")
        let report = try #require(try await finished().first?["report"])
        #expect(!report.contains("nan") && !report.contains("inf"), "\(report)")
        #expect(report.contains(#""latency_p99_ms":"#), "\(report)")
    }

    @Test("end without a rate and a negative duration after the clock was set back")
    func clockSetBack() async throws {
        let worker = try await queue.worker("w", claiming: ["a"])
        let start = "9000000000000"
        try queue.redis.run("HSET", queue.keys.campaign("spring"), "total", "1", "started_at", start)
        _ = try await settle(worker, 1...1, .delivered)
        let report = try #require(try await finished().first?["report"])
        #expect(report.contains(#""duration_ms":0"#) && !report.contains("per_second"), "\(report)")
        let counts = try await counts()
        // The clock is far behind the start. With periods of minutes, there could be any number of fields until it reaches the start again.
        #expect(counts.periods.map(\.length) == [86_400])
        let summary = CampaignSummary([CampaignStatus(counts, nil, queue: "default", now: 0)])
        #expect(summary.endedPerSecond == nil)
    }

    private func finished() async throws -> [StoredResult] {
        let page = try await ResultPage.read(from: "-", to: "+", count: 100, queue.client, queue.keys)
        return page.results.filter { $0["event"] == "campaign_finished" }
    }

    @Test("add one entry to the results when they reach the total, with the settlement that reaches it")
    func finish() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b", "c", "d", "e"])
        try queue.redis.run("HSET", queue.keys.campaign("spring"), "total", "4")
        try await worker.settle { settlement in
            settlement.use(campaign: ByteBuffer(string: "spring"))
            settlement.end(1, .delivered)
            settlement.bury(2, reason: "BadPayload")
        }
        #expect(try await finished().isEmpty)
        let last: (inout Settlement) -> Void = { settlement in
            settlement.use(campaign: ByteBuffer(string: "spring"))
            settlement.end(3, .delivered)
            settlement.end(4, .invalidToken, results: .of(NotificationResult(.invalidToken, reason: "Unregistered")))
        }
        try await worker.settle(last)
        let entry = try #require(try await finished().first)
        #expect(entry["campaign"] == "spring" && entry["outcome"] == nil && entry["token"] == nil)
        let report = try #require(entry["report"])
        for member in [
            #""total":4"#, #""ended":4"#, #""delivered":2"#, #""invalid_token":1"#, #""invalid_share":0.2500"#,
            #""dead_reasons":{"BadPayload":1}"#, #""duration_ms":"#,
        ] {
            #expect(report.contains(member), "\(report)")
        }
        // Both settlements may be in the same millisecond.
        #expect(report.contains(#""ended_per_second":"#) || report.contains(#""duration_ms":0}"#), "\(report)")
        let line = ResultLine(queue: "q", result: entry).json()
        #expect(line.contains(#""report":{"total":4,"#) && !line.contains("outcome\":\""), "\(line)")
        #expect(try await counts().finishedAt ?? 0 > 0)
        // A repeated settlement, and notifications that end later, add no other entry.
        #expect(try await worker.settle(last) == 2)
        try await worker.settle { settlement in
            settlement.use(campaign: ByteBuffer(string: "spring"))
            settlement.end(5, .delivered)
        }
        #expect(try await finished().count == 1)
        let counts = try await counts()
        #expect(counts.periods.reduce(0) { $0 + $1.ended } == counts.ended && counts.ended == 5)
        #expect(counts.periods.allSatisfy { $0.length == 60 } && !counts.counters.keys.contains { $0.hasPrefix("at:") })
        var filter = ResultFilter()
        filter.outcomes = ["delivered", "dead", "invalid_token"]
        #expect(!filter.matches(entry))
        filter = ResultFilter()
        filter.events = ["campaign_finished"]
        #expect(filter.matches(entry))
    }

    @Test("of an open campaign finish it only once it is closed, by the settlement or by closing it")
    func open() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b", "c"])
        for (name, settlesLast) in [("early", false), ("late", true)] {
            try await CampaignCounts.open(name, queue.client, queue.keys)
            try await worker.settle { settlement in
                settlement.use(campaign: ByteBuffer(string: name))
                settlement.end(settlesLast ? 2 : 1, .delivered)
            }
            try await CampaignCounts.addTotal(settlesLast ? 2 : 1, of: name, queue.client, queue.keys)
            #expect(try await counts(name).isOpen)
        }
        #expect(try await finished().isEmpty)
        for _ in 0..<2 {
            for name in ["early", "late"] { try await CampaignCounts.close(name, queue.client, queue.keys) }
            #expect(try await finished().compactMap { $0["campaign"] } == ["early"])
        }
        try await worker.settle { settlement in
            settlement.use(campaign: ByteBuffer(string: "late"))
            settlement.end(3, .expired)
        }
        #expect(try await finished().compactMap { $0["campaign"] } == ["early", "late"])
        // Closing a campaign adds entries, but removes none: it does not know how many results are kept.
        #expect(try queue.redis.run("XLEN", queue.keys.results).number == 2)
    }

    // MARK: Guards

    private func guardSpring(_ rules: String, minimum: Int) async throws {
        let rules = try #require(CampaignGuard.rules(rules))
        try await CampaignGuard.set(
            CampaignGuard(rules, minimum: minimum), of: "spring", queue.client, queue.keys)
    }

    private func state() async throws -> JobCommands.Command.State? {
        try await commands().commands[.campaign("spring")]?.state
    }

    /// Settles jobs of the campaign, which must be claimed.
    private func settle(
        _ worker: TestWorker, _ claims: ClosedRange<Int>, _ outcome: Outcome
    ) async throws -> QueueConnection.Settled {
        try await worker.settled(
            worker.filled { settlement in
                settlement.use(campaign: ByteBuffer(string: "spring"))
                for claim in claims { settlement.end(claim, outcome) }
            })
    }

    @Test("pause a campaign with the settlement that exceeds a limit of its guard, and not below the minimum")
    func stop() async throws {
        let worker = try await queue.worker("w", claiming: (1...300).map { "job \($0)" })
        try await guardSpring("invalid_token>5%,dead>50%", minimum: 100)
        // Nine of ten are invalid, but fewer than the minimum have ended.
        #expect(try await settle(worker, 1...9, .delivered).stopped.isEmpty)
        #expect(try await settle(worker, 10...99, .invalidToken).stopped.isEmpty)
        #expect(try await state() == nil)
        let last = worker.filled { settlement in
            settlement.use(campaign: ByteBuffer(string: "spring"))
            settlement.end(100, .delivered)
        }
        let stopped = try await worker.settled(last).stopped
        #expect(stopped.map(\.campaign) == ["spring"])
        #expect(stopped.first?.reason == "invalid_token is 90.0% of 100, above 5%")
        let commands = try await commands()
        let command = try #require(commands.commands[.campaign("spring")])
        #expect(command.state == .paused && command.by == "guard" && command.reason == stopped.first?.reason)
        #expect(Int(commands.version) ?? 0 > 0)
        // A repeated settlement changes nothing. Notifications in flight neither stop the campaign again nor count later.
        #expect(try await worker.settled(last).stopped.isEmpty)
        #expect(try await settle(worker, 101...150, .invalidToken).stopped.isEmpty)
        var stored = try #require(try await counts().guard)
        #expect(stored.stoppedAt ?? 0 > 0 && stored.reason == stopped.first?.reason && stored.base == nil)
        // After the campaign is resumed, the guard counts from its first settlement on.
        try await change(.resume, of: spring)
        #expect(try await settle(worker, 151...155, .invalidToken).stopped.isEmpty)
        #expect(try await settle(worker, 156...249, .delivered).stopped.isEmpty)
        #expect(try await state() == nil)
        stored = try #require(try await counts().guard)
        #expect(
            stored.stoppedAt ?? 0 > 0
                && stored.base == ["ended": 150, "invalid_token": 140, "dead": 0, "retried": 0, "suppressed": 0])
        #expect(
            try await settle(worker, 250...250, .invalidToken).stopped.map(\.reason)
                == ["invalid_token is 6.0% of 100, above 5%"])
        // Exactly the limit is not above it.
        try await change(.resume, of: spring)
        try await guardSpring("invalid_token>5%", minimum: 20)
        #expect(try await settle(worker, 251...269, .delivered).stopped.isEmpty)
        #expect(try await settle(worker, 270...270, .invalidToken).stopped.isEmpty)
        #expect(try await settle(worker, 271...271, .invalidToken).stopped.count == 1)
        // The end of a cancellation also resumes the campaign.
        try await change(.cancel(discard: false), of: spring)
        #expect(try await settle(worker, 272...295, .invalidToken).stopped.isEmpty)
        try await change(.uncancel, of: spring)
        #expect(try await settle(worker, 296...300, .delivered).stopped.isEmpty)
    }

    @Test("of retries are compared with all attempts, and a reason with its own limit")
    func stopForRetries() async throws {
        let worker = try await queue.worker("w", claiming: (1...50).map { "job \($0)" })
        try await guardSpring("retried>20%,dead:BadPayload>1%", minimum: 10)
        let batch = { (claims: ClosedRange<Int>) in
            worker.filled { settlement in
                settlement.use(campaign: ByteBuffer(string: "spring"))
                for claim in claims { settlement.retry(claim) }
            }
        }
        #expect(try await worker.settled(batch(1...9)).stopped.isEmpty)
        #expect(
            try await worker.settled(batch(10...10)).stopped.map(\.reason) == ["retried is 100.0% of 10, above 20%"])
        try await change(.resume, of: spring)
        let bury = worker.filled { settlement in
            settlement.use(campaign: ByteBuffer(string: "spring"))
            for claim in 11...20 { settlement.bury(claim, reason: "BadPayload") }
        }
        #expect(try await worker.settled(bury).stopped.first?.reason.hasPrefix("dead:BadPayload is 100.0%") == true)
    }

    @Test("pause a campaign in another queue only if it has a guard and runs there, and once")
    func stopElsewhere() async throws {
        let worker = queue.worker("w")
        let stopped = StoppedCampaign(campaign: "spring", reason: "dead is 2.0% of 1000, above 1%")
        #expect(try await worker.stop(stopped) == false)
        #expect(try await state() == nil)
        try await guardSpring("dead>1%", minimum: 100)
        #expect(try await worker.stop(stopped))
        #expect(try await state() == .paused)
        let before = try queue.everything()
        #expect(try await worker.stop(stopped) == false)
        #expect(try queue.everything() == before)
        // The commands still end after a week.
        #expect(try queue.redis.run("PTTL", queue.keys.jobCommands).number ?? 0 > 0)
        try await change(.cancel(discard: false), of: spring)
        #expect(try await worker.stop(stopped) == false)
        #expect(try await state() == .cancelled)
        try await queue.record(stopped)
        let entry = try #require(try await AuditLog.latest(1, queue.client, queue.sharedKeys).first)
        #expect(entry.action == .pauseCampaign && entry.by == "guard" && entry.via == .worker)
        #expect(entry.subject == "campaign spring" && entry.detail == stopped.reason)
    }

    @Test("let a guard stop a campaign that an operator resumes, if its limit was exceeded during the operator's pause")
    func guardDuringPause() async throws {
        let worker = try await queue.worker("w", claiming: (1...30).map { "job \($0)" })
        try await guardSpring("invalid_token>5%", minimum: 10)
        try await change(.pause, of: spring)
        #expect(try await settle(worker, 1...20, .invalidToken).stopped.isEmpty)
        #expect(try await commands().commands[spring]?.by == "eve")
        try await change(.resume, of: spring)
        #expect(try await settle(worker, 21...21, .delivered).stopped.map(\.campaign) == ["spring"])
        // The same notifications do not stop the campaign again.
        try await change(.resume, of: spring)
        #expect(try await settle(worker, 22...22, .delivered).stopped.isEmpty)
    }

    @Test("leave what was suppressed out of a guard's shares and of its minimum, except for its own rule")
    func guardWithoutSuppressed() async throws {
        let worker = try await queue.worker("w", claiming: (1...70).map { "job \($0)" })
        try await guardSpring("invalid_token>20%", minimum: 10)
        #expect(try await settle(worker, 1...40, .suppressed).stopped.isEmpty)
        #expect(try await settle(worker, 41...45, .invalidToken).stopped.isEmpty)
        let counts = try await counts()
        let levels = try #require(counts.guard?.levels(counts.counters, ended: counts.ended))
        #expect(levels.map(\.of) == [5] && levels.map(\.percent) == [100])
        let stopped = try await settle(worker, 46...50, .delivered).stopped
        #expect(stopped.map(\.reason) == ["invalid_token is 50.0% of 10, above 20%"])
        try await change(.resume, of: spring)
        try await guardSpring("suppressed>20%", minimum: 10)
        #expect(try await settle(worker, 51...60, .suppressed).stopped.map(\.campaign) == ["spring"])
    }

    @Test(
        "pause a campaign beside counters and members that are not numbers",
        arguments: [("dead", "nan", nil), ("retried", "inf", nil), ("dead", "0", #"{"other":1e999,"at":1e999}"#)]
            as [(String, String, String?)])
    func damagedGuard(counter: String, value: String, command: String?) async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b"])
        try await guardSpring("invalid_token>5%,dead>1%", minimum: 2)
        try queue.redis.run("HSET", queue.keys.campaign("spring"), counter, value)
        if let command { try queue.redis.run("HSET", queue.keys.jobCommands, "campaign:spring", command) }
        #expect(try await settle(worker, 1...2, .invalidToken).stopped.map(\.campaign) == ["spring"])
        #expect(try await state() == .paused)
    }

    @Test(
        "of a guard in another form settle as without one",
        arguments: [
            "x", "{}", "[]", #"{"rules":[[]],"min":1,"base":{}}"#, #"{"rules":[1],"min":1,"base":{}}"#,
            // JSON does not have this value.
            #"{"rules":[["dead",1]],"min":1,"base":{},"other":1e999}"#,
        ])
    func hostileGuard(text: String) async throws {
        let worker = try await queue.worker("w", claiming: ["a"])
        try queue.redis.run("HSET", queue.keys.campaign("spring"), "guard", text)
        let settled = try await settle(worker, 1...1, .dead)
        #expect(settled.lost == 0 && settled.stopped.isEmpty)
        #expect(try await state() == nil)
        #expect(try queue.stats() == ["dead": 1])
        guard text.contains("1e999") else { return }
        #expect(try await worker.stop(.init(campaign: "spring", reason: "dead is 2.0% of 1000, above 1%")) == false)
        #expect(try await state() == nil)
        #expect(try queue.redis.run("HGET", queue.keys.campaign("spring"), "guard").text == text)
    }

    @Test("replace commands with values that JSON does not have")
    func infiniteCommand() async throws {
        let text =
            #"{"state":"paused","since":1e999,"per_second":1e999,"at":4000000000000,"by":"x","other":{"a":1e999}}"#
        for (new, expected) in [
            (JobCommands.Change.cancel(discard: false), JobCommands.Command.State.cancelled), (.resume, nil),
        ] {
            try queue.redis.run("HSET", queue.keys.jobCommands, "campaign:spring", text)
            try await change(new, of: spring)
            #expect(try await state() == expected)
        }
    }

    @Test(
        "count a campaign as enqueued although its total is damaged",
        arguments: ["x", "1.5", "", "9223372036854775807"])
    func damagedTotal(total: String) async throws {
        let key = queue.keys.campaign("spring")
        try queue.redis.run("HSET", key, "total", total)
        let job = ByteBuffer(string: #"{"campaign":"spring","token":"ab","alert":"x"}"#)
        try await CampaignCounts.addTotals(of: [job], isOpen: true, queue.client, queue.keys)
        try await CampaignCounts.addTotal(5, of: "spring", queue.client, queue.keys)
        #expect(try queue.redis.run("HMGET", key, "total", "open").elements?.map(\.text) == [total, "1"])
        #expect(try queue.redis.run("PTTL", key).number ?? 0 > 0)
        #expect(try await CampaignCounts.names(9, queue.client, queue.keys) == ["spring"])
        try await CampaignCounts.close("spring", queue.client, queue.keys)
        #expect(try await counts().finishedAt == nil)
    }

    @Test(
        "of a guard are written as operators write them",
        arguments: [
            ("invalid_token>5%,dead>1%,retried>20%", "invalid_token>5%,dead>1%,retried>20%"),
            (" dead > 0.5% ", "dead>0.5%"), ("dead:BadPayload>0%", "dead:BadPayload>0%"),
            ("dead>1", nil), ("dead>100%", nil), ("dead>-1%", nil), ("dead>nan%", nil), ("deaf>1%", nil), ("", nil),
            ("delivered>5%", nil), ("dead>1%,dead>2%", nil), ("dead>1%,", nil), ("invalid_token:X>1%", nil),
            ("dead:>1%", nil), ("dead:a b>1%", nil),
        ] as [(String, String?)])
    func rules(text: String, expected: String?) {
        #expect(CampaignGuard.rules(text).map { CampaignGuard($0, minimum: 1).text } == expected)
    }

    @Test("of a guard with a reason that no worker knows are refused, with the one that was meant")
    func unknownReasons() throws {
        for (text, error) in [
            ("dead:BadPayload>1%", nil), ("dead>1%", nil),
            ("dead:BadPayloads>1%", "stop_if has an unknown reason, BadPayloads; did you mean BadPayload?"),
            ("retried:Foo>1%", "stop_if has an unknown reason, Foo"),
        ] {
            let fields = Fields([("campaign", "spring"), ("stop_if", text)])
            do throws(FieldMistake) {
                _ = try CampaignGuardChange(fields, reasons: ["BadPayload", "NoAnswer"])
                #expect(error == nil, "\(text)")
            } catch let mistake {
                #expect("\(mistake)" == error)
            }
        }
    }

    // MARK: Reports

    @Test("of several queues are summed in a report, which is finished when all of them are")
    func report() throws {
        func part(_ queue: String, delivered: Int, invalid: Int, of total: Int?, finishedAt: Int64?) -> CampaignStatus {
            var counts = CampaignCounts(name: "spring", total: total, startedAt: 1000, updatedAt: 3000)
            counts.finishedAt = finishedAt
            counts.counters = ["delivered": delivered, "invalid_token": invalid]
            return CampaignStatus(counts, nil, queue: queue, now: 4000)
        }
        let first = part("a", delivered: 90, invalid: 10, of: 100, finishedAt: 3000)
        var summary = CampaignSummary([first, part("b", delivered: 250, invalid: 50, of: 400, finishedAt: nil)])
        #expect(!summary.finished && summary.total == 500 && summary.ended == 400 && summary.left == 100)
        #expect(summary.invalidShare == 0.15 && summary.durationMs == 2000 && summary.endedPerSecond == 200)
        #expect(summary.finishedAt == nil && summary.state == "running and finished, 100 left")
        let json = summary.json()
        #expect(json.contains(#""ended_per_second":200"#) && json.contains(#""delivered_per_second":83.3"#), "\(json)")
        #expect(!json.contains(#""per_second""#), "\(json)")
        summary = CampaignSummary([first, part("b", delivered: 300, invalid: 100, of: 400, finishedAt: 5000)])
        #expect(summary.finished && summary.finishedAt == 5000 && summary.durationMs == 4000)
        #expect(summary.page.contains("State             finished"), "\(summary.page)")
        summary = CampaignSummary([first, part("b", delivered: 1, invalid: 0, of: nil, finishedAt: nil)])
        #expect(
            summary.total == nil && summary.left == nil && summary.state == "running and finished, the total is unknown"
        )
        #expect(CampaignSummary.percent(1, of: 5000) == "<0.1%" && CampaignSummary.percent(25, of: 1000) == "2.5%")
    }

    @Test("of a hostile campaign's key do not keep jobs from being settled")
    func hostileCounters() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b"])
        try queue.redis.run("SET", queue.keys.campaign("x"), "1")
        try queue.redis.run("SET", queue.keys.campaigns, "1")
        try await worker.settle { settlement in
            settlement.use(campaign: ByteBuffer(string: "x"))
            settlement.end(1, .delivered)
            settlement.use(campaign: ByteBuffer(bytes: [0xFF, 0x00, 0x7B, 0x7D]))
            settlement.end(2, .delivered)
        }
        #expect(try queue.claims("w").isEmpty && queue.stats() == ["delivered": 2])
    }

    @Test("of the campaigns settled longest ago are deleted beyond the maximum")
    func manyCampaigns() async throws {
        for start in stride(from: 0, to: 10_000, by: 1000) {
            var command = ["ZADD", queue.keys.campaigns]
            for number in start..<start + 1000 { command += ["\(number)", "c\(number)"] }
            try queue.redis.run(command.map { Array($0.utf8) })
        }
        try queue.redis.run("HSET", queue.keys.campaign("c3"), "delivered", "1")
        let worker = try await queue.worker("w", claiming: ["a"])
        try await worker.settle { settlement in
            settlement.use(campaign: ByteBuffer(string: "new"))
            settlement.end(1, .delivered)
        }
        #expect(try queue.redis.run("ZCARD", queue.keys.campaigns).number == 9991)
        #expect(try queue.redis.run("EXISTS", queue.keys.campaign("c3")).number == 0)
    }

    @Test("a campaign that should be sent and is not is slowed, with the cause that is known")
    func slowed() async throws {
        try await OperatorScene.with { scene in
            let desk = try scene.desk()
            func status() async throws -> CampaignStatus? {
                var unread = UnreadParts()
                let latest = try await CampaignStatus.latest(20, in: desk.queues, desk.fleet, &unread)
                let read = try await scene.campaign("spring", in: desk)
                // `latest` reads no jobs, but finds the same state.
                #expect(latest.first { $0.campaign == "spring" }?.state == read.first?.state)
                return read.first
            }
            let now = try await desk.fleet.now(of: desk.queues)
            try scene.push(OperatorScene.job("1", #","campaign":"spring""#))
            try scene.run("HSET", "push:{default}:campaign:spring", "total", "10")
            try scene.run("ZADD", "push:{default}:campaigns", "\(now)", "spring")
            #expect(try await status()?.state == .running, "nothing is known yet")
            // Notifications have ended, but none recently.
            let last = now - 120_000
            try scene.run(
                "HSET", "push:{default}:campaign:spring", "delivered", "3", "started_at", "\(last)", "updated_at",
                "\(last)")
            let idle = try #require(try await status())
            #expect(idle.state == .slowed)
            #expect(idle.slowedBy?.hasPrefix("none of its notifications has ended for 2 min") == true)
            // One of the campaign's jobs has the reason.
            let deferred =
                #"{"apns_worker":1,"wait":{"reason":"AppPaused","at":1},"job":\#(OperatorScene.job("2", #","campaign":"spring","app":"shop""#))}"#
            try scene.run("ZADD", "push:{default}:retry", "\(now + 60_000)", deferred)
            let known = try #require(try await status())
            #expect(known.state == .slowed && known.slowedBy == "its jobs are deferred: AppPaused (app shop)")
            #expect(known.json().contains(#""slowed_by":"its jobs are deferred: AppPaused (app shop)""#))
            try await QueuePause.set(
                desk.fleet.client(for: desk.queues[0].paused), desk.queues[0], PauseRecord(reason: "deploy"))
            #expect(try await status()?.slowedBy == "queue default is paused")
            // An operator's pause takes precedence.
            _ = try await desk.perform(
                CampaignChange(.pause, Fields([("campaign", "spring")]), now: now))
            let paused = try await status()
            #expect(paused?.state == .paused && paused?.slowedBy == nil)
        }
    }
}
