import PrintableText

/// Markup of a page. Only literals in the source are markup: every interpolated value is escaped as text.
///
///     let name = "<b>"
///     let item: HTML = "<li>\(name)</li>"    // <li>&lt;b&gt;</li>
///
/// Attributes must be in double quotes, so that a value can end neither the attribute nor the element.
package struct HTML: Sendable, ExpressibleByStringInterpolation {
    package private(set) var text: String

    /// Only for literals, which the compiler passes. Any other string would become markup without being escaped.
    package init(stringLiteral literal: String) { text = literal }

    package init(stringInterpolation: StringInterpolation) { text = stringInterpolation.text }

    package init() { text = "" }

    package init(_ parts: some Sequence<HTML>) {
        self.init()
        for part in parts { text += part.text }
    }

    package static func += (left: inout HTML, right: HTML) { left.text += right.text }

    package var isEmpty: Bool { text.isEmpty }

    /// The markup without its tags.
    var words: HTML {
        var words = HTML()
        var isElement = false
        for character in text {
            switch character {
            case "<": isElement = true
            case ">": isElement = false
            default: if !isElement { words.text.append(character) }
            }
        }
        return words
    }

    package struct StringInterpolation: StringInterpolationProtocol {
        fileprivate var text = ""
        /// True within a `textarea`, whose text a form sends back.
        private var isInTextArea = false
        /// True if a form sends the next value back.
        private var isReadBack: Bool { isInTextArea || text.hasSuffix(" value=\"") }

        package init(literalCapacity: Int, interpolationCount: Int) {
            text.reserveCapacity(literalCapacity + 16 * interpolationCount)
        }

        package mutating func appendLiteral(_ literal: String) {
            text += literal
            if literal.contains("</textarea") {
                isInTextArea = false
            } else if literal.contains("<textarea") {
                isInTextArea = true
            }
        }

        /// Appends escaped text.
        package mutating func appendInterpolation(_ value: some StringProtocol) {
            HTML.escape(String(value), isReadBack: isReadBack, into: &text)
        }

        /// Appends escaped text; nothing for `nil`.
        package mutating func appendInterpolation(_ value: String?) {
            if let value { HTML.escape(value, isReadBack: isReadBack, into: &text) }
        }

        package mutating func appendInterpolation(_ value: some BinaryInteger) { text += "\(value)" }

        /// Appends markup; nothing for `nil`.
        package mutating func appendInterpolation(_ value: HTML?) {
            if let value { text += value.text }
        }

        /// Appends several pieces of markup.
        package mutating func appendInterpolation(_ values: some Sequence<HTML>) {
            for value in values { text += value.text }
        }

        /// Appends markup on a condition, such as `\(if: isOn, " checked")`.
        package mutating func appendInterpolation(if condition: Bool, _ value: @autoclosure () -> HTML) {
            if condition { text += value().text }
        }
    }

    /// Escapes the special characters of markup. Control characters and characters that change the text direction could make a text look
    /// like another, so they are shown as their code points. In a value that a form sends back, they stay as they are.
    private static func escape(_ value: String, isReadBack: Bool, into text: inout String) {
        for scalar in value.unicodeScalars {
            switch scalar {
            case "&": text += "&amp;"
            case "<": text += "&lt;"
            case ">": text += "&gt;"
            case "\"": text += "&quot;"
            case "'": text += "&#39;"
            case "\n", "\t": text.unicodeScalars.append(scalar)
            case "\r" where isReadBack: text += "&#13;"
            case _ where isReadBack && scalar.value > 0: text.unicodeScalars.append(scalar)
            case _ where scalar.isUnprintable:
                text += "\u{27E8}U+\(scalar.value.digits(4, radix: 16, uppercase: true))\u{27E9}"
            default: text.unicodeScalars.append(scalar)
            }
        }
    }
}

extension Sequence where Element == HTML {
    package func joined(separator: HTML) -> HTML {
        var joined = HTML()
        for (index, part) in enumerated() {
            if index > 0 { joined += separator }
            joined += part
        }
        return joined
    }
}
