/// A metric: its name, kind, help and labels.
public struct Metric: Sendable {
    public enum Kind: String, Sendable {
        /// Increases, from 0 at the start of the process.
        case counter
        /// Increases and decreases.
        case gauge
        /// Counts values in buckets.
        case histogram
    }

    /// The name in Prometheus, such as `http_requests_total`.
    public let name: String
    public let kind: Kind
    public let labels: [String]
    /// One sentence for `# HELP`.
    public let help: String
    /// The upper bounds of a histogram's buckets in the metric's unit, ascending, without `+Inf`; empty for other metrics.
    public let buckets: [Double]

    public init(_ name: String, _ kind: Kind, _ help: String) { self.init(name, kind, [], help) }

    public init(_ name: String, _ kind: Kind, _ labels: [String], buckets: [Double] = [], _ help: String) {
        precondition((kind == .counter) == name.hasSuffix("_total"), "\(name): OpenMetrics' counters end in _total")
        self.name = name
        self.kind = kind
        self.labels = labels
        self.buckets = buckets
        self.help = help
    }

    /// The name without a counter's suffix.
    var family: String { kind == .counter ? String(name.dropLast("_total".count)) : name }

    /// The unit at the end of the name, if there is one.
    var unit: String? { ["seconds", "bytes"].first { family.hasSuffix("_\($0)") } }
}

/// A measured value, and the trace that it was measured in.
public struct Exemplar: Sendable, Equatable {
    public var trace: Span.Context
    public var value: Double
    /// Seconds since 1970.
    public var time: Double

    public init(trace: Span.Context, value: Double, time: Double) {
        self.trace = trace
        self.value = value
        self.time = time
    }
}

public struct HistogramCounts: Sendable, Equatable {
    /// The number of values in each bucket, not cumulative. The last bucket has the values above all bounds.
    public var counts: [Int]
    public var sum: Double
    /// The latest exemplar of each bucket that has one.
    public var exemplars: [Int: Exemplar]

    public init(counts: [Int], sum: Double, exemplars: [Int: Exemplar] = [:]) {
        self.counts = counts
        self.sum = sum
        self.exemplars = exemplars
    }

    public static func + (one: Self, other: Self) -> Self {
        Self(
            counts: zip(one.counts, other.counts).map { $0 + $1 }, sum: one.sum + other.sum,
            exemplars: one.exemplars.merging(other.exemplars) { $0.time > $1.time ? $0 : $1 })
    }
}
