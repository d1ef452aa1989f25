/// The delay of an answer: a mean and the largest deviation from it.
package struct AnswerDelay: Equatable, Sendable {
    /// The mean, in microseconds.
    package var microseconds: Int64
    /// The largest deviation from the mean, in microseconds; all deviations are equally likely.
    package var jitterMicroseconds: Int64

    /// Creates a delay of so many microseconds, plus or minus the jitter.
    package init(microseconds: Int64, jitterMicroseconds: Int64 = 0) {
        self.microseconds = microseconds
        self.jitterMicroseconds = jitterMicroseconds
    }

    /// Reads `20ms`, `1.5s±500ms`, `800us` or `20ms+-5ms` (for keyboards without `±`).
    /// - Returns: nil for any other text, for more than an hour, and for a jitter that exceeds the delay.
    package init?(_ text: some StringProtocol) {
        let text = String(text)
        var parts = text.split(separator: "±", omittingEmptySubsequences: false).map(String.init)
        if parts.count == 1, let sign = text.firstRange(of: "+-") {
            parts = [String(text[..<sign.lowerBound]), String(text[sign.upperBound...])]
        }
        guard parts.count <= 2, let middle = Self.microseconds(parts[0]) else { return nil }
        var jitter: Int64 = 0
        if parts.count == 2 {
            guard let distance = Self.microseconds(parts[1]), distance <= middle else { return nil }
            jitter = distance
        }
        self.init(microseconds: middle, jitterMicroseconds: jitter)
    }

    /// Reads a duration with its unit, `us`, `ms`, `s`, `m` or `h`, up to an hour.
    static func microseconds(_ text: some StringProtocol) -> Int64? {
        let units: [(String, Double)] = [
            ("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000),
        ]
        for (suffix, factor) in units where text.hasSuffix(suffix) {
            let number = text.dropLast(suffix.count)
            // Double's own parser also accepts "nan", "inf" and hexadecimal.
            guard !number.isEmpty, number.allSatisfy({ $0.isASCII && ($0.isNumber || $0 == ".") }),
                let value = Double(number)
            else { continue }
            let microseconds = value * factor
            return microseconds <= 3_600_000_000 ? Int64(microseconds.rounded()) : nil
        }
        return nil
    }

    private static func text(_ microseconds: Int64) -> String {
        if microseconds % 1_000_000 == 0, microseconds > 0 { return "\(microseconds / 1_000_000)s" }
        return microseconds % 1000 == 0 ? "\(microseconds / 1000)ms" : "\(microseconds)us"
    }

    /// Returns a random delay within the range, in microseconds.
    func draw(_ generator: inout SeededGenerator) -> Int64 {
        guard jitterMicroseconds > 0 else { return microseconds }
        let stray = (generator.fraction() * 2 - 1) * Double(jitterMicroseconds)
        return microseconds + Int64(stray)
    }
}

extension AnswerDelay: CustomStringConvertible {
    /// The delay in the form that `init(_:)` reads, such as `20ms±5ms`.
    package var description: String {
        let middle = Self.text(microseconds)
        return jitterMicroseconds == 0 ? middle : "\(middle)±\(Self.text(jitterMicroseconds))"
    }
}

/// Pseudorandom numbers that repeat with the seed (SplitMix64), so that a run with faults can be reproduced.
struct SeededGenerator: RandomNumberGenerator, Sendable {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var value = state
        value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
        return value ^ (value >> 31)
    }

    /// Returns a number from 0 up to but not including 1.
    mutating func fraction() -> Double { Double(next() >> 11) * 0x1p-53 }
}
