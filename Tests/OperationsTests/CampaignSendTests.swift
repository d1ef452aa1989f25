import NIOCore
import Operations
import PushQueue
import Synchronization
import TestSupport
import Testing

@Suite("Sending a campaign to a list")
struct CampaignSendTests {
    private var scene: OperatorScene { SceneScope.scene }

    /// Jobs of ten tokens, with their numbers as bodies.
    private struct NumberedJobs: TestJobs {
        var listDigest = "list"
        var jobDigest = "job"
        var count = 25
        var canary: Int?
        var isScheduled = false

        func notifications(ofFirst jobs: Int) -> Int { min(jobs * 10, count * 10 - 5) }

        func jobs(after first: Int, atMost count: Int, bytes: Int) throws -> [ByteBuffer] {
            (first..<min(self.count, first + count)).map { ByteBuffer(string: "job-\($0)") }
        }
    }

    private static let list = "push:{default}:jobs"

    private static func expected(_ count: Int = 25) -> [String] { (0..<count).map { "job-\($0)" } }

    private static func cursor(_ jobs: NumberedJobs, ahead: Int, _ scene: OperatorScene) async throws -> CampaignCursor
    {
        let keys = try QueueKeys()
        return CampaignCursor(
            ListedCampaign("spring", jobs, ahead: ahead, wait: 60_000), by: "ada",
            try await scene.fleet.client(for: keys.retry), keys)
    }

    private static func send(
        _ jobs: NumberedJobs, ahead: Int = 100, _ scene: OperatorScene, _ control: ChangeControl = ChangeControl()
    ) async throws -> ChangeResult {
        try await scene.desk().perform(SendCampaign(ListedCampaign("spring", jobs, ahead: ahead)), control)
    }

    @Test("A call that is repeated pushes nothing, and a gap is never pushed.", .scene)
    func repetition() async throws {
        let jobs = NumberedJobs()
        let cursor = try await Self.cursor(jobs, ahead: 100, scene)
        let first = try jobs.jobs(after: 0, atMost: 3, bytes: 0)
        #expect(try await cursor.push(try jobs.jobs(after: 3, atMost: 2, bytes: 0), after: 3).state == .lost)
        #expect(try await cursor.push(first, after: 0).state == .pushed)
        for _ in 0..<2 {
            let again = try await cursor.push(first, after: 0)
            #expect(again.state == .moved && again.next == 3)
        }
        #expect(try await cursor.push(try jobs.jobs(after: 5, atMost: 2, bytes: 0), after: 5).state == .moved)
        #expect(try await cursor.push(try jobs.jobs(after: 3, atMost: 2, bytes: 0), after: 3).next == 5)
        #expect(try scene.texts("LRANGE", Self.list, "0", "-1") == Self.expected(5))
        #expect(try scene.run("HGET", "push:{default}:campaign:spring", "total").text == "245")
    }

    @Test(
        "After a stop the same list continues, a finished one is not sent again, and all is in the audit log.", .scene)
    func continuation() async throws {
        let isStopped = Mutex(false)
        var control = ChangeControl()
        control.isStopped = { isStopped.withLock { $0 } }
        control.progress = { _ in isStopped.withLock { $0 = true } }
        let first = try await Self.send(NumberedJobs(), ahead: 10, scene, control)
        #expect(first.count == 10 && first.sentence.contains("10 of 25 are enqueued"))
        let desk = try scene.desk()
        let change = try SendCampaign(ListedCampaign("spring", NumberedJobs(), ahead: 100))
        let plan = try await desk.plan(change)
        #expect(plan.count == 15 && plan.parts.first?.notifications == 145)
        #expect(try await desk.apply(change, plan).count == 15)
        #expect(try scene.texts("LRANGE", Self.list, "0", "-1") == Self.expected())
        #expect(try await desk.plan(change).isEmpty)
        #expect(try await scene.audit() == ["send_campaign done 15", "send_campaign done 10"])
    }

