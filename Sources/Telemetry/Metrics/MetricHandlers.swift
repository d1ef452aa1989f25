import CoreMetrics
import NIOConcurrencyHelpers

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
public final class HistogramSeries: RecorderHandler, TimerHandler {
    /// The upper bounds of its buckets in ascending order, without `+Inf`.
    public let bounds: [Double]
    private let state: NIOLockedValueBox<(counts: [Int], sum: Double)>

    init(bounds: [Double]) {
        self.bounds = bounds
        state = NIOLockedValueBox((Array(repeating: 0, count: bounds.count + 1), 0))
    }

    /// See `RecorderHandler`.
    public func record(_ value: Int64) { record(Double(value)) }

    /// See `RecorderHandler`. What is not a number is left out: it would spoil the sum for ever.
    public func record(_ value: Double) {
        guard value.isFinite else { return }
        let bucket = bounds.firstIndex { value <= $0 } ?? bounds.count
        state.withLockedValue {
            $0.counts[bucket] += 1
            $0.sum += value
        }
    }

    /// See `TimerHandler`.
    public func recordNanoseconds(_ duration: Int64) { record(Double(duration) / 1e9) }

    /// Adds what somebody else has counted in the same buckets.
    /// - Parameters:
    ///   - counts: how many values fell into each of the buckets of ``bounds``, and at last into `+Inf`; not cumulative.
    ///   - sum: the sum of those values.
    /// - Returns: `false` where these are not the buckets, and nothing was added.
    public func add(counts: [Int], sum: Double) -> Bool {
        guard counts.count == bounds.count + 1, counts.allSatisfy({ $0 >= 0 }), sum.isFinite else { return false }
        state.withLockedValue { state in
            for (bucket, count) in counts.enumerated() { state.counts[bucket] += count }
            state.sum += sum
        }
        return true
    }

    var value: (counts: [Int], sum: Double) { state.withLockedValue { $0 } }
}
