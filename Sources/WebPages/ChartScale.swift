import PrintableText

/// The unit of a chart's values, which decides the round numbers of its axis.
package enum ChartUnit: Sendable {
    /// Whole numbers.
    case count
    /// Durations in milliseconds.
    case milliseconds

    /// Returns a value as text, such as `1,204`, `850 ms` or `2 min 41 s`.
    package func text(_ value: Double) -> String {
        let value = max(0, min(value, 1e15))
        switch self {
        case .count: return Int(value.rounded()).grouped
        case .milliseconds: return Self.duration(value)
        }
    }

    private static func duration(_ milliseconds: Double) -> String {
        let whole = Int(milliseconds.rounded())
        func pair(_ unit: Int, _ name: String, _ smaller: Int, _ smallerName: String) -> String {
            let rest = whole % unit / smaller
            return "\((whole / unit).grouped) \(name)" + (rest > 0 ? " \(rest) \(smallerName)" : "")
        }
        switch whole {
        case ..<1000: return "\(whole) ms"
        case ..<10_000: return "\(whole / 1000).\(whole % 1000 / 100) s"
        case ..<60_000: return "\(whole / 1000) s"
        case ..<3_600_000: return pair(60_000, "min", 1000, "s")
        case ..<86_400_000: return pair(3_600_000, "h", 60_000, "min")
        default: return pair(86_400_000, "d", 3_600_000, "h")
        }
    }

    /// Returns the possible distances between two labels of an axis, ascending. The last distance is at least a fifth of the largest value.
    func steps(upTo largest: Double) -> [ChartScale.Step] {
        var steps: [ChartScale.Step] = []
        for step in candidates {
            steps.append(step)
            if largest <= step.size * Double(ChartScale.maximumSteps) { break }
        }
        return steps
    }

    private var candidates: [ChartScale.Step] {
        switch self {
        case .count: Self.decimal
        case .milliseconds: Self.durations
        }
    }

    private static let decimal: [ChartScale.Step] = sequence(first: 1.0) { $0 * 10 }.prefix(17).flatMap { unit in
        [1.0, 2, 5].map { digit in
            let size = digit * unit
            // Units shorten long numbers, which would take the space of the columns.
            return size >= 1e6 ? .init(size, 1e6, "M") : size >= 1e4 ? .init(size, 1e3, "k") : .init(size, 1, "")
        }
    }

    private static let durations: [ChartScale.Step] = {
        func steps(_ unit: Double, _ name: String, _ numbers: [Double]) -> [ChartScale.Step] {
            numbers.map { .init($0 * unit, unit, " " + name) }
        }
        return steps(1, "ms", [1, 2, 5, 10, 20, 50, 100, 200, 500]) + steps(1000, "s", [1, 2, 5, 10, 15, 30])
            + steps(60_000, "min", [1, 2, 5, 10, 15, 30]) + steps(3_600_000, "h", [1, 2, 6, 12])
            + steps(86_400_000, "d", [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000, 1_000_000])
    }()
}

/// The axis of values: labels in one unit, from 0 to the first round number that is not below the largest value.
struct ChartScale: Sendable {
    /// The distance between two labels of an axis, and the unit of the labels.
    struct Step: Sendable {
        let size: Double
        /// The unit's size.
        let divisor: Double
        let suffix: String

        init(_ size: Double, _ divisor: Double, _ suffix: String) {
            (self.size, self.divisor, self.suffix) = (size, divisor, suffix)
        }

        /// The text for `chart.js`, such as `30000/1000/ s`.
        var text: String { divisor == 1 && suffix.isEmpty ? "\(Int(size))" : "\(Int(size))/\(Int(divisor))/\(suffix)" }
    }

    /// The maximum number of labels above 0.
    static let maximumSteps = 5

    /// The possible distances, which `chart.js` uses when series are hidden. The last is the distance of this axis.
    let steps: [Step]
    let step: Step
    /// The number of labels above 0.
    let count: Int

    init(_ unit: ChartUnit, upTo largest: Double) {
        steps = unit.steps(upTo: largest)
        step = steps.last ?? Step(1, 1, "")
        count = max(1, min(Int((min(largest / step.size, 1e3)).rounded(.up)), Self.maximumSteps))
    }

    var top: Double { step.size * Double(count) }

    var labels: [String] {
        (0...count).map { index in
            index == 0 ? "0" : Int(step.size * Double(index) / step.divisor).grouped + step.suffix
        }
    }
}
