import NIOCore
import QueueTestSupport
import TestSupport
import Testing

@testable import PushJob
@testable import PushQueue

@Suite("A failure spends an attempt only if others of its group were delivered since", .queue)
struct AttemptTests {
    private let queue = QueueScope.queue
    /// Shortly before midnight: 2026-11-21T23:59:30Z.
    private static let start: Int64 = 1_795_305_570_000
    private static let group = DeliveryGroup(app: "shop", pushType: "alert")

    /// One poison job of a queue, which fails again and again, and deliveries beside it. Each step is settled by another lane.
    private final class Scene {
        let queue: TestQueue
        let campaign: ByteBuffer?
        let group: DeliveryGroup
        private let clock: ClockSource
        private(set) var now = AttemptTests.start
        private var lanes = 0
        private var hasPoison = false
        private(set) var exhausted: [QueueConnection.Settled.Exhausted] = []

        init(_ queue: TestQueue, campaign: String? = nil, group: DeliveryGroup = AttemptTests.group) throws {
            self.queue = queue
            self.campaign = campaign.map { ByteBuffer(string: $0) }
            self.group = group
            clock = .key("\(queue.keys.jobs):clock")
            try wait(0)
        }

        func wait(_ milliseconds: Int64) throws {
            now += milliseconds
            try queue.redis.run("SET", "\(queue.keys.jobs):clock", "\(now)")
        }

        func lane() -> TestWorker {
            lanes += 1
            return queue.worker("w\(lanes)", clock: clock)
        }

        /// Claims the poison job, and has it fail.
        /// - Returns: the number of its next attempt; `nil` if it has none.
        func fail(
            _ fault: Settlement.AttemptRule.Fault = .own, maximum: Int = 3, expires: Bool = false,
            notifications: Int = 1
        ) async throws -> Int? {
            let lane = lane()
            if !hasPoison { try queue.push(["poison"]) }
            hasPoison = true
            let claimed = try await lane.claim(1)
            let body = try #require(claimed.bodies.first)
            let envelope = Envelope.read(body)
            var writer = EnvelopeWriter(attempt: envelope.attempt)
            writer.write(claim: ByteBuffer(string: "\(lane.name):\(lane.id(1))"))
            writer.write(errorStatus: 429, reason: "TooManyRequests", at: now)
            var failure = Settlement.Failure(
                rule: .judged(fault, maximum: maximum, expires: expires), reason: "TooManyRequests",
                notifications: notifications, delay: 1000, head: writer.head(), group: group,
                original: envelope.original)
            failure.deadMembers = ByteBuffer(string: #","attempts":\#(envelope.attempt),"error":"TooManyRequests""#)
            let settlement = lane.filled {
                $0.use(campaign: campaign)
                $0.fail(lane.id(1), failure, settles: true)
            }
            let settled = try await lane.settled(settlement)
            exhausted += settled.exhausted
            let before = try queue.everything()
            let again = try await lane.settled(settlement)
            #expect(again.lost == 1 && again.exhausted.isEmpty)
            #expect(try queue.everything() == before)
            try wait(1000)
            let retries = try queue.texts("ZRANGE", queue.keys.failed, "0", "-1")
            #expect(retries.count + (try queue.dead().count) == 1)
            return retries.first.map { Envelope.read(ByteBuffer(string: $0)).attempt }
        }

        /// Delivers notifications of a campaign, or reports the deliveries of a group.
        func deliver(_ count: Int, campaign: String?, _ group: DeliveryGroup) async throws {
            let lane = lane()
            try queue.push(["good"])
            // The poison job is not due.
            #expect(try await lane.claim(1).texts == ["good"])
            try await lane.settle {
                $0.use(campaign: campaign.map { ByteBuffer(string: $0) })
                $0.end(1, .delivered, notifications: count)
                var sums = MinuteCounts()
                sums.deliveries[group] = count
                sums.outcomes[.delivered] = count
                $0.minute = sums
            }
        }
    }

    @Test("A poison job among good ones has its attempts and ends.", arguments: ["spring", nil])
    func poison(campaign: String?) async throws {
        let scene = try Scene(queue, campaign: campaign)
        try await deliver(scene, 20, campaign)
        var attempts: [Int?] = []
        // The first failure spends no attempt, because no delivery can have followed an earlier failure.
        for _ in 0..<4 {
            attempts.append(try await scene.fail())
            if attempts.last != .some(nil) { try await deliver(scene, 1, campaign) }
        }
        #expect(attempts == [1, 2, 3, nil])
        #expect(scene.exhausted == [.init(app: "shop", notifications: 1)])
        let letter = try #require(queue.dead().first)
        #expect(letter.original.text == "poison")
        #expect(letter.header.text.contains(#""reason":"AttemptsExhausted""#))
        #expect(letter.header.text.contains(#""attempts":3,"error":"TooManyRequests""#))
        let stats = try queue.stats()
        #expect(stats["retried"] == 3 && stats["retried:TooManyRequests"] == 3)
        #expect(stats["dead"] == 1 && stats["dead:AttemptsExhausted"] == 1 && stats["delivered"] == 23)
        guard let campaign else { return }
        let counters = try queue.texts("HMGET", queue.keys.campaign(campaign), "retried", "dead", "delivered", "failed")
        #expect(counters == ["3", "1", "23", "1"])
    }

    /// Delivers while the poison job is not due.
    private func deliver(
        _ scene: Scene, _ count: Int, _ campaign: String?, _ group: DeliveryGroup = Self.group
    ) async throws {
        try scene.wait(-500)
        try await scene.deliver(count, campaign: campaign, group)
        try scene.wait(500)
    }

