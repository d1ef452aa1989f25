import Testing

@testable import WebPages

@Suite("Charts")
struct ChartTests {
    /// A time in milliseconds since 1970: Saturday, 2026-11-21T14:05:00Z.
    private static let time: Int64 = 1_795_269_900_000

    private static let (minute, day): (Int64, Int64) = (60_000, 86_400_000)

    /// Returns steps that end with the step of ``time``.
    private static func times(_ step: Int64, _ count: Int) -> ChartTimes {
        ChartTimes(first: time / step * step - Int64(count - 1) * step, step: step, count: count)
    }

    private static func chart(
        _ kind: Chart.Kind, _ series: [Chart.Series], marks: [Chart.Mark] = [], lastIsUnfinished: Bool = false
    ) -> String {
        Chart(
            "Numbers <&>", kind, times(minute, 6), .count, series, marks: marks, lastIsUnfinished: lastIsUnfinished
        ).html.text
    }

    // MARK: Axes

    @Test(
        "An axis has three to five round labels of one unit above 0, and ends at or above the largest value",
        arguments: [
            (ChartUnit.count, 0, "0, 1"), (.count, 1, "0, 1"), (.count, 2, "0, 1, 2"), (.count, 3, "0, 1, 2, 3"),
            (.count, 7, "0, 2, 4, 6, 8"), (.count, 47, "0, 10, 20, 30, 40, 50"), (.count, 51, "0, 20, 40, 60"),
            (.count, 999, "0, 200, 400, 600, 800, 1,000"), (.count, 60_000, "0, 20k, 40k, 60k"),
            (.count, 3e6, "0, 1M, 2M, 3M"),
            (.milliseconds, 0.4, "0, 1 ms"), (.milliseconds, 850, "0, 200 ms, 400 ms, 600 ms, 800 ms, 1,000 ms"),
            (.milliseconds, 1200, "0, 500 ms, 1,000 ms, 1,500 ms"),
            (.milliseconds, 9000, "0, 2 s, 4 s, 6 s, 8 s, 10 s"),
            (.milliseconds, 59_000, "0, 15 s, 30 s, 45 s, 60 s"),
            (.milliseconds, 150_000, "0, 30 s, 60 s, 90 s, 120 s, 150 s"),
            (.milliseconds, 161_000, "0, 1 min, 2 min, 3 min"), (.milliseconds, 180_000, "0, 1 min, 2 min, 3 min"),
            (.milliseconds, 3_700_000, "0, 15 min, 30 min, 45 min, 60 min, 75 min"),
            (.milliseconds, 4e7, "0, 6 h, 12 h"), (.milliseconds, 3e8, "0, 1 d, 2 d, 3 d, 4 d"),
        ] as [(ChartUnit, Double, String)])
    func scale(unit: ChartUnit, largest: Double, labels: String) {
        #expect(ChartScale(unit, upTo: largest).labels.joined(separator: ", ") == labels)
    }

    @Test("Axes of all sizes enclose the values with at most five steps")
    func scales() {
        for unit in [ChartUnit.count, .milliseconds] {
            for power in 0..<40 {
                for largest in [0.1, 0.3, 0.77].map({ value in (0..<power).reduce(value) { sum, _ in sum * 2 } }) {
                    let scale = ChartScale(unit, upTo: largest)
                    #expect(scale.top >= largest && 1...5 ~= scale.count, "\(unit) \(largest)")
                    #expect(scale.steps.map(\.size) == scale.steps.map(\.size).sorted())
                }
            }
        }
    }

