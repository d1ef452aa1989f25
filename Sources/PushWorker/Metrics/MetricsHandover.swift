import CoreMetrics

/// Hands what was counted elsewhere to swift-metrics: of counters and histograms what came since the last time, of gauges
/// what they are now. A gauge of which nothing is known any more goes away, for its last value would be taken for the present.
struct MetricsHandover {
    private struct Series: Hashable {
        var name: String
        var values: [String]
    }

    private let factory: any MetricsFactory
    private var counters: [Series: (handler: any CounterHandler, total: Int)] = [:]
    private var histograms: [Series: (handler: any RecorderHandler, total: LaneReport.HistogramCounts)] = [:]
    private var gauges: [Series: (handler: any MeterHandler, round: Int)] = [:]
    private var round = 0

    init(factory: any MetricsFactory) { self.factory = factory }

    /// - Parameters:
    ///   - values: of the metric's labels, in their order.
    ///   - total: what was counted since the process began. Where it is less than before, it was counted anew from 0.
    mutating func count(_ metric: WorkerMetric, _ values: [String] = [], total: Int) {
        let series = Series(name: metric.name, values: values)
        let known =
            counters[series]
            ?? (factory.makeCounter(label: metric.name, dimensions: metric.dimensions(values)), 0)
        let new = total >= known.total ? total - known.total : total
        if new > 0 { known.handler.increment(by: Int64(new)) }
        counters[series] = (known.handler, total)
    }

    mutating func set(_ metric: WorkerMetric, _ values: [String], _ value: Double) {
        let series = Series(name: metric.name, values: values)
        let handler =
            gauges[series]?.handler ?? factory.makeMeter(label: metric.name, dimensions: metric.dimensions(values))
        handler.set(value)
        gauges[series] = (handler, round)
    }

    mutating func set(_ metric: WorkerMetric, _ values: [String], _ value: Int) {
        set(metric, values, Double(value))
    }

    /// - Parameter total: what was counted since the process began, in the metric's buckets.
    mutating func record(_ metric: WorkerMetric, _ values: [String] = [], total: LaneReport.HistogramCounts) {
        let series = Series(name: metric.name, values: values)
        let none = LaneReport.HistogramCounts(counts: total.counts.map { _ in 0 }, sum: 0)
        let known =
            histograms[series]
            ?? (
                factory.makeRecorder(label: metric.name, dimensions: metric.dimensions(values), aggregate: true), none
            )
        let new = total - known.total
        histograms[series] = (known.handler, total)
        guard new != none else { return }
        if let recorder = known.handler as? any BatchRecorder, recorder.add(counts: new.counts, sum: new.sum) { return }
        // One by one, as well as can be told from the buckets.
        for (bucket, count) in new.counts.enumerated() {
            let value = metric.buckets[min(bucket, metric.buckets.count - 1)]
            for _ in 0..<max(0, count) { known.handler.record(value) }
        }
    }

    /// All that is known was handed over.
    mutating func finishRound() {
        for (series, gauge) in gauges where gauge.round < round {
            factory.destroyMeter(gauge.handler)
            gauges[series] = nil
        }
        round += 1
    }
}

extension WorkerMetric {
    fileprivate func dimensions(_ values: [String]) -> [(String, String)] {
        precondition(values.count == labels.count, "\(name) has other labels")
        return Array(zip(labels, values))
    }
}