    @Test("Without other deliveries a job waits for a day, and one that expires for longer.", arguments: [false, true])
    func outage(expires: Bool) async throws {
        let scene = try Scene(queue, campaign: "spring")
        let fault = Settlement.AttemptRule.Fault.own
        for hour in 0..<24 {
            #expect(try await scene.fail(fault, expires: expires) == 1, "\(hour)")
            try scene.wait(3_599_000)
        }
        #expect(try await scene.fail(fault, expires: expires) == (expires ? 1 : 2))
        #expect(try await scene.fail(fault, expires: expires) == (expires ? 1 : 3))
        #expect(try await scene.fail(fault, expires: expires) == (expires ? 1 : nil))
    }

    @Test("A failure of the server spends none in the first hour, whatever was delivered.")
    func server() async throws {
        let scene = try Scene(queue)
        try await deliver(scene, 20, nil)
        for _ in 0..<10 {
            #expect(try await scene.fail(.server) == 1)
            try await deliver(scene, 5, nil)
        }
        // In the first hour, a failure of the notification itself spends an attempt.
        #expect(try await scene.fail(.own) == 2)
        try scene.wait(3_600_000)
        #expect(try await scene.fail(.server) == 2)
        try await deliver(scene, 5, nil)
        #expect(try await scene.fail(.server) == 3)
    }

    @Test("A small group is judged with its app, and a large one by itself.", arguments: [7, 8])
    func smallGroup(failures: Int) async throws {
        let scene = try Scene(queue, campaign: "wrong")
        #expect(try await scene.fail(notifications: failures) == 1)
        try await deliver(scene, 5, "other")
        #expect(try await scene.fail(notifications: failures) == (failures < 8 ? 2 : 1))
    }

    @Test("The total of a campaign makes it a large group.")
    func total() async throws {
        let scene = try Scene(queue, campaign: "wrong")
        try queue.redis.run("HSET", queue.keys.campaign("wrong"), "total", "100")
        #expect(try await scene.fail() == 1)
        try await deliver(scene, 5, "other")
        #expect(try await scene.fail() == 1)
    }

    @Test("Notifications of another push type or app are not of a large group.")
    func otherGroups() async throws {
        let scene = try Scene(queue, group: DeliveryGroup(app: "shop", pushType: "voip"))
        for group in [DeliveryGroup(app: "shop", pushType: "alert"), DeliveryGroup(app: "news", pushType: "voip")] {
            try await deliver(scene, 50, nil, group)
        }
        #expect(try await scene.fail(notifications: 9) == 1)
        try await deliver(scene, 50, nil, DeliveryGroup(app: "shop", pushType: "alert"))
        try await deliver(scene, 50, nil, DeliveryGroup(app: "news", pushType: "voip"))
        #expect(try await scene.fail(notifications: 9) == 1)
        try await deliver(scene, 1, nil, DeliveryGroup(app: "shop", pushType: "voip"))
        #expect(try await scene.fail(notifications: 9) == 2)
        // Nothing of the group was delivered since the last failure.
        #expect(try await scene.fail(notifications: 9) == 2)
    }

    @Test("A counter that has begun again still shows what was delivered since.", arguments: ["spring", nil])
    func restart(campaign: String?) async throws {
        let scene = try Scene(queue, campaign: campaign)
        try await deliver(scene, 100, campaign)
        #expect(try await scene.fail() == 1)
        try queue.redis.run("DEL", queue.keys.deliveries, queue.keys.campaign("spring"))
        #expect(try await scene.fail() == 1)
        try await deliver(scene, 9, campaign)
        #expect(try await scene.fail() == 2)
    }

    @Test("Counters of another form, and facts that no worker wrote, spend nothing.")
    func hostile() async throws {
        try queue.redis.run("SET", queue.keys.deliveries, "x")
        let scene = try Scene(queue, campaign: "spring")
        try queue.redis.run("SET", queue.keys.campaign("spring"), "x")
        for _ in 0..<3 { #expect(try await scene.fail() == 1) }
        try queue.redis.run("DEL", queue.keys.deliveries, queue.keys.campaign("spring"), queue.keys.failed)
        try await deliver(scene, 9, "spring")
        for error in [
            #"{"first":"x","seen":[0,0]}"#, #"{"first":1,"seen":[0]}"#, #"{"first":1,"seen":[-1,1e999]}"#,
            #"{"first":1,"seen":{"group":0}}"#, "{}",
        ] {
            try queue.push(
                retry: #"{"apns_worker":1,"attempt":1,"error":\#(error),"job":poison}"#, at: 1)
            #expect(try await scene.fail() == 1, "\(error)")
            try queue.redis.run("DEL", queue.keys.failed)
        }
    }

    @Test("The counters of apps and push types have a bound, and expire.")
    func bounds() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b"])
        for claim in 1...2 {
            try await worker.settle {
                var sums = MinuteCounts()
                for app in 0..<800 { sums.deliveries[DeliveryGroup(app: "\(claim * app)", pushType: "alert")] = 2 }
                sums.outcomes[.delivered] = 1600
                $0.minute = sums
                $0.end(claim, .delivered)
            }
        }
        #expect(try queue.redis.run("HLEN", queue.keys.deliveries).number == 1000)
        let seconds = try #require(queue.redis.run("TTL", queue.keys.deliveries).number)
        #expect(seconds > 86_400 && seconds <= 2 * 86_400)
    }
}
