import FoundationEssentials
import PrintableText

extension Chart {
    /// The unit of a chart's values, which decides the round numbers of its axis.
    package enum Unit: Sendable {
        /// Whole numbers.
        case count
        /// Numbers with fractions, such as rates.
        case number
        /// Durations in milliseconds.
        case milliseconds

        /// Returns a value as text, such as `1,204`, `850 ms` or `2 min 41 s`.
        package func text(_ value: Double) -> String {
            let value = max(0, min(value, 1e15))
            switch self {
            case .count: return Int(value.rounded()).grouped
            case .number: return value < 10 ? Chart.number(value) : Int(value.rounded()).grouped
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

        /// The distances between two labels of an axis, ascending up to the first that is at least a fifth of a value.
        func steps(upTo largest: Double) -> [Step] {
            var steps: [Step] = []
            for step in candidates {
                steps.append(step)
                if largest <= step.size * Double(Scale.maximumSteps) { break }
            }
            return steps
        }

        private var candidates: [Step] {
            switch self {
            case .count: Self.decimal(0...16)
            case .number: Self.decimal(-2...16)
            case .milliseconds: Self.durations
            }
        }

        private static func decimal(_ powers: ClosedRange<Int>) -> [Step] {
            powers.flatMap { power -> [Step] in
                let unit = (0..<abs(power)).reduce(1.0) { value, _ in power < 0 ? value / 10 : value * 10 }
                return [1.0, 2, 5].map { digit in
                    let size = digit * unit
                    // Long numbers take the space of the columns.
                    return size >= 1e6 ? Step(size, 1e6, "M") : size >= 1e4 ? Step(size, 1e3, "k") : Step(size, 1, "")
                }
            }
        }

        private static let durations: [Step] = {
            func steps(_ unit: Double, _ name: String, _ numbers: [Double]) -> [Step] {
                numbers.map { Step($0 * unit, unit, " " + name) }
            }
            return steps(1, "ms", [1, 2, 5, 10, 20, 50, 100, 200, 500]) + steps(1000, "s", [1, 2, 5, 10, 15, 30])
                + steps(60_000, "min", [1, 2, 5, 10, 15, 30]) + steps(3_600_000, "h", [1, 2, 6, 12])
                + steps(86_400_000, "d", [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000, 1_000_000])
        }()
    }

    /// The distance between two labels of an axis, and the unit of the labels.
    struct Step: Sendable {
        let size: Double
        /// The unit's size.
        let divisor: Double
        let suffix: String

        init(_ size: Double, _ divisor: Double, _ suffix: String) {
            (self.size, self.divisor, self.suffix) = (size, divisor, suffix)
        }

        /// The form for the script, such as `30000/1000/ s`.
        var text: String { divisor == 1 && suffix.isEmpty ? plain(size) : "\(plain(size))/\(plain(divisor))/\(suffix)" }

        private func plain(_ value: Double) -> String { value >= 1 ? "\(Int(value))" : Chart.number(value) }
    }

    /// The axis of values: labels in one unit, from 0 to the first round number that is not below the largest value.
    struct Scale: Sendable {
        /// The maximum number of labels above 0.
        static let maximumSteps = 5

        /// The distances that are used when series are hidden; the last is that of this axis.
        let steps: [Step]
        let step: Step
        /// The number of labels above 0.
        let count: Int

        init(_ unit: Unit, upTo largest: Double) {
            steps = unit.steps(upTo: largest)
            step = steps.last ?? Step(1, 1, "")
            count = max(1, min(Int((min(largest / step.size, 1e3)).rounded(.up)), Self.maximumSteps))
        }

        var top: Double { step.size * Double(count) }

        /// The labels from 0 to the top.
        var labels: [String] {
            (0...count).map { index in
                guard index > 0 else { return "0" }
                let value = step.size * Double(index) / step.divisor
                let number = value.rounded() == value ? Int(value).grouped : Chart.number(value)
                return number + step.suffix
            }
        }
    }

    /// The axis of time: steps of one length.
    package struct Times: Sendable {
        /// The beginning of the first step, in milliseconds since 1970.
        package let first: Int64
        /// The length of a step in milliseconds.
        package let step: Int64
        /// The number of steps.
        package let count: Int

        package init(first: Int64, step: Int64, count: Int) {
            (self.first, self.step, self.count) = (first, max(1, step), max(1, count))
        }

        private static let (minute, hour, day): (Int64, Int64, Int64) = (60_000, 3_600_000, 86_400_000)
        /// The distances between two labels, which are at multiples of them.
        private static let distances =
            [1, 2, 5, 10, 15, 30].map { $0 * minute } + [1, 2, 3, 4, 6, 12].map { $0 * hour } + [
                day, 7 * day, 28 * day,
            ]
        /// Weeks begin on Mondays; 1970 began on a Thursday.
        private static let monday = 4 * day

        var length: Int64 { step * Int64(count) }

        package func start(_ index: Int) -> Int64 { first + step * Int64(index) }

        /// Returns the step of a time; `nil` for one outside the axis.
        package func index(of time: Int64) -> Int? {
            guard time >= first, time < first + length else { return nil }
            return Int((time - first) / step)
        }

        /// Returns the name of a step in UTC: `14:05`, `14:00–14:20` or `Sat 21 Nov`. With several days, a time has its
        /// day.
        func name(_ index: Int) -> String {
            let start = start(index)
            guard step < Self.day else { return "\(Self.weekday(start)) \(Self.dayName(start))" }
            let isOneDay = first / Self.day == (first + length - 1) / Self.day
            let end = step > Self.minute ? "–\(Self.clock(start + step))" : ""
            return (isOneDay ? "" : "\(Self.dayName(start)) ") + Self.clock(start) + end
        }

        /// The labels, at round numbers of minutes, hours, days or weeks: at most six, or the seven days of a week.
        var labels: [(at: Int64, text: String)] {
            let distance =
                step == Self.day && count <= 7
                ? Self.day : Self.distances.first { $0 >= step && length / $0 <= 6 } ?? length
            let offset = distance > Self.day ? Self.monday : 0
            var labels: [(at: Int64, text: String)] = []
            var at = (first - offset + distance - 1) / distance * distance + offset
            while at < first + length {
                labels.append((at, label(at, distance)))
                at += distance
            }
            return labels
        }

        private func label(_ at: Int64, _ distance: Int64) -> String {
            if distance == Self.day && step == Self.day { return Self.weekday(at) }
            return distance >= Self.day || at % Self.day == 0 ? Self.dayName(at) : Self.clock(at)
        }

        private static func clock(_ time: Int64) -> String {
            let minutes = time / minute % 1440
            return [minutes / 60, minutes % 60].map { $0 < 10 ? "0\($0)" : "\($0)" }.joined(separator: ":")
        }

        /// Returns a date such as `21 Nov`.
        private static func dayName(_ time: Int64) -> String {
            let text = iso(time)
            let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
            let parts = text.prefix(10).split(separator: "-").compactMap { Int($0) }
            guard parts.count == 3, names.indices.contains(parts[1] - 1) else { return text }
            return "\(parts[2]) \(names[parts[1] - 1])"
        }

        private static func weekday(_ time: Int64) -> String {
            ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][Int((time / day % 7 + 7) % 7)]
        }

        /// ISO 8601.
        static func iso(_ time: Int64) -> String {
            Date(timeIntervalSince1970: Double(time / 1000)).formatted(.iso8601)
        }
    }
}
