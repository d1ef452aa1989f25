import ArgumentParser
import PushQueue

/// A unit of durations.
enum DurationUnit: String, CaseIterable, Sendable {
    // Larger units first, as in a duration.
    case weeks = "w"
    case days = "d"
    case hours = "h"
    case minutes = "m"
    case seconds = "s"
    case milliseconds = "ms"

    var milliseconds: Int {
        switch self {
        case .milliseconds: 1
        case .seconds: 1000
        case .minutes: 60_000
        case .hours: 3_600_000
        case .days: 86_400_000
        case .weeks: 7 * 86_400_000
        }
    }

    /// The unit's name in a sentence.
    var name: String { "\(self)" }
}

/// Durations in text form, such as `500ms`, `45s`, `1h30m` or `90d`.
enum DurationText {
    /// Reads a duration: numbers with the units w, d, h, m, s and ms, each at most once and larger units first.
    /// - Parameter bare: the unit of a number without one; `nil` if a unit is required.
    /// - Returns: milliseconds; `nil` if the text is not a duration.
    static func milliseconds(_ text: String, bare: DurationUnit? = nil) -> Int? {
        if let number = count(text[...]) { return bare.flatMap { product(number, $0) } }
        var rest = text[...]
        var total = 0
        var units = DurationUnit.allCases[...]
        repeat {
            let digits = rest.prefix { $0.isASCII && $0.isNumber }
            let letters = rest.dropFirst(digits.count).prefix { $0.isLetter }
            rest = rest.dropFirst(digits.count + letters.count)
            guard let number = count(digits), let place = units.firstIndex(where: { $0.rawValue == letters }),
                let part = product(number, units[place])
            else { return nil }
            units = units[(place + 1)...]
            total += part
            guard total <= Int.bound else { return nil }
        } while !rest.isEmpty
        return total
    }

    /// Reads the duration of a flag that is not a setting.
    /// - Parameter range: in the unit of a bare number.
    /// - Returns: milliseconds.
    static func option(_ text: String, _ flag: String, bare: DurationUnit, _ range: ClosedRange<Int>) throws -> Int {
        let kind = Setting.Kind.duration(bare, range)
        guard case .number(let milliseconds) = kind.content(text) else {
            throw ValidationError("\(flag) is \(text); it must be \(kind.expectation)")
        }
        return milliseconds
    }

    private static func count(_ digits: Substring) -> Int? {
        digits.allSatisfy { $0.isASCII && $0.isNumber } ? Int(digits) : nil
    }

    private static func product(_ number: Int, _ unit: DurationUnit) -> Int? {
        let (product, overflows) = number.multipliedReportingOverflow(by: unit.milliseconds)
        return overflows || product > Int.bound ? nil : product
    }

    /// Returns the duration in the largest unit that needs no fraction, such as `5m`, `90s` or `90d`.
    static func text(_ milliseconds: Int) -> String {
        guard milliseconds != 0 else { return "0" }
        let unit = DurationUnit.allCases.first { $0 != .weeks && milliseconds % $0.milliseconds == 0 } ?? .milliseconds
        return "\(milliseconds / unit.milliseconds)\(unit.rawValue)"
    }
}

/// Sizes in text form, such as `16KiB`, `64MiB` or `1GiB`.
enum SizeText {
    private static let units = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)]

    /// Reads a size: a number of bytes, or a number with a unit.
    static func bytes(_ text: String) -> Int? {
        let digits = text.prefix { $0.isASCII && $0.isNumber }
        let name = text.dropFirst(digits.count)
        guard let number = Int(digits) else { return nil }
        guard let (_, unit) = units.first(where: { $0.0 == name || (name.isEmpty && $0.1 == 1) }) else { return nil }
        let (product, overflows) = number.multipliedReportingOverflow(by: unit)
        return overflows ? nil : product
    }

    /// Returns the size in the largest unit that needs no fraction; bytes without a unit.
    static func text(_ bytes: Int) -> String {
        let (name, unit) = units.first { bytes >= $0.1 && bytes % $0.1 == 0 } ?? ("", 1)
        return unit == 1 ? "\(bytes)" : "\(bytes / unit)\(name)"
    }
}

/// Numbers in text form with a factor, such as `5M`, `200k` or `1.5B`.
enum CountText {
    private static let factors: [(name: Character, zeros: Int)] = [("k", 3), ("M", 6), ("B", 9)]

    /// Reads a whole number, which can have a factor and with it decimals.
    /// - Returns: `nil` for another text, and for a number beyond `Int.bound`.
    static func number(_ text: String) -> Int? {
        let factor = factors.first { $0.name == text.last }
        let parts = text.dropLast(factor == nil ? 0 : 1).split(separator: ".", omittingEmptySubsequences: false)
        guard (1...2).contains(parts.count),
            parts.allSatisfy({ !$0.isEmpty && $0.allSatisfy { $0.isASCII && $0.isNumber } })
        else { return nil }
        let decimals = parts.count == 2 ? parts[1] : ""
        let zeros = (factor?.zeros ?? 0) - decimals.count
        guard zeros >= 0, let number = Int(parts[0] + decimals + String(repeating: "0", count: zeros)) else {
            return nil
        }
        return number > Int.bound ? nil : number
    }
}
