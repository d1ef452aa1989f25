import COpenSSL
import Foundation

/// The details of an invalid token in Redis, read and written without the worker's code.
package struct StoredInvalidToken: Equatable, Sendable {
    /// Facts that many tokens have in common. Redis stores them once.
    package struct Facts: Codable, Equatable, Sendable {
        package var reason, topic, environment, source: String?
    }

    /// The time when the token became invalid, in milliseconds since 1970.
    package var at: Int64
    /// The day when the token was marked, in days since 1970.
    package var day: Int
    package var facts: Facts

    /// - Parameter day: `nil` for today.
    package init(
        at: Int64, day: Int = Int(Date().timeIntervalSince1970) / 86_400, reason: String? = nil, topic: String? = nil,
        environment: String? = nil,
        source: String? = nil
    ) {
        (self.at, self.day) = (at, day)
        facts = Facts(reason: reason, topic: topic, environment: environment, source: source)
    }
}

/// A set of invalid tokens with its details.
package struct StoredInvalidTokens {
    private let connection: RedisTestConnection
    private let set: String

    /// - Parameter set: the key of the set.
    package init(_ connection: RedisTestConnection, _ set: String = "push:{shared}:invalid-tokens") {
        (self.connection, self.set) = (connection, set)
    }

    /// The details by token, of this set and of the sets `:sandbox` and `:other`.
    package func details() throws -> [String: StoredInvalidToken] {
        var found: [String: StoredInvalidToken] = [:]
        let members = try ["", ":sandbox", ":other"].flatMap {
            try connection.run("SMEMBERS", set + $0).elements?.compactMap(\.text) ?? []
        }
        for token in members {
            let place = Self.place(of: token)
            let value: [UInt8]
            switch try connection.run([[UInt8]("HGET".utf8), key(place.part), place.field]) {
            case .string(let text): value = Array(text.utf8)
            case .bytes(let bytes): value = bytes
            default: continue
            }
            guard value.count == 10 else { continue }
            let number = value[8...].reduce(0) { $0 << 8 | Int($1) }
            let facts = try connection.run("HGET", "\(set):facts", "\(number)").text
            var stored = StoredInvalidToken(
                at: value[..<6].reduce(0) { $0 << 8 | Int64($1) }, day: value[6..<8].reduce(0) { $0 << 8 | Int($1) })
            if let facts {
                stored.facts = try JSONDecoder().decode(StoredInvalidToken.Facts.self, from: Data(facts.utf8))
            }
            found[token] = stored
        }
        return found
    }

    /// The number of tokens with details, including tokens that are not in the set.
    package func detailsCount() throws -> Int {
        try connection.run("KEYS", "\(set):details:*").elements?.compactMap(\.text).reduce(0) { sum, key in
            sum + (try connection.run("HLEN", key).number ?? 0)
        } ?? 0
    }

    /// Adds a token, and its details if it has some.
    package func add(_ token: String, _ details: StoredInvalidToken? = nil) throws {
        try connection.run("SADD", set, token)
        guard let details else { return }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let text = String(decoding: try encoder.encode(details.facts), as: UTF8.self)
        // Any number without facts can be used.
        var number = 1
        while let other = try connection.run("HGET", "\(set):facts", "\(number)").text, other != text { number += 1 }
        try connection.run("HSET", "\(set):facts", "\(number)", text)
        let bytes = (0..<6).map { UInt8(truncatingIfNeeded: details.at >> (40 - 8 * $0)) }
        try write(
            bytes
                + [details.day, number].flatMap { [UInt8(truncatingIfNeeded: $0 >> 8), UInt8(truncatingIfNeeded: $0)] },
            for: token)
    }

    /// Writes any bytes as the details of a token.
    package func write(_ bytes: [UInt8], for token: String) throws {
        let place = Self.place(of: token)
        try connection.run([[UInt8]("HSET".utf8), key(place.part), place.field, bytes])
    }

    package func detailsKey(of token: String) -> String {
        String(decoding: key(Self.place(of: token).part), as: UTF8.self)
    }

    private func key(_ part: String) -> [UInt8] { Array("\(set):details:\(part)".utf8) }

    private static func place(of token: String) -> (part: String, field: [UInt8]) {
        var digest = [UInt8](repeating: 0, count: 20)
        _ = SHA1(Array(token.utf8), token.utf8.count, &digest)
        let digits = digest.prefix(10).map { String(format: "%02x", $0) }.joined()
        let field = stride(from: 3, to: 13, by: 2).map { start in
            UInt8(digits.dropFirst(start).prefix(2), radix: 16) ?? 0
        }
        return (String(digits.prefix(3)), field)
    }
}

extension RedisServer {
    /// The set of invalid tokens of the fleet with the prefix `push`.
    package func invalidTokens() throws -> StoredInvalidTokens { StoredInvalidTokens(try connect()) }
}
