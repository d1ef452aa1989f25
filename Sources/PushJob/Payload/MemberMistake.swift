/// A mistake in a member of a job or of its payload: where it is, what was found, and what to write.
///
/// It contains names of members, but never a value: payloads and tokens must not reach a log.
public struct MemberMistake: Equatable, Sendable, CustomStringConvertible {
    public enum Kind: String, Sendable, CaseIterable {
        /// A value of the wrong type, or out of range.
        case value
        /// A member that Apple does not document in this place.
        case unknown
        /// A member that occurs more than once.
        case `repeat`
        /// A payload without `aps`.
        case noAPS
    }

    public let kind: Kind
    /// The member, with the members that it is in: `aps.alert.title`.
    public let path: String
    /// The number of bytes before the member's value, from the start of the text that was read.
    public internal(set) var offset: Int
    /// The rest of a sentence that begins with the path: "must be a string, not a number".
    public internal(set) var sentence: String

    public var description: String { "`\(path)` \(sentence)" }

    /// Describes an invalid value by the expectation and, if it is not obvious, by the kind of value that was found.
    /// - Parameter kinds: the kinds of values that can be valid.
    static func value(
        _ path: String, _ expectation: String, kinds: Set<JSONKind>, _ scanner: JSONScanner
    ) -> MemberMistake {
        let found = Self.found(scanner, kinds, isInteger: expectation.contains("integer")).map { ", not \($0)" } ?? ""
        return MemberMistake(
            kind: .value, path: path, offset: scanner.offset,
            sentence: "must be \(expectation)\(found)\(advice(scanner, kinds))")
    }

    /// Returns a description of the value at the scanner's position; `nil` if it would add nothing to the expectation.
    private static func found(_ scanner: JSONScanner, _ kinds: Set<JSONKind>, isInteger: Bool) -> String? {
        var scanner = scanner
        switch JSONKind(first: scanner.next) {
        case .text:
            let isEmpty = (try? scanner.string())?.range.isEmpty ?? false
            return isEmpty ? "an empty string" : kinds.contains(.text) ? nil : "a string"
        case .number:
            guard kinds.contains(.number) else { return "a number" }
            guard let number = try? scanner.number() else { return nil }
            if number.first == UInt8(ascii: "-") { return "a negative number" }
            return isInteger && number.contains(UInt8(ascii: ".")) ? "a fraction" : nil
        case .truth: return scanner.next == UInt8(ascii: "t") ? "true" : "false"
        case .null: return "null"
        case .array: return "an array"
        case .object: return "an object"
        case nil: return nil
        }
    }

    /// Returns advice about typical mistakes of encoders, as the end of a sentence.
    private static func advice(_ scanner: JSONScanner, _ kinds: Set<JSONKind>) -> String {
        var scanner = scanner
        guard JSONKind(first: scanner.next) == .text, let text = try? scanner.string(), !text.range.isEmpty else {
            return ""
        }
        return JSONText.withCharacters(of: text, in: scanner.bytes) { text in
            if kinds.contains(.number), text.allSatisfy({ $0 &- UInt8(ascii: "0") < 10 }) {
                return "; write the number without quotation marks"
            }
            let isBracketed =
                text[0] == UInt8(ascii: "{") && kinds.contains(.object)
                || text[0] == UInt8(ascii: "[") && kinds.contains(.array)
            return isBracketed && !kinds.contains(.text) ? "; it was encoded twice" : ""
        }
    }

    static func unknown(
        _ name: JSONString, in path: String, among known: MemberName.Known, _ scanner: JSONScanner
    ) -> MemberMistake {
        let text = JSONText.string(name, in: scanner.bytes)
        let meant = MemberName.nearest(to: text, among: known).map { "; did you mean `\($0)`?" }
        return MemberMistake(
            kind: .unknown, path: path, offset: scanner.offset,
            sentence: "has \(MemberName.quoted(text)), which Apple does not define there"
                + (meant ?? (path == "aps" ? "; put data of the app beside `aps`" : "")))
    }

    static func repeated(_ name: JSONString, in path: String, _ scanner: JSONScanner) -> MemberMistake {
        let text = JSONText.string(name, in: scanner.bytes)
        return MemberMistake(
            kind: .repeat, path: path, offset: scanner.offset,
            sentence:
                "has \(MemberName.quoted(text)) more than once; keep one, because readers differ in which one they use")
    }
}
