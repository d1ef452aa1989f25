import Operations
import PrintableText
import PushJob

/// The fields of a form or of a query.
typealias Form = Fields

extension Fields {
    /// Reads `application/x-www-form-urlencoded`.
    init(_ text: some StringProtocol) {
        self.init(
            text.split(separator: "&").map { pair in
                let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                return (Self.decoded(parts[0]), parts.count > 1 ? Self.decoded(parts[1]) : "")
            })
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
