import CoreMetrics
import NIOConcurrencyHelpers

/// A series of one of the kinds.
enum MetricSeries: Sendable {
    case counter(CounterSeries)
    case gauge(GaugeSeries)
    case histogram(HistogramSeries)

    /// What `# TYPE` calls it.
    var kind: String {
        switch self {
        case .counter: "counter"
        case .gauge: "gauge"
        case .histogram: "histogram"
        }
    }

    fileprivate var handler: AnyObject {
        switch self {
        case .counter(let series): series
        case .gauge(let series): series
        case .histogram(let series): series
        }
    }
}

/// The metrics that there are, by name and labels.
struct MetricRegistry {
    /// The metrics of one name.
    struct Family {
        let kind: String
        var series: [MetricLabels: MetricSeries] = [:]
    }

    private(set) var families: [String: Family] = [:]
    /// Series that were not taken.
    private(set) var dropped = 0
    private var count = 0
    private var isFull = false
    /// Names that were used for two kinds.
    private var ambiguous: Set<String> = []
    /// Where a handler stands, so that it can be taken away again.
    private var places: [ObjectIdentifier: (name: String, labels: MetricLabels)] = [:]

    /// The series of a name and labels.
    /// - Parameter new: what it is to be if it is not there.
    /// - Returns: the series, `nil` where there can be none; and what is to be told of that, once.
    mutating func series(
        _ name: String, _ labels: MetricLabels, or new: MetricSeries, maximum: Int
    ) -> (series: MetricSeries?, problem: String?) {
        var family = families[name] ?? Family(kind: new.kind)
        guard family.kind == new.kind else {
            dropped += 1
            let isNew = ambiguous.insert(name).inserted
            return (
                nil,
                isNew ? "the metric \(name) is a \(family.kind), and is not written where it is a \(new.kind)" : nil
            )
        }
        if let series = family.series[labels] { return (series, nil) }
        guard count < maximum else {
            dropped += 1
            defer { isFull = true }
            return (
                nil,
                isFull
                    ? nil
                    : "there are \(maximum) metric series; no more are written, the first of them one of \(name)"
            )
        }
        count += 1
        family.series[labels] = new
        families[name] = family
        places[ObjectIdentifier(new.handler)] = (name, labels)
        return (new, nil)
    }

    mutating func remove(_ handler: AnyObject) {
        guard let (name, labels) = places.removeValue(forKey: ObjectIdentifier(handler)) else { return }
        families[name]?.series[labels] = nil
        count -= 1
    }
}

extension MetricRegistry.Family {
    /// Writes the family, with its help and its type once before all its series.
    func write(name: String, help: String?, to text: inout String) {
        if let help, !help.isEmpty { text += "# HELP \(name) \(MetricText.help(help))\n" }
        text += "# TYPE \(name) \(kind)\n"
        for (labels, series) in series.sorted(by: { $0.key < $1.key }) {
            switch series {
            case .counter(let counter): text += "\(labels.written(after: name)) \(counter.text)\n"
            case .gauge(let gauge): text += "\(labels.written(after: name)) \(MetricText.number(gauge.value))\n"
            case .histogram(let histogram): write(histogram, labels, name: name, to: &text)
            }
        }
    }

    private func write(_ histogram: HistogramSeries, _ labels: MetricLabels, name: String, to text: inout String) {
        let (counts, sum) = histogram.value
        var count = 0
        for (bucket, bound) in (histogram.bounds + [.infinity]).enumerated() {
            count += counts[bucket]
            text += labels.written(after: "\(name)_bucket", "le=\"\(MetricText.number(bound))\"") + " \(count)\n"
        }
        text += "\(labels.written(after: "\(name)_sum")) \(MetricText.number(sum))\n"
        text += "\(labels.written(after: "\(name)_count")) \(count)\n"
    }
}

/// What is known of a metric before anything is measured: its name and what it means.
package struct MetricFamily: Sendable {
    /// The name, such as `http_requests_total`.
    package var name: String
    /// What it measures, in one sentence, for `# HELP`.
    package var help: String
    /// Of a histogram: the upper bounds of its buckets in ascending order, in the metric's own unit, `+Inf` left out;
    /// `nil` for the factory's default.
    package var buckets: [Double]?

    package init(_ name: String, help: String, buckets: [Double]? = nil) {
        self.name = name
        self.help = help
        self.buckets = buckets
    }
}

/// The labels of one series, sorted by name, in the form in which they are written.
struct MetricLabels: Hashable, Comparable, Sendable {
    /// `name="value",…`, escaped, without braces; empty where there are no labels.
    let text: String

    static let none = MetricLabels([])

