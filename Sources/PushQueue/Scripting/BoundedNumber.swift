import Redis

/// Numbers that other programs may have written. Producers and operators write to Redis, too, and a wrong unit or a typing mistake makes a
/// number of any size. Numbers within ±2⁵³ can be converted to `Double` and back, and their sums, differences and conversions of units
/// cannot overflow.
public protocol BoundedNumber: FixedWidthInteger & SignedInteger {}

extension Int: BoundedNumber {}
extension Int64: BoundedNumber {}

extension BoundedNumber {
    /// The largest magnitude.
    public static var bound: Self { 1 << 53 }

    /// The nearest number within the bound.
    public init(bounding value: Self) { self = Swift.min(Swift.max(value, -Self.bound), Self.bound) }

    /// The nearest whole number within the bound; 0 for NaN.
    public init(bounding value: Double) {
        let limit = Double(Self.bound)
        self = value.isNaN ? 0 : Self(Swift.min(Swift.max(value.rounded(), -limit), limit))
    }

    /// The nearest whole number; `nil` for a number beyond the bound.
    public init?(within value: Double) {
        guard value.magnitude < Double(Self.bound) else { return nil }
        self = Self(value.rounded())
    }

    /// The nearest number within the bound; `nil` for a text that is not a whole number.
    public init?(bounding text: some StringProtocol) {
        if let value = Self(text) {
            self.init(bounding: value)
        } else if let value = Double(text), value.rounded() == value {
            self.init(bounding: value)
        } else {
            return nil
        }
    }
}

extension RESPReply.Element {
    /// The number within ±2⁵³, if this is an integer.
    public var number: Int? { integer.map { Int(bounding: $0) } }
}
