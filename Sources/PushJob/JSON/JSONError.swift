/// The first error in a JSON text (RFC 8259).
///
/// It holds only a kind and an offset, never a piece of the text: a job's content must not reach a log.
public struct JSONError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The problem.
    public enum Kind: UInt8, Sendable {
        /// The text ends before its value does.
        case unexpectedEnd
        /// A value was expected, and no value begins with this byte.
        case expectedValue
        /// A member's name in quotes was expected.
        case expectedName
        /// The colon after a member's name is missing.
        case expectedColon
        /// A value in an object or array is followed by neither a comma nor the closing bracket.
        case expectedCommaOrEnd
        /// A comma is followed by the closing bracket.
        case trailingComma
        /// A control character in a string is not escaped.
        case controlCharacter
        /// A backslash does not begin an escape sequence.
        case invalidEscape
        /// An escaped half of a UTF-16 surrogate pair lacks the other half.
        case loneSurrogate
        /// A string is not UTF-8.
        case invalidUTF8
        /// A number has a form that RFC 8259 does not allow, for example a leading zero.
        case invalidNumber
        /// A word is not `true`, `false` or `null`.
        case invalidLiteral
        /// There are more than ``JSONScanner/maximumDepth`` nested arrays and objects.
        case tooDeep
        /// The value is followed by something other than white space.
        case trailingBytes
        /// The text starts with a byte order mark.
        case byteOrderMark
    }

    /// The problem.
    public let kind: Kind
    /// The number of bytes before the error.
    public let offset: Int

    /// The problem and its offset.
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