    @Test("Another list, another job, a cancelled campaign and a lost position are refused.", .scene)
    func refusals() async throws {
        _ = try await Self.send(NumberedJobs(), scene)
        await expectRefusal("was sent to other tokens") {
            _ = try await Self.send(NumberedJobs(listDigest: "other"), scene)
        }
        await expectRefusal("another job, time, --canary or --job-size") {
            _ = try await Self.send(NumberedJobs(jobDigest: "other"), scene)
        }
        try scene.run("DEL", "push:{default}:campaign-list:spring")
        let keys = try QueueKeys()
        _ = try await JobCommands.change(
            .cancel(discard: false), of: [.campaign("spring")], by: "ada",
            try await scene.fleet.client(for: keys.retry), keys)
        await expectRefusal("is cancelled") { _ = try await Self.send(NumberedJobs(), scene) }
        #expect(try scene.run("LLEN", Self.list).number == 25)
    }

    @Test(
        "No more jobs wait than is allowed, and no more notifications are unended, unless they are scheduled.", .scene)
    func backpressure() async throws {
        let jobs = NumberedJobs()
        let cursor = try await Self.cursor(jobs, ahead: 4, scene)
        #expect(try await cursor.push(try jobs.jobs(after: 0, atMost: 4, bytes: 0), after: 0).state == .pushed)
        let full = try await cursor.ask(after: 4, count: 2)
        #expect(full.state == .full && full.waiting == 4 && full.unended == 60)
        // Workers have claimed the jobs, and 20 of their 40 notifications have ended.
        try scene.run("DEL", Self.list)
        #expect(try await cursor.ask(after: 4, count: 1).state == .full)
        try scene.run("HSET", "push:{default}:campaign:spring", "delivered", "15", "dead", "5")
        #expect(try await cursor.ask(after: 4, count: 2).state == .ready)
        #expect(try await cursor.ask(after: 4, count: 3).state == .full)
        let scheduled = try await Self.cursor(NumberedJobs(isScheduled: true), ahead: 4, scene)
        #expect(try await scheduled.ask(after: 4, count: 4).state == .ready)
    }

    // MARK: The canary

