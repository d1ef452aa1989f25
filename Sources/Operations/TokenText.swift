import FoundationEssentials
import PrintableText
import PushJob

/// Device tokens as producers write them.
package enum TokenText {
    /// The number of digits that people see of a token.
    package static let shownDigits = 8
    /// The minimum number of digits of a whole token.
    package static let wholeDigits = 64

    /// Returns the tokens of a text, unchanged. A line has one token, unless white space divides whole tokens or each token is written as
    /// `<abababab abababab …>`.
    package static func divided(_ text: String) -> [String] {
        text.split(whereSeparator: \.isNewline).flatMap { line -> [Substring] in
            let words = line.split(whereSeparator: \.isWhitespace)
            if line.contains("<") { return line.split(separator: ">").filter { $0.contains { !$0.isWhitespace } } }
            return words.contains { $0.utf8.count >= wholeDigits / 2 } ? words : words.isEmpty ? [] : [line]
        }.map { String($0).trimmed }
    }

    /// Returns a token in lower-case hex. The text is hex, perhaps with white space or angle brackets, or base64; a text with several
    /// tokens is returned as it is.
    package static func normalized(_ text: String) -> String {
        let words = text.utf8.split { $0 == 0x20 || 0x09...0x0D ~= $0 }
        if words.count > 1, words.contains(where: { $0.count >= wholeDigits }) { return text }
        let plain = words.joined().filter { $0 != 0x3C && $0 != 0x3E }
        let isHex = plain.allSatisfy { $0 &- 0x30 < 10 || ($0 | 0x20) &- 0x61 < 6 }
        if isHex { return String(decoding: plain, as: UTF8.self).lowercased() }
        guard let bytes = base64(plain) else { return text }
        return bytes.hex
    }

    /// Returns true for the hex digits of a device token: of 1 to 1,024 bytes.
    package static func isToken(_ hex: String) -> Bool {
        (2...2048).contains(hex.utf8.count) && hex.utf8.count.isMultiple(of: 2) && hex.isHexadecimal
    }

    /// Returns true for the beginning of a token, as it is shown to people: eight digits, or with an ellipsis.
    package static func isShortened(_ text: String) -> Bool {
        text.hasSuffix("…") || text.hasSuffix("...") || text.utf8.count == shownDigits && text.isHexadecimal
    }

    /// Returns the spellings of a token that producers may use.
    /// - Parameter hex: lower-case hex.
    package static func forms(ofHex hex: String) -> [String] {
        let digits = hex.utf8.compactMap(JSONText.hexValue)
        let bytes = stride(from: 0, to: digits.count - 1, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
        let base64 = Data(bytes).base64EncodedString()
        let url = String(base64.map { $0 == "+" ? "-" : $0 == "/" ? "_" : $0 })
        return [hex]
            + [base64, url].flatMap { padded in
                let plain = String(padded.prefix { $0 != "=" })
                return plain == padded ? [plain] : [plain, padded]
            }
    }

    /// Decodes either alphabet, with or without padding.
    private static func base64(_ text: [UInt8]) -> [UInt8]? {
        var (bytes, bits, count): ([UInt8], UInt32, UInt32) = ([], 0, 0)
        for byte in text.reversed().drop(while: { $0 == UInt8(ascii: "=") }).reversed() {
            let value: UInt8
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = byte - UInt8(ascii: "A")
            case UInt8(ascii: "a")...UInt8(ascii: "z"): value = byte - UInt8(ascii: "a") + 26
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = byte - UInt8(ascii: "0") + 52
            case UInt8(ascii: "+"), UInt8(ascii: "-"): value = 62
            case UInt8(ascii: "/"), UInt8(ascii: "_"): value = 63
            default: return nil
            }
            bits = bits << 6 | UInt32(value)
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> count))
            }
        }
        return bytes
    }
}
