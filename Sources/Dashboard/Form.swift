import PrintableText
import PushJob

/// The fields of a form or of a query. A name can occur several times.
struct Form: Sendable {
    private var fields: [(name: String, value: String)] = []

    init() {}

    var isEmpty: Bool { fields.isEmpty }

    /// Reads `application/x-www-form-urlencoded`.
    init(_ text: some StringProtocol) {
        for pair in text.split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            fields.append((Self.decoded(parts[0]), parts.count > 1 ? Self.decoded(parts[1]) : ""))
        }
    }

    /// The value of a field without surrounding white space; `nil` if it is missing or empty.
    subscript(name: String) -> String? { all(name).first }

    /// Creates a form from names and values, such as the members of a JSON object.
    init(fields: [(name: String, value: String)]) { self.fields = fields }

    func all(_ name: String) -> [String] {
        fields.lazy.filter { $0.name == name }.map { $0.value.trimmed }.filter { !$0.isEmpty }
    }

    /// Returns the value as it was sent.
    func raw(_ name: String) -> String { fields.first { $0.name == name }?.value ?? "" }

    /// Returns the fields except some, for a link or a form that repeats them.
    func without(_ names: Set<String>) -> [(name: String, value: String?)] {
        fields.filter { !names.contains($0.name) && !$0.value.isEmpty }.map { ($0.name, $0.value) }
    }

    /// Decodes percent-encoded text.
    static func decoded(_ text: some StringProtocol, plusIsSpace: Bool = true) -> String {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            if plusIsSpace, byte == UInt8(ascii: "+") {
                bytes.append(UInt8(ascii: " "))
            } else if byte == UInt8(ascii: "%"), rest.count >= 2,
                let high = JSONText.hexValue(rest[rest.startIndex]),
                let low = JSONText.hexValue(rest[rest.startIndex + 1])
            {
                bytes.append(high << 4 | low)
                rest = rest.dropFirst(2)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
