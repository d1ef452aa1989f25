public enum DurationUnit: String, CaseIterable, Sendable {
    // Larger units first, as in a duration.
    case weeks = "w"
    case days = "d"
    case hours = "h"
    case minutes = "m"
    case seconds = "s"
    case milliseconds = "ms"

    public var milliseconds: Int {
        switch self {
        case .milliseconds: 1
        case .seconds: 1000
        case .minutes: 60_000
        case .hours: 3_600_000
        case .days: 86_400_000
        case .weeks: 7 * 86_400_000
        }
    }

    public var name: String { "\(self)" }
}

/// Durations in text form, such as `500ms`, `45s`, `1h30m` or `90d`: in jobs, settings, flags and rules of the simulator.
public enum DurationText {
    /// The longest valid duration, 100 years in milliseconds.
    static let longest = 36_500 * 86_400_000

    /// Reads a duration: numbers with the units w, d, h, m, s and ms, each at most once and the larger ones first.
    /// - Parameter smallest: the smallest unit that is valid.
    /// - Returns: milliseconds; `nil` if the text is not a duration, or the duration is longer than 100 years.
    public static func milliseconds(
        _ text: some StringProtocol, smallest: DurationUnit = .milliseconds
    ) -> Int? {
        var text = String(text)
        return text.withUTF8 { milliseconds(UnsafeRawBufferPointer($0), smallest: smallest) }
    }

    static func milliseconds(_ text: UnsafeRawBufferPointer, smallest: DurationUnit) -> Int? {
        var total = 0
        var number: Int?
        var last = Int.max
        var position = 0
        while position < text.count {
            let byte = text[position]
            if byte &- UInt8(ascii: "0") < 10 {
                let value = (number ?? 0) * 10 + Int(byte - UInt8(ascii: "0"))
                guard value <= longest else { return nil }
                number = value
                position += 1
                continue
            }
            guard let count = number, let unit = unit(text[position...]), unit.milliseconds < last,
                unit.milliseconds >= smallest.milliseconds
            else { return nil }
            let (product, overflows) = count.multipliedReportingOverflow(by: unit.milliseconds)
            guard !overflows, product <= longest - total else { return nil }
            total += product
            last = unit.milliseconds
            number = nil
            position += unit.rawValue.utf8.count
        }
        return number == nil && last != .max ? total : nil
    }

    /// Returns the unit at the beginning of a text.
    private static func unit(_ text: Slice<UnsafeRawBufferPointer>) -> DurationUnit? {
        switch text.first {
        case UInt8(ascii: "w"): .weeks
        case UInt8(ascii: "d"): .days
        case UInt8(ascii: "h"): .hours
        case UInt8(ascii: "m"): text.dropFirst().first == UInt8(ascii: "s") ? .milliseconds : .minutes
        case UInt8(ascii: "s"): .seconds
        default: nil
        }
    }

    /// Returns the duration in the largest unit that needs no fraction, such as `5m`, `90s` or `90d`.
    public static func text(_ milliseconds: Int) -> String {
        guard milliseconds != 0 else { return "0" }
        let unit = DurationUnit.allCases.first { $0 != .weeks && milliseconds % $0.milliseconds == 0 } ?? .milliseconds
        return "\(milliseconds / unit.milliseconds)\(unit.rawValue)"
    }

    /// Returns the description of valid values, such as `a duration from 7s to 1h`.
    public static func range(_ milliseconds: ClosedRange<Int>) -> String {
        "a duration from \(text(milliseconds.lowerBound)) to \(text(milliseconds.upperBound))"
    }

    // MARK: Durations in jobs, in whole seconds

    /// The range of `unique_for` in seconds: up to 30 days, because each reservation is a key in Redis' memory.
    public static let uniqueFor: ClosedRange<Int64> = 1...(30 * 86_400)

    /// - Returns: nil if the text is not a duration.
    public static func seconds(_ text: String) -> Int64? {
        milliseconds(text, smallest: .seconds).map { Int64($0 / 1000) }
    }

    static func seconds(_ text: UnsafeRawBufferPointer) -> Int64? {
        milliseconds(text, smallest: .seconds).map { Int64($0 / 1000) }
    }
}
