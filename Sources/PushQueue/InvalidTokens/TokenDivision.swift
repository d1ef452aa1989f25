import NIOCore
import Redis

/// How the set of invalid tokens is divided into shards. It is recorded in Redis, in the slot of the shared keys and in
/// that of each shard, and changes in steps. Each step has a number that each call names. A call with the number of an
/// earlier step is refused, so that processes that know different steps never lose a token.
package struct TokenDivision: Sendable, Equatable {
    /// The step on the way from one number of shards to another.
    package enum Step: String, Sendable {
        /// Both forms are written. The present one is read, because tokens are still copied to the next one.
        case copying
        /// Both forms are written. The new one is read.
        case switching
        /// The former form is neither read nor written, and is deleted.
        case deleting
    }

    /// The number of the step; 0 if nothing was ever recorded.
    package var generation = 0
    /// The number of shards of the form that is read; 1 for a set that is not divided.
    package var shards = 1
    /// The number of shards of the other form, while there are two.
    package var other: (shards: Int, step: Step)?

    /// The maximum number of shards. A shard is chosen by a token's first sixteen bits.
    package static let maximumShards = 4096

    /// An undivided set.
    package init() {}

    package init(generation: Int, shards: Int, other: (shards: Int, step: Step)? = nil) {
        (self.generation, self.shards, self.other) = (generation, shards, other)
    }

    /// Parses a record; `nil` for other texts.
    package init?(_ text: String) {
        let words = text.split(separator: " ").map(String.init)
        guard words.count == 2 || words.count == 4, let generation = Int(words[0]), generation > 0,
            let shards = Int(words[1]), Self.isNumberOfShards(shards)
        else { return nil }
        self.init(generation: generation, shards: shards)
        guard words.count == 4 else { return }
        guard let number = Int(words[2]), Self.isNumberOfShards(number), let step = Step(rawValue: words[3]) else {
            return nil
        }
        other = (number, step)
    }

    /// The later division that a script named when it refused a call; `nil` for another failure.
    package init?(refusal: QueueFailure) {
        guard case .redis(.server(let answer)) = refusal, answer.prefix == "DIVISION" else { return nil }
        self.init(answer.message.split(separator: " ").dropFirst().joined(separator: " "))
    }

    /// The record, such as `5 16`, or `3 1 16 copying`.
    package var text: String {
        "\(generation) \(shards)" + (other.map { " \($0.shards) \($0.step.rawValue)" } ?? "")
    }

    /// Returns true for the numbers of shards that there can be: powers of two.
    package static func isNumberOfShards(_ number: Int) -> Bool {
        (1...maximumShards).contains(number) && number & (number - 1) == 0
    }

    /// The numbers of shards of the forms that are written, the one that is read first.
    var written: [Int] {
        guard let other, other.step != .deleting else { return [shards] }
        return [shards, other.shards]
    }

    package static func == (one: Self, other: Self) -> Bool { one.text == other.text }

    /// Returns the number of the shard that a token is in, from 0.
    package static func shard(of token: ByteBuffer, among shards: Int) -> Int {
        var bits = 0
        for index in 0..<4 {
            let digit = token.getInteger(at: token.readerIndex + index, as: UInt8.self) ?? UInt8(ascii: "0")
            let value =
                switch digit {
                case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
                case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
                // No token is like this.
                default: UInt8(0)
                }
            bits = bits << 4 | Int(value)
        }
        // Without the parentheses, the shift comes first.
        return (bits * shards) >> 16
    }
}

/// The keys of a shard of the set of invalid tokens, which are in one slot.
package struct TokenShard: Sendable {
    /// False for a set that is not divided.
    package let isShard: Bool
    /// SET of invalid device tokens, lower-case hex; of a shard, the beginning of the names of sixteen, to which the
    /// token's fifth digit is added.
    package let tokens: String
    /// HASH: device token → the time of its device's last registration, in ms since 1970; of a shard, the beginning of
    /// the names of sixteen.
    package let registrations: String
    /// The beginning of the names of the hashes with details.
    package let details: String
    /// HASH: number of facts → JSON.
    package let facts: String
    /// STRING: the record of the division.
    package let division: String

    init(base: String, isShard: Bool) {
        self.isShard = isShard
        tokens = base + "invalid-tokens"
        registrations = base + "registrations"
        details = base + "invalid-tokens:details"
        facts = base + "invalid-tokens:facts"
        division = base + "invalid-tokens:division"
    }

    private static let digits = "0123456789abcdef".map { String($0) }

    /// The keys of the sets.
    package var sets: [String] { isShard ? Self.digits.map { "\(tokens):\($0)" } : [tokens] }

    /// The keys of the hashes of registrations.
    package var registrationHashes: [String] {
        isShard ? Self.digits.map { "\(registrations):\($0)" } : [registrations]
    }

    /// The keys of the hashes with details.
    package var detailHashes: [String] {
        Self.digits.flatMap { one in
            Self.digits.flatMap { two in Self.digits.map { "\(details):\(one)\(two)\($0)" } }
        }
    }

    /// Returns the key of the hash with the registration of a token.
    package func registrations(of token: ByteBuffer) -> String {
        guard isShard else { return registrations }
        let digit = token.getString(at: token.readerIndex + 4, length: 1) ?? "0"
        return "\(registrations):\(Self.digits.contains(digit) ? digit : "0")"
    }

    /// Appends the arguments by which a script knows the division.
    package func append(_ division: TokenDivision, to command: inout RedisCommand) {
        command.append(division.generation)
        command.append(isShard ? 1 : 0)
    }
}
