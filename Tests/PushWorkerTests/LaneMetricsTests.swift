import APNS
import Foundation
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker

@Suite("What a lane counts")
struct LaneMetricsTests {
    @Test("notifications are counted by app, queue and push type, each by itself")
    func series() {
        let metrics = LaneMetrics(apps: 3, queues: 2, takesTimes: false)
        var expected: [LaneMetrics.Key: Int] = [:]
        var count = 0
        for app in 0..<3 {
            for queue in 0..<2 {
                for pushType in PushType.allCases {
                    count += 1
                    let series = metrics.series(app: app, queue: queue, pushType: pushType)
                    for _ in 0..<count { metrics.countDelivered(series) }
                    metrics.count(.dead, series, count, reason: "BadPath")
                    for (outcome, reason) in [(NotificationOutcome.delivered, ""), (.dead, "BadPath")] {
                        let key = LaneMetrics.Key(
                            app: app, queue: queue, pushType: pushType.place, outcome: outcome, reason: reason)
                        expected[key] = count
                    }
                }
            }
        }
        #expect(metrics.notifications == expected)
    }

    @Test("apps that come later are counted too, and nothing that was is forgotten")
    func growth() {
        let metrics = LaneMetrics(apps: 1, queues: 2, takesTimes: true)
        let first = metrics.series(app: 0, queue: 1, pushType: .voip)
        metrics.countDelivered(first)
        metrics.sendTimes.record(7, row: 0)
        for app in 1..<20 {
            metrics.countDelivered(metrics.series(app: app, queue: 1, pushType: .mdm))
            metrics.sendTimes.record(UInt32(app), row: app)
        }
        metrics.countDelivered(first)
        #expect(metrics.notifications.count == 20)
        #expect(
            metrics.notifications[
                .init(app: 0, queue: 1, pushType: PushType.voip.place, outcome: .delivered, reason: "")] == 2)
        #expect(metrics.sendTimes.row(0).sum == 7 && metrics.sendTimes.row(19).sum == 19)
        #expect(metrics.sendTimes.row(1000).counts.allSatisfy { $0 == 0 })
    }

    @Test("jobs are counted by queue and outcome")
    func jobs() {
        let metrics = LaneMetrics(apps: 1, queues: 3, takesTimes: false)
        for (number, outcome) in JobOutcome.allCases.enumerated() {
            for _ in 0...number { metrics.count(outcome, queue: 2) }
        }
        for (number, outcome) in JobOutcome.allCases.enumerated() {
            #expect(metrics.jobs(outcome, queue: 2) == number + 1 && metrics.jobs(outcome, queue: 0) == 0)
        }
    }

    @Test("places in tables are those of the cases, or the labels would be others'")
    func places() {
        #expect(JobOutcome.allCases.map(\.place) == Array(JobOutcome.allCases.indices))
        #expect(PushType.allCases.map(\.place) == Array(PushType.allCases.indices))
    }

    @Test("the time is read once a turn, and an enqueueing in the future is no time at all")
    func times() {
        let metrics = LaneMetrics(apps: 1, queues: 2, takesTimes: true)
        metrics.setClock(ofQueue: 1, ahead: 1_700_000_000_000)
        metrics.readTime(.uptimeNanoseconds(5_000_000_000))
        #expect(metrics.time() == 5_000_000)
        metrics.submitted(queue: 1, since: 1_700_000_004_000)
        metrics.submitted(queue: 1, since: 1_700_000_009_000)
        metrics.submitted(queue: 1, since: -1)
        let (counts, sum) = metrics.queueTimes.row(1)
        #expect(sum == 1000 && counts.reduce(0, +) == 2)
        #expect(metrics.queueTimes.row(0).sum == 0)
        metrics.turned()
        #expect(metrics.time() != 5_000_000)
    }

    @Test("a time that is longer than can be counted is the longest")
    func long() {
        let metrics = LaneMetrics(apps: 1, queues: 1, takesTimes: true)
        metrics.readTime(.uptimeNanoseconds(0))
        metrics.setClock(ofQueue: 0, ahead: 1_700_000_000_000)
        metrics.submitted(queue: 0, since: 0)
        #expect(metrics.queueTimes.row(0).sum == Int(UInt32.max))
    }
}

