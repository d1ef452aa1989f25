import NIOCore
import PushQueue
import Redis

/// A consumer group of a queue's results. It delivers each entry of the stream, with the results of many notifications,
/// to one of several consumers.
///
/// An entry is pending until its consumer acknowledges it. When a consumer has been idle for some time, others take over
/// its pending entries. A result that can't be handled is parked: copied to a stream of the group's own.
package struct ResultGroup: Sendable {
    package struct Pending: Sendable, Equatable {
        package var entry: String
        package var consumer: String
        package var deliveries: Int
    }

    /// The approximate maximum number of parked results; the oldest are removed.
    private static let maximumParked = 10_000

    private let client: RedisClient
    private let keys: QueueKeys
    package let name: String
    private let consumer: String

    /// - Parameters:
    ///   - client: a client of the server that has the queue. Reading blocks its connection.
    ///   - group: the group's name.
    ///   - consumer: the name of this consumer; must be unique among running consumers.
    package init(_ client: RedisClient, _ keys: QueueKeys, group: String, consumer: String) {
        self.client = client
        self.keys = keys
        name = group
        self.consumer = consumer
    }

    /// The place at which a group begins when a consumer opens it.
    package enum Opening: Sendable, Equatable {
        case existing
        /// The group is new. It does not get the `skipped` entries that the stream already has.
        case new(skipped: Int)
        /// The group was lost in Redis. It continues after the entries that it has handled.
        case continued(Position)
        /// The group was lost in Redis, and entries that it may not have handled are lost, too. It begins with the first remaining entry.
        /// `lost` is its last position.
        case restarted(lost: Position?)
    }

    package struct Position: Sendable, Equatable {
        /// The group has handled all entries before this one.
        package var entry: String
        /// True if the group has handled this entry, too.
        package var isHandled: Bool
        /// The number of entries that no consumer had read; `nil` if it is unknown.
        package var waiting: Int?

        /// The entry after which to create the group.
        fileprivate var start: String {
            let place = StoredResult.Place(entry, index: 0)
            return isHandled ? entry : place.previousEntry
        }
    }

    /// Opens the group for this consumer, and creates it and the stream if they do not exist.
    /// - Parameters:
    ///   - milliseconds: a new group gets results from this time on, in milliseconds since 1970; `nil` for new results only.
    ///   - last: the last known position of a group that was lost; `nil` if this consumer had none.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    package func open(since milliseconds: Int64?, after last: Position? = nil) async throws -> Opening {
        let recorded = try await client.call(RedisCommand("HGET", keys.resultsPositions, name)).root.string
        let parts = recorded?.split(separator: " ") ?? []
        let position = parts.count == 2 ? Position(entry: String(parts[1]), isHandled: parts[0] == "1") : last
        let stream = try await stream()
        // A group begins after the entry that it is created with.
        var start = milliseconds.map { $0 > 0 ? "\($0 - 1)-\(UInt64.max)" : "0" } ?? "$"
        var opening = Opening.new(skipped: milliseconds == nil ? stream.count : 0)
        if let position {
            // If the newest entry is older than the group's position, the group has read another stream.
            let isOlder = StoredResult.Place(stream.newest, index: 0) < StoredResult.Place(position.start, index: 0)
            let first = StoredResult.Place(stream.first ?? StoredResult.beginning, index: 0)
            let hasGap =
                position.entry != StoredResult.beginning && first > StoredResult.Place(position.entry, index: 0)
            start = isOlder ? "0" : position.start
            opening = isOlder || hasGap ? .restarted(lost: last ?? position) : .continued(position)
        }
        do {
            _ = try await client.call(RedisCommand("XGROUP", "CREATE", keys.results, name, start, "MKSTREAM"))
        } catch RedisError.server(let error) where error.prefix == "BUSYGROUP" {
            opening = .existing
        }
        return opening
    }

    /// Returns the ID of the newest entry that the stream ever had, the ID of its first entry, and the number of its entries.
    private func stream() async throws -> (newest: String, first: String?, count: Int) {
        // For a missing stream, XINFO returns an error without a code.
        guard try await client.call(RedisCommand("EXISTS", keys.results)).root.number == 1 else {
            return (StoredResult.beginning, nil, 0)
        }
        let fields = Array(try await client.call(RedisCommand("XINFO", "STREAM", keys.results)).root.children)
        var (newest, first, count) = (StoredResult.beginning, String?.none, 0)
        for (field, value) in zip(fields, fields.dropFirst()) {
            if field.string == "last-generated-id" { newest = value.string ?? newest }
            if field.string == "first-entry", value.count == 2 { first = value[0].string }
            if field.string == "length" { count = value.number ?? count }
        }
        return (newest, first, count)
    }

    /// Reads entries that were not delivered to any consumer before.
    /// - Parameters:
    ///   - count: their maximum number.
    ///   - milliseconds: the maximum time to wait for the first of them; `nil` to return at once.
    /// - Throws: `RedisError`.
    package func take(_ count: Int, waiting milliseconds: Int?) async throws -> ResultPage {
        var command = RedisCommand("XREADGROUP", "GROUP", name, consumer, "COUNT", "\(count)")
        if let milliseconds {
            command.append("BLOCK")
            command.append(max(1, milliseconds))
        }
        for word in ["STREAMS", keys.results, ">"] { command.append(word) }
        let reply = try await client.call(command, deadline: .milliseconds(Int64(milliseconds ?? 0) + 10_000))
        // The reply is an array with one stream, which is its name and its entries; nil without results.
        guard reply.root.count == 1, reply.root[0].count == 2 else { return ResultPage() }
        return ResultPage(reply.root[0][1])
    }

    /// Returns the consumers with pending entries.
    /// - Throws: `RedisError`.
    package func holders() async throws -> [String] {
        // The reply: the number of pending entries, the first and the last ID, and the number of each consumer.
        let summary = try await client.call(RedisCommand("XPENDING", keys.results, name)).root
        return summary.count == 4 ? summary[3].children.compactMap { $0.count == 2 ? $0[0].string : nil } : []
    }

    /// Lists pending entries, the oldest first.
    /// - Parameters:
    ///   - other: the consumer that has them; `nil` for any.
    ///   - idle: the minimum time since they were last delivered or renewed, in milliseconds.
    ///   - entry: the entry after which to begin; `nil` to begin with the oldest.
    ///   - count: their maximum number.
    /// - Throws: `RedisError`.
    package func pending(
        of other: String? = nil, idle: Int = 0, after entry: String? = nil, count: Int
    ) async throws -> [Pending] {
        var command = RedisCommand("XPENDING", keys.results, name)
        if idle > 0 {
            command.append("IDLE")
            command.append(idle)
        }
        command.append(entry.map { "(\($0)" } ?? "-")
        command.append("+")
        command.append(count)
        if let other { command.append(other) }
        return try await client.call(command).root.children.compactMap { element in
            guard element.count == 4, let entry = element[0].string, let consumer = element[1].string,
                let deliveries = element[3].number
            else { return nil }
            return Pending(entry: entry, consumer: consumer, deliveries: deliveries)
        }
    }

    /// - Parameter idle: the minimum time since they were last delivered or renewed, in milliseconds. If several
    ///   consumers take over the same entry, only one gets it.
    /// - Returns: the entries that this consumer has now. Entries that the stream has dropped in the meantime are acknowledged.
    /// - Throws: `RedisError`.
    package func reclaim(_ entries: [String], idle: Int) async throws -> ResultPage {
        guard !entries.isEmpty else { return ResultPage() }
        let page = ResultPage(try await client.call(claim(entries, idle: idle)).root)
        // Redis 7 acknowledges dropped entries itself; 6.2 replies with `nil` in their places.
        if page.entries.count < entries.count { try await acknowledgeDropped(entries) }
        return page
    }

    private func acknowledgeDropped(_ entries: [String]) async throws {
        var dropped: [String] = []
        for entry in entries {
            let found = try await ResultPage.read(from: entry, to: entry, count: 1, client, keys)
            if found.entries.isEmpty { dropped.append(entry) }
        }
        if !dropped.isEmpty { try await acknowledge(dropped) }
    }

    /// Renews entries that this consumer still works on, so that no other takes them over.
    /// - Throws: `RedisError`.
    package func renew(_ entries: [String]) async throws {
        guard !entries.isEmpty else { return }
        var command = claim(entries, idle: 0)
        command.append("JUSTID")
        _ = try await client.call(command)
    }

    private func claim(_ entries: [String], idle: Int) -> RedisCommand {
        var command = RedisCommand("XCLAIM", keys.results, name, consumer, "\(idle)")
        for entry in entries { command.append(entry) }
        return command
    }

    /// Acknowledges entries: the group has handled all of their results.
    /// - Returns: the group's position, which is recorded.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    @discardableResult
    package func acknowledge(_ entries: [String]) async throws -> Position {
        try await QueueScript.acknowledgeResults.run(client, [keys.results, keys.resultsPositions]) { command in
            command.append(name)
            for entry in entries { command.append(entry) }
        } reading: {
            Position(entry: $0.text(), isHandled: $0.number() == 1, waiting: $0.numberIfAny().map(Int.init))
        }
    }

    // MARK: Parked results

    /// Parks a result, unless it is parked already. Its entry can then be acknowledged.
    /// - Throws: `RedisError`.
    package func park(_ result: StoredResult) async throws {
        guard result.parkedAs == nil else { return }
        var command = RedisCommand(
            "XADD", keys.parkedResults(name), "MAXLEN", "~", "\(Self.maximumParked)", "*", "entry", result.id)
        for (field, value) in result.fields where field != "entry" && value.readableBytes > 0 {
            command.append(field)
            command.append(value)
        }
        _ = try await client.call(command)
    }

    /// Reads parked results, the oldest first.
    /// - Parameter last: the result after which to begin; `nil` to begin with the oldest.
    /// - Throws: `RedisError`.
    package func parked(after last: StoredResult? = nil, count: Int) async throws -> [StoredResult] {
        let start = last?.parkedAs.map { "(\($0)" } ?? "-"
        let reply = try await client.call(
            RedisCommand("XRANGE", keys.parkedResults(name), start, "+", "COUNT", "\(count)"))
        return reply.root.children.compactMap { element in
            guard let entry = ResultEntry(element) else { return nil }
            return StoredResult(parkedAs: entry.id, entry.fields)
        }
    }

    /// Removes parked results: the group has handled them.
    /// - Throws: `RedisError`.
    package func removeParked(_ results: [StoredResult]) async throws {
        let parked = results.compactMap(\.parkedAs)
        guard !parked.isEmpty else { return }
        var command = RedisCommand("XDEL", keys.parkedResults(name))
        for id in parked { command.append(id) }
        _ = try await client.call(command)
    }

    /// Removes this consumer if it has nothing pending, so that the names of former processes do not accumulate.
    /// - Throws: `RedisError`.
    package func leave() async throws {
        guard try await pending(of: consumer, count: 1).isEmpty else { return }
        _ = try await client.call(RedisCommand("XGROUP", "DELCONSUMER", keys.results, name, consumer))
    }
}
