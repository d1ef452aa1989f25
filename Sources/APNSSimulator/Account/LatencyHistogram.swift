import Glibc

/// A histogram of latencies. The width of a class is 1/64 of its values, so any quantile is exact within 1.6 %.
package struct LatencyHistogram: Equatable, Sendable {
    private static let bits = 6

    private var counts: [Int] = []
    package private(set) var count = 0
    /// The longest time, in microseconds.
    package private(set) var maximum: Int64 = 0

    package init() {}

    /// - Parameter microseconds: a negative value, from clocks that disagree, counts as 0.
    package mutating func record(_ microseconds: Int64) {
        let value = max(0, microseconds)
        let index = Self.index(value)
        if index >= counts.count { counts.append(contentsOf: repeatElement(0, count: index + 1 - counts.count)) }
        counts[index] += 1
        count += 1
        maximum = max(maximum, value)
    }

    /// Returns the time, in microseconds, that this share of the notifications did not exceed; 0 if none were recorded.
    /// - Parameter share: from 0 to 1.
    package func quantile(_ share: Double) -> Int64 {
        let rank = max(1, Int((share * Double(count)).rounded(.up)))
        var seen = 0
        for (index, number) in counts.enumerated() {
            seen += number
            if seen >= rank { return min(Self.upperEnd(index), maximum) }
        }
        return maximum
    }

    // The first 128 classes hold one value each; above that, each power of two has 64 classes.
    private static func index(_ value: Int64) -> Int {
        let shift = max(0, Int64.bitWidth - value.leadingZeroBitCount - bits - 1)
        return shift << bits + Int(value >> Int64(shift))
    }

    private static func upperEnd(_ index: Int) -> Int64 {
        let shift = max(0, index >> bits - 1)
        // The sum overflows an Int64 for the very last class. Subtracting 1 corrects this.
        return (Int64(index - shift << bits) + 1) << Int64(shift) &- 1
    }
}

extension LatencyHistogram: Encodable {
    package func encode(to encoder: any Encoder) throws {
        try [
            "count": Int64(count), "p50_microseconds": quantile(0.5), "p99_microseconds": quantile(0.99),
            "p999_microseconds": quantile(0.999), "maximum_microseconds": maximum,
        ].encode(to: encoder)
    }
}

/// Finds the time when a notification was sent: a payload member with a given name, in microseconds since 1970.
struct SendTime: Sendable {
    private let pattern: [UInt8]

    init(member: String) { pattern = Array("\"\(member)\":".utf8) }

    /// The payload is searched as text: the first occurrence of the name must be followed by its colon without a space.
    func find(in payload: UnsafeBufferPointer<UInt8>) -> Int64? {
        guard let base = payload.baseAddress else { return nil }
        var next = 0
        while payload.count - next > pattern.count,
            let quote = memchr(base + next, Int32(UInt8(ascii: "\"")), payload.count - pattern.count - next)
        {
            next = UnsafeRawPointer(quote) - UnsafeRawPointer(base)
            if memcmp(quote, pattern, pattern.count) == 0 { return number(payload[(next + pattern.count)...]) }
            next += 1
        }
        return nil
    }

    // Every number of 18 digits fits into 64 bits.
    private func number(_ text: Slice<UnsafeBufferPointer<UInt8>>) -> Int64? {
        let digits = text.prefix(18).prefix { $0 &- 0x30 < 10 }
        return digits.isEmpty ? nil : digits.reduce(0) { $0 * 10 + Int64($1 - 0x30) }
    }
}