    private static func guarded(_ minimum: Int = 20) throws -> CampaignGuard {
        CampaignGuard(try #require(CampaignGuard.rules("invalid_token>5%")), minimum: minimum)
    }

    private static func canary(
        _ scene: OperatorScene, wait: Int = 60_000, _ control: ChangeControl = ChangeControl()
    ) async throws -> ChangeResult {
        try await scene.desk().perform(
            SendCampaign(ListedCampaign("spring", NumberedJobs(canary: 3), ahead: 100, guard: guarded(), wait: wait)),
            control)
    }

    private static func next(_ scene: OperatorScene) throws -> String? {
        try scene.run("HGET", "push:{default}:campaign-list:spring", "next").text
    }

    /// Sends until the command waits for the canary.
    private static func sendCanary(_ scene: OperatorScene) async throws {
        var control = ChangeControl()
        let isWaiting = Mutex(false)
        control.phase = { phase in if phase.hasPrefix("canary: ") { isWaiting.withLock { $0 = true } } }
        control.isStopped = { isWaiting.withLock { $0 } }
        #expect(try await canary(scene, control).count == 3)
    }

    @Test(
        "Once all of the canary has ended, or its wait has passed with the minimum, the rest follows.", .scene,
        arguments: [(60_000, 30), (1, 20)])
    func canaryPasses(wait: Int, delivered: Int) async throws {
        try await Self.sendCanary(scene)
        try scene.run("HSET", "push:{default}:campaign:spring", "delivered", "\(delivered)")
        let notes = Mutex([String]())
        var control = ChangeControl()
        control.note = { note in notes.withLock { $0.append(note) } }
        #expect(try await Self.canary(scene, wait: wait, control).count == 22)
        #expect(try scene.texts("LRANGE", Self.list, "0", "-1") == Self.expected())
        let words = notes.withLock { $0 }.joined(separator: "\n")
        #expect(words.contains("the canary has \(delivered) delivered"), "\(words)")
        #expect(words.contains("10 of its tokens have not ended") == (delivered == 20), "\(words)")
    }

    @Test(
        "With fewer outcomes than the guard needs the rest waits, however long the wait was.", .scene
    )
    func canaryWaits() async throws {
        try await Self.sendCanary(scene)
        try scene.run("HSET", "push:{default}:campaign:spring", "delivered", "19")
        let notes = Mutex([String]())
        var control = ChangeControl()
        control.note = { note in notes.withLock { $0.append(note) } }
        control.isStopped = { notes.withLock { $0.contains { $0.contains("still waiting") } } }
        #expect(try await Self.canary(scene, wait: 1, control).count == 0)
        #expect(try Self.next(scene) == "3")
        try scene.run("HSET", "push:{default}:campaign:spring", "delivered", "20")
        #expect(try await Self.canary(scene, wait: 1).count == 22)
        #expect(try scene.texts("LRANGE", Self.list, "0", "-1") == Self.expected())
    }

    @Test(
        "A guard that pauses the campaign ends the command with its reason, and after resume the rest follows.", .scene)
    func canaryStops() async throws {
        try await Self.sendCanary(scene)
        let guarded = try scene.run("HGET", "push:{default}:campaign:spring", "guard").text ?? ""
        #expect(guarded.contains(#""min":20"#) && guarded.contains(#""base""#), "\(guarded)")
        try scene.run("HSET", "push:{default}:campaign:spring", "invalid_token", "20")
        try scene.run(
            "HSET", "push:{default}:job-commands", "campaign:spring",
            #"{"state":"paused","at":1e15,"by":"guard","reason":"invalid_token is 100.0% of 20, above 5%"}"#)
        for _ in 0..<2 {
            await expectRefusal("invalid_token is 100.0% of 20, above 5%; the canary has 20 invalid_token") {
                _ = try await Self.canary(scene, wait: 1)
            }
        }
        #expect(try Self.next(scene) == "3")
        try scene.run("HDEL", "push:{default}:job-commands", "campaign:spring")
        #expect(try await Self.canary(scene, wait: 1).count == 22)
        // The guard still counts from its own beginning.
        #expect(try scene.run("HGET", "push:{default}:campaign:spring", "guard").text == guarded)
    }

    @Test("Suppressed notifications were sent to no device, and do not count for the guard's minimum.", .scene)
    func canarySuppressed() async throws {
        try await Self.sendCanary(scene)
        let (keys, counters) = (try QueueKeys(), "push:{default}:campaign:spring")
        let cursor = CampaignCursor(
            ListedCampaign("spring", NumberedJobs(canary: 3), ahead: 100, guard: try Self.guarded()), by: "ada",
            try await scene.fleet.client(for: keys.retry), keys)
        try scene.run("HSET", counters, "suppressed", "20", "delivered", "5")
        #expect(try await cursor.ask(after: 3, count: 1).state == .canary)
        try scene.run("HSET", counters, "suppressed", "5", "delivered", "20")
        #expect(try await cursor.ask(after: 3, count: 1).state == .ready)
    }

    @Test("Outcomes from before the campaign's list are not the canary's.", .scene)
    func canaryBase() async throws {
        try scene.run("HSET", "push:{default}:campaign:spring", "delivered", "500")
        try await Self.sendCanary(scene)
        let cursor = try await Self.cursor(NumberedJobs(canary: 3), ahead: 100, scene)
        let waiting = try await cursor.ask(after: 3, count: 1)
        #expect(waiting.state == .canary && waiting.unended == 30)
        #expect(waiting.outcomes[.delivered] == 0)
    }

    @Test(
        "Counters that are not numbers neither double the first jobs nor count as outcomes of the canary.", .scene,
        arguments: ["nan", "inf", "1e20", "-3", "x"])
    func damagedCounters(value: String) async throws {
        let key = "push:{default}:campaign:spring"
        try scene.run("HSET", key, "invalid_token", value, "suppressed", value, "delivered", "7")
        try await Self.sendCanary(scene)
        #expect(try Self.next(scene) == "3")
        #expect(try scene.texts("LRANGE", Self.list, "0", "-1") == Self.expected(3))
        try scene.run("HSET", key, "delivered", "9")
        let waiting = try await Self.cursor(NumberedJobs(canary: 3), ahead: 100, scene).ask(after: 3, count: 1)
        #expect(waiting.state == .canary && waiting.unended == 28)
        #expect(waiting.outcomes[.delivered] == 2 && waiting.outcomes[.suppressed] == 0)
    }

    @Test("A position that is not a number is one, so the command does not ask for it without end.", .scene)
    func damagedPosition() async throws {
        try await Self.sendCanary(scene)
        let cursor = try await Self.cursor(NumberedJobs(canary: 3), ahead: 100, scene)
        for (value, next) in [("nan", 0), ("x", 0), ("-5", 0), ("2.5", 2), ("inf", 1 << 53)] {
            try scene.run("HSET", "push:{default}:campaign-list:spring", "next", value)
            let reply = try await cursor.ask(after: 3, count: 1)
            #expect(reply.state == .moved && reply.next == next, "\(value)")
        }
    }

    @Test("The guard that the campaign has now decides how many outcomes the canary needs.", .scene)
    func changedGuard() async throws {
        try await Self.sendCanary(scene)
        let key = "push:{default}:campaign:spring"
        try scene.run("HSET", key, "delivered", "25")
        try scene.run("HSET", "push:{default}:campaign-list:spring", "canary_at", "1")
        let keys = try QueueKeys()
        let client = try await scene.fleet.client(for: keys.retry)
        let cursor = CampaignCursor(
            ListedCampaign("spring", NumberedJobs(canary: 3), ahead: 100, guard: try Self.guarded(), wait: 1),
            by: "ada", client, keys)
        #expect(try await cursor.ask(after: 3, count: 1).state == .ready)
        _ = try await CampaignGuard.set(try Self.guarded(28), of: "spring", client, keys)
        let waiting = try await cursor.ask(after: 3, count: 1)
        #expect(waiting.state == .canary && waiting.needed == 28 && waiting.leftMs == 0)
        // Without a guard, the command's own minimum remains.
        _ = try await CampaignGuard.set(nil, of: "spring", client, keys)
        let unguarded = try await cursor.ask(after: 3, count: 1)
        #expect(unguarded.state == .ready && unguarded.needed == 20)
    }

    @Test("Two commands that send the same list wait for the same canary, and push each job once.", .scene)
    func twoCommands() async throws {
        let jobs = NumberedJobs(canary: 3)
        let one = try await Self.cursor(jobs, ahead: 100, scene)
        let other = try await Self.cursor(jobs, ahead: 100, scene)
        #expect(try await one.push(try jobs.jobs(after: 0, atMost: 2, bytes: 0), after: 0).state == .pushed)
        let late = try await other.push(try jobs.jobs(after: 0, atMost: 3, bytes: 0), after: 0)
        #expect(late.state == .moved && late.next == 2)
        #expect(try await other.push(try jobs.jobs(after: 2, atMost: 1, bytes: 0), after: 2).next == 3)
        let rest = try jobs.jobs(after: 3, atMost: 22, bytes: 0)
        for cursor in [one, other] { #expect(try await cursor.push(rest, after: 3).state == .canary) }
        try scene.run("HSET", "push:{default}:campaign:spring", "delivered", "30")
        #expect(try await one.push(rest, after: 3).state == .pushed)
        #expect(try await other.push(rest, after: 3).state == .moved)
        #expect(try scene.texts("LRANGE", Self.list, "0", "-1") == Self.expected())
        #expect(try scene.run("HGET", "push:{default}:campaign:spring", "total").text == "245")
    }

    @Test("A canary needs a guard, and as many tokens as its minimum.")
    func canaryMistakes() throws {
        func mistake(_ minimum: Int?) throws -> String {
            let guarded = try minimum.map { try Self.guarded($0) }
            do throws(FieldMistake) {
                _ = try SendCampaign(ListedCampaign("spring", NumberedJobs(canary: 3), ahead: 1, guard: guarded))
                return ""
            } catch { return error.text(.flag) }
        }
        #expect(try mistake(nil).contains("--canary needs --stop-if"))
        #expect(try mistake(30) == "")
        // 19.5 % is (31 + 3·√31) of 245.
        #expect(try mistake(31).contains("30 tokens of this list"))
        #expect(try mistake(31).contains("pass --canary 19.5%, or --min 30 or less"))
        #expect(try mistake(1000).contains("pass --min 30 or less"))
    }

    @Test(
        "Keys of other types are refused before anything is pushed.", .scene,
        arguments: ["campaign-list:spring", "campaign:spring", "campaigns", "job-commands"])
    func wrongTypes(key: String) async throws {
        try scene.run("SET", "push:{default}:\(key)", "x")
        await #expect(throws: (any Error).self) { try await Self.send(NumberedJobs(), scene) }
        #expect(try scene.run("LLEN", Self.list).number == 0)
    }
}
