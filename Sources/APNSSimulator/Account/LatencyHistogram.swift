/// How long notifications were under way, counted in classes that are 1/64 wide: any quantile is right within 1.6 %.
public struct LatencyHistogram: Equatable, Sendable {
    private static let bits = 6

    private var counts: [Int] = []
    /// How many times were recorded.
    public private(set) var count = 0
    /// The longest time, in microseconds.
    public private(set) var maximum: Int64 = 0

    /// A histogram without any times.
    public init() {}

    /// Records a time.
    /// - Parameter microseconds: a negative one, of clocks that disagree, counts as none.
    public mutating func record(_ microseconds: Int64) {
        let value = max(0, microseconds)
        let index = Self.index(value)
        if index >= counts.count { counts.append(contentsOf: repeatElement(0, count: index + 1 - counts.count)) }
        counts[index] += 1
        count += 1
        maximum = max(maximum, value)
    }

    /// The time, in microseconds, that this share of the notifications did not exceed; 0 when there are none.
    /// - Parameter share: from 0 to 1.
    public func quantile(_ share: Double) -> Int64 {
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
