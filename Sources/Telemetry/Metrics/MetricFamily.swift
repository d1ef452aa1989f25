/// What is known of a metric before anything is measured: its name and what it means.
public struct MetricFamily: Sendable {
    /// The name, such as `http_requests_total`.
    public var name: String
    /// What it measures, in one sentence, for `# HELP`.
    public var help: String
    /// Of a histogram: the upper bounds of its buckets in ascending order, in the metric's own unit, `+Inf` left out;
    /// `nil` for the factory's default.
    public var buckets: [Double]?

    /// Describes a metric; see the members.
    public init(_ name: String, help: String, buckets: [Double]? = nil) {
        self.name = name
        self.help = help
        self.buckets = buckets
    }
}
