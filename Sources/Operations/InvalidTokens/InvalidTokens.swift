import FoundationEssentials
import NIOCore
import PrintableText
import PushQueue

/// An invalid token in the output of commands.
package struct InvalidTokenLine {
    package static let titles = ["TOKEN", "SINCE", "REASON", "SOURCE", "ENVIRONMENT", "TOPIC"]
    package static let members = ["token", "since", "reason", "source", "environment", "topic"]

    private let listed: InvalidTokenSet.Listed

    package init(_ listed: InvalidTokenSet.Listed) { self.listed = listed }

    private var values: [ByteBuffer?] {
        let details = listed.details
        return [
            listed.token, details.at.map { ByteBuffer(string: Moment.text($0)) }, details.reason, details.source,
            details.environment, details.topic,
        ]
    }

    /// The cells of a table's row, which are printable.
    package var cells: [String] { values.map { $0.map { String(buffer: $0).printable } ?? "-" } }

    /// The cells by which lines are counted.
    package var group: String { cells.dropFirst(2).joined(separator: "\t") }

    package func writeJSON(to line: inout ByteBuffer) {
        var separator = "{\""
        for (name, value) in zip(Self.members, values) {
            guard let value else { continue }
            line.writeString("\(separator)\(name)\":")
            line.writeJSONString(value)
            separator = ",\""
        }
        if let at = listed.details.at { line.writeString(",\"at\":\(at)") }
        line.writeString("}\n")
    }

    package func writeCSV(to line: inout ByteBuffer) {
        for (index, value) in values.enumerated() {
            if index > 0 { line.writeString(",") }
            if let value { Self.write(quoted: value, to: &line) }
        }
        line.writeString("\r\n")
    }

    /// Quotes a value if RFC 4180 requires it.
    private static func write(quoted value: ByteBuffer, to line: inout ByteBuffer) {
        let isPlain = value.readableBytesView.allSatisfy { $0 != 0x22 && $0 != 0x2C && $0 != 0x0A && $0 != 0x0D }
        if isPlain { return _ = line.writeImmutableBuffer(value) }
        line.writeString("\"")
        for byte in value.readableBytesView {
            if byte == 0x22 { line.writeInteger(byte) }
            line.writeInteger(byte)
        }
        line.writeString("\"")
    }
}

/// Selects invalid tokens by their details.
package struct InvalidTokenFilter: Equatable {
    package var topics: [String] = []
    package var reasons: [String] = []
    package var sources: [String] = []
    package var environments: [String] = []
    /// The range of the time since which they are invalid, in milliseconds since 1970.
    package var earliest: Int64?
    package var latest: Int64?

    package init(
        topics: [String] = [], reasons: [String] = [], sources: [String] = [], environments: [String] = [],
        earliest: Int64? = nil, latest: Int64? = nil
    ) {
        (self.topics, self.reasons, self.sources, self.environments) = (topics, reasons, sources, environments)
        (self.earliest, self.latest) = (earliest, latest)
    }

    package var isEmpty: Bool { self == InvalidTokenFilter() }

    /// Returns true if the details match; unknown ones match nothing.
    package func fits(_ details: InvalidTokenDetails) -> Bool {
        func fits(_ value: ByteBuffer?, _ wanted: [String]) -> Bool {
            wanted.isEmpty || value.map { value in wanted.contains { value == ByteBuffer(string: $0) } } == true
        }
        return fits(details.topic, topics) && fits(details.reason, reasons) && fits(details.source, sources)
            && fits(details.environment, environments)
            && (earliest.map { earliest in details.at.map { $0 >= earliest } == true } ?? true)
            && (latest.map { latest in details.at.map { $0 <= latest } == true } ?? true)
    }
}

extension InvalidTokenClient {
    /// Reads all tokens that match.
    /// - Parameter page: gets the matching tokens of each part; returns `false` to stop.
    /// - Throws: `QueueFailure`, or an error of `page`.
    package func sweep(
        _ filter: InvalidTokenFilter, _ page: ([InvalidTokenSet.Listed]) async throws -> Bool
    ) async throws {
        var unread = UnreadParts()
        try await sweep(filter, skipsUnread: false, &unread, page)
    }

    /// Reads all tokens that match, in the shards that can be read.
    /// - Parameters:
    ///   - unread: gets the other shards.
    ///   - page: gets the matching tokens of each part; returns `false` to stop.
    /// - Throws: the first error if no shard can be read, or an error of `page`.
    package func sweep(
        _ filter: InvalidTokenFilter, withDetails: Bool = true, skipsUnread: Bool = true, _ unread: inout UnreadParts,
        _ page: ([InvalidTokenSet.Listed]) async throws -> Bool
    ) async throws {
        var (cursor, isRead) = (String?.none, false)
        repeat {
            let describes = withDetails || !filter.isEmpty
            let found =
                skipsUnread
                ? try await scan(after: cursor, withDetails: describes, &unread)
                : try await scan(after: cursor, withDetails: describes)
            isRead = isRead || found.unread == nil
            let fitting = filter.isEmpty ? found.tokens : found.tokens.filter { filter.fits($0.details) }
            guard try await page(fitting) else { return }
            cursor = found.cursor
        } while cursor != nil
        if !isRead { try unread.throwFirst() }
    }
}
