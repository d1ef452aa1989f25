import NIOCore
import PushJob

/// The known facts about an invalid token, from the details hash.
///
/// Anybody may have written there. What cannot be read is not known, and the token is invalid for all that.
public struct InvalidTokenDetails: Sendable, Equatable {
    /// Since when, in milliseconds since 1970.
    public var at: Int64?
    /// The topic that it is not valid for.
    public var topic: ByteBuffer?
    /// Which APNs it is not valid at.
    public var environment: ByteBuffer?
    /// Why.
    public var reason: ByteBuffer?
    /// The source of the report: see ``InvalidToken/Source``.
    public var source: ByteBuffer?

    /// Nothing is known.
    public init() {}

    /// Reads a value of the hash. By the scanner: a list of dead tokens is a value for each, and a decoder would cost several
    /// times what sending the notification does.
    init(_ value: ByteBuffer) {
        var details = InvalidTokenDetails()
        do throws(JSONError) {
            try value.withUnsafeReadableBytes { bytes throws(JSONError) in try details.read(bytes, from: value) }
            self = details
        } catch {
            self.init()
        }
    }

    private mutating func read(_ bytes: UnsafeRawBufferPointer, from value: ByteBuffer) throws(JSONError) {
        var scanner = JSONScanner(bytes)
        try scanner.begin()
        guard scanner.next == UInt8(ascii: "{") else { return }
        var more = try scanner.enterObject()
        while more {
            let name = UnsafeRawBufferPointer(rebasing: bytes[try scanner.name().range])
            if name.isEqual(to: "at") {
                let start = scanner.offset
                at = try scanner.integer(in: JobTime.range)
                if scanner.offset == start { try scanner.skipValue() }
            } else if scanner.next == UInt8(ascii: "\"") {
                let string = try scanner.string()
                if name.isEqual(to: "topic") { topic = Self.text(string, bytes, value) }
                if name.isEqual(to: "environment") { environment = Self.text(string, bytes, value) }
                if name.isEqual(to: "reason") { reason = Self.text(string, bytes, value) }
                if name.isEqual(to: "source") { source = Self.text(string, bytes, value) }
            } else {
                try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
        try scanner.finish()
    }

    private static func text(
        _ string: JSONString, _ bytes: UnsafeRawBufferPointer, _ value: ByteBuffer
    ) -> ByteBuffer? {
        guard string.hasEscapes else {
            return value.getSlice(at: value.readerIndex + string.range.lowerBound, length: string.range.count)
        }
        return JSONText.withCharacters(of: string, in: bytes) { ByteBuffer(bytes: $0) }
    }
}