    init(_ dimensions: [(String, String)]) {
        var named: [String: String] = [:]
        // A label that is there twice would make the whole page unreadable: the last one counts.
        for (name, value) in dimensions { named[Self.name(name)] = value }
        text = named.sorted { $0.key < $1.key }
            .map { "\($0.key)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",")
    }

    /// `name{labels}`, with another label behind them where one is given.
    func written(after name: String, _ more: String = "") -> String {
        let all = text.isEmpty ? more : more.isEmpty ? text : "\(text),\(more)"
        return all.isEmpty ? name : "\(name){\(all)}"
    }

    static func < (one: MetricLabels, other: MetricLabels) -> Bool { one.text < other.text }

    /// A label's name as Prometheus allows it; `le` is a histogram's own.
    private static func name(_ given: String) -> String {
        let name = MetricText.name(given, allowsColon: false)
        return name == "le" ? "le_" : name
    }

    private static func escaped(_ value: String) -> String {
        var text = ""
        for character in value.unicodeScalars {
            switch character {
            case "\\": text += "\\\\"
            case "\"": text += "\\\""
            case "\n": text += "\\n"
            default: text.unicodeScalars.append(character)
            }
        }
        return text
    }
}

/// How names and values are written in Prometheus' text format.
///
/// Source: Prometheus, "Exposition formats", text-based format, version 0.0.4.
enum MetricText {
    /// A name with `_` for whatever may not be in one.
    static func name(_ given: String, allowsColon: Bool = true) -> String {
        var name = String(
            given.unicodeScalars.map { character in
                let isLetter = ("a"..."z").contains(character) || ("A"..."Z").contains(character) || character == "_"
                let isAllowed = isLetter || ("0"..."9").contains(character) || (allowsColon && character == ":")
                return isAllowed ? Character(character) : "_"
            })
        if let first = name.unicodeScalars.first, !("0"..."9").contains(first) { return name }
        name = "_" + name
        return name
    }

    static func help(_ text: String) -> String {
        var written = ""
        for character in text.unicodeScalars {
            switch character {
            case "\\": written += "\\\\"
            case "\n": written += "\\n"
            default: written.unicodeScalars.append(character)
            }
        }
        return written
    }

    static func number(_ value: Double) -> String {
        if value.isNaN { return "NaN" }
        if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
        // Beyond this not every whole number is one of these.
        if value == value.rounded(), abs(value) < 9_007_199_254_740_992 { return "\(Int64(value))" }
        return "\(value)"
    }
}

/// One series of a counter: whole or fractional amounts, which only ever grow.
final class CounterSeries: CounterHandler, FloatingPointCounterHandler {
    private let state = NIOLockedValueBox((whole: Int64(0), fraction: 0.0))

    func increment(by amount: Int64) {
        guard amount > 0 else { return }
        state.withLockedValue { $0.whole &+= amount }
    }

    func increment(by amount: Double) {
        guard amount > 0, amount.isFinite else { return }
        state.withLockedValue { $0.fraction += amount }
    }

    func reset() { state.withLockedValue { $0 = (0, 0) } }

    /// The value as it is written; whole numbers exactly, however large.
    var text: String {
        let (whole, fraction) = state.withLockedValue { $0 }
        return fraction == 0 ? "\(whole)" : MetricText.number(Double(whole) + fraction)
    }
}

/// One series of a gauge.
final class GaugeSeries: MeterHandler, RecorderHandler {
    private let state = NIOLockedValueBox(0.0)

    func set(_ value: Int64) { set(Double(value)) }
    func set(_ value: Double) { state.withLockedValue { $0 = value } }
    func increment(by amount: Double) { state.withLockedValue { $0 += amount } }
    func decrement(by amount: Double) { state.withLockedValue { $0 -= amount } }
    func record(_ value: Int64) { set(value) }
    func record(_ value: Double) { set(value) }

    var value: Double { state.withLockedValue { $0 } }
}

/// One series of a histogram. Timers are histograms of seconds.
package final class HistogramSeries: RecorderHandler, TimerHandler {
    /// The upper bounds of its buckets in ascending order, without `+Inf`.
    package let bounds: [Double]
    private let state: NIOLockedValueBox<(counts: [Int], sum: Double)>

    init(bounds: [Double]) {
        self.bounds = bounds
        state = NIOLockedValueBox((Array(repeating: 0, count: bounds.count + 1), 0))
    }

    package func record(_ value: Int64) { record(Double(value)) }

    /// See `RecorderHandler`. What is not a number is left out: it would spoil the sum for ever.
    package func record(_ value: Double) {
        guard value.isFinite else { return }
        let bucket = bounds.firstIndex { value <= $0 } ?? bounds.count
        state.withLockedValue {
            $0.counts[bucket] += 1
            $0.sum += value
        }
    }

    package func recordNanoseconds(_ duration: Int64) { record(Double(duration) / 1e9) }

    /// Adds what somebody else has counted in the same buckets.
    /// - Parameters:
    ///   - counts: how many values fell into each of the buckets of ``bounds``, and at last into `+Inf`; not cumulative.
    ///   - sum: the sum of those values.
    /// - Returns: `false` where these are not the buckets, and nothing was added.
    package func add(counts: [Int], sum: Double) -> Bool {
        guard counts.count == bounds.count + 1, counts.allSatisfy({ $0 >= 0 }), sum.isFinite else { return false }
        state.withLockedValue { state in
            for (bucket, count) in counts.enumerated() { state.counts[bucket] += count }
            state.sum += sum
        }
        return true
    }

    var value: (counts: [Int], sum: Double) { state.withLockedValue { $0 } }
}
