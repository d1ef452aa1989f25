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
