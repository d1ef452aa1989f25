import PrintableText

/// Drawings without axes, and helpers for numbers and paths in drawings.
package enum SVG {
    /// Returns a line without axes, for a card; empty without values.
    /// - Parameters:
    ///   - values: in order of time; `nil` if nothing was measured, which is shown as a gap.
    ///   - title: the text for screen readers and the pointer, such as `Delivered per minute, now 1,204`.
    package static func spark(values: [Double?], title: String) -> HTML {
        let values = values.map { value in value.flatMap { $0.isFinite ? max(0, $0) : nil } }
        let largest = values.compactMap(\.self).max() ?? 0
        guard largest > 0 else { return "" }
        let (width, height) = (max(1, values.count), 24.0)
        let path = path(values) { index, value in
            (Double(index) + 0.5, height - 1 - (height - 2) * value / largest)
        }
        return """
            <svg class="spark" viewBox="0 0 \(width) \(Int(height))" preserveAspectRatio="none" role="img" \
            aria-label="\(title)"><title>\(title)</title><path class="line series-1" d="\(path)" \
            vector-effect="non-scaling-stroke"/></svg>
            """
    }

    /// Returns a bar that is divided by outcome, with a legend that has the numbers; empty if all numbers are 0.
    /// - Parameter parts: the names, the classes of their colors, such as `delivered` or `series-3`, and the numbers.
    package static func shares(_ parts: [(name: String, style: String, count: Int)]) -> HTML {
        let shown = parts.filter { $0.count > 0 }
        let total = shown.reduce(0.0) { $0 + Double($1.count) }
        guard total > 0 else { return "" }
        // A minimum width, so that a small part can be seen.
        let widths = shown.map { max(0.7, 100 * Double($0.count) / total) }
        let sum = widths.reduce(0, +)
        var (bars, names, left) = (HTML(), HTML(), 0.0)
        for (part, width) in zip(shown, widths) {
            let text = "\(part.count.grouped) (\(percent(Double(part.count) / total)))"
            let share = 100 * width / sum
            bars += """
                <rect class="\(part.style)" x="\(number(left))%" width="\(number(share))%" height="100%">\
                <title>\(part.name): \(text)</title></rect>
                """
            names += """
                <li><span class="swatch \(part.style)"></span>\(part.name) <span class="num">\(text)</span></li>
                """
            left += share
        }
        return """
            <div class="shares"><svg width="100%" height="20" aria-hidden="true">\(bars)</svg>\
            <ul class="legend">\(names)</ul></div>
            """
    }

    /// Returns a share such as `95%` or `0.3%`; `<0.1%` for the smallest, and never 100% for less than all.
    private static func percent(_ share: Double) -> String {
        guard share < 1 else { return "100%" }
        guard share >= 0.001 else { return "<0.1%" }
        if share >= 0.1 && share < 0.99 { return "\(Int((100 * share).rounded()))%" }
        let tenths = min(999, Int((1000 * share).rounded()))
        return tenths % 10 == 0 ? "\(tenths / 10)%" : "\(tenths / 10).\(tenths % 10)%"
    }

    /// Returns the path of a line with a gap wherever a value is missing. A value between two gaps is a short stroke.
    static func path(_ values: [Double?], _ place: (Int, Double) -> (x: Double, y: Double)) -> String {
        var (path, isDrawing) = ("", false)
        for (index, value) in values.enumerated() {
            guard let value else {
                isDrawing = false
                continue
            }
            let (x, y) = place(index, value)
            let isAlone = !isDrawing && (index + 1 >= values.count || values[index + 1] == nil)
            path += "\(isDrawing ? "L" : "M")\(number(isAlone ? x - 0.3 : x)) \(number(y))"
            if isAlone { path += "h0.6" }
            isDrawing = true
        }
        return path
    }

    /// Formats a number with up to two decimals.
    package static func number(_ value: Double) -> String {
        let hundredths = Int((max(-1e13, min(value, 1e13)) * 100).rounded())
        let (whole, rest) = (abs(hundredths) / 100, abs(hundredths) % 100)
        let sign = hundredths < 0 ? "-" : ""
        if rest == 0 { return "\(sign)\(whole)" }
        return rest % 10 == 0 ? "\(sign)\(whole).\(rest / 10)" : "\(sign)\(whole).\(rest < 10 ? "0" : "")\(rest)"
    }
}
