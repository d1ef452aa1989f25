import Operations
import PushQueue
import WebPages

/// The report on a campaign as one page that can be mailed: it has no scripts and no links to other files.
package struct CampaignReportDocument {
    private let summary: CampaignSummary
    /// The time of the report, in milliseconds since 1970.
    private let now: Int64

    package init(_ summary: CampaignSummary, now: Int64) { (self.summary, self.now) = (summary, now) }

    /// The maximum number of bars of a chart. All further values become one bar.
    private static let maximumBars = 12
    private static let (width, row, label) = (720, 28, 220)

    package var text: String { document.text }

    private var document: HTML {
        let outcomes = Outcome.allCases.filter { summary.count($0) > 0 }
        let facts = summary.facts.map { "<tr><th>\($0.name)</th><td>\($0.value)</td></tr>\n" as HTML }
        let shares = outcomes.map {
            Bar($0.rawValue, summary.count($0), $0 == .invalidToken ? "invalid" : $0.rawValue)
        }
        return """
            <!DOCTYPE html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width">
            <title>Campaign \(summary.campaign)</title>
            <style>
            /* The colors and shapes of the dashboard; on paper, those of its light theme. */
            :root { color-scheme: light dark; --page: light-dark(#f5f6f8, #0e1217);
              --surface: light-dark(#fff, #161b22);
              --text: light-dark(#1b1f24, #e6e9ee); --muted: light-dark(#525a64, #a3adb9);
                --line: light-dark(#d5dae0, #303843);
              --delivered: light-dark(#00805f, #2fc79b); --invalid: light-dark(#b07d00, #f0d442);
                --dead: light-dark(#b42318, #ff7b6e);
              --expired: light-dark(#5a3ea6, #b7a1ff); --dropped: light-dark(#5b6570, #aab4c0);
              --suppressed: light-dark(#0066a8, #56b4e9); --cancelled: light-dark(#a3477f, #e39ac6); }
            @media print { :root { color-scheme: light; } body { background: none; } section { break-inside: avoid; } }
            * { box-sizing: border-box; }
            body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
              max-width: 48rem; margin: 2rem auto;
              padding: 0 1rem; }
            h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin: 0 0 .5rem; }
            section { background: var(--surface); border: 1px solid var(--line); border-radius: .7rem;
              padding: .75rem 1rem; margin: .75rem 0; }
            table { border-collapse: collapse; } th { text-align: left; font-weight: 400; color: var(--muted);
              padding-right: 2rem; }
            td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
            td.number, th.number { text-align: right; padding-left: 1rem; } svg { display: block; width: 100%;
              height: auto; }
            text { font: 13px system-ui, sans-serif; fill: var(--text); font-variant-numeric: tabular-nums; }
            .delivered { fill: var(--delivered); } .invalid { fill: var(--invalid); } .dead { fill: var(--dead); }
            .expired { fill: var(--expired); }
            .dropped { fill: var(--dropped); } .suppressed { fill: var(--suppressed); }
            .cancelled { fill: var(--cancelled); }
            footer { margin: 2rem 0; color: var(--muted); }
            </style>
            </head>
            <body>
            <h1>Campaign \(summary.campaign)</h1>
            <section><table>
            \(facts)</table></section>
            \(rates)
            \(chart("Outcomes", shares, of: summary.ended))
            \(chart("Reasons of dead letters", bars(summary.deadReasons, "dead"), of: summary.ended))
            \(chart("Reasons of retries", bars(summary.retryReasons, "invalid"), of: nil))
            \(if: summary.queues.count > 1, queues)
            <footer>apns-worker, \(Moment.text(now))</footer>
            </body>
            </html>

            """
    }

    /// The chart of the rate over time; nothing for a campaign of a single period.
    private var rates: HTML {
        let course = summary.course
        guard let first = course.first, let last = course.last, let peak = summary.peak?.endedPerSecond else {
            return ""
        }
        let (height, top) = (160, 24)
        let step = Double(Self.width) / Double(course.count)
        let bars = course.enumerated().map { index, point -> HTML in
            let bar = Int((Double(height) * point.endedPerSecond / peak).rounded())
            let (x, end) = (Int(Double(index) * step), Int(Double(index + 1) * step))
            return """
                <rect x="\(x)" y="\(top + height - bar)" width="\(max(1, end - x - 1))" height="\(bar)" \
                class="delivered"><title>\(Moment.text(point.at)): \(Words.rate(point.endedPerSecond)) per second</title></rect>

                """
        }
        return """
            <section><h2>Notifications that ended per second</h2>
            <svg viewBox="0 0 \(Self.width) \(top + height + 24)" role="img" aria-label="Rate over time">
            <text x="0" y="14">\(Words.rate(peak)) at most, in periods of \(Words.duration(first.seconds * 1000))</text>
            \(bars)<text x="0" y="\(top + height + 18)">\(Moment.text(first.at))</text>
            <text x="\(Self.width)" y="\(top + height + 18)" text-anchor="end">\(Moment.text(last.at))</text>
            </svg></section>
            """
    }

    private struct Bar {
        let name: String
        let count: Int
        /// The class for its color in the style sheet.
        let style: String

        init(_ name: String, _ count: Int, _ style: String) {
            (self.name, self.count, self.style) = (name, count, style)
        }
    }

    private func bars(_ reasons: [String: Int], _ style: String) -> [Bar] {
        let sorted = reasons.largestFirst
        let rest = sorted.dropFirst(Self.maximumBars).reduce(0) { $0 + $1.value }
        return sorted.prefix(Self.maximumBars).map { Bar($0.key, $0.value, style) }
            + (rest > 0 ? [Bar("others", rest, style)] : [])
    }

    /// Returns a chart of horizontal bars with their numbers; nothing without bars.
    /// - Parameter all: the total, to show each bar's percentage; `nil` if the bars are not parts of a total.
    private func chart(_ title: String, _ bars: [Bar], of all: Int?) -> HTML {
        guard let largest = bars.map(\.count).max(), largest > 0 else { return "" }
        let room = Self.width - Self.label - 140
        let rows = bars.enumerated().map { index, bar -> HTML in
            let y = index * Self.row
            let length = max(1, Int(Double(room) * Double(bar.count) / Double(largest)))
            let share = all.map { " (\(CampaignSummary.percent(bar.count, of: $0)))" } ?? ""
            return """
                <text x="\(Self.label - 8)" y="\(y + 18)" text-anchor="end">\(String(bar.name.prefix(30)))</text>\
                <rect x="\(Self.label)" y="\(y + 4)" width="\(length)" height="\(Self.row - 8)" rx="3" \
                class="\(bar.style)"/>\
                <text x="\(Self.label + length + 8)" y="\(y + 18)">\(Words.number(bar.count))\(share)</text>

                """
        }
        return """
            <section><h2>\(title)</h2>
            <svg viewBox="0 0 \(Self.width) \(bars.count * Self.row)" role="img" aria-label="\(title)">
            \(rows)</svg></section>
            """
    }

    private var queues: HTML {
        let rows = summary.queues.map { part -> HTML in
            """
            <tr><td>\(part.queue)</td><td>\(part.state.words)</td>\
            <td class="number">\(part.total.map(Words.number) ?? "–")</td>\
            <td class="number">\(Words.number(part.ended))</td></tr>

            """
        }
        return """
            <section><h2>Queues</h2>
            <table>
            <tr><th>Queue</th><th>State</th><th class="number">Total</th><th class="number">Ended</th></tr>
            \(rows)</table></section>
            """
    }
}
