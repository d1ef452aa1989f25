import CoreMetrics
import NIOConcurrencyHelpers

/// Keeps what is measured through swift-metrics, and writes it in Prometheus' text format.
///
/// Counters become counters, meters and recorders without aggregation gauges, timers and aggregating recorders histograms.
/// A name is of one kind only, that of its first use. The number of series is bounded, for each costs memory here and in
/// Prometheus: what comes beyond the limit is measured and not written, is counted, and is told of once.
package final class PrometheusMetrics: MetricsFactory {
    /// The media type of what ``text()`` gives.
    package static let contentType = "text/plain; version=0.0.4; charset=utf-8"
    /// Buckets of histograms for which none are given: seconds.
    package static let defaultBuckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

    private let described: [String: MetricFamily]
    private let maximumSeries: Int
    private let droppedName: String
    private let onProblem: @Sendable (String) -> Void
    private let state = NIOLockedValueBox(MetricRegistry())

    /// - Parameters:
    ///   - families: what is known of the metrics to come; others have no help, and the default buckets.
    ///   - maximumSeries: how many series there may be in all.
    ///   - droppedName: the name of the counter of series that were not taken.
    ///   - onProblem: called with a sentence when a series is not taken: for the limit, once, and once for each name that is
    ///     used for metrics of two kinds.
    package init(
        families: [MetricFamily] = [], maximumSeries: Int = 10_000,
        droppedName: String = "metric_series_dropped_total", onProblem: @escaping @Sendable (String) -> Void
    ) {
        described = Dictionary(families.map { ($0.name, $0) }) { $1 }
        self.maximumSeries = maximumSeries
        self.droppedName = droppedName
        self.onProblem = onProblem
    }

    /// Everything that is measured, in Prometheus' text format 0.0.4: families sorted by name, series by labels.
    package func text() -> String {
        let (registry, dropped) = state.withLockedValue { ($0, $0.dropped) }
        var text = ""
        var hasWrittenDropped = dropped == 0
        for (name, family) in registry.families.sorted(by: { $0.key < $1.key }) where !family.series.isEmpty {
            if !hasWrittenDropped, droppedName < name {
                writeDropped(dropped, to: &text)
                hasWrittenDropped = true
            }
            family.write(name: name, help: described[name]?.help, to: &text)
        }
        if !hasWrittenDropped { writeDropped(dropped, to: &text) }
        return text
    }

    private func writeDropped(_ count: Int, to text: inout String) {
        text += "# HELP \(droppedName) Series that are not here, because there are too many or their name is taken.\n"
        text += "# TYPE \(droppedName) counter\n\(droppedName) \(count)\n"
    }

    // MARK: MetricsFactory

    package func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        counter(label, dimensions)
    }

    package func makeFloatingPointCounter(
        label: String, dimensions: [(String, String)]
    ) -> any FloatingPointCounterHandler { counter(label, dimensions) }

    package func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
        gauge(label, dimensions)
    }

    package func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
        if aggregate { histogram(label, dimensions) } else { gauge(label, dimensions) }
    }

    /// See `MetricsFactory`. The unit is the second, whatever is asked for.
    package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        histogram(label, dimensions)
    }

    package func destroyCounter(_ handler: any CounterHandler) { remove(handler) }
    package func destroyFloatingPointCounter(_ handler: any FloatingPointCounterHandler) { remove(handler) }
    package func destroyMeter(_ handler: any MeterHandler) { remove(handler) }
    package func destroyRecorder(_ handler: any RecorderHandler) { remove(handler) }
    package func destroyTimer(_ handler: any TimerHandler) { remove(handler) }

    // MARK: Series

    private func counter(_ label: String, _ dimensions: [(String, String)]) -> CounterSeries {
        let new = CounterSeries()
        guard case .counter(let series) = series(label, dimensions, or: .counter(new)) else { return new }
        return series
    }

    private func gauge(_ label: String, _ dimensions: [(String, String)]) -> GaugeSeries {
        let new = GaugeSeries()
        guard case .gauge(let series) = series(label, dimensions, or: .gauge(new)) else { return new }
        return series
    }

    private func histogram(_ label: String, _ dimensions: [(String, String)]) -> HistogramSeries {
        let bounds = described[MetricText.name(label)]?.buckets ?? Self.defaultBuckets
        let new = HistogramSeries(bounds: bounds)
        guard case .histogram(let series) = series(label, dimensions, or: .histogram(new)) else { return new }
        return series
    }

    /// - Returns: the series that is there, or the new one; `nil` where it cannot be written, and nobody will see it.
    private func series(
        _ label: String, _ dimensions: [(String, String)], or new: MetricSeries
    ) -> MetricSeries? {
        let (series, problem) = state.withLockedValue {
            $0.series(MetricText.name(label), MetricLabels(dimensions), or: new, maximum: maximumSeries)
        }
        if let problem { onProblem(problem) }
        return series
    }

    private func remove(_ handler: AnyObject) { state.withLockedValue { $0.remove(handler) } }
}
