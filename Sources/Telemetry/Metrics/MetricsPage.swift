/// The metrics of a process in Prometheus' text format: the answer to a scrape.
///
/// Kept between scrapes: counters and histograms keep their values, and gauges must be set for each scrape. The number
/// of series is bounded, because each costs memory here and in Prometheus: series beyond the limit are left out and
/// counted.
///
/// Source: Prometheus, "Exposition formats", text-based format, version 0.0.4.
package struct MetricsPage: Sendable {
    /// The media type of ``text``.
    package static let contentType = "text/plain; version=0.0.4; charset=utf-8"
    package static let maximumSeries = 10_000

    private enum Value {
        case whole(Int)
        case number(Double)
        case histogram(HistogramCounts)
    }

    private struct Family {
        let metric: Metric
        /// Series by their labels, as written on the page.
        var series: [String: Value] = [:]
    }

    private var families: [String: Family] = [:]
    private let maximum: Int
    private var count = 0
    private var omitted = 0
    /// The largest number of series that were left out of a page.
    package private(set) var dropped = 0

    /// - Parameter maximumSeries: the maximum number of series with labels; the number of others is fixed.
    package init(maximumSeries: Int = Self.maximumSeries) { maximum = maximumSeries }

    /// Begins the next page. A gauge that is not set for it is left out, because an old value would look current.
    package mutating func begin() {
        omitted = 0
        for (name, family) in families where family.metric.kind == .gauge {
            if !family.metric.labels.isEmpty { count -= family.series.count }
            families[name] = nil
        }
    }

    /// Sets a counter or a gauge.
    /// - Parameter values: the values of the metric's labels, in their order.
    package mutating func set(_ metric: Metric, by values: [String] = [], _ value: Int) {
        set(metric, values, .whole(value))
    }

    /// Sets a counter or a gauge.
    package mutating func set(_ metric: Metric, by values: [String] = [], _ value: Double) {
        set(metric, values, .number(value))
    }

    /// Sets a histogram with the metric's buckets.
    package mutating func set(_ metric: Metric, by values: [String] = [], _ value: HistogramCounts) {
        precondition(value.counts.count == metric.buckets.count + 1, "\(metric.name) has other buckets")
        set(metric, values, .histogram(value))
    }

    private mutating func set(_ metric: Metric, _ values: [String], _ value: Value) {
        precondition(values.count == metric.labels.count, "\(metric.name) has other labels")
        let labels = zip(metric.labels, values).sorted { $0.0 < $1.0 }
            .map { "\($0)=\"\(Self.escaped($1, quotes: true))\"" }.joined(separator: ",")
        if families[metric.name]?.series[labels] == nil, !values.isEmpty {
            guard count < maximum else {
                omitted += 1
                dropped = max(dropped, omitted)
                return
            }
            count += 1
        }
        families[metric.name, default: Family(metric: metric)].series[labels] = value
    }

    // MARK: Text

    /// The page: families sorted by name, series by labels.
    package var text: String {
        var text = ""
        for (name, family) in families.sorted(by: { $0.key < $1.key }) {
            text += "# HELP \(name) \(Self.escaped(family.metric.help, quotes: false))\n"
            text += "# TYPE \(name) \(family.metric.kind.rawValue)\n"
            for (labels, value) in family.series.sorted(by: { $0.key < $1.key }) {
                switch value {
                case .whole(let value): text += "\(Self.series(name, labels)) \(value)\n"
                case .number(let value): text += "\(Self.series(name, labels)) \(Self.written(value))\n"
                case .histogram(let value): Self.write(value, family.metric, labels, to: &text)
                }
            }
        }
        return text
    }

    private static func write(_ value: HistogramCounts, _ metric: Metric, _ labels: String, to text: inout String) {
        var count = 0
        for (bound, values) in zip(metric.buckets + [.infinity], value.counts) {
            count += values
            let bucket = "le=\"\(written(bound))\""
            let labels = labels.isEmpty ? bucket : "\(labels),\(bucket)"
            text += "\(series(metric.name + "_bucket", labels)) \(count)\n"
        }
        text += "\(series(metric.name + "_sum", labels)) \(written(value.sum))\n"
        text += "\(series(metric.name + "_count", labels)) \(count)\n"
    }

    private static func series(_ name: String, _ labels: String) -> String {
        labels.isEmpty ? name : "\(name){\(labels)}"
    }

    private static func written(_ value: Double) -> String {
        if value.isNaN { return "NaN" }
        if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
        // From 2⁵³ on, not every whole number can be represented.
        if value == value.rounded(), abs(value) < 9_007_199_254_740_992 { return "\(Int64(value))" }
        return "\(value)"
    }

    private static func escaped(_ text: String, quotes: Bool) -> String {
        var escaped = ""
        for character in text.unicodeScalars {
            switch character {
            case "\\": escaped += "\\\\"
            case "\n": escaped += "\\n"
            case "\"" where quotes: escaped += "\\\""
            default: escaped.unicodeScalars.append(character)
            }
        }
        return escaped
    }
}
