import PushJob

package struct AnswerDelay: Equatable, Sendable {
    package var milliseconds: Int
    /// The largest deviation from ``milliseconds``. All deviations are equally likely.
    package var jitterMilliseconds: Int

    package init(milliseconds: Int, jitterMilliseconds: Int = 0) {
        self.milliseconds = milliseconds
        self.jitterMilliseconds = jitterMilliseconds
    }

    package static let form = "a duration such as 20ms or 20ms±5ms, at most 1h"

    /// Reads `20ms`, `1s500ms±500ms` or `20ms+-5ms` (for keyboards without `±`).
    /// - Returns: nil for any other text, for more than an hour, and for a jitter that exceeds the delay.
    package init?(_ text: some StringProtocol) {
        let text = String(text)
        var parts = text.split(separator: "±", omittingEmptySubsequences: false).map(String.init)
        if parts.count == 1, let sign = text.firstRange(of: "+-") {
            parts = [String(text[..<sign.lowerBound]), String(text[sign.upperBound...])]
        }
        guard parts.count <= 2, let middle = DurationText.milliseconds(parts[0]), middle <= Self.longest else {
            return nil
        }
        var jitter = 0
        if parts.count == 2 {
            guard let distance = DurationText.milliseconds(parts[1]), distance <= middle else { return nil }
            jitter = distance
        }
        self.init(milliseconds: middle, jitterMilliseconds: jitter)
    }

    private static let longest = DurationUnit.hours.milliseconds

    /// Returns a random delay, in microseconds.
    func draw(_ generator: inout SeededGenerator) -> Int64 {
        let microseconds = Int64(milliseconds) * 1000
        guard jitterMilliseconds > 0 else { return microseconds }
        return microseconds + Int64((generator.fraction() * 2 - 1) * Double(jitterMilliseconds) * 1000)
    }
}

extension AnswerDelay: CustomStringConvertible {
    /// The text that `init(_:)` reads, such as `20ms±5ms`.
    package var description: String {
        let middle = milliseconds == 0 ? "0ms" : DurationText.text(milliseconds)
        return jitterMilliseconds == 0 ? middle : "\(middle)±\(DurationText.text(jitterMilliseconds))"
    }
}

/// Pseudorandom numbers (SplitMix64). The same seed gives the same numbers, so that a run with faults can be reproduced.
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
