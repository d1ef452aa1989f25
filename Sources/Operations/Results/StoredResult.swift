import NIOCore
import PushJob
import PushQueue
import Redis

/// A result in a queue's stream. An entry of the stream has the results of many notifications.
package struct StoredResult: Sendable {
    /// The id of its entry, `<milliseconds since 1970>-<number>`.
    package let entry: String
    /// The number of the result in its entry, from 0.
    package let index: Int
    /// The fields in their order. A field without a value is empty.
    package let fields: [(name: String, value: ByteBuffer)]
    /// The id of its entry in the stream of parked results; `nil` if it was not read from there.
    package var parkedAs: String?

    package init(entry: String, index: Int, fields: [(name: String, value: ByteBuffer)]) {
        self.entry = entry
        self.index = index
        self.fields = fields
    }

    /// A result that was read from the stream of parked results, where the field `entry` is its ``id``.
    init(parkedAs parked: String, _ fields: [(name: String, value: ByteBuffer)]) {
        let id = fields.first { $0.name == "entry" }.map { String(buffer: $0.value) } ?? parked
        let parts = id.split(separator: "/", maxSplits: 1)
        self.init(
            entry: parts.first.map(String.init) ?? parked, index: parts.count > 1 ? Int(parts[1]) ?? 0 : 0,
            fields: fields.filter { $0.name != "entry" })
        parkedAs = parked
    }

    /// A text that no other result of the queue has: `<entry>/<index>`.
    package var id: String { "\(entry)/\(index)" }

    /// The value of a field; `nil` if it is missing or empty.
    package subscript(name: String) -> String? {
        guard let field = fields.first(where: { $0.name == name }), field.value.readableBytes > 0 else { return nil }
        return String(buffer: field.value)
    }

    /// The time of the outcome in milliseconds since 1970; `nil` if unknown.
    package var time: Int64? { self["time"].flatMap { Int64(bounding: $0) } }

    package var labels: [String: String] {
        fields.first { $0.name == "labels" }.map { JobLabels.read($0.value) } ?? [:]
    }

    /// An ID before the IDs of all entries.
    package static let beginning = "0-0"

    package struct Place: Comparable, Sendable {
        let milliseconds: UInt64
        let number: UInt64
        let index: Int

        /// - Parameter entry: the id of an entry.
        init(_ entry: String, index: Int) {
            let parts = entry.split(separator: "-").map { UInt64($0) ?? 0 }
            (milliseconds, number) = (parts.first ?? 0, parts.count > 1 ? parts[1] : 0)
            self.index = index
        }

        /// Parses the id of a result.
        /// - Returns: `nil` for a text of another form.
        package init?(id: String) {
            let parts = id.split(separator: "/", omittingEmptySubsequences: false)
            guard parts.count == 2, let index = Int(parts[1]), index >= 0 else { return nil }
            self.init(String(parts[0]), index: index)
            guard entry == parts[0] else { return nil }
        }

        var entry: String { "\(milliseconds)-\(number)" }

        /// The greatest ID before the entry.
        var previousEntry: String {
            if number > 0 { return "\(milliseconds)-\(number - 1)" }
            return milliseconds > 0 ? "\(milliseconds - 1)-\(UInt64.max)" : "0-0"
        }

        package static func < (left: Place, right: Place) -> Bool {
            (left.milliseconds, left.number, left.index) < (right.milliseconds, right.number, right.index)
        }
    }

    package var place: Place { Place(entry, index: index) }

    /// Waits until there is a new result.
    /// - Parameters:
    ///   - entry: the entry that the new result must follow.
    ///   - milliseconds: the maximum time to wait.
    /// - Throws: `RedisError`.
    package static func wait(
        after entry: String, milliseconds: Int, _ client: RedisClient, _ keys: QueueKeys
    ) async throws {
        _ = try await client.call(
            RedisCommand("XREAD", "COUNT", "1", "BLOCK", "\(milliseconds)", "STREAMS", keys.results, entry),
            deadline: .milliseconds(Int64(milliseconds) + 10_000))
    }
}
