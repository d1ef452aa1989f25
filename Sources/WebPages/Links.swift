/// The paths of a site's pages. A proxy can serve the site under a base path.
package struct Links: Sendable {
    /// The base path, without a trailing slash; empty for none.
    package let base: String

    package init(base: String = "") { self.base = base }

    /// Returns the path of a page.
    /// - Parameters:
    ///   - segments: the parts between the slashes, which are encoded here, because a queue's name can contain any
    ///     character.
    ///   - query: names and values; a `nil` value omits the name.
    package func path(_ segments: [String], _ query: [(name: String, value: String?)] = []) -> String {
        var path = base + "/" + segments.map { Self.encoded(Self.escaped($0)) }.joined(separator: "/")
        var separator = "?"
        for (name, value) in query {
            guard let value else { continue }
            path += "\(separator)\(Self.encoded(name))=\(Self.encoded(value))"
            separator = "&"
        }
        return path
    }

    /// Returns a segment that browsers do not resolve. They remove `.` and `..`, even if percent-encoded.
    private static func escaped(_ segment: String) -> String {
        segment == "." || segment == ".." || segment.hasPrefix("~") ? "~" + segment : segment
    }

    /// Reverses ``escaped(_:)`` in a segment that was percent-decoded.
    package static func unescaped(_ segment: String) -> String {
        segment.hasPrefix("~") ? String(segment.dropFirst()) : segment
    }

    /// Percent-encodes everything except the unreserved characters of RFC 3986, section 2.3.
    static func encoded(_ text: String) -> String {
        var encoded = ""
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "~"):
                encoded.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                encoded += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
            }
        }
        return encoded
    }
}
