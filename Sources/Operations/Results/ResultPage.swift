import NIOCore
import PushJob
import PushQueue
import Redis

package struct ResultPage: Sendable {
    /// The results in the order of the entries.
    package let results: [StoredResult]
    /// The IDs of the entries. Each entry has at least one result.
    package let entries: [String]

    package init() {
        (results, entries) = ([], [])
    }

    /// Decodes an array of entries. Other elements are left out, such as the `nil` of a dropped entry.
    init(_ entries: RESPReply.Element, newestFirst: Bool = false) {
        var (results, ids) = ([StoredResult](), [String]())
        for element in entries.children {
            guard let entry = ResultEntry(element) else { continue }
            ids.append(entry.id)
            let own = entry.results
            results += newestFirst ? own.reversed() : own
        }
        (self.results, self.entries) = (results, ids)
    }

    /// The largest entries have some 130 KB.
    private static let maximumEntries = 100

    /// Returns the number of entries for the next page, so that it has about a given number of results.
    /// - Parameter last: the page before; `nil` for the first page.
    package static func size(for results: Int, after last: ResultPage?) -> Int {
        guard let last, !last.results.isEmpty else { return min(10, max(1, results / 10)) }
        return max(1, min(maximumEntries, results * last.entries.count / last.results.count))
    }

    /// Reads the results of some entries of a period.
    /// - Parameters:
    ///   - start: the first entry: its id, or a time in milliseconds; `(` before an id excludes that entry; `-` is the
    ///     oldest and `+` the newest.
    ///   - end: the last entry, in the same form.
    ///   - newestFirst: true to go back in time; `start` is then the newest.
    ///   - count: the maximum number of entries.
    /// - Throws: `RedisError`.
    package static func read(
        from start: String, to end: String, newestFirst: Bool = false, count: Int, _ client: RedisClient,
        _ keys: QueueKeys
    ) async throws -> ResultPage {
        let name = newestFirst ? "XREVRANGE" : "XRANGE"
        let reply = try await client.call(RedisCommand(name, keys.results, start, end, "COUNT", "\(count)"))
        return ResultPage(reply.root, newestFirst: newestFirst)
    }

    /// The limit that ended a search before all results were examined.
    package enum Rest: Sendable { case time, number }

    /// Reads the newest results of a queue in pages.
    /// - Parameters:
    ///   - most: the number of results to examine. The search ends after the entry that reaches it.
    ///   - end: the search ends at this time; `nil` for no limit.
    ///   - body: gets the results of a page; returns false to stop.
    /// - Returns: the number of results that were examined, and the limit that ended the search, if one did.
    /// - Throws: `RedisError`.
    static func newest(
        lookingAt most: Int, until end: ContinuousClock.Instant?, _ client: RedisClient, _ keys: QueueKeys,
        _ body: ([StoredResult]) -> Bool
    ) async throws -> (looked: Int, rest: Rest?) {
        var (looked, last) = (0, ResultPage?.none)
        while looked < most {
            let count = ResultPage.size(for: min(1000, most - looked), after: last)
            let start = last?.entries.last.map { "(\($0)" } ?? "+"
            let page = try await read(from: start, to: "-", newestFirst: true, count: count, client, keys)
            looked += page.results.count
            guard body(page.results), page.entries.count == count else { return (looked, nil) }
            last = page
            if let end, .now >= end { return (looked, .time) }
        }
        return (looked, .number)
    }
}

/// An entry of the stream of results, which a worker or another program has written.
///
/// The field `results` of a worker's entry is a JSON array of groups. A group is an object with the members that its results share, and
/// `notifications`, an array with an object for the other members of each. An entry without a readable field `results` is one result with
/// the entry's fields.
struct ResultEntry {
    let id: String
    let fields: [(name: String, value: ByteBuffer)]

    init?(_ element: RESPReply.Element) {
        guard element.count == 2, let id = element[0].string else { return nil }
        var values = element[1].children
        var fields: [(name: String, value: ByteBuffer)] = []
        while let name = values.next()?.string, let value = values.next()?.bytes { fields.append((name, value)) }
        self.id = id
        self.fields = fields
    }

    /// The results of the entry, at least one.
    var results: [StoredResult] {
        guard let text = fields.first(where: { $0.name == "results" })?.value, let read = EncodedResults(text) else {
            return [StoredResult(entry: id, index: 0, fields: fields)]
        }
        let time = (name: "time", value: ByteBuffer(substring: id.prefix { $0 != "-" }))
        return read.results.enumerated().map { index, members in
            StoredResult(entry: id, index: index, fields: Self.ordered([time] + members))
        }
    }

