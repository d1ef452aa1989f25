import FoundationEssentials
import NIOCore
import PrintableText
import PushQueue

extension InvalidTokenSet.Listed: Shown {
    package static let columns = Columns<Self>(
        "InvalidToken", "A topic and environment for which a device token is invalid.", commands: ["invalid list"],
        isSorted: false,
        [
            .init("token", "Device token.", as: .key, in: .all, \.token),
            .init("since", "Time since which the token is invalid, in ISO 8601.", as: .key, in: [.table, .facts]) {
                $0.details.at.map(Moment.text)
            },
            .init("reason", "Reason.", as: .key, in: [.table, .wide, .facts], \.details.reason),
            .init(
                "source", "Source: `apns`, `gateway`, `feedback` or `import`.", in: [.table, .wide, .facts],
                under: "Reason",
                \.details.source),
            .init(
                "environment", "Environment, or name of a server.", in: [.table, .wide, .facts], under: "Topic",
                \.details.environment),
            .init("topic", "Topic.", as: .key, in: [.table, .wide, .facts], \.details.topic),
            .init(
                "set", "Sets for other programs with the token: `production`, `sandbox`.", as: .key,
                in: [.table, .widest, .facts],
                \.set.name),
            .init("at", "Time since which the token is invalid.", as: .time, title: "Since", in: .list, \.details.at),
        ])

    // MARK: CSV

    package static var csvHead: String { columns.shown(in: .table).map(\.name).joined(separator: ",") + "\r\n" }

    package func writeCSV(to line: inout ByteBuffer) {
        for (index, column) in Self.columns.shown(in: .table).enumerated() {
            if index > 0 { line.writeString(",") }
            switch column.value(self) {
            case .bytes(let value): Self.write(quoted: value, to: &line)
            case .text(let value): Self.write(quoted: ByteBuffer(string: value), to: &line)
            default: break
            }
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
    /// Returns one mark of each token that the filter's sets for other programs contain; without a filter, one element of each token.
    package static func tokens(of marks: [Self], in filter: InvalidTokenFilter) -> [Self] {
        // Equal tokens follow one another. Without a filter the marks were not read, so the marks have no sets.
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

/// Selects marks of invalid tokens. For each property that has values, a mark must match one of them.
package struct InvalidTokenFilter: Equatable {
    package var topics: [String] = []
    package var reasons: [String] = []
    package var sources: [String] = []
    package var environments: [String] = []
    /// The range of the times at which tokens became invalid, in milliseconds since 1970.
    package var earliest: Int64?
    package var latest: Int64?

    package init() {}

    package static let fields =
        [
            Field("topic", .texts, "Tokens that are invalid for this topic."),
            Field("reason", .texts, "Tokens that are invalid for this reason, such as BadDeviceToken."),
            Field(
                "source", .texts, "Tokens reported by this source: apns, gateway, feedback or import.",
                words: ["apns", "gateway", "feedback", "import"]),
            Field(
                "environment", .texts,
                "Tokens of this environment: production, sandbox, or the name of another server."),
        ] + Field.range("Tokens that became invalid")

    package static let fieldNames = fields.map(\.name)

    /// - Parameter now: durations count back from this time, in milliseconds since 1970.
    package init(_ fields: Fields, now: Int64) throws(FieldMistake) {
        let sources = try fields.texts("source")
        if let wrong = sources.first(where: { InvalidToken.Source(rawValue: $0) == nil }) {
            throw FieldMistake { "\($0("source")) must be apns, gateway, feedback or import, not \(wrong.printable)" }
        }
        self.sources = sources
        (topics, reasons) = (try fields.texts("topic"), try fields.texts("reason"))
        environments = try fields.texts("environment")
        (earliest, latest) = try fields.range(now: now)
    }

    package var isEmpty: Bool { self == InvalidTokenFilter() }

    /// The sets for other programs in the filter's environments; the set of production if the filter has no environment.
    package var ownSets: TokenSets {
        environments.isEmpty ? .production : TokenSets(environments.map { .of(ByteBuffer(string: $0)) })
    }

    /// Returns true if the details match. Unknown details match nothing.
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

extension InvalidTokenSet.Listed: Counted {
    package static let (things, narrowing) = ("invalid tokens", "--reason")
    package static let groups = ["reason", "source", "environment", "topic", "set"]
}
