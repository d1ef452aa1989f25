import NIOCore
import PushQueue
import Redis

/// A result in a queue's stream.
public struct StoredResult: Sendable {
    /// The entry's id, `<milliseconds since 1970>-<number>`.
    public let entry: String
    /// The fields in their order; unknown ones are empty.
    public let fields: [(name: String, value: ByteBuffer)]

    /// The value of a field; `nil` if unknown.
    public subscript(name: String) -> String? {
        guard let field = fields.first(where: { $0.name == name }), field.value.readableBytes > 0 else { return nil }
        return String(buffer: field.value)
    }

    /// The time of the outcome in milliseconds since 1970; `nil` if unknown.
    package var time: Int64? { self["time"].flatMap { Int64(bounding: $0) } }

    /// An id before those of all entries.
    public static let beginning = "0-0"

    /// Reads some results, the oldest first.
    /// - Parameters:
    ///   - entry: the entry after which to begin.
    ///   - count: their maximum number.
    /// - Throws: `RedisError`.
    public static func read(
        after entry: String, count: Int, _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> [StoredResult] {
        try await read(from: "(\(entry)", to: "+", count: count, client, keys)
    }

    /// Reads some results of a period.
    /// - Parameters:
    ///   - start: the first one: an entry's id, or a time in milliseconds; `(` before an id excludes that entry; `-` is
    ///     the oldest and `+` the newest.
    ///   - end: the last one, in the same form.
    ///   - newestFirst: true to go back in time; `start` is then the newest.
    ///   - count: their maximum number.
    /// - Throws: `RedisError`.
    public static func read(
        from start: String, to end: String, newestFirst: Bool = false, count: Int, _ client: RedisClient,
        _ keys: QueueKeys
    ) async throws -> [StoredResult] {
        let name = newestFirst ? "XREVRANGE" : "XRANGE"
        let reply = try await client.call(RedisCommand(name, keys.results, start, end, "COUNT", "\(count)"))
        return reply.root.children.compactMap(StoredResult.init)
    }

    /// The position of an entry in the stream.
    package struct Place: Comparable, Sendable {
        let milliseconds: UInt64
        let number: UInt64

        package static func < (left: Place, right: Place) -> Bool {
            (left.milliseconds, left.number) < (right.milliseconds, right.number)
        }
    }

    /// The position of the entry.
    package var place: Place {
        let parts = entry.split(separator: "-").map { UInt64($0) ?? 0 }
        return Place(milliseconds: parts.first ?? 0, number: parts.count > 1 ? parts[1] : 0)
    }

    /// Waits until there is a new result.
    /// - Parameters:
    ///   - entry: the entry after which it is.
    ///   - milliseconds: the maximum time to wait.
    /// - Throws: `RedisError`.
    public static func wait(
        after entry: String, milliseconds: Int, _ client: RedisClient, _ keys: QueueKeys
    ) async throws {
        _ = try await client.call(
            RedisCommand("XREAD", "COUNT", "1", "BLOCK", "\(milliseconds)", "STREAMS", keys.results, entry),
            deadline: .milliseconds(Int64(milliseconds) + 10_000))
    }

    init?(_ element: RESPReply.Element) {
        guard element.count == 2, let entry = element[0].string else { return nil }
        self.entry = entry
        var values = element[1].children
        var fields: [(String, ByteBuffer)] = []
        while let name = values.next()?.string, let value = values.next()?.bytes { fields.append((name, value)) }
        self.fields = fields
    }
}
