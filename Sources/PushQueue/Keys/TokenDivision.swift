import NIOCore

/// The division of the set of invalid tokens into shards: a record in the slot of the shared keys.
///
/// A process reads the record again after ``InvalidTokenSet/validity``. An operator who changes the number of shards first records the
/// change, and waits until no process relies on an earlier reading. Until the change is complete, all other processes refuse to use the
/// set. So a call need not contain the number of shards that its process knows.
public struct TokenDivision: Sendable, Equatable, Encodable {
    /// The number of shards of the form that has all tokens; 1 for a set that is not divided.
    public var shards: Int
    /// During a change, the number of shards of the incomplete form: the new form while tokens are copied to it, or the old one while it is
    /// deleted.
    public var incomplete: Int?
    /// The time when the change began, in milliseconds since 1970.
    public var since: Int64?

    /// The maximum number of shards. A shard is chosen by a token's first sixteen bits.
    public static let maximumShards = 4096

    /// - Parameter since: only used for a change.
    public init(shards: Int = 1, incomplete: Int? = nil, since: Int64? = nil) {
        (self.shards, self.incomplete, self.since) = (shards, incomplete, incomplete == nil ? nil : since)
    }

    /// Parses a record; `nil` for other texts.
    public init?(_ text: String) {
        let words = text.split(separator: " ")
        let numbers = words.compactMap { Int64($0) }
        guard numbers.count == words.count, [1, 3].contains(numbers.count) else { return nil }
        let forms = numbers.prefix(2).compactMap { Int(exactly: $0) }.filter(Self.isNumberOfShards)
        guard forms.count == min(numbers.count, 2) else { return nil }
        self.init(shards: forms[0], incomplete: forms.count > 1 ? forms[1] : nil, since: numbers.last)
    }

    /// The record, such as `16`, or `1 16 1795279247000` during a change.
    public var text: String { "\(shards)" + (incomplete.map { " \($0) \(since ?? 0)" } ?? "") }

    /// Returns true for a valid number of shards: a power of two.
    public static func isNumberOfShards(_ number: Int) -> Bool {
        (1...maximumShards).contains(number) && number & (number - 1) == 0
    }

    public static func shard(of token: ByteBuffer, among shards: Int) -> Int {
        var bits = 0
        for index in 0..<4 {
            let digit = token.getInteger(at: token.readerIndex + index, as: UInt8.self) ?? UInt8(ascii: "0")
            let value =
                switch digit {
                case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
                case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
                // No token has such a digit.
                default: UInt8(0)
                }
            bits = bits << 4 | Int(value)
        }
        // Without the parentheses, the shift comes first.
        return (bits * shards) >> 16
    }
}

/// The keys of a shard of the set of invalid tokens, which are in one slot.
public struct TokenShard: Sendable {
    /// False for a set that is not divided.
    public let isShard: Bool
    /// SET of invalid device tokens, lower-case hex. A shard has sixteen sets: this is the beginning of their names, before the token's
    /// fifth digit.
    public let tokens: String
    /// HASH: device token → the time of its device's last registration, in ms since 1970. A shard has sixteen hashes: this is the beginning
    /// of their names.
    public let registrations: String
    /// The beginning of the names of the hashes with details.
    public let details: String
    /// HASH: number of facts → JSON.
    public let facts: String

    init(base: String, isShard: Bool) {
        self.isShard = isShard
        tokens = base + "invalid-tokens"
        registrations = base + "registrations"
        details = base + "invalid-tokens:details"
        facts = base + "invalid-tokens:facts"
    }

    private static let digits = "0123456789abcdef".map { String($0) }

    /// The keys of the sets: those that other programs read, and then those of tokens that are invalid only for other topics.
    public var sets: [String] { keys(of: .all) }

    public func keys(of sets: TokenSets) -> [String] {
        TokenSets.named.filter { sets.contains($0.set) }.flatMap { _, suffix in
            isShard ? Self.digits.map { "\(tokens)\(suffix):\($0)" } : [tokens + suffix]
        }
    }

    public var registrationHashes: [String] {
        isShard ? Self.digits.map { "\(registrations):\($0)" } : [registrations]
    }

    public var detailHashes: [String] {
        Self.digits.flatMap { one in
            Self.digits.flatMap { two in Self.digits.map { "\(details):\(one)\(two)\($0)" } }
        }
    }

    /// Returns the key of the hash with the registration of a token.
    public func registrations(of token: ByteBuffer) -> String {
        guard isShard else { return registrations }
        let digit = token.getString(at: token.readerIndex + 4, length: 1) ?? "0"
        return "\(registrations):\(Self.digits.contains(digit) ? digit : "0")"
    }
}

/// The sets that an invalid token can be in; see the script part `invalid-tokens`.
public struct TokenSets: OptionSet, Sendable, Hashable {
    public let rawValue: Int

    public init(rawValue: Int) { self.rawValue = rawValue }

    /// Tokens that are invalid for the own topic of an app, in production or on another server than the sandbox.
    public static let production = TokenSets(rawValue: 1)
    /// Tokens that are invalid for the own topic of an app in the sandbox.
    public static let sandbox = TokenSets(rawValue: 2)
    /// Tokens that are invalid only for topics that are not an app's own.
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
