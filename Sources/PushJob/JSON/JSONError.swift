/// Where and how a text is not JSON as RFC 8259 has it.
///
/// It holds a kind and an offset only, never a piece of the text: a job's content must not reach a log.
public struct JSONError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The problem.
    public enum Kind: UInt8, Sendable {
        /// The text ends before its value does.
        case unexpectedEnd
        /// A value was due, and no value starts with this byte.
        case expectedValue
        /// A member's name in quotes was due.
        case expectedName
        /// The colon after a member's name is missing.
        case expectedColon
        /// After a value in an object or array, neither a comma nor the closing bracket.
        case expectedCommaOrEnd
        /// A comma with nothing behind it but the closing bracket.
        case trailingComma
        /// A control character in a string that is not escaped.
        case controlCharacter
        /// A backslash with something behind it that is no escape.
        case invalidEscape
        /// Half of a UTF-16 surrogate pair, escaped, without the other half.
        case loneSurrogate
        /// Bytes in a string that are not UTF-8.
        case invalidUTF8
        /// A number that RFC 8259 does not allow, for example with a leading zero.
        case invalidNumber
        /// Something like `true`, `false` or `null`, but none of them.
        case invalidLiteral
        /// More than ``JSONScanner/maximumDepth`` arrays and objects inside each other.
        case tooDeep
        /// Something other than white space behind the value.
        case trailingBytes
        /// The text starts with a byte order mark.
        case byteOrderMark
    }

    /// The problem.
    public let kind: Kind
    /// How many bytes stand before the place where it is wrong.
    public let offset: Int

    /// The problem, its byte, and what was expected there.
    public var description: String { "\(problem) at byte \(offset)" }

    private var problem: String {
        switch kind {
        case .unexpectedEnd: "the text ends in the middle of a value"
        case .expectedValue: "a value was expected"
        case .expectedName: "a member's name in double quotes was expected"
        case .expectedColon: "a colon was expected after the member's name"
        case .expectedCommaOrEnd: "a comma or the closing bracket was expected"
        case .trailingComma: "there is a comma before a closing bracket"
        case .controlCharacter: "a string has a control character that is not escaped"
        case .invalidEscape: "a string has a backslash that starts no escape sequence"
        case .loneSurrogate: "a string has an escaped surrogate without its other half"
        case .invalidUTF8: "a string is not UTF-8"
        case .invalidNumber: "a number is not written as JSON requires"
        case .invalidLiteral: "a word other than true, false and null was found"
        case .tooDeep: "more than \(JSONScanner.maximumDepth) nested arrays and objects"
        case .trailingBytes: "something follows the end of the value"
        case .byteOrderMark: "a byte order mark was found, which JSON does not allow"
        }
    }
}
