/// The first error in a JSON text (RFC 8259).
///
/// It holds only a kind and an offset, never a piece of the text: a job's content must not reach a log.
public struct JSONError: Error, Equatable, Sendable, CustomStringConvertible {
    public enum Kind: String, Sendable {
        case unexpectedEnd = "the text ends in the middle of a value"
        case expectedValue = "a value was expected"
        case expectedName = "a member's name in double quotes was expected"
        case expectedColon = "a colon was expected after the member's name"
        case expectedCommaOrEnd = "a comma or the closing bracket was expected"
        case trailingComma = "there is a comma before a closing bracket"
        case controlCharacter = "a string has a control character that is not escaped"
        case invalidEscape = "a string has a backslash that starts no escape sequence"
        case loneSurrogate = "a string has an escaped surrogate without its other half"
        case invalidUTF8 = "a string is not UTF-8"
        case invalidNumber = "a number is not written as JSON requires"
        case invalidLiteral = "a word other than true, false and null was found"
        /// Beyond ``JSONScanner/maximumDepth``.
        case tooDeep = "more than 64 nested arrays and objects"
        case trailingBytes = "something follows the end of the value"
        case byteOrderMark = "a byte order mark was found, which JSON does not allow"
    }

    public let kind: Kind
    /// The number of bytes before the error.
    public let offset: Int

    public var description: String { "\(kind.rawValue) at byte \(offset)" }
}
