import FoundationEssentials
import NIOCore
import PrintableText
import PushQueue

/// A mark of an invalid token in the output of commands.
package struct InvalidTokenLine {
    package static let titles = ["TOKEN", "SINCE", "REASON", "SOURCE", "ENVIRONMENT", "TOPIC", "SET"]
    package static let members = ["token", "since", "reason", "source", "environment", "topic", "set"]

    private let listed: InvalidTokenSet.Listed

    package init(_ listed: InvalidTokenSet.Listed) { self.listed = listed }

    private var values: [ByteBuffer?] {
        let details = listed.details
        return [
            listed.token, details.at.map { ByteBuffer(string: Moment.text($0)) }, details.reason, details.source,
            details.environment, details.topic, listed.set.name.map { ByteBuffer(string: $0) },
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

extension InvalidTokenSet.Listed {
    /// Returns each token of some marks once, if it is in a set that other programs read because of one of them.
    package static func tokens(of marks: [Self], in filter: InvalidTokenFilter) -> [Self] {
        // Without a filter the marks were not read, and those of a token follow one another.
        var last: ByteBuffer?
        return marks.filter { mark in
            guard filter.isEmpty || !mark.set.isDisjoint(with: filter.ownSets), mark.token != last else { return false }
            last = mark.token
            return true
        }
    }
}

extension TokenSets {
    /// The names of the sets that other programs read; `nil` for none.
    package var name: String? {
        let names = [(TokenSets.production, "production"), (.sandbox, "sandbox")].filter { contains($0.0) }.map(\.1)
        return names.isEmpty ? nil : names.joined(separator: " ")
    }
}

/// Selects invalid tokens by the details of their marks.
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

    package static let fieldNames = ["topic", "reason", "source", "environment", "since", "until"]

    package static let fields = Field.filter(fieldNames)

    /// - Parameter now: the time from which durations count back, in milliseconds since 1970.
    package init(_ fields: Fields, now: Int64) throws(FieldMistake) {
        let sources = try fields.texts("source")
        if let wrong = sources.first(where: { InvalidToken.Source(rawValue: $0) == nil }) {
            throw FieldMistake { "\($0("source")) must be apns, gateway, feedback or import, not \(wrong.printable)" }
        }
        let (earliest, latest) = try fields.range(now: now)
        self.init(
            topics: try fields.texts("topic"), reasons: try fields.texts("reason"), sources: sources,
            environments: try fields.texts("environment"), earliest: earliest, latest: latest)
    }

    package var isEmpty: Bool { self == InvalidTokenFilter() }

    /// The sets that other programs read in its environments: production's unless it names some.
    package var ownSets: TokenSets {
        environments.isEmpty ? .production : TokenSets(environments.map { .of(ByteBuffer(string: $0)) })
    }

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
