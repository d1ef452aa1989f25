import Glibc

/// How long notifications were under way, counted in classes that are 1/64 wide: any quantile is right within 1.6 %.
package struct LatencyHistogram: Equatable, Sendable {
    private static let bits = 6

    private var counts: [Int] = []
    /// How many times were recorded.
    package private(set) var count = 0
    /// The longest time, in microseconds.
    package private(set) var maximum: Int64 = 0

    package init() {}

    /// Records a time.
    /// - Parameter microseconds: a negative one, of clocks that disagree, counts as none.
    package mutating func record(_ microseconds: Int64) {
        let value = max(0, microseconds)
        let index = Self.index(value)
        if index >= counts.count { counts.append(contentsOf: repeatElement(0, count: index + 1 - counts.count)) }
        counts[index] += 1
        count += 1
        maximum = max(maximum, value)
    }

    /// The time, in microseconds, that this share of the notifications did not exceed; 0 when there are none.
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

    // The first 128 classes hold one value each; from there on 64 classes share each power of two.
    private static func index(_ value: Int64) -> Int {
        let shift = max(0, Int64.bitWidth - value.leadingZeroBitCount - bits - 1)
        return shift << bits + Int(value >> Int64(shift))
    }

    private static func upperEnd(_ index: Int) -> Int64 {
        let shift = max(0, index >> bits - 1)
        // Of the last class of all this is one more than an Int64 holds, for a moment.
        return (Int64(index - shift << bits) + 1) << Int64(shift) &- 1
    }
}

extension LatencyHistogram: Encodable {
    private enum Key: CodingKey {
        case count, p50Microseconds, p99Microseconds, p999Microseconds, maximumMicroseconds
    }

    /// Writes the number of times, and quantiles of them.
    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(count, forKey: .count)
        try container.encode(quantile(0.5), forKey: .p50Microseconds)
        try container.encode(quantile(0.99), forKey: .p99Microseconds)
        try container.encode(quantile(0.999), forKey: .p999Microseconds)
        try container.encode(maximum, forKey: .maximumMicroseconds)
    }
}

/// Finds the time at which a notification was sent in its payload: a member of a given name with microseconds since 1970.
struct SendTime: Sendable {
    private let pattern: [UInt8]

    /// - Parameter member: the member's name.
    init(member: String) { pattern = Array("\"\(member)\":".utf8) }

    /// The time, or nil when the payload has none.
    ///
    /// The payload is searched as text: the name must stand in it once, followed by its colon without a space.
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

    // Eighteen digits are what every 64-bit number can hold.
    private func number(_ text: Slice<UnsafeBufferPointer<UInt8>>) -> Int64? {
        let digits = text.prefix(18).prefix { $0 &- 0x30 < 10 }
        return digits.isEmpty ? nil : digits.reduce(0) { $0 * 10 + Int64($1 - 0x30) }
    }
}
