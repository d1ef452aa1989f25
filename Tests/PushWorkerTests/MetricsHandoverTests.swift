import CoreMetrics
import MetricsTestKit
import NIOConcurrencyHelpers
import Testing

@testable import PushWorker

@Suite("Handing over to swift-metrics")
struct MetricsHandoverTests {
    private let metrics = TestMetrics()

    @Test("of counters only what has come since is handed over; one that begins anew goes on from there")
    func counters() throws {
        var handover = MetricsHandover(factory: metrics)
        for total in [0, 5, 5, 12, 3, 4] { handover.count(.claimedJobs, ["q"], total: total) }
        let counter = try metrics.expectCounter("apns_worker_jobs_claimed_total", [("queue", "q")])
        #expect(counter.values == [5, 7, 3, 1])
    }

    @Test("a counter is there before anything was counted, so that its first rise is seen")
    func zero() throws {
        var handover = MetricsHandover(factory: metrics)
        handover.count(.claimedJobs, ["q"], total: 0)
        _ = try metrics.expectCounter("apns_worker_jobs_claimed_total", [("queue", "q")])
    }

    @Test("a gauge of which nothing is known any more goes away, and comes back when it is")
    func gauges() throws {
        var handover = MetricsHandover(factory: metrics)
        func names() -> Set<String> { Set(metrics.meters.map(\.label)) }
        handover.set(.lanes, [], 2)
        handover.set(.invalidTokens, [], 7)
        handover.finishRound()
        #expect(names() == ["apns_worker_lanes", "apns_worker_invalid_tokens"])
        handover.set(.lanes, [], 3)
        handover.finishRound()
        #expect(names() == ["apns_worker_lanes"])
        #expect(try metrics.expectMeter("apns_worker_lanes").lastValue == 3)
        handover.set(.invalidTokens, [], 8)
        handover.finishRound()
        #expect(try metrics.expectMeter("apns_worker_invalid_tokens").lastValue == 8)
    }

    @Test("a recorder that takes one value at a time gets as many as were counted")
    func recorders() throws {
        var handover = MetricsHandover(factory: metrics)
        let buckets = WorkerMetric.sendTime.buckets.count + 1
        var counts = Array(repeating: 0, count: buckets)
        counts[1] = 2
        handover.record(.sendTime, ["a"], total: .init(counts: counts, sum: 0.015))
        counts[1] = 3
        counts[buckets - 1] = 1
        handover.record(.sendTime, ["a"], total: .init(counts: counts, sum: 40))
        let recorder = try metrics.expectRecorder("apns_worker_send_seconds", [("app", "a")])
        #expect(recorder.values == [0.01, 0.01, 0.01, 20])
    }

    @Test("no metric is labelled by what has no end, and each is described")
    func catalogue() {
        let names = WorkerMetric.all.map(\.name)
        #expect(Set(names).count == names.count)
        let allowed: Set = ["app", "queue", "push_type", "outcome", "reason", "state", "lane", "version", "server"]
        for metric in WorkerMetric.all {
            #expect(metric.name.hasPrefix("apns_worker_") && !metric.help.isEmpty)
            #expect(allowed.isSuperset(of: metric.labels))
            #expect((metric.kind == .counter) == metric.name.hasSuffix("_total"))
            #expect((metric.kind == .histogram) == !metric.buckets.isEmpty)
        }
    }
}
