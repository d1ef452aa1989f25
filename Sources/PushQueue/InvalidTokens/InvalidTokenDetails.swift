import NIOCore
import PushJob

/// The known facts about an invalid token.
///
/// Any client of Redis may have written them. Unreadable facts count as unknown; the token is invalid nevertheless.
package struct InvalidTokenDetails: Sendable, Equatable {
    /// The time since which it is invalid, in milliseconds since 1970.
    package var at: Int64?
    /// The topic that it is not valid for.
    package var topic: ByteBuffer?
    /// The environment in which it is not valid.
    package var environment: ByteBuffer?
    /// APNs' reason.
    package var reason: ByteBuffer?
    /// The source of the report: see ``InvalidToken/Source``.
    package var source: ByteBuffer?

    /// Makes details in which nothing is known.
    package init() {}

    /// Parses the facts with the scanner: for a list of invalid tokens there are some per token, and a decoder would
    /// cost several times as much as sending the notification.
    /// - Parameters:
    ///   - at: see ``at``.
    ///   - facts: a JSON object, or nothing.
    package init(at: Int64?, facts: ByteBuffer) {
        var details = InvalidTokenDetails()
        do throws(JSONError) {
            try facts.withUnsafeReadableBytes { bytes throws(JSONError) in try details.read(bytes, from: facts) }
            self = details
        } catch {
            self.init()
        }
        self.at = at
    }

    private mutating func read(_ bytes: UnsafeRawBufferPointer, from value: ByteBuffer) throws(JSONError) {
        var scanner = JSONScanner(bytes)
        try scanner.begin()
        guard scanner.next == UInt8(ascii: "{") else { return }
        var more = try scanner.enterObject()
        while more {
            let name = UnsafeRawBufferPointer(rebasing: bytes[try scanner.name().range])
            if scanner.next == UInt8(ascii: "\"") {
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