@Suite("A lane's histograms")
struct LaneHistogramTests {
    @Test(
        "a value is in the first bucket whose bound is not less",
        arguments: [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (UInt32.max, 2)] as [(UInt32, Int)])
    func buckets(value: UInt32, bucket: Int) {
        let histogram = LaneHistogram(bounds: [10, 20], rows: 2)
        histogram.record(value, row: 1)
        var expected = [0, 0, 0]
        expected[bucket] = 1
        #expect(histogram.row(1).counts == expected && histogram.row(1).sum == Int(value))
        #expect(histogram.row(0).counts == [0, 0, 0])
    }

    @Test("the worker's buckets ascend, and are whole in the units in which they are counted")
    func bounds() {
        for (metric, unit) in [(WorkerMetric.sendTime, 1_000_000.0), (.queueTime, 1000)] {
            let bounds = metric.buckets.map { UInt32($0 * unit) }
            #expect(bounds == bounds.sorted() && Set(bounds).count == bounds.count)
            for (bound, bucket) in zip(bounds, metric.buckets) { #expect(Double(bound) / unit == bucket) }
        }
    }
}

@Suite("Words for reasons")
struct MetricReasonTests {
    @Test("every reason of APNs is known, and every word of a request without an answer")
    func known() {
        for reason in APNSReason.allCases { #expect(MetricReason.word(reason.rawValue) == reason.rawValue) }
        let failures: [RequestFailure] = [
            .refusedStream, .goingAway(reason: "x"), .reset(code: 7), .timedOut, .connectionLost("x"), .discarded,
            .hungUp,
        ]
        for failure in failures { #expect(MetricReason.word(failure.word) == failure.word) }
        for code in [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 128, 255] as [UInt8] where code != 0 {
            let word = GatewayStatus(code: code).word
            #expect(MetricReason.word(word) == word)
        }
    }

    @Test("every reason in the worker's sources and in the scripts is known")
    func sources() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "Sources")
        let folders = ["PushWorker", "PushQueue/Scripts"].map { root.appending(path: $0) }
        var files = ["PushQueue/Job/JobError.swift", "APNS/Response.swift"].map { root.appending(path: $0) }
        for folder in folders {
            let paths = try #require(FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil))
            files += paths.compactMap { $0 as? URL }.filter { ["swift", "lua"].contains($0.pathExtension) }
        }
        #expect(files.count > 80)
        // A text that is nothing but a word in capitals and small letters is a reason, with these exceptions: the class of an
        // example, and the reason that `dead list` shows for a body that is not a dead letter.
        let others = ["PushJob", "Unreadable"]
        var found: Set<String> = []
        for file in files where file.lastPathComponent != "MetricReason.swift" {
            for match in try String(contentsOf: file, encoding: .utf8).matches(of: /["']([A-Z][a-z]+[A-Za-z]*)["']/) {
                found.insert(String(match.1))
            }
        }
        found.subtract(others)
        #expect(found.isSuperset(of: ["NotSidekiqJob", "JobTooLarge", "UnreadableClaim", "UnknownApp"]))
        for reason in found.sorted() { #expect(MetricReason.word(reason) == reason) }
    }

    @Test("an explanation is left out, and no reason at all is none")
    func explained() {
        #expect(MetricReason.word("BadDeviceToken for most tokens (is the environment right?)") == "BadDeviceToken")
        #expect(MetricReason.word("") == "")
    }

    @Test(
        "whatever else somebody answers is other",
        arguments: ["NewReason", "HTTP418", "HTTP200", "GatewayStatus77", "badpath", "ab12\"}\n", "00fc13adff785122b4"])
    func others(reason: String) {
        #expect(MetricReason.word(reason) == MetricReason.other)
    }
}

@Suite("The outcome of a job")
struct JobOutcomeTests {
    private let token = ByteBuffer(string: "ab")

    @Test("is that of its only notification")
    func alone() {
        let (dead, retried, parked, dropped) = (JobTally(), JobTally(), JobTally(), JobTally())
        dead.add(dead: token, reason: "x", status: nil)
        retried.add(retry: [token], reason: "x", status: nil, delay: 0, spendsAttempt: true)
        parked.add(retry: [token], reason: "x", status: nil, delay: 0, spendsAttempt: false)
        dropped.dropped = 1
        let outcomes = [dead, retried, parked, dropped].map { $0.jobOutcome(isAlone: true) }
        #expect(outcomes == [.dead, .retried, .parked, .dropped])
    }

    @Test("is mixed when they ended in several ways, and says so when some come again")
    func many() {
        let tally = JobTally()
        tally.delivered = 5
        #expect(tally.jobOutcome(isAlone: false) == .delivered)
        tally.suppressed = 1
        #expect(tally.jobOutcome(isAlone: false) == .mixed)
        tally.suppressed = 0
        tally.add(dead: token, reason: "x", status: nil)
        #expect(tally.jobOutcome(isAlone: false) == .mixed)
        tally.add(retry: [token], reason: "x", status: nil, delay: 0, spendsAttempt: true)
        #expect(tally.jobOutcome(isAlone: false) == .retried)
    }
}

@Suite("How long the head of a queue has waited")
struct HeadWatchTests {
    private let one = ByteBuffer(string: "one")
    private let other = ByteBuffer(string: "other")

    @Test("counts from its enqueueing, where it says when that was")
    func said() {
        var watch = HeadWatch()
        #expect(watch.saw(one, enqueuedAt: 400, now: 1000) == 600)
        #expect(watch.saw(one, enqueuedAt: 400, now: 1500) == 1100)
        #expect(watch.saw(other, enqueuedAt: 1900, now: 2000) == 100)
    }

    @Test("counts from when it was first seen, where it does not, and anew for the next")
    func seen() {
        var watch = HeadWatch()
        #expect(watch.saw(one, enqueuedAt: nil, now: 1000) == 0)
        #expect(watch.saw(one, enqueuedAt: nil, now: 1500) == 500)
        #expect(watch.saw(other, enqueuedAt: nil, now: 1600) == 0)
        #expect(watch.saw(nil, enqueuedAt: nil, now: 1700) == 0)
        #expect(watch.saw(other, enqueuedAt: nil, now: 1800) == 0)
    }

    @Test("is no less than it has been seen to be, whatever a producer's clock says")
    func future() {
        var watch = HeadWatch()
        #expect(watch.saw(one, enqueuedAt: 5000, now: 1000) == 0)
        #expect(watch.saw(one, enqueuedAt: 5000, now: 1500) == 500)
    }
}

@Suite("The pulse of an event loop")
struct LoopPulseTests {
    @Test("a loop is stuck when it has not turned for long, and not before it has begun or after its end")
    func stuck() {
        let pulse = LoopPulse()
        let start = NIODeadline.uptimeNanoseconds(1_000_000_000)
        #expect(pulse.stuck(now: start + .hours(1)) == nil)
        pulse.beat(start)
        #expect(pulse.stuck(now: start + .milliseconds(9999)) == nil)
        #expect(pulse.stuck(now: start + .seconds(10)) == .seconds(10))
        pulse.beat(start + .seconds(60))
        #expect(pulse.stuck(now: start + .seconds(61)) == nil)
        pulse.stop()
        pulse.beat(start)
        #expect(pulse.stuck(now: start + .hours(1)) == nil)
    }
}
