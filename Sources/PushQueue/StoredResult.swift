import NIOCore
import Redis

/// A result as it stands in a queue's stream.
public struct StoredResult: Sendable {
    /// The entry's id, `<milliseconds since 1970>-<number>`.
    public let entry: String
    /// The fields in their order; those of which nothing is known are empty.
    public let fields: [(name: String, value: ByteBuffer)]

    /// A field's value; `nil` where nothing is known.
    public subscript(name: String) -> String? {
        guard let field = fields.first(where: { $0.name == name }), field.value.readableBytes > 0 else { return nil }
        return String(buffer: field.value)
    }

    /// The id of the entry before all others.
    public static let beginning = "0-0"

    /// Reads some results, the oldest first.
    /// - Parameters:
    ///   - entry: they stand behind this one.
    ///   - count: how many at the most.
    /// - Throws: `RedisError`.
    public static func read(
        after entry: String, count: Int, _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> [StoredResult] {
        let reply = try await client.call(RedisCommand("XRANGE", keys.results, "(\(entry)", "+", "COUNT", "\(count)"))
        return reply.root.children.compactMap(StoredResult.init)
    }

    /// Waits until there is another result.
    /// - Parameters:
    ///   - entry: behind this one.
    ///   - milliseconds: how long to wait at the most.
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
