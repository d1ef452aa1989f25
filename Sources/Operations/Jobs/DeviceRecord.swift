import NIOCore
import PrintableText
import PushQueue
import Redis

/// The records that the fleet shares about one device token.
package struct DeviceRecord: Sendable {
    /// Its marks: the topics and environments for which it is invalid.
    package var marks: [InvalidTokenSet.Listed] = []
    /// The time until which APNs throttles the token, in milliseconds since 1970.
    package var throttledUntil: Int64?
    /// The time of the device's last known registration, in milliseconds since 1970.
    package var registeredAt: Int64?

    /// Makes the record of an unknown token.
    package init() {}

    /// Reads the record of a token.
    /// - Parameter token: lower-case hex.
    /// - Throws: `RedisError`, or `QueueFailure`.
    package static func read(_ token: String, _ fleet: Fleet) async throws -> DeviceRecord {
        let keys = fleet.sharedKeys
        let invalidTokens = try await InvalidTokenClient.reading(fleet)
        let bytes = ByteBuffer(string: token)
        var record = DeviceRecord()
        record.marks = try await invalidTokens.find(TokenList([bytes])).flatMap(InvalidTokenSet.Listed.marks)
        record.registeredAt = try await invalidTokens.registration(of: bytes)
        let client = try await fleet.client(for: keys.throttledTokens)
        let throttled = try await client.call(RedisCommand("ZSCORE", keys.throttledTokens, token)).root.string
        record.throttledUntil = throttled.flatMap(Double.init).map { Int64(bounding: $0) }
        return record
    }

    private struct Invalid: Encodable {
        let at: Int64?
        let reason, topic, environment, source, set: String?
    }

    /// The sets that other programs read and that it is in.
    package var sets: TokenSets { TokenSets(marks.map(\.set)) }

    /// The members of a JSON object; none for what is unknown.
    var members: [String] {
        get throws {
            var members: [String] = []
            if !marks.isEmpty {
                func text(_ value: ByteBuffer?) -> String? { value.map { String(buffer: $0) } }
                let all = try marks.map { mark in
                    let invalid = mark.details
                    return try JSONLine.text(
                        Invalid(
                            at: invalid.at, reason: text(invalid.reason), topic: text(invalid.topic),
                            environment: text(invalid.environment), source: text(invalid.source), set: mark.set.name))
                }
                members.append("\"invalid\":[\(all.joined(separator: ","))]")
            }
            if let throttledUntil { members.append("\"throttled_until\":\(throttledUntil)") }
            if let registeredAt { members.append("\"registered_at\":\(registeredAt)") }
            return members
        }
    }
}
