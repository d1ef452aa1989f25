/// Escapes what must not stand in a line as it is.
public enum LogEscape {
    /// Whether a character could end a line, move a terminal's cursor, or turn a text's direction, so that a line would say
    /// something else than it seems to.
    static func isHostile(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0..<0x20, 0x7F..<0xA0, 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: true
        default: false
        }
    }

    /// A text of others' as it may be shown on a terminal.
    public static func printable(_ text: String) -> String {
        var bytes: [UInt8] = []
        append(text, to: &bytes, quotes: false)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Appends a text.
    /// - Parameters:
    ///   - quotes: whether it stands between double quotes.
    ///   - isJSON: whether it is read as JSON, which knows fewer ways to escape.
    static func append(_ text: String, to line: inout [UInt8], quotes: Bool, isJSON: Bool = false) {
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"" where quotes, "\\" where quotes:
                line.append(UInt8(ascii: "\\"))
                line.append(UInt8(truncatingIfNeeded: scalar.value))
            case "\n": line += #"\n"#.utf8
            case "\r": line += #"\r"#.utf8
            case "\t": line += #"\t"#.utf8
            case _ where isHostile(scalar):
                let digits = String(scalar.value, radix: 16)
                line += (#"\u"# + String(repeating: "0", count: 4 - digits.count) + digits).utf8
            default: line += UTF8.encode(scalar).map(Array.init) ?? []
            }
        }
    }
}
