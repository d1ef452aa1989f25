import APNS
import NIOCore
import PushJob
import Testing

@testable import PushQueue
@testable import PushWorker
@testable import Redis

/// A lane's sums for the history, and the settlements that include them.
@Suite("A lane's history")
struct MinuteRecorderTests {
    private let scene: EngineScene

    init() throws { scene = try EngineScene() }

    private var sum: MinuteCounts { scene.queue.minutes.reduce(into: MinuteCounts()) { $0 += $1.counts } }
    private var delivered: Int { sum.outcomes[.delivered] }

    @Test("is sent with a settlement about once per second, and alone only after the last")
    func once() throws {
        let jobs = 300
        for _ in 0..<jobs {
            scene.pushOne()
            scene.answer(EngineScene.delivered)
        }
        // About 12 s have passed.
        let carried = scene.queue.minutes.count
        #expect((9...13).contains(carried) && scene.queue.settlements > 10 * carried)
        #expect(scene.queue.minutes.allSatisfy { $0.claims > 0 })
        #expect(delivered > jobs - 60)
        scene.run(.seconds(5))
        #expect(scene.queue.minutes.count == carried + 1 && scene.queue.minutes.last?.claims == 0)
        #expect(delivered == jobs && scene.stats == ["delivered": jobs])
        // Nothing is written while there is no work.
        let settlements = scene.queue.settlements
        scene.run(.minutes(3))
        #expect(scene.queue.minutes.count == carried + 1 && scene.queue.settlements == settlements)
    }

    @Test("has the outcomes of all notifications, and retries and deferrals by reasons that are known")
    func counts() throws {
        scene.pushOne()
        scene.answer(.serviceUnavailable)
        scene.pushOne()
        scene.answer(.response(Response(status: 400, reasonText: "Made\u{1B}Up")))
        scene.pushOne(token: "cc")
        scene.answer(.unregistered)
        scene.pushOne(token: "dd", #""alert":"hi","expiration":1"#)
        scene.push(EngineScene.fanOut(["ee", "ff", "0a"]))
        for _ in 0..<3 { scene.answer(EngineScene.delivered) }
        scene.push("nonsense")
        scene.run(.seconds(4))
        var expected = OutcomeCounts()
        (expected[.invalidToken], expected[.expired], expected[.delivered], expected[.dead]) = (1, 1, 3, 1)
        // The retries may have been sent again by now.
        #expect(sum.outcomes == expected, "\(sum.outcomes.counted)")
        #expect(sum.retries["ServiceUnavailable"] == 1 && sum.retries[MinuteCounts.otherReason] == 1)
        #expect(sum.retries.count == 2 && sum.deferrals.isEmpty)
        // The answers: two retries, one invalid token, three deliveries.
        #expect(sum.answers.count == 6 && sum.latencies.count == 4 && sum.oldest == nil)
    }

    @Test("has the time from enqueueing to the outcome, the time of the answer, and the age of the oldest job")
    func latencies() throws {
        scene.run(.seconds(2))
        let enqueued = (EngineScene.time(scene.loop.now) - 40_000) / 1000
        scene.pushOne(#""alert":"hi","enqueued_at":\#(enqueued)"#)
        scene.run(.milliseconds(700))
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(4))
        #expect(sum.answers.buckets.map { [$0.bound, $0.count] } == [[768, 1]])
        #expect(sum.latencies.buckets.map { [$0.bound, $0.count] } == [[49_152, 1]])
        #expect((39_000...42_000).contains(try #require(sum.oldest)))
    }

    @Test("excludes retries, and times in the future or the distant past")
    func hostileTimes() throws {
        for time in ["99999999999", "0", "1", "1.5e9"] {
            scene.pushOne(#""alert":"hi","enqueued_at":\#(time)"#)
            scene.answer(EngineScene.delivered)
        }
        scene.pushOne()
        scene.answer(.serviceUnavailable)
        scene.claimPostponed(after: .seconds(3))
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(4))
        #expect(
            sum.outcomes[.delivered] + sum.outcomes[.dead] == 5 && sum.answers.count == sum.outcomes[.delivered] + 1)
        #expect(sum.latencies.count == sum.outcomes[.delivered] - 1)
    }

