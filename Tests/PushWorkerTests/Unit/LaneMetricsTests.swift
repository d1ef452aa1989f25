import APNS
import Foundation
import LegacyAPNS
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker

@Suite("A lane's counts")
struct LaneMetricsTests {
    @Test("notifications are counted separately by app, queue and push type")
    func series() {
        let metrics = LaneMetrics(apps: 3, queues: 2, measuresTimes: false)
        var expected: [LaneMetrics.Key: Int] = [:]
        var count = 0
        for app in 0..<3 {
            for queue in 0..<2 {
                for pushType in PushType.allCases {
                    count += 1
                    let series = metrics.series(app: app, queue: queue, pushType: pushType)
                    for _ in 0..<count { metrics.countDelivered(series) }
                    metrics.count(.ended(.dead), series, count, Reason(.badPath))
                    for (outcome, reason) in [(Outcome.delivered, ""), (.dead, "BadPath")] {
                        let key = LaneMetrics.Key(
                            app: app, queue: queue, pushType: pushType.place, fate: .ended(outcome), reason: reason)
                        expected[key] = count
                    }
                }
            }
        }
        #expect(metrics.notifications == expected)
    }

    @Test("apps that are added later are counted too, and old counts are kept")
    func growth() {
        let metrics = LaneMetrics(apps: 1, queues: 2, measuresTimes: true)
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
                .init(app: 0, queue: 1, pushType: PushType.voip.place, fate: .ended(.delivered), reason: "")] == 2)
        #expect(metrics.sendTimes.row(0).sum == 7 && metrics.sendTimes.row(19).sum == 19)
        #expect(metrics.sendTimes.row(1000).counts.allSatisfy { $0 == 0 })
    }

    @Test("jobs are counted by queue and outcome")
    func jobs() {
        let metrics = LaneMetrics(apps: 1, queues: 3, measuresTimes: false)
        for (number, outcome) in Fate.ofJobs.enumerated() { for _ in 0...number { metrics.count(outcome, queue: 2) } }
        for (number, outcome) in Fate.ofJobs.enumerated() {
            #expect(metrics.jobs(outcome, queue: 2) == number + 1 && metrics.jobs(outcome, queue: 0) == 0)
        }
    }

    @Test("table indices match the cases, or the labels would be wrong")
    func places() {
        #expect(Fate.ofJobs.map(\.index) == Array(Fate.ofJobs.indices))
    }

    @Test("the time is read once a turn, and a future time of enqueueing is ignored")
    func times() {
        let metrics = LaneMetrics(apps: 1, queues: 2, measuresTimes: true)
        metrics.setClock(ofQueue: 1, ahead: 1_700_000_000_000)
        metrics.readTime(.uptimeNanoseconds(5_000_000_000))
        #expect(metrics.time() == 5_000_000)
        metrics.recordFirstSubmission(queue: 1, since: 1_700_000_004_000)
        metrics.recordFirstSubmission(queue: 1, since: 1_700_000_009_000)
        metrics.recordFirstSubmission(queue: 1, since: -1)
        let (counts, sum) = metrics.queueTimes.row(1)
        #expect(sum == 1000 && counts.reduce(0, +) == 2)
        #expect(metrics.queueTimes.row(0).sum == 0)
        metrics.turned()
        #expect(metrics.time() != 5_000_000)
    }

    @Test("a time beyond the range is counted as the longest")
    func long() {
        let metrics = LaneMetrics(apps: 1, queues: 1, measuresTimes: true)
        metrics.readTime(.uptimeNanoseconds(0))
        metrics.setClock(ofQueue: 0, ahead: 1_700_000_000_000)
        metrics.recordFirstSubmission(queue: 0, since: 0)
        #expect(metrics.queueTimes.row(0).sum == Int(UInt32.max))
    }
}

@Suite("A lane's histograms")
struct LaneHistogramTests {
    @Test(
        "a value is in the first bucket whose bound is not lower",
        arguments: [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (UInt32.max, 2)] as [(UInt32, Int)])
    func buckets(value: UInt32, bucket: Int) {
        let histogram = LaneHistogram(bounds: [10, 20], rows: 2)
        histogram.record(value, row: 1)
        var expected = [0, 0, 0]
        expected[bucket] = 1
        #expect(histogram.row(1).counts == expected && histogram.row(1).sum == Int(value))
        #expect(histogram.row(0).counts == [0, 0, 0])
    }