    /// The names of a result's fields, in the order of display.
    private static let names = [
        "id", "token", "outcome", "reason", "status", "apns_id", "app", "attempt", "time", "trace_id", "parent_id",
        "apns_unique_id", "campaign", "fair", "labels", "event", "report",
    ]
    private static let places = Dictionary(uniqueKeysWithValues: zip(names, names.indices))

    /// Returns the known fields, and then the unknown fields. If a name occurs several times, the last value counts.
    private static func ordered(_ members: [EncodedResults.Member]) -> [(name: String, value: ByteBuffer)] {
        var fields = names.map { (name: $0, value: ByteBuffer()) }
        for (name, value) in members {
            if let place = places[name] ?? fields.dropFirst(names.count).firstIndex(where: { $0.name == name }) {
                fields[place].value = value
            } else {
                fields.append((name, value))
            }
        }
        return fields
    }
}

/// The results in the groups of an entry.
private struct EncodedResults {
    /// The text of a string, or the JSON of another value.
    typealias Member = (name: String, value: ByteBuffer)

    /// The members of each result: first the members of its group, then its own.
    private(set) var results: [[Member]] = []

    /// - Returns: `nil` if the text is not an array of groups with results.
    init?(_ text: ByteBuffer) {
        let isRead = text.withUnsafeReadableBytes { bytes in
            var scanner = JSONScanner(bytes)
            do throws(JSONError) { return try read(&scanner, text) } catch { return false }
        }
        guard isRead, !results.isEmpty else { return nil }
    }

    private mutating func read(_ scanner: inout JSONScanner, _ text: ByteBuffer) throws(JSONError) -> Bool {
        try scanner.begin()
        guard scanner.next == UInt8(ascii: "[") else { return false }
        var more = try scanner.enterArray()
        while more {
            guard let group = try Self.object(&scanner, text, isGroup: true), !group.notifications.isEmpty else {
                return false
            }
            results += group.notifications.map { group.members + $0 }
            more = try scanner.nextElement()
        }
        try scanner.finish()
        return true
    }

    /// Reads an object.
    /// - Parameter isGroup: true if its member `notifications` is an array of objects.
    /// - Returns: `nil` if the value is not such an object.
    private static func object(
        _ scanner: inout JSONScanner, _ text: ByteBuffer, isGroup: Bool
    ) throws(JSONError) -> (members: [Member], notifications: [[Member]])? {
        guard scanner.next == UInt8(ascii: "{") else { return nil }
        var (members, notifications) = ([Member](), [[Member]]())
        var more = try scanner.enterObject()
        while more {
            let name = String(buffer: characters(of: try scanner.name(), in: text))
            if isGroup, name == "notifications" {
                guard scanner.next == UInt8(ascii: "[") else { return nil }
                var moreOwn = try scanner.enterArray()
                while moreOwn {
                    guard let own = try object(&scanner, text, isGroup: false) else { return nil }
                    notifications.append(own.members)
                    moreOwn = try scanner.nextElement()
                }
            } else {
                members.append((name, try value(&scanner, text)))
            }
            more = try scanner.nextMember()
        }
        return (members, notifications)
    }

    private static func value(_ scanner: inout JSONScanner, _ text: ByteBuffer) throws(JSONError) -> ByteBuffer {
        if scanner.next == UInt8(ascii: "\"") { return characters(of: try scanner.string(), in: text) }
        let start = scanner.offset
        let isNull = scanner.next == UInt8(ascii: "n")
        try scanner.skipValue()
        return isNull ? ByteBuffer() : slice(start..<scanner.offset, of: text)
    }

    private static func characters(of string: JSONString, in text: ByteBuffer) -> ByteBuffer {
        guard string.hasEscapes else { return slice(string.range, of: text) }
        return text.withUnsafeReadableBytes { bytes in
            JSONText.withCharacters(of: string, in: bytes) { ByteBuffer(bytes: $0) }
        }
    }

    private static func slice(_ range: Range<Int>, of text: ByteBuffer) -> ByteBuffer {
        text.getSlice(at: text.readerIndex + range.lowerBound, length: range.count) ?? ByteBuffer()
    }
}
