import NIOCore
import PushJob

/// The known facts about a mark: that a token is invalid for a topic in an environment.
///
/// Any client of Redis may have written them. Unreadable facts count as unknown; the token is invalid nevertheless.
public struct InvalidTokenDetails: Sendable, Equatable {
    /// The time when it became invalid, in milliseconds since 1970.
    public var at: Int64?
    /// The topic that it is not valid for.
    public var topic: ByteBuffer?
    /// The environment where it is not valid.
    public var environment: ByteBuffer?
    public var reason: ByteBuffer?
    /// The source of the report: see ``InvalidToken/Source``.
    public var source: ByteBuffer?
    public var isOfOwnTopic = true

    public init() {}

    /// Parses the facts with the scanner, because a decoder would cost several times as much as sending the notification.
    /// - Parameter facts: a JSON object, or nothing.
    public init(at: Int64?, facts: ByteBuffer) {
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
                if name.isEqual(to: "set") { isOfOwnTopic = false }
            } else {
                try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
        try scanner.finish()
    }

    /// True if the token is invalid for a topic in an environment. A mark without an environment applies to the token's environments.
    func covers(topic: ByteBuffer?, environment: ByteBuffer, in sets: TokenSets) -> Bool {
        if let own = self.topic, own != topic { return false }
        return self.environment.map { $0 == environment } ?? sets.contains(.of(environment))
    }

    /// The set that a token with this mark enters.
    public var set: TokenSets { isOfOwnTopic ? .of(environment ?? ByteBuffer()) : .other }

    private static func text(
        _ string: JSONString, _ bytes: UnsafeRawBufferPointer, _ value: ByteBuffer
    ) -> ByteBuffer? {
        guard string.hasEscapes else {
            return value.getSlice(at: value.readerIndex + string.range.lowerBound, length: string.range.count)
        }
        return JSONText.withCharacters(of: string, in: bytes) { ByteBuffer(bytes: $0) }
    }
}
