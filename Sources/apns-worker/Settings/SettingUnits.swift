import ArgumentParser
import PushJob

extension DurationText {
    /// Reads the duration of a flag that is not a setting. It must have a unit.
    /// - Parameters:
    ///   - range: in the unit.
    ///   - smallest: the smallest unit that is valid.
    /// - Returns: milliseconds.
    static func option(
        _ text: String, _ flag: String, _ range: ClosedRange<Int>, _ unit: DurationUnit = .seconds,
        smallest: DurationUnit = .milliseconds
    ) throws -> Int {
        let range = range.lowerBound * unit.milliseconds...range.upperBound * unit.milliseconds
        guard let milliseconds = milliseconds(text, smallest: smallest), range.contains(milliseconds) else {
            throw ValidationError("\(flag) is \(text); it must be \(self.range(range))")
        }
        return milliseconds
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
