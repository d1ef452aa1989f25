import PrintableText

/// Escapes what must not stand in a line of log as it is.
public enum LogEscape {
    /// A text of others' with what is unprintable written as an escape, so that it can be seen.
    public static func escaped(_ text: String) -> String {
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
            case _ where scalar.isUnprintable:
                let digits = String(scalar.value, radix: 16)
                line += (#"\u"# + String(repeating: "0", count: 4 - digits.count) + digits).utf8
            default: line += UTF8.encode(scalar).map(Array.init) ?? []
            }
        }
    }
}
