import NIOCore
import PrintableText
import PushQueue
import Redis

/// The records that the fleet shares about one device token.
package struct DeviceRecord: Sendable {
    /// The topics and environments for which the token is invalid.
    package var marks: [InvalidTokenSet.Listed] = []
    /// The time until which APNs throttles the token, in milliseconds since 1970.
    package var throttledUntil: Int64?
    /// The time of the device's last known registration, in milliseconds since 1970.
    package var registeredAt: Int64?

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

    /// The sets for other programs that contain the token.
    package var sets: TokenSets { TokenSets(marks.map(\.set)) }

    /// Returns columns that show the record of a thing.
    static func columns<Thing>(_ record: @escaping @Sendable (Thing) -> DeviceRecord) -> [Column<Thing>] {
        [
            .init("invalid", "Topics and environments for which it is invalid.") {
                let marks = record($0).marks
                return marks.isEmpty ? nil : marks
            },
            .init("throttled_until", "End of the throttling by APNs.", as: .time) { record($0).throttledUntil },
            .init("registered_at", "Last known registration of the device.", as: .time) { record($0).registeredAt },
        ]
    }
}
