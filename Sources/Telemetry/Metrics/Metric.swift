/// A metric: its name, its kind, its help, and the labels by which its series differ.
package struct Metric: Sendable {
    package enum Kind: String, Sendable {
        /// Increases, from 0 at the start of the process.
        case counter
        /// Increases and decreases.
        case gauge
        /// Counts values in buckets.
        case histogram
    }

    /// The name in Prometheus, such as `http_requests_total`.
    package let name: String
    package let kind: Kind
    package let labels: [String]
    /// One sentence for `# HELP`.
    package let help: String
    /// The upper bounds of a histogram's buckets in the metric's unit, ascending, without `+Inf`; empty for all others.
    package let buckets: [Double]

    package init(_ name: String, _ kind: Kind, _ help: String) { self.init(name, kind, [], help) }

    package init(_ name: String, _ kind: Kind, _ labels: [String], buckets: [Double] = [], _ help: String) {
        self.name = name
        self.kind = kind
        self.labels = labels
        self.buckets = buckets
        self.help = help
    }
}

/// The values of a histogram.
package struct HistogramCounts: Sendable, Equatable {
    /// The number of values in each bucket, and last of those above all bounds; not cumulative.
    package var counts: [Int]
    package var sum: Double

    package init(counts: [Int], sum: Double) {
        self.counts = counts
        self.sum = sum
    }

    package static func + (one: Self, other: Self) -> Self {
        Self(counts: zip(one.counts, other.counts).map { $0 + $1 }, sum: one.sum + other.sum)
    }
}
