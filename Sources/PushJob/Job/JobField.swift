/// Where one member's value stands in a job's body: an offset and a length, in eight bytes.
///
/// For a string it is what stands between the quotes. Read it with ``Job/text(_:)`` or ``Job/bytes(_:)``.
public struct JobField: Equatable, Sendable {
    private let start: UInt32
    /// The top bit says whether there are escapes; a body is never as long as the rest could count.
    private let lengthAndFlag: UInt32

    private static let escapesFlag: UInt32 = 1 << 31
    static let maximumLength = Int(Int32.max)

    init(_ range: Range<Int>, hasEscapes: Bool = false) {
        start = UInt32(truncatingIfNeeded: range.lowerBound)
        lengthAndFlag = UInt32(truncatingIfNeeded: range.count) | (hasEscapes ? Self.escapesFlag : 0)
    }

    init(_ string: JSONString) {
        self.init(string.range, hasEscapes: string.hasEscapes)
    }

    /// How many bytes of the job's body stand before it.
    public var offset: Int { Int(start) }

    /// How many bytes it has, as written.
    public var length: Int { Int(lengthAndFlag & ~Self.escapesFlag) }

    /// Whether a string has escape sequences, so that its characters are not simply its bytes.
    public var hasEscapes: Bool { lengthAndFlag & Self.escapesFlag != 0 }

    var range: Range<Int> { offset..<(offset + length) }
}
