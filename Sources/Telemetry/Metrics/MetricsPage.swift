/// The metrics of a process: the answer to a scrape.
///
/// Between scrapes, counters and histograms keep their values, but gauges must be set for each scrape. The number of series is limited,
/// because each costs memory here and in Prometheus. Further series are left out and counted.
///
/// Source: Prometheus, "Exposition formats", text-based format, version 0.0.4; OpenMetrics 1.0.
public struct MetricsPage: Sendable {
    public enum Format: Sendable, CaseIterable {
        /// Prometheus' text format.
        case text
        /// OpenMetrics, which also has units, exemplars, and the start times of counters.
        case openMetrics

        public var contentType: String {
            switch self {
            case .text: "text/plain; version=0.0.4; charset=utf-8"
            case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }

        /// Returns the format for a request: OpenMetrics if its `Accept` wants it at least as much as the text format.
        public init(accept: String?) {
            var quality: [Format: Double] = [:]
            for range in (accept ?? "").split(separator: ",") {
                let parts = range.split(separator: ";").map { part in
                    String(part.filter { !$0.isWhitespace }).lowercased()
                }
                let wanted = parts.dropFirst().first { $0.hasPrefix("q=") }.map { Double($0.dropFirst(2)) ?? 0 } ?? 1
                switch parts.first {
                case "application/openmetrics-text":
                    let version = parts.dropFirst().first { $0.hasPrefix("version=") }?.dropFirst(8)
                    // Version 0.0.1 differs only in its name.
                    guard version == nil || version == "1.0.0" || version == "0.0.1" else { continue }
                    quality[.openMetrics] = max(quality[.openMetrics] ?? 0, wanted)
                case "text/plain", "text/*", "*/*": quality[.text] = max(quality[.text] ?? 0, wanted)
                default: continue
                }
            }
            let openMetrics = quality[.openMetrics] ?? 0
            self = openMetrics > 0 && openMetrics >= quality[.text] ?? 0 ? .openMetrics : .text
        }
    }

    public static let maximumSeries = 10_000

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
    public private(set) var dropped = 0

    /// The start of the counters, in seconds since 1970: the start of the process.
    private let created: Double

    /// - Parameters:
    ///   - maximumSeries: the maximum number of series with labels. The number of series without labels is fixed.
    ///   - created: the start of the counters, in seconds since 1970.
    public init(maximumSeries: Int = Self.maximumSeries, created: Double) {
        maximum = maximumSeries
        self.created = created
    }

    /// Begins the next page. A gauge that is not set for it is left out, because an old value would look current.
    public mutating func begin() {
        omitted = 0
        for (name, family) in families where family.metric.kind == .gauge {
            if !family.metric.labels.isEmpty { count -= family.series.count }
            families[name] = nil
        }
    }

    /// Sets a counter or a gauge.
    /// - Parameter values: the values of the metric's labels, in their order.
    public mutating func set(_ metric: Metric, by values: [String] = [], _ value: Int) {
        set(metric, values, .whole(value))
    }

    public mutating func set(_ metric: Metric, by values: [String] = [], _ value: Double) {
        set(metric, values, .number(value))
    }

    /// Sets a histogram with the metric's buckets.
    public mutating func set(_ metric: Metric, by values: [String] = [], _ value: HistogramCounts) {
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

    /// Returns the page: families sorted by name, series by labels.
    public func text(_ format: Format = .text) -> String {
        var text = ""
        for (name, family) in families.sorted(by: { $0.key < $1.key }) {
            let metric = family.metric
            let shown = format == .text ? name : metric.family
            text += "# HELP \(shown) \(Self.escaped(metric.help, quotes: format == .openMetrics))\n"
            text += "# TYPE \(shown) \(metric.kind.rawValue)\n"
            if format == .openMetrics, let unit = metric.unit { text += "# UNIT \(shown) \(unit)\n" }
            for (labels, value) in family.series.sorted(by: { $0.key < $1.key }) {
                switch value {
                case .whole(let value): text += "\(Self.series(name, labels)) \(value)\n"
                case .number(let value): text += "\(Self.series(name, labels)) \(Self.written(value))\n"
                case .histogram(let value): Self.write(value, metric, labels, format, to: &text)
                }
                if format == .openMetrics, metric.kind != .gauge {
                    text += "\(Self.series(shown + "_created", labels)) \(Self.written(created))\n"
                }
            }
        }
        return format == .text ? text : text + "# EOF\n"
    }

    private static func write(
        _ value: HistogramCounts, _ metric: Metric, _ labels: String, _ format: Format, to text: inout String
    ) {
        var count = 0
        for (index, (bound, values)) in zip(metric.buckets + [.infinity], value.counts).enumerated() {
            count += values
            var shown = written(bound)
            // OpenMetrics' bounds always have a fraction or an exponent, and Prometheus reads both as the same.
            if format == .openMetrics, bound.isFinite, !shown.contains(where: { $0 == "." || $0 == "e" }) {
                shown += ".0"
            }
            let bucket = "le=\"\(shown)\""
            let labels = labels.isEmpty ? bucket : "\(labels),\(bucket)"
            text += "\(series(metric.name + "_bucket", labels)) \(count)"
            if format == .openMetrics, let exemplar = value.exemplars[index] {
                text += " # {trace_id=\"\(exemplar.trace.traceID)\",span_id=\"\(exemplar.trace.spanID)\"}"
                text += " \(written(exemplar.value)) \(written(exemplar.time))"
            }
            text += "\n"
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
