import NIOCore

/// Which trace a job belongs to, as its `traceparent` says (W3C Trace Context, "traceparent Header").
public struct TraceParent: Sendable, Equatable {
    /// 32 lower-case hex digits.
    public let traceID: String
    /// 16 lower-case hex digits: the producer's span.
    public let parentID: String

    /// Reads a `traceparent`.
    /// - Returns: `nil` for one that is not valid, which the specification has ignored: a trace is no reason to refuse a job.
    public init?(_ text: ByteBuffer) {
        let ids = text.withUnsafeReadableBytes { Self.ids($0) }
        guard let ids, let trace = text.getString(at: text.readerIndex + ids.trace, length: Self.traceLength),
            let parent = text.getString(at: text.readerIndex + ids.parent, length: Self.parentLength)
        else { return nil }
        (traceID, parentID) = (trace, parent)
    }

    /// How long one of version 00 is; later ones may have more behind it, after another hyphen.
    private static let length = 55
    private static let traceLength = 32
    private static let parentLength = 16

    /// Where the ids stand.
    private static func ids(_ text: UnsafeRawBufferPointer) -> (trace: Int, parent: Int)? {
        guard text.count >= length else { return nil }
        let hyphen = UInt8(ascii: "-")
        guard text[2] == hyphen, text[35] == hyphen, text[52] == hyphen else { return nil }
        for fields in [0..<2, 3..<35, 36..<52, 53..<55] {
            guard text[fields].allSatisfy({ isLowerHex($0) }) else { return nil }
        }
        let version = (text[0], text[1])
        // 255 is forbidden, so that it can never be one's beginning.
        guard version != (UInt8(ascii: "f"), UInt8(ascii: "f")) else { return nil }
        if text.count > length {
            guard version != (UInt8(ascii: "0"), UInt8(ascii: "0")), text[length] == hyphen else { return nil }
        }
        // All zeroes stand for no trace, and for no span.
        let zero = UInt8(ascii: "0")
        guard !text[3..<35].allSatisfy({ $0 == zero }), !text[36..<52].allSatisfy({ $0 == zero }) else { return nil }
        return (3, 36)
    }

    private static func isLowerHex(_ byte: UInt8) -> Bool {
        byte &- UInt8(ascii: "0") < 10 || byte &- UInt8(ascii: "a") < 6
    }
}
