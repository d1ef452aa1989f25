import CoreMetrics
import Foundation
import NIOConcurrencyHelpers
import TestSupport
import Testing

@testable import Telemetry

@Suite("Metrics in Prometheus' text format")
struct PrometheusMetricsTests {
    private static func metrics(_ families: [MetricFamily] = [], maximumSeries: Int = 1000) -> PrometheusMetrics {
        PrometheusMetrics(families: families, maximumSeries: maximumSeries) { Issue.record("\($0)") }
    }

    @Test("a counter, a gauge and a histogram are written byte for byte as the format has them")
    func written() {
        let metrics = Self.metrics([
            MetricFamily("jobs_total", help: "Jobs."), MetricFamily("wait_seconds", help: "Waits.", buckets: [0.5, 2]),
        ])
        Counter(label: "jobs_total", dimensions: [("queue", "b"), ("app", "a")], factory: metrics).increment(by: 3)
        Counter(label: "jobs_total", dimensions: [("queue", "a")], factory: metrics).increment()
        Meter(label: "depth", factory: metrics).set(2.5)
        let wait = Recorder(label: "wait_seconds", factory: metrics)
        for value in [0.25, 0.5, 1, 8] { wait.record(value) }
        #expect(
            metrics.text() == """
                # TYPE depth gauge
                depth 2.5
                # HELP jobs_total Jobs.
                # TYPE jobs_total counter
                jobs_total{app="a",queue="b"} 3
                jobs_total{queue="a"} 1
                # HELP wait_seconds Waits.
                # TYPE wait_seconds histogram
                wait_seconds_bucket{le="0.5"} 2
                wait_seconds_bucket{le="2"} 3
                wait_seconds_bucket{le="+Inf"} 4
                wait_seconds_sum 9.75
                wait_seconds_count 4

                """)
    }

    @Test("whatever a name or a label holds, the page can be read, and gives the label back")
    func hostile() throws {
        let metrics = Self.metrics([MetricFamily("a_b", help: "back\\slash\nand line")])
        let value = "quote \" back \\ line \n brace } comma , é \u{1F600} \\n"
        Counter(label: "a b", dimensions: [("l-1", value), ("1", "x"), ("le", "0.5")], factory: metrics).increment()
        Counter(label: "9", factory: metrics).increment()
        let page = try Exposition(metrics.text())
        #expect(page.value("a_b", ["l_1": value, "_1": "x", "le_": "0.5"]) == 1)
        #expect(page.value("_9") == 1)
        #expect(page.families["a_b"]?.help == "back\\slash\nand line")
    }

    @Test("a label that is given twice is written once")
    func twice() throws {
        let metrics = Self.metrics()
        Counter(label: "a", dimensions: [("l", "1"), ("l", "2")], factory: metrics).increment()
        #expect(try Exposition(metrics.text()).value("a", ["l": "2"]) == 1)
    }

    @Test(
        "numbers are written so that Prometheus reads the same",
        arguments: [
            0, 1, -1, 0.1, 1e-9, 123_456_789.25, 9_007_199_254_740_991, 1e300, .infinity, -.infinity,
            Double.leastNonzeroMagnitude,
        ])
    func numbers(_ value: Double) throws {
        let metrics = Self.metrics()
        Meter(label: "m", factory: metrics).set(value)
        #expect(try Exposition(metrics.text()).value("m") == value)
    }

    @Test("a gauge that is not a number says so")
    func notANumber() {
        let metrics = Self.metrics()
        Meter(label: "m", factory: metrics).set(Double.nan)
        #expect(metrics.text() == "# TYPE m gauge\nm NaN\n")
    }

    @Test("large counts are written to the last digit")
    func large() {
        let metrics = Self.metrics()
        let counter = Counter(label: "c", factory: metrics)
        counter.increment(by: Int64(9_007_199_254_740_993))
        #expect(metrics.text().hasSuffix("c 9007199254740993\n"))
        counter.increment(by: -5)
        #expect(metrics.text().hasSuffix("c 9007199254740993\n"), "a counter never falls")
    }

    @Test("the same name and labels are one series, in whatever order the labels come")
    func same() throws {
        let metrics = Self.metrics()
        Counter(label: "c", dimensions: [("a", "1"), ("b", "2")], factory: metrics).increment()
        Counter(label: "c", dimensions: [("b", "2"), ("a", "1")], factory: metrics).increment()
        #expect(try Exposition(metrics.text()).value("c", ["a": "1", "b": "2"]) == 2)
    }

    @Test("counters of fractions, timers and recorders without aggregation are what Prometheus calls them")
    func kinds() throws {
        let metrics = Self.metrics()
        FloatingPointCounter(label: "cpu_seconds_total", factory: metrics).increment(by: 1.5)
        Timer(label: "timer_seconds", factory: metrics).recordMilliseconds(20)
        Gauge(label: "gauge", factory: metrics).record(7)
        let page = try Exposition(metrics.text())
        #expect(
            page.families.mapValues(\.type) == [
                "cpu_seconds_total": "counter", "timer_seconds": "histogram", "gauge": "gauge",
            ])
        #expect(page.value("cpu_seconds_total") == 1.5 && page.value("gauge") == 7)
        #expect(page.value("timer_seconds_bucket", ["le": "0.01"]) == 0)
        #expect(page.value("timer_seconds_bucket", ["le": "0.025"]) == 1)
    }

    @Test("values that were counted elsewhere are added bucket by bucket, and only to the same buckets")
    func batches() throws {
        let metrics = Self.metrics([MetricFamily("h", help: "", buckets: [1, 2])])
        let recorder = metrics.makeRecorder(label: "h", dimensions: [], aggregate: true)
        let histogram = try #require(recorder as? HistogramSeries)
        recorder.record(Double(1))
        #expect(histogram.add(counts: [2, 3, 4], sum: 30))
        #expect(!histogram.add(counts: [1, 1], sum: 1))
        #expect(!histogram.add(counts: [1, -1, 0], sum: 1))
        let page = try Exposition(metrics.text())
        #expect(page.value("h_bucket", ["le": "1"]) == 3 && page.value("h_bucket", ["le": "2"]) == 6)
        #expect(page.value("h_count") == 10 && page.value("h_sum") == 31)
    }

    @Test("what is destroyed is not written any more, and makes room")
    func destroyed() {
        let metrics = Self.metrics(maximumSeries: 1)
        let meter = Meter(label: "m", factory: metrics)
        meter.set(1)
        meter.destroy()
        #expect(metrics.text().isEmpty)
        Meter(label: "other", factory: metrics).set(2)
        #expect(metrics.text().hasSuffix("other 2\n"))
    }

    @Test("beyond the limit series are counted, and told of once; those that there are go on")
    func limit() throws {
        let told = NIOLockedValueBox<[String]>([])
        let metrics = PrometheusMetrics(maximumSeries: 2) { problem in told.withLockedValue { $0.append(problem) } }
        for number in 0..<5 {
            Counter(label: "n", dimensions: [("l", "\(number)")], factory: metrics).increment()
        }
        Counter(label: "n", dimensions: [("l", "1")], factory: metrics).increment()
        let page = try Exposition(metrics.text())
        #expect(page.families["n"]?.samples.count == 2)
        #expect(page.value("n", ["l": "1"]) == 2)
        #expect(page.value("metric_series_dropped_total") == 3)
        #expect(
            told.withLockedValue { $0 } == [
                "there are 2 metric series; no more are written, the first of them one of n"
            ])
    }

    @Test("a name is of one kind: the second is not written, and told of once")
    func ambiguous() throws {
        let told = NIOLockedValueBox<[String]>([])
        let metrics = PrometheusMetrics { problem in told.withLockedValue { $0.append(problem) } }
        Counter(label: "x", factory: metrics).increment()
        for _ in 0..<3 { Meter(label: "x", factory: metrics).set(9) }
        let page = try Exposition(metrics.text())
        #expect(page.value("x") == 1 && page.families["x"]?.type == "counter")
        #expect(told.withLockedValue { $0 } == ["the metric x is a counter, and is not written where it is a gauge"])
    }

    @Test("whatever many threads count at once is counted")
    func threads() async throws {
        let metrics = Self.metrics()
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    for number in 0..<1000 {
                        Counter(label: "c", dimensions: [("l", "\(number % 7)")], factory: metrics).increment()
                        Recorder(label: "h", factory: metrics).record(1)
                        if number % 250 == 0 { _ = metrics.text() }
                    }
                }
            }
        }
        let page = try Exposition(metrics.text())
        #expect(page.families["c"]?.samples.reduce(0) { $0 + $1.value } == 8000)
        #expect(page.value("h_count") == 8000)
    }

    @Test("Prometheus' own tool has nothing to say against the page")
    func promtool() async throws {
        let metrics = Self.metrics(
            [
                MetricFamily("jobs_total", help: "Jobs with \\ and \n in it."),
                MetricFamily("wait_seconds", help: "Waits."),
            ] + ProcessMetrics.families)
        Counter(label: "jobs_total", dimensions: [("queue", "a\"\\\n{}")], factory: metrics).increment()
        Recorder(label: "wait_seconds", dimensions: [("queue", "a")], factory: metrics).record(0.2)
        ProcessMetrics(factory: metrics).measure()
        let findings = try await Promtool.check(metrics.text())
        #expect(findings.isEmpty, "\(findings)")
    }

    @Test("the tool finds what is wrong, or the test before would say nothing")
    func promtoolFinds() async throws {
        let findings = try await Promtool.check("# TYPE a counter\na{b=\"1} 1\n")
        #expect(!findings.isEmpty)
    }

    @Test("the process' own metrics have sound values, and the processor's time grows")
    func process() throws {
        let metrics = Self.metrics()
        let process = ProcessMetrics(factory: metrics)
        process.measure()
        let before = try Exposition(metrics.text())
        let spent = try #require(before.value("process_cpu_seconds_total"))
        var work = 0
        let deadline = ContinuousClock.now + .seconds(60)
        while try Exposition(metrics.text()).value("process_cpu_seconds_total") ?? 0 <= spent {
            for number in 0..<1_000_000 { work &+= number }
            process.measure()
            try #require(ContinuousClock.now < deadline, "\(work)")
        }
        #expect(try #require(before.value("process_resident_memory_bytes")) > 1_000_000)
        #expect(try #require(before.value("process_virtual_memory_bytes")) > 1_000_000)
        #expect(try #require(before.value("process_open_fds")) >= 3)
        #expect(try #require(before.value("process_max_fds")) >= 3)
        let started = try #require(before.value("process_start_time_seconds"))
        #expect(started <= Date.now.timeIntervalSince1970 + 60 && started > 1_500_000_000)
    }
}
