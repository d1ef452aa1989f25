import NIOCore

/// The trace that a job belongs to, from its `traceparent` (W3C Trace Context, "traceparent Header").
public struct TraceParent: Sendable, Equatable {
    /// 32 lower-case hex digits.
    public let traceID: String
    /// 16 lower-case hex digits: the producer's span.
    public let parentID: String

    /// Parses a `traceparent`.
    /// - Returns: `nil` if the text is not valid. As the specification requires, an invalid `traceparent` is ignored.
    public init?(_ text: ByteBuffer) {
        guard text.withUnsafeReadableBytes({ Self.isValid($0) }),
            let trace = text.getString(at: text.readerIndex + 3, length: 32),
            let parent = text.getString(at: text.readerIndex + 36, length: 16)
        else { return nil }
        (traceID, parentID) = (trace, parent)
    }

    /// Returns true if a text is a valid `traceparent` whose producer records the trace (its flag `sampled`).
    static func isSampled(_ text: ByteBuffer) -> Bool {
        text.withUnsafeReadableBytes { bytes in
            guard isValid(bytes) else { return false }
            // The lowest bit of the last hex digit. For a letter, it is the opposite of the lowest bit of the ASCII code.
            let digit = bytes[54]
            return (digit < UInt8(ascii: "a") ? digit : digit + 1) & 1 == 1
        }
    }

    /// The length in version 00; later versions can have more after another hyphen.
    private static let length = 55

    private static func isValid(_ text: UnsafeRawBufferPointer) -> Bool {
        guard text.count >= length else { return false }
        let hyphen = UInt8(ascii: "-")
        guard text[2] == hyphen, text[35] == hyphen, text[52] == hyphen else { return false }
        for fields in [0..<2, 3..<35, 36..<52, 53..<55] {
            guard text[fields].allSatisfy({ isLowerHex($0) }) else { return false }
        }
        let version = (text[0], text[1])
        // Version 255 is forbidden.
        guard version != (UInt8(ascii: "f"), UInt8(ascii: "f")) else { return false }
        if text.count > length {
            guard version != (UInt8(ascii: "0"), UInt8(ascii: "0")), text[length] == hyphen else { return false }
        }
        // An id of zeroes is not valid.
        let zero = UInt8(ascii: "0")
        return !text[3..<35].allSatisfy { $0 == zero } && !text[36..<52].allSatisfy { $0 == zero }
    }

    private static func isLowerHex(_ byte: UInt8) -> Bool {
        byte &- UInt8(ascii: "0") < 10 || byte &- UInt8(ascii: "a") < 6
    }
}
