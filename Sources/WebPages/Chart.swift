/// A chart by time, drawn as SVG, with a table of its numbers. It needs no script; `chart.js` adds a crosshair, and a
/// legend that toggles series.
package struct Chart: Sendable {
    package enum Kind: String, Sendable {
        /// Stacked columns.
        case columns
        case lines
    }

    package struct Series: Sendable {
        let name: String
        /// The class for its color in the style sheet; nil for the next color.
        let style: String?
        /// A value per step; `nil` if nothing was measured.
        let values: [Double?]
        /// Returns the path of the page that lists the things that a value counts.
        let link: (@Sendable (_ step: Int) -> String?)?

        package init(
            _ name: String, style: String? = nil, _ values: [Double?],
            link: (@Sendable (_ step: Int) -> String?)? = nil
        ) {
            (self.name, self.style, self.link) = (name, style, link)
            self.values = values.map { value in value.flatMap { $0.isFinite ? max(0, $0) : nil } }
        }

        fileprivate func value(_ step: Int) -> Double? { values.indices.contains(step) ? values[step] : nil }
    }

    /// Something that happened, such as an action of an operator, shown as a line at its time.
    package struct Mark: Sendable, Equatable {
        /// The time in milliseconds since 1970.
        package let at: Int64
        package let text: String

        package init(at: Int64, _ text: String) { (self.at, self.text) = (at, text) }
    }

    let title: String
    let kind: Kind
    let times: ChartTimes
    let unit: ChartUnit
    /// The series that have a value above 0.
    private let series: [Series]
    private let marks: [Mark]
    /// True if the last step is not over, so that its counts will still grow.
    private let lastIsUnfinished: Bool

    /// - Parameters:
    ///   - title: unique on its page.
    ///   - series: series without a value above 0 are not shown.
    ///   - marks: marks outside the times are not shown.
    package init(
        _ title: String, _ kind: Kind, _ times: ChartTimes, _ unit: ChartUnit, _ series: [Series], marks: [Mark] = [],
        lastIsUnfinished: Bool = false
    ) {
        (self.title, self.kind, self.times, self.unit) = (title, kind, times, unit)
        self.series = series.filter { $0.values.prefix(times.count).contains { ($0 ?? 0) > 0 } }
        self.marks = marks.filter { times.index(of: $0.at) != nil }
        self.lastIsUnfinished = lastIsUnfinished
        isRecorded = (0..<times.count).map { step in series.contains { $0.value(step) != nil } }
    }

    /// True for each step with a measured value, even of a series that is not shown.
    private let isRecorded: [Bool]

    // In pixels. Horizontal places are percentages, because the chart is as wide as the page.
    private static let (top, base, height) = (14.0, 166.0, 190)
    /// The smallest height of a value above 0, so that it can be seen and clicked.
    private static let smallest = 3.0
    /// The maximum number of marks whose texts are shown for one step.
    private static let maximumMarks = 6
    private static let dashes = ["", "7 3", "2 3", "10 3 2 3", "4 4", "1 4"]

    private static func style(_ index: Int) -> String { "series-\(index % 8 + 1)" }

    private func style(_ index: Int) -> String { series[index].style ?? Self.style(index) }

    private var largest: Double {
        switch kind {
        case .columns:
            (0..<times.count).map { step in series.reduce(0) { $0 + ($1.value(step) ?? 0) } }.max() ?? 0
        case .lines: series.flatMap { $0.values.prefix(times.count).compactMap(\.self) }.max() ?? 0
        }
    }

    package var html: HTML {
        guard !series.isEmpty else {
            return """
                <figure class="chart" data-chart="\(title)"><figcaption>\(title)</figcaption>\
                <p class="muted">Nothing in this time.</p></figure>
                """
        }
        let scale = ChartScale(unit, upTo: largest)
        return """
            <figure class="chart" data-chart="\(title)" data-kind="\(kind.rawValue)" data-first="\(times.first)" \
            data-step="\(times.step)" data-count="\(times.count)" data-top="\(SVG.number(Self.top))" \
            data-base="\(SVG.number(Self.base))" data-steps="\(scale.steps.map(\.text).joined(separator: "|"))">\
            <figcaption>\(title)</figcaption>
            <div class="plot"><svg height="\(Self.height)" aria-hidden="true">\
            <g class="scale">\(labels(scale))</g>\(timeLabels)\(gaps)\
            \(kind == .columns ? columns(scale) : lines(scale))\(lines(marks))\
            </svg></div>
            <ul class="legend">\(legend)</ul>
            <details><summary>Numbers</summary>\(table)</details>
            </figure>
            """
    }

    // MARK: Axes

    private func y(_ value: Double, _ scale: ChartScale) -> Double {
        Self.base - (Self.base - Self.top) * min(1, value / scale.top)
    }

    /// Returns a place on the axis of time as a percentage.
    private func x(_ steps: Double) -> String { SVG.number(100 * steps / Double(times.count)) + "%" }

    private func x(at time: Int64) -> String { x(Double(time - times.first) / Double(times.step)) }

    private func labels(_ scale: ChartScale) -> HTML {
        HTML(
            scale.labels.enumerated().map { index, label in
                let y = y(scale.step.size * Double(index), scale)
                return """
                    <line class="grid" x2="100%" y1="\(SVG.number(y))" y2="\(SVG.number(y))"/>\
                    <text x="-8" y="\(SVG.number(y + 4))" text-anchor="end">\(label)</text>
                    """
            })
    }

    private var timeLabels: HTML {
        // The label of a day is in the middle of the day's column.
        let shift = times.step == 86_400_000 ? times.step / 2 : 0
        return HTML(
            times.labels.map { at, text in
                let (x, y) = (x(at: at + shift), SVG.number(Self.base))
                return """
                    <line class="grid" x1="\(x)" x2="\(x)" y1="\(y)" y2="\(SVG.number(Self.base + 5))"/>\
                    <text x="\(x)" y="\(Self.height - 6)" text-anchor="middle">\(text)</text>
                    """
            })
    }

    // MARK: Values

    /// Hatches the steps of columns in which nothing was recorded, so that they do not look like 0.
    private var gaps: HTML {
        guard kind == .columns else { return "" }
        var (gaps, start) = (HTML(), 0)
        while start < times.count {
            guard !isRecorded[start] else {
                start += 1
                continue
            }
            let end = isRecorded[start...].firstIndex(of: true) ?? times.count
            let y = SVG.number(Self.base - 5)
            gaps += """
                <line class="gap" x1="\(x(Double(start)))" x2="\(x(Double(end)))" y1="\(y)" y2="\(y)">\
                <title>Nothing was recorded</title></line>
                """
            start = end
        }
        return gaps
    }

    private func columns(_ scale: ChartScale) -> HTML {
        HTML(
            (0..<times.count).map { step in
                var (top, parts, words) = (Self.base, HTML(), heading(step))
                for (index, series) in series.enumerated() {
                    guard let value = series.value(step), value > 0 else { continue }
                    let height = max(Self.smallest, Self.base - y(value, scale))
                    top -= height
                    let bar: HTML = """
                        <rect class="\(style(index))" data-series="\(index)" x="\(x(Double(step) + 0.06))" \
                        width="\(x(0.88))" y="\(SVG.number(top))" height="\(SVG.number(height))"/>
                        """
                    parts += series.link?(step).map { "<a href=\"\($0)\" tabindex=\"-1\">\(bar)</a>" } ?? bar
                    words += "\n\(series.name) \(unit.text(value))"
                }
                guard !parts.isEmpty else { return "" }
                return """
                    <g data-at="\(step)"\(if: isUnfinished(step), " class=\"unfinished\"")>\
                    <title>\(words)</title>\(parts)</g>
                    """
            })
    }

    private func isUnfinished(_ step: Int) -> Bool { lastIsUnfinished && step == times.count - 1 }

    private func heading(_ step: Int) -> String {
        times.name(step) + " UTC" + (isUnfinished(step) ? ", so far" : "")
    }

    private func lines(_ scale: ChartScale) -> HTML {
        // The path's units are steps and pixels, so that the page's width stretches it.
        let paths = series.enumerated().map { index, series -> HTML in
            let values = Array(series.values.prefix(times.count))
            let path = SVG.path(values) { (Double($0) + 0.5, y($1, scale)) }
            return """
                <path class="\(style(index))" data-series="\(index)" d="\(path)"\(dash(index)) \
                vector-effect="non-scaling-stroke"><title>\(series.name)</title></path>
                """
        }
        return """
            <svg width="100%" height="\(Self.height)" viewBox="0 0 \(times.count) \(Self.height)" \
            preserveAspectRatio="none">\(paths)</svg>
            """
    }

    private func dash(_ index: Int) -> HTML {
        let dash = Self.dashes[index % Self.dashes.count]
        return dash.isEmpty ? "" : " stroke-dasharray=\"\(dash)\""
    }

    /// Draws one line for all marks of a step.
    private func lines(_ marks: [Mark]) -> HTML {
        let byStep = Dictionary(grouping: marks) { times.index(of: $0.at) ?? 0 }
        return HTML(
            byStep.sorted { $0.key < $1.key }.map { step, marks in
                let x = x(at: marks[0].at)
                var text = marks.prefix(Self.maximumMarks).map(\.text).joined(separator: "\n")
                if marks.count > Self.maximumMarks { text += "\nand \(marks.count - Self.maximumMarks) more" }
                return """
                    <g class="mark" data-at="\(step)"><title>\(text)</title>\
                    <line x1="\(x)" x2="\(x)" y1="5" y2="\(SVG.number(Self.base))"/>\
                    <circle cx="\(x)" cy="5" r="4"/></g>
                    """
            })
    }

    // MARK: Words

    private var legend: HTML {
        HTML(
            series.enumerated().map { index, series in
                let values = (0..<times.count).map { series.value($0).map(SVG.number) ?? "" }
                let style = style(index)
                let swatch: HTML =
                    kind == .columns
                    ? "<span class=\"swatch \(style)\"></span>"
                    : """
                    <svg class="swatch \(style)" viewBox="0 0 24 12" aria-hidden="true">\
                    <path d="M0 6H24"\(dash(index))/></svg>
                    """
                let sum: HTML =
                    kind == .columns
                    ? " <span class=\"num\">\(unit.text(series.values.reduce(0) { $0 + ($1 ?? 0) }))</span>" : ""
                return """
                    <li data-values="\(values.joined(separator: ","))">\(swatch)\
                    <span class="name">\(series.name)</span>\(sum)</li>
                    """
            })
    }

    private var table: HTML {
        let rows = (0..<times.count).compactMap { step -> HTML? in
            guard series.contains(where: { $0.value(step) ?? 0 > 0 }) else { return nil }
            let cells = series.map { series -> HTML in
                guard let value = series.value(step) else { return "<td class=\"number\">–</td>" }
                let link = value > 0 ? series.link?(step) : nil
                let text = unit.text(value)
                let content: HTML = link == nil ? "\(text)" : "<a href=\"\(link)\">\(text)</a>"
                return "<td class=\"number\">\(content)</td>"
            }
            return "<tr data-at=\"\(step)\"><td class=\"key\">\(times.name(step))</td>\(cells)</tr>\n"
        }
        let head = series.map { "<th scope=\"col\" class=\"number\">\($0.name)</th>" as HTML }
        return """
            <div class="table" role="region" aria-label="\(title)" tabindex="0"><table>
            <caption class="hidden">\(title)</caption>
            <thead><tr><th scope="col">Time (UTC)</th>\(head)</tr></thead>
            <tbody>
            \(rows)</tbody></table></div>
            """
    }
}