    @Test("the worker's buckets ascend, and are whole numbers of their units")
    func bounds() {
        for (metric, unit) in [(WorkerMetric.sendTime, 1_000_000.0), (WorkerMetric.queueTime, 1000)] {
            let bounds = metric.buckets.map { UInt32($0 * unit) }
            #expect(bounds == bounds.sorted() && Set(bounds).count == bounds.count)
            for (bound, bucket) in zip(bounds, metric.buckets) { #expect(Double(bound) / unit == bucket) }
        }
    }
}

@Suite("A reason's label")
struct ReasonLabelTests {
    @Test("is its code for every known code")
    func known() {
        let codes =
            APNSReason.allCases.map(Reason.Code.apns) + RequestFailure.Kind.allCases.map(Reason.Code.request)
            + JobError.Code.allCases.map(Reason.Code.job) + Reason.Own.allCases.map(Reason.Code.own)
            + ([0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 128, 255] as [UInt8]).map { .gateway(GatewayStatus(code: $0)) }
        for code in codes { #expect(code.label == code.text) }
        #expect(Reason.Code.http(503).label == "HTTP503")
    }

    @Test("is known for every code in the scripts")
    func scripts() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../../Sources/PushQueue/Scripts")
        let paths = try #require(FileManager.default.enumerator(at: root, includingPropertiesForKeys: nil))
        // A string of one word with capital and small letters is a code, except one text of `dead list`.
        var found: Set<String> = []
        for case let file as URL in paths where file.pathExtension == "lua" {
            for match in try String(contentsOf: file, encoding: .utf8).matches(of: /'([A-Z][a-z]+[A-Za-z]*)'/) {
                found.insert(String(match.1))
            }
        }
        found.remove("Unreadable")
        #expect(found.isSuperset(of: ["JobTooLarge", "UnreadableClaim", "Poison"]))
        for code in found.sorted() { #expect(Reason.Code(text: code).label == code) }
    }

    @Test(
        "is `other` for any other text",
        arguments: ["NewReason", "HTTP418", "HTTP204", "GatewayStatus77", "badpath", "ab12\"}\n", "00fc13adff785122b4"])
    func others(reason: String) { #expect(Reason.Code(text: reason).label == "other") }
}

@Suite("The fate of a job")
struct FateTests {
    private let one = JobTally.Recipients.some([ByteBuffer(string: "ab")])

    @Test("is the fate of its only notification")
    func alone() {
        let (dead, retried, deferred, dropped) = (JobTally(), JobTally(), JobTally(), JobTally())
        dead.add(dead: one, reason: "x")
        retried.add(postponed: one, .retried, reason: "x", delay: 0)
        deferred.add(postponed: one, .deferred, reason: "x", delay: 0)
        dropped.add(.dropped)
        let fates = [dead, retried, deferred, dropped].map(\.fate)
        #expect(fates == [.ended(.dead), .postponed(.retried), .postponed(.deferred), .ended(.dropped)])
    }

    @Test("is mixed for different outcomes, and a retry if some are sent again")
    func many() {
        let tally = JobTally()
        tally.add(.delivered, count: 5)
        #expect(tally.fate == .ended(.delivered))
        tally.add(.suppressed)
        #expect(tally.fate == .mixed)
        tally.add(dead: one, reason: "x")
        #expect(tally.fate == .mixed)
        tally.add(postponed: one, .deferred, reason: "x", delay: 0)
        #expect(tally.fate == .postponed(.deferred))
        tally.add(postponed: one, .retried, reason: "x", delay: 0)
        #expect(tally.fate == .postponed(.retried))
    }

    @Test("A job whose notifications ended in parts has the fate of all of them")
    func parts() {
        let first = JobTally()
        first.add(.delivered, count: 5)
        let same = JobTally(after: first)
        same.add(.delivered)
        #expect(same.fate == .ended(.delivered))
        let other = JobTally(after: first)
        other.add(dead: one, reason: "x")
        #expect(other.fate == .mixed)
        let returning = JobTally()
        returning.add(postponed: one, .retried, reason: "x", delay: 0)
        let rest = JobTally(after: returning)
        rest.add(.delivered)
        #expect(rest.fate == .mixed)
    }
}

@Suite("The age of the head of a queue")
struct HeadWatchTests {
    private let one = ByteBuffer(string: "one")
    private let other = ByteBuffer(string: "other")

    @Test("counts from its enqueueing, or from when the job was first seen, and is at least its observed age")
    func ages() {
        let sequences: [[(job: ByteBuffer?, enqueuedAt: Int64?, now: Int64, age: Int64)]] = [
            [(one, 400, 1000, 600), (one, 400, 1500, 1100), (other, 1900, 2000, 100)],
            [
                (one, nil, 1000, 0), (one, nil, 1500, 500), (other, nil, 1600, 0), (nil, nil, 1700, 0),
                (other, nil, 1800, 0),
            ],
            // A producer's clock is ahead.
            [(one, 5000, 1000, 0), (one, 5000, 1500, 500)],
        ]
        for sequence in sequences {
            var watch = HeadWatch()
            for (job, enqueuedAt, now, age) in sequence {
                #expect(watch.recordHead(job, enqueuedAt: enqueuedAt, now: now) == age, "\(sequence)")
            }
        }
    }
}

@Suite("The pulse of an event loop")
struct LoopPulseTests {
    @Test("a loop is stuck when it has not run for long, but not before its start or after its end")
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
