import NIOCore
import PushJob

/// The sets that an invalid token can be in; see the script part `invalid-tokens`.
public struct TokenSets: OptionSet, Sendable, Hashable {
    public let rawValue: Int

    public init(rawValue: Int) { self.rawValue = rawValue }

    /// Tokens that are invalid for the own topic of an app, in production or on another server than the sandbox.
    public static let production = TokenSets(rawValue: 1)
    /// Tokens that are invalid for the own topic of an app in the sandbox.
    public static let sandbox = TokenSets(rawValue: 2)
    /// Tokens that are invalid only for other topics.
    public static let other = TokenSets(rawValue: 4)
    /// The sets that other programs read.
    public static let own: TokenSets = [.production, .sandbox]

    public static let all: TokenSets = [.production, .sandbox, .other]

    /// The sets in the order of reading, with the suffixes of their keys.
    static let named: [(set: TokenSets, suffix: String)] = [
        (.production, ""), (.sandbox, ":sandbox"), (.other, ":other"),
    ]

    /// Returns the sets that are read before the set with this key.
    public static func all(before key: String, of shard: TokenShard) -> TokenSets {
        TokenSets(named.map(\.set).prefix { !shard.keys(of: $0).contains(key) })
    }

    /// Returns the set for the own topics of apps in an environment.
    public static func of(_ environment: ByteBuffer) -> TokenSets {
        environment == ByteBuffer(string: "sandbox") ? .sandbox : .production
    }
}

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

    /// True if the token is invalid for a topic in an environment. A mark without an environment applies to those of the token's set.
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
