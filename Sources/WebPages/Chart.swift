/// An SVG chart, with a table of its numbers for screen readers. It needs no script.
package struct Chart: Sendable {
    package enum Kind: Sendable {
        /// Stacked columns.
        case columns
        case lines
    }

    package struct Series: Sendable {
        let name: String
        /// The class that has its color in the style sheet.
        let style: String
        /// A value per point; `nil` if nothing was measured.
        let values: [Double?]

        package init(_ name: String, style: String, _ values: [Double?]) {
            (self.name, self.style, self.values) = (name, style, values)
        }
    }

    let title: String
    let kind: Kind
    /// The names of the points, such as times.
    let points: [String]
    let series: [Series]
    /// Formats a value.
    let format: @Sendable (Double) -> String

    package init(
        _ title: String, _ kind: Kind, points: [String], _ series: [Series],
        format: @escaping @Sendable (Double) -> String
    ) {
        (self.title, self.kind, self.points, self.series, self.format) = (title, kind, points, series, format)
    }

    private static let (width, height, left, bottom, top) = (720.0, 200.0, 56.0, 20.0, 8.0)

    /// The top of the scale: 1, 2 or 5 times a power of ten.
    private var maximum: Double {
        let sums: [Double] =
            switch kind {
            case .columns: points.indices.map { point in series.reduce(0) { $0 + ($1.value(point) ?? 0) } }
            case .lines: series.flatMap { $0.values.compactMap(\.self) }
            }
        let largest = sums.max() ?? 0
        guard largest > 0, largest.isFinite else { return 1 }
        var step = 1.0
        while step < largest { step *= 10 }
        while step / 10 >= largest { step /= 10 }
        return [step / 5, step / 2, step].first { $0 >= largest } ?? step
    }

    package var html: HTML {
        let maximum = maximum
        let shown = series.filter { $0.values.contains { ($0 ?? 0) > 0 } }
        guard !shown.isEmpty else {
            return
                "<figure class=\"chart\"><figcaption>\(title)</figcaption><p class=\"empty\">No data yet.</p></figure>"
        }
        let legend = shown.map { "<li><span class=\"swatch \($0.style)\"></span>\($0.name)</li>" as HTML }
        let (width, height) = (Int(Self.width), Int(Self.height))
        return """
            <figure class="chart"><figcaption>\(title)</figcaption>
            <svg viewBox="0 0 \(width) \(height)" role="img" aria-label="\(title): the table below has the numbers">
            \(scale(maximum))\(kind == .columns ? columns(shown, maximum) : lines(shown, maximum))\(times)
            </svg>
            <ul class="legend">\(legend)</ul>
            <details><summary>Numbers</summary>\(table(shown))</details>
            </figure>
            """
    }

    private func y(_ value: Double, _ maximum: Double) -> Double {
        Self.top + (Self.height - Self.bottom - Self.top) * (1 - value / maximum)
    }

    private func x(_ point: Int) -> Double {
        Self.left + (Self.width - Self.left) * Double(point) / Double(max(1, points.count))
    }

    private var pitch: Double { (Self.width - Self.left) / Double(max(1, points.count)) }

    private var columnWidth: Double { min(40, max(1, pitch - 1)) }

    private func scale(_ maximum: Double) -> HTML {
        HTML(
            [0, 0.5, 1].map { share in
                let y = y(maximum * share, maximum)
                return """
                    <line class="grid" x1="\(number(Self.left))" x2="\(number(Self.width))" y1="\(number(y))" \
                    y2="\(number(y))"/><text x="\(number(Self.left - 6))" y="\(number(y + 4))" \
                    text-anchor="end">\(format(maximum * share))</text>
                    """
            })
    }

    private var times: HTML {
        guard let first = points.first, let last = points.last, points.count > 1 else { return "" }
        let y = number(Self.height - 4)
        let middle = points[points.count / 2]
        return """
            <text x="\(number(Self.left))" y="\(y)">\(first)</text>\
            <text x="\(number((Self.left + Self.width) / 2))" y="\(y)" text-anchor="middle">\(middle)</text>\
            <text x="\(number(Self.width))" y="\(y)" text-anchor="end">\(last)</text>
            """
    }

    private func columns(_ shown: [Series], _ maximum: Double) -> HTML {
        HTML(
            points.indices.map { point in
                var (sum, parts, words) = (0.0, HTML(), points[point])
                for series in shown {
                    guard let value = series.value(point), value > 0 else { continue }
                    let (low, high) = (y(sum, maximum), y(sum + value, maximum))
                    parts += """
                        <rect class="\(series.style)" x="\(number(x(point) + (pitch - columnWidth) / 2))" \
                        y="\(number(high))" width="\(number(columnWidth))" height="\(number(max(0.5, low - high)))"/>
                        """
                    words += "\n\(series.name) \(format(value))"
                    sum += value
                }
                return parts.isEmpty ? "" : "<g><title>\(words)</title>\(parts)</g>"
            })
    }

    private func lines(_ shown: [Series], _ maximum: Double) -> HTML {
        HTML(
            shown.map { series in
                var (path, isDrawing) = ("", false)
                var dots = HTML()
                for point in points.indices {
                    guard let value = series.value(point) else {
                        isDrawing = false
                        continue
                    }
                    let (x, y) = (number(x(point) + pitch / 2), number(y(value, maximum)))
                    path += "\(isDrawing ? "L" : "M")\(x) \(y)"
                    isDrawing = true
                    dots += """
                        <circle class="\(series.style)" cx="\(x)" cy="\(y)" r="2">\
                        <title>\(points[point])\n\(series.name) \(format(value))</title></circle>
                        """
                }
                return "<path class=\"line \(series.style)\" d=\"\(path)\"/>\(dots)"
            })
    }

    private func table(_ shown: [Series]) -> HTML {
        let rows = points.indices.compactMap { point -> [HTML]? in
            guard shown.contains(where: { $0.value(point) ?? 0 > 0 }) else { return nil }
            return ["\(points[point])"] + shown.map { "\($0.value(point).map(format) ?? "–")" }
        }
        return Elements.table(
            title, ["Time"] + shown.map { "\($0.name)" }, rows, numbers: Set(1...shown.count), empty: "No data yet.")
    }

    /// Formats a coordinate with one decimal.
    private func number(_ value: Double) -> String {
        let tenths = Int((value * 10).rounded())
        return tenths % 10 == 0 ? "\(tenths / 10)" : "\(tenths / 10).\(abs(tenths % 10))"
    }
}

extension Chart.Series {
    fileprivate func value(_ point: Int) -> Double? { values.indices.contains(point) ? values[point] : nil }
}