    @Test("is complete at the end of a drain")
    func drain() throws {
        for _ in 0..<3 {
            scene.pushOne()
            scene.answer(EngineScene.delivered)
        }
        #expect(delivered == 1)
        _ = scene.lane.drain(within: .seconds(5))
        scene.run()
        #expect(scene.queue.released && delivered == 3)
    }

    @Test("is written later if Redis refuses it, and is not counted twice if its answer is lost")
    func refusals() throws {
        for _ in 0..<2 {
            scene.pushOne()
            scene.answer(EngineScene.delivered)
        }
        #expect(delivered == 1)
        scene.queue.refusal = .redis(.server(RedisServerError(text: "OOM full")))
        scene.run(.seconds(4))
        #expect(delivered == 1)
        scene.queue.refusal = nil
        scene.run(.seconds(4))
        #expect(delivered == 2)

        scene.pushOne()
        scene.answer(EngineScene.delivered)
        scene.pushOne()
        scene.answer(EngineScene.delivered)
        scene.queue.refusal = .redis(.timeout(address: "fake", after: .seconds(1)))
        scene.run(.seconds(4))
        scene.queue.refusal = nil
        scene.run(.seconds(4))
        #expect(delivered == 3 && scene.stats["delivered"] == 4)
    }

    @Test("starts at zero again when it is read, by queue")
    func recorder() throws {
        let metrics = LaneMetrics(apps: 2, queues: 2, measuresTimes: false)
        let recorder = metrics.minutes
        let series = (0..<4).map { metrics.series(app: $0, queue: 1, pushType: $0 < 2 ? .alert : .voip) }
        #expect(metrics.takeMinute(ofQueue: 0) == nil)
        for series in series { metrics.countDelivered(series) }
        metrics.countDelivered(series[3])
        metrics.count(.ended(.cancelled), series[0], 1, nil)
        recorder.record(latency: 5, queue: 1)
        recorder.record(latency: .max, queue: 1)
        recorder.record(answer: .max, queue: 1)
        metrics.count(.postponed(.scheduled), app: nil, queue: 1, 7, nil)
        metrics.count(.postponed(.deferred), app: nil, queue: 1, 3, Reason(.throttled))
        metrics.count(.postponed(.deferred), series[0], 4, Reason(.throttled))
        metrics.count(.resent, series[0], 2, Reason(.throttled))
        metrics.count(.mixed, queue: 1)
        for age in [Int64(0), 9, 3, -1] { recorder.recordAge(age, queue: 1) }
        #expect(metrics.takeMinute(ofQueue: 0) == nil)
        let counts = try #require(metrics.takeMinute(ofQueue: 1))
        #expect(counts.outcomes.counted.map(\.count) == [5, 1] && counts.deferrals == ["Throttled": 7])
        #expect(counts.latencies.buckets.map(\.bound) == [6, 4_194_304] && counts.oldest == 9)
        #expect(counts.answers.buckets.map(\.bound) == [MinuteCounts.longestAnswer] && counts.retries.isEmpty)
        #expect(metrics.takeMinute(ofQueue: 1) == nil)
        recorder.recordAge(0, queue: 0)
        #expect(metrics.takeMinute(ofQueue: 0)?.oldest == 0)
        recorder.putBack(counts, queue: 1)
        metrics.countDelivered(series[0])
        metrics.count(.postponed(.deferred), series[0], 1, Reason(.throttled))
        let later = try #require(metrics.takeMinute(ofQueue: 1))
        #expect(later.outcomes[.delivered] == 6 && later.outcomes[.cancelled] == 1)
        #expect(later.deferrals == ["Throttled": 8])
        // The lane's own sums do not start again.
        let sums = metrics.counters
        #expect(sums[.delivered] == 6 && sums[.cancelled] == 1 && sums.done == 7)
        #expect(sums.scheduled == 7 && sums.deferred == 8 && sums.resent == 2)
    }
}
