/// How names and values are written in Prometheus' text format.
///
/// Source: Prometheus, "Exposition formats", text-based format, version 0.0.4.
enum MetricText {
    /// A name with `_` for whatever may not be in one.
    static func name(_ given: String, allowsColon: Bool = true) -> String {
        var name = String(
            given.unicodeScalars.map { character in
                let isLetter = ("a"..."z").contains(character) || ("A"..."Z").contains(character) || character == "_"
                let isAllowed = isLetter || ("0"..."9").contains(character) || (allowsColon && character == ":")
                return isAllowed ? Character(character) : "_"
            })
        if let first = name.unicodeScalars.first, !("0"..."9").contains(first) { return name }
        name = "_" + name
        return name
    }

    static func help(_ text: String) -> String {
        var written = ""
        for character in text.unicodeScalars {
            switch character {
            case "\\": written += "\\\\"
            case "\n": written += "\\n"
            default: written.unicodeScalars.append(character)
            }
        }
        return written
    }

    static func number(_ value: Double) -> String {
        if value.isNaN { return "NaN" }
        if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
        // Beyond this not every whole number is one of these.
        if value == value.rounded(), abs(value) < 9_007_199_254_740_992 { return "\(Int64(value))" }
        return "\(value)"
    }
}
