import Operations
import PushQueue
import WebPages

/// The report on a campaign as one page without links to other files and without scripts, so that it can be mailed.
package struct CampaignReportDocument {
    private let summary: CampaignSummary
    /// The time of the report, in milliseconds since 1970.
    private let now: Int64

    package init(_ summary: CampaignSummary, now: Int64) { (self.summary, self.now) = (summary, now) }

    /// The maximum number of bars of a chart; the rest is one bar.
    private static let maximumBars = 12
    private static let (width, row, label) = (720, 28, 220)

    private static func color(_ outcome: Outcome) -> HTML {
        switch outcome {
        case .delivered: "#2da44e"
        case .invalidToken: "#bf8700"
        case .dead: "#cf222e"
        case .expired: "#8250df"
        case .dropped: "#6e7781"
        case .suppressed: "#0e8a8a"
        case .cancelled: "#57606a"
        }
    }

    package var text: String { document.text }

    private var document: HTML {
        let outcomes = Outcome.allCases.filter { summary.count($0) > 0 }
        let facts = summary.facts.map { "<tr><th>\($0.name)</th><td>\($0.value)</td></tr>\n" as HTML }
        let shares = outcomes.map {
            Bar("\($0.rawValue)", summary.count($0), Self.color($0))
        }
        return """
            <!DOCTYPE html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width">
            <title>Campaign \(summary.campaign)</title>
            <style>
            body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; max-width: 760px; margin: 2em auto; padding: 0 1em; }
            h1 { font-size: 1.5em; } h2 { font-size: 1.1em; margin-top: 2em; }
            table { border-collapse: collapse; } th { text-align: left; font-weight: 600; padding-right: 2em; }
            td.number, th.number { text-align: right; } svg { width: 100%; height: auto; } text { font: 13px system-ui, sans-serif; }
            footer { margin-top: 3em; color: #57606a; }
            </style>
            </head>
            <body>
            <h1>Campaign \(summary.campaign)</h1>
            <table>
            \(facts)</table>
            \(rates)
            \(chart("Outcomes", shares, of: summary.ended))
            \(chart("Reasons of dead letters", bars(summary.deadReasons, "#cf222e"), of: summary.ended))
            \(chart("Reasons of retries", bars(summary.retryReasons, "#bf8700"), of: nil))
            \(if: summary.queues.count > 1, queues)
            <footer>apns-worker, \(Moment.text(now))</footer>
            </body>
            </html>

            """
    }

    /// The chart of the rate over time; nothing for a campaign of a single period.
    private var rates: HTML {
        guard let first = summary.rates.first, let last = summary.rates.last, summary.rates.count > 1,
            let peak = summary.rates.map(\.perSecond).max(), peak > 0
        else { return "" }
        let (height, top) = (160, 24)
        let step = Double(Self.width) / Double(summary.rates.count)
        let bars = summary.rates.enumerated().map { index, point -> HTML in
            let bar = Int((Double(height) * point.perSecond / peak).rounded())
            let (x, end) = (Int(Double(index) * step), Int(Double(index + 1) * step))
            return """
                <rect x="\(x)" y="\(top + height - bar)" width="\(max(1, end - x - 1))" height="\(bar)" fill="#0969da">\
                <title>\(Moment.text(point.at)): \(Words.rate(point.perSecond)) per second</title></rect>

                """
        }
        return """
            <h2>Notifications per second</h2>
            <svg viewBox="0 0 \(Self.width) \(top + height + 24)" role="img" aria-label="Rate over time">
            <text x="0" y="14">\(Words.rate(peak)) at most, in periods of \(Words.duration(first.seconds * 1000))</text>
            \(bars)<text x="0" y="\(top + height + 18)">\(Moment.text(first.at))</text>
            <text x="\(Self.width)" y="\(top + height + 18)" text-anchor="end">\(Moment.text(last.at))</text>
            </svg>
            """
    }

    private struct Bar {
        let name: String
        let count: Int
        let color: HTML

        init(_ name: String, _ count: Int, _ color: HTML) { (self.name, self.count, self.color) = (name, count, color) }
    }

    private func bars(_ reasons: [String: Int], _ color: HTML) -> [Bar] {
        let sorted = reasons.largestFirst
        let rest = sorted.dropFirst(Self.maximumBars).reduce(0) { $0 + $1.value }
        return sorted.prefix(Self.maximumBars).map { Bar($0.key, $0.value, color) }
            + (rest > 0 ? [Bar("others", rest, color)] : [])
    }

    /// Returns a chart of horizontal bars with their numbers; nothing without bars.
    /// - Parameter all: the number of which the bars are parts, if they are.
    private func chart(_ title: String, _ bars: [Bar], of all: Int?) -> HTML {
        guard let largest = bars.map(\.count).max(), largest > 0 else { return "" }
        let room = Self.width - Self.label - 140
        let rows = bars.enumerated().map { index, bar -> HTML in
            let y = index * Self.row
            let length = max(1, Int(Double(room) * Double(bar.count) / Double(largest)))
            let share = all.map { " (\(CampaignSummary.percent(bar.count, of: $0)))" } ?? ""
            return """
                <text x="\(Self.label - 8)" y="\(y + 18)" text-anchor="end">\(String(bar.name.prefix(30)))</text>\
                <rect x="\(Self.label)" y="\(y + 4)" width="\(length)" height="\(Self.row - 8)" fill="\(bar.color)"/>\
                <text x="\(Self.label + length + 8)" y="\(y + 18)">\(Words.number(bar.count))\(share)</text>

                """
        }
        return """
            <h2>\(title)</h2>
            <svg viewBox="0 0 \(Self.width) \(bars.count * Self.row)" role="img" aria-label="\(title)">
            \(rows)</svg>
            """
    }

    private var queues: HTML {
        let rows = summary.queues.map { part -> HTML in
            """
            <tr><td>\(part.queue)</td><td>\(part.state)</td><td class="number">\(part.total.map(Words.number) ?? "–")</td>\
            <td class="number">\(Words.number(part.ended))</td></tr>

            """
        }
        return """
            <h2>Queues</h2>
            <table>
            <tr><th>Queue</th><th>State</th><th class="number">Total</th><th class="number">Ended</th></tr>
            \(rows)</table>
            """
    }
}
