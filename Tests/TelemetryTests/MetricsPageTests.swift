import Foundation
import TestSupport
import Testing

@testable import Telemetry

@Suite("Metrics in Prometheus' text format")
struct MetricsPageTests {
    private static let counter = Metric("c_total", .counter, ["l"], "Counts.")
    private static let gauge = Metric("g", .gauge, "Measures.")
    private static let histogram = Metric("wait_seconds", .histogram, ["queue"], buckets: [0.5, 2], "Waits.")

    @Test("a counter, a gauge and a histogram are written exactly in the format")
    func written() {
        let jobs = Metric("jobs_total", .counter, ["queue", "app"], "Jobs.")
        var page = MetricsPage(created: 0)
        page.set(Self.gauge, 2.5)
        page.set(jobs, by: ["b", "a"], 3)
        page.set(jobs, by: ["a", "z"], 1)
        page.set(
            Metric("wait_seconds", .histogram, [], buckets: [0.5, 2], "Waits."), .init(counts: [2, 1, 1], sum: 9.75))
        page.set(Metric("x_seconds", .histogram, ["q"], buckets: [1], "X."), by: ["a"], .init(counts: [0, 0], sum: 0))
        #expect(
            page.text() == """
                # HELP g Measures.
                # TYPE g gauge
                g 2.5
                # HELP jobs_total Jobs.
                # TYPE jobs_total counter
                jobs_total{app="a",queue="b"} 3
                jobs_total{app="z",queue="a"} 1
                # HELP wait_seconds Waits.
                # TYPE wait_seconds histogram
                wait_seconds_bucket{le="0.5"} 2
                wait_seconds_bucket{le="2"} 3
                wait_seconds_bucket{le="+Inf"} 4
                wait_seconds_sum 9.75
                wait_seconds_count 4
                # HELP x_seconds X.
                # TYPE x_seconds histogram
                x_seconds_bucket{q="a",le="1"} 0
                x_seconds_bucket{q="a",le="+Inf"} 0
                x_seconds_sum{q="a"} 0
                x_seconds_count{q="a"} 0

                """)
    }

    @Test("labels and help texts of any content can be read back")
    func hostile() throws {
        let value = "quote \" back \\ line \n brace } comma , é \u{1F600} \\n"
        var page = MetricsPage(created: 0)
        page.set(Metric("a_b", .gauge, ["l"], "back\\slash\nand line"), by: [value], 1)
        let read = try Exposition(page.text())
        #expect(read.value("a_b", ["l": value]) == 1)
        #expect(read.families["a_b"]?.help == "back\\slash\nand line")
    }

    @Test(
        "numbers are written so that Prometheus reads the same",
        arguments: [
            0, 1, -1, 0.1, 1e-9, 123_456_789.25, 9_007_199_254_740_991, 1e300, .infinity, -.infinity,
            Double.leastNonzeroMagnitude,
        ])
    func numbers(_ value: Double) throws {
        var page = MetricsPage(created: 0)
        page.set(Self.gauge, value)
        #expect(try Exposition(page.text()).value("g") == value)
    }

    @Test("a gauge that is not a number is NaN, and large counts are written to the last digit")
    func extremes() {
        var page = MetricsPage(created: 0)
        page.set(Self.gauge, .nan)
        page.set(Self.counter, by: ["a"], 9_007_199_254_740_993)
        #expect(page.text().contains("\ng NaN\n") && page.text().contains("} 9007199254740993\n"))
    }

    @Test("a gauge that is not set for a page is absent; counters and histograms remain")
    func gauges() throws {
        let other = Metric("other", .gauge, ["l"], "Other.")
        var page = MetricsPage(maximumSeries: 3, created: 0)
        for round in 1...5 {
            page.begin()
            page.set(other, by: ["\(round)"], round)
            if round == 1 {
                page.set(Self.gauge, 1)
                page.set(Self.counter, by: ["a"], 1)
                page.set(Self.histogram, by: ["a"], .init(counts: [1, 0, 0], sum: 0.1))
            }
        }
        let read = try Exposition(page.text())
        #expect(read.value("g") == nil && read.value("c_total", ["l": "a"]) == 1)
        #expect(read.value("wait_seconds_count", ["queue": "a"]) == 1)
        #expect(read.families["other"]?.samples.map(\.value) == [5] && page.dropped == 0)
    }

    @Test("beyond the limit new series are omitted and counted; existing ones continue")
    func limit() throws {
        var page = MetricsPage(maximumSeries: 2, created: 0)
        for round in 1...2 {
            page.begin()
            for label in round == 1 ? ["m", "n", "o", "p"] : ["a", "b", "c", "m", "n"] {
                page.set(Self.counter, by: [label], round)
            }
            page.set(Self.gauge, 7)
        }
        let read = try Exposition(page.text())
        #expect(read.families["c_total"]?.samples.map(\.labels) == [["l": "m"], ["l": "n"]])
        #expect(read.sum("c_total") == 4 && page.dropped == 3)
        #expect(read.value("g") == 7, "a metric without labels is one series")
        page.begin()
        #expect(page.dropped == 3, "a counter never falls")
    }

    @Test("Prometheus' own tool accepts the page")
    func promtool() async throws {
        var page = MetricsPage(created: 0)
        page.set(Metric("jobs_total", .counter, ["queue"], "Jobs with \\ and \n in it."), by: ["a\"\\\n{}"], 1)
        page.set(Self.histogram, by: ["a"], .init(counts: [1, 0, 0], sum: 0.2))
        ProcessMetrics.measure(on: &page)
        let findings = try await Promtool.check(page.text())
        #expect(findings.isEmpty, "\(findings)")
        #expect(try await !Promtool.check("# TYPE a counter\na{b=\"1} 1\n").isEmpty, "the tool finds mistakes")
    }

    /// Reads a page with the strict parser of Prometheus' client for Python.
    /// - Returns: the families and samples, one per line; or the error.
    private static func parsed(_ text: String) async throws -> String {
        let script = """
            import sys
            from prometheus_client.openmetrics.parser import text_string_to_metric_families
            for family in text_string_to_metric_families(sys.stdin.read()):
                print(family.name, family.type, family.unit)
                for s in family.samples:
                    e = s.exemplar
                    print(" ", s.name, sorted(s.labels.items()), s.value, (e.labels, e.value, float(e.timestamp)) if e else "")
            """
        let python = try ChildProcess("/usr/bin/python3", ["-c", script], input: Data(text.utf8))
        let ending = try await python.wait()
        return ending == .exited(0) ? python.output : python.errors
    }

    @Test("a strict parser reads the page in OpenMetrics, with units, start times and exemplars")
    func openMetrics() async throws {
        let context = Span.Context(traceID: "0af7651916cd43dd8448eb211c80319c", spanID: "b7ad6b7169203331")
        let exemplar = Exemplar(trace: context, value: 0.75, time: 1_795_279_247.125)
        var page = MetricsPage(created: 1_795_279_000.5)
        page.set(Metric("jobs_total", .counter, ["queue"], "Jobs with \\, \" and \n."), by: ["a\"\\\n{}"], 3)
        page.set(Self.histogram, by: ["a"], .init(counts: [1, 2, 0], sum: 2.25, exemplars: [1: exemplar]))
        page.set(Metric("memory_bytes", .gauge, "M."), 5)
        ProcessMetrics.measure(on: &page)
        let read = try await Self.parsed(page.text(.openMetrics))
        for line in [
            "jobs counter \n", "wait_seconds histogram seconds\n", "memory_bytes gauge bytes\n",
            "jobs_created [('queue', 'a\"\\\\\\n{}')] 1795279000.5 \n",
            "wait_seconds_bucket [('le', '2.0'), ('queue', 'a')] 3 ({'trace_id': '\(context.traceID)', "
                + "'span_id': '\(context.spanID)'}, 0.75, 1795279247.125)\n",
            "wait_seconds_created [('queue', 'a')] 1795279000.5 \n", "process_cpu_seconds counter seconds\n",
        ] { #expect(read.contains(line), "\(line) is not in \(read)") }
        for text in ["# TYPE a counter\na 1\n# EOF\n", "# TYPE a_total counter\na_total 1\n"] {
            #expect(try await Self.parsed(text).contains("ValueError"), "the parser finds mistakes")
        }
    }

    @Test("the process's own metrics have plausible values, and the processor time grows")
    func process() throws {
        func measured() throws -> Exposition {
            var page = MetricsPage(created: 0)
            ProcessMetrics.measure(on: &page)
            return try Exposition(page.text())
        }
        let before = try measured()
        #expect(before.families["process_cpu_seconds_total"]?.type == "counter")
        let spent = try #require(before.value("process_cpu_seconds_total"))
        var work = 0
        let deadline = ContinuousClock.now + .seconds(180)
        while try measured().value("process_cpu_seconds_total") ?? 0 <= spent {
            for number in 0..<1_000_000 { work &+= number }
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