    @Test(
        "Values have as many digits as help",
        arguments: [
            (ChartUnit.count, 1204, "1,204"),
            (.milliseconds, 850, "850 ms"), (.milliseconds, 2400, "2.4 s"), (.milliseconds, 45_900, "45 s"),
            (.milliseconds, 161_000, "2 min 41 s"), (.milliseconds, 180_000, "3 min"),
            (.milliseconds, 7_500_000, "2 h 5 min"), (.milliseconds, 273_600_000, "3 d 4 h"),
        ] as [(ChartUnit, Double, String)])
    func values(unit: ChartUnit, value: Double, text: String) { #expect(unit.text(value) == text) }

    @Test(
        "Times are at round moments in UTC, and steps are named by their beginning, or by both ends",
        arguments: [
            (minute, 15, "13:55 14:00 14:05", "14:05"),
            (minute, 60, "13:10 13:20 13:30 13:40 13:50 14:00", "14:05"),
            (5 * minute, 72, "09:00 10:00 11:00 12:00 13:00 14:00", "14:05–14:10"),
            (20 * minute, 72, "16:00 20:00 21 Nov 04:00 08:00 12:00", "21 Nov 14:00–14:20"),
            (day, 7, "Sun Mon Tue Wed Thu Fri Sat", "Sat 21 Nov"),
            (day, 40, "19 Oct 26 Oct 2 Nov 9 Nov 16 Nov", "Sat 21 Nov"),
        ])
    func moments(step: Int64, count: Int, labels: String, last: String) {
        let times = Self.times(step, count)
        #expect(times.labels.map(\.text).joined(separator: " ") == labels)
        #expect(times.name(count - 1) == last)
    }

    @Test("A time belongs to the step in which it lies")
    func steps() {
        let times = ChartTimes(first: 1000, step: 100, count: 3)
        #expect([999, 1000, 1099, 1100, 1299, 1300].map { times.index(of: $0) } == [nil, 0, 0, 1, 2, nil])
        #expect(times.start(2) == 1200)
    }

    // MARK: Values

    @Test("Columns stand on each other, and the smallest can still be seen")
    func columns() {
        let text = Self.chart(
            .columns, [.init("one", [1000, 500]), .init("two", style: "dead", [nil, 1]), .init("none", [0, 0])])
        #expect(text.contains("x=\"1%\" width=\"14.67%\" y=\"14\" height=\"152\""))
        #expect(text.contains("class=\"dead\" data-series=\"1\" x=\"17.67%\" width=\"14.67%\" y=\"87\" height=\"3\""))
        #expect(text.contains("<title>14:00 UTC\none 1,000</title>") && !text.contains("none"))
    }

    @Test("A step without a measurement is a gap, and a measured 0 is not")
    func gaps() {
        let columns = Self.chart(.columns, [.init("one", [1, nil, nil, 0, 2, nil])])
        #expect(columns.contains("class=\"gap\" x1=\"16.67%\" x2=\"50%\""))
        #expect(columns.contains("class=\"gap\" x1=\"83.33%\" x2=\"100%\""))
        #expect(columns.split(separator: "class=\"gap\"").count == 3)
        #expect(columns.contains("data-values=\"1,,,0,2,\""))
        let lines = Self.chart(.lines, [.init("one", [2, nil, nil, 0, 2, .nan])])
        // A value between gaps is a short stroke. Other values form a line.
        #expect(lines.contains(" d=\"M0.2 14h0.6M3.5 166L4.5 14\""))
    }

    @Test("Lines also differ by their dashes")
    func dashes() {
        let text = Self.chart(.lines, [.init("p50", [1, 2]), .init("p99", [3, 4])])
        #expect(text.contains("class=\"series-1\" data-series=\"0\" d=\"M0.5 128L1.5 90\" vector"))
        #expect(text.contains("class=\"series-2\"") && text.contains("stroke-dasharray=\"7 3\""))
    }

    @Test("Values link to the jobs behind them, in the chart and in its table of numbers")
    func links() {
        let text = Self.chart(
            .columns,
            [.init("one", [3, 0, 4], link: { $0 == 2 ? nil : "/dead?step=\($0)&x=\"" }), .init("two", [1, 1, 1])])
        #expect(text.contains("<a href=\"/dead?step=0&amp;x=&quot;\" tabindex=\"-1\"><rect"))
        #expect(text.contains("<td class=\"number\"><a href=\"/dead?step=0&amp;x=&quot;\">3</a></td>"))
        #expect(text.split(separator: "<a ").count == 3)
    }

    @Test("Marks of one step share a line, and those of other times are left out")
    func marks() {
        let first = Self.times(Self.minute, 6).first
        let text = Self.chart(
            .columns, [.init("one", [1])],
            marks: [
                .init(at: first + 90_000, "Paused <b>"), .init(at: first + 100_000, "Resumed"),
                .init(at: first - 1, "Before"), .init(at: Self.time + Self.minute, "After"),
            ])
        #expect(text.contains("<g class=\"mark\" data-at=\"1\"><title>Paused &lt;b&gt;\nResumed</title>"))
        #expect(text.contains("<line x1=\"25%\" x2=\"25%\"") && text.split(separator: "class=\"mark\"").count == 2)
        #expect(!text.contains("Before") && !text.contains("After"))
    }

    @Test("The last step says that it is not over")
    func unfinished() {
        let text = Self.chart(.columns, [.init("one", [1, 1, 1, 1, 1, 1])], lastIsUnfinished: true)
        #expect(text.contains("<g data-at=\"5\" class=\"unfinished\"><title>14:05 UTC, so far\none 1</title>"))
        #expect(text.split(separator: "so far").count == 2)
    }

    @Test("A chart has no style and no script within, and escapes names")
    func safe() {
        let text = Self.chart(.lines, [.init("<script>", [1])])
        for part in ["<script", " style=", "onload", "NaN", "inf"] { #expect(!text.contains(part), "\(part)") }
        #expect(text.contains("data-chart=\"Numbers &lt;&amp;&gt;\""))
    }

    @Test("A chart without values says so", arguments: [[nil, .infinity], [0, -1], []] as [[Double?]])
    func empty(values: [Double?]) {
        let text = Self.chart(.columns, [.init("one", values)])
        #expect(text.contains("Nothing in this time.") && !text.contains("<svg"))
    }

    // MARK: Small charts

    @Test("A sparkline has gaps, a title, and no axes")
    func spark() {
        let text = SVG.spark(values: [1, nil, 0, 2], title: "Now <2>").text
        #expect(text.contains("viewBox=\"0 0 4 24\"") && text.contains("aria-label=\"Now &lt;2&gt;\""))
        #expect(text.contains("d=\"M0.2 12h0.6M2.5 23L3.5 1\"") && !text.contains("<text"))
        #expect(SVG.spark(values: [nil, 0, .nan], title: "").text.isEmpty)
    }

    @Test("Shares add up to the whole bar, small ones are seen, and the legend never rounds them away")
    func shares() throws {
        let parts = [("delivered", "delivered", 99_990), ("expired", "expired", 0), ("dead", "dead", 10)]
        let text = SVG.shares(parts).text
        #expect(text.contains("99,990 (99.9%)") && text.contains("10 (&lt;0.1%)") && !text.contains("expired"))
        let widths = text.split(separator: "width=\"").dropFirst(2).compactMap {
            Double($0.prefix { $0 != "%" })
        }
        #expect(widths.count == 2 && abs(widths.reduce(0, +) - 100) < 0.1 && widths[1] > 0.5)
        #expect(SVG.shares([("one", "dead", 5)]).text.contains("5 (100%)"))
        #expect(SVG.shares([("one", "dead", 0)]).text.isEmpty)
    }
}
