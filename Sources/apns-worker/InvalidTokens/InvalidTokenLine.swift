import FoundationEssentials
import NIOCore
import PrintableText
import PushQueue

/// An invalid token as it is written for people and programs.
struct InvalidTokenLine {
    static let titles = ["TOKEN", "SINCE", "REASON", "SOURCE", "ENVIRONMENT", "TOPIC"]
    static let members = ["token", "since", "reason", "source", "environment", "topic"]

    private let listed: InvalidTokenSet.Listed

    init(_ listed: InvalidTokenSet.Listed) { self.listed = listed }

    private var values: [ByteBuffer?] {
        let details = listed.details
        return [
            listed.token, details.at.map { ByteBuffer(string: Moment.text($0)) }, details.reason, details.source,
            details.environment, details.topic,
        ]
    }

    /// A line of a table. Nothing in it does anything to a terminal.
    var cells: [String] { values.map { $0.map { String(buffer: $0).printable } ?? "-" } }

    /// The cells by which lines are counted.
    var group: String { cells.dropFirst(2).joined(separator: "\t") }

    func writeJSON(to line: inout ByteBuffer) {
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

    func writeCSV(to line: inout ByteBuffer) {
        for (index, value) in values.enumerated() {
            if index > 0 { line.writeString(",") }
            if let value { Self.write(quoted: value, to: &line) }
        }
        line.writeString("\r\n")
    }

    /// RFC 4180.
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
