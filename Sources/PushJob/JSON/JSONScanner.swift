/// Goes over a JSON text (RFC 8259) and says whether it is one, without making anything of it.
///
/// A job's payload goes to Apple byte for byte, so it is only looked at: nothing is decoded, and nothing is allocated.
/// The scanner steps over whole values (``skipValue()``) or, for those who look for something, into objects and arrays.
///
/// Stricter than the RFC demands, for the sake of the parsers behind us: no byte order mark, no nesting beyond
/// ``maximumDepth``, and every surrogate written as an escape must be half of a pair.
public struct JSONScanner {
    /// How many arrays and objects may be inside each other.
    public static let maximumDepth = 64

    package let bytes: UnsafeRawBufferPointer
    package let end: Int

    /// Where the scanner stands, counted from the start of the bytes it was given.
    public internal(set) var offset: Int

    /// How many arrays and objects the caller has gone into.
    private(set) var depth = 0

    /// - Parameter bytes: the text; it must outlive the scanner.
    public init(_ bytes: UnsafeRawBufferPointer) {
        self.init(bytes, in: 0..<bytes.count)
    }

    /// Looks at a part only; offsets stay those of the whole.
    package init(_ bytes: UnsafeRawBufferPointer, in range: Range<Int>) {
        self.bytes = bytes
        offset = range.lowerBound
        end = range.upperBound
    }

    /// Checks that the bytes are one JSON value with nothing but white space around it.
    /// - Parameter bytes: the whole text.
    /// - Throws: ``JSONError`` at the first byte that does not fit.
    public static func validate(_ bytes: UnsafeRawBufferPointer) throws(JSONError) {
        var scanner = JSONScanner(bytes)
        try scanner.skipDocument()
    }

    /// Steps over one value and the white space around it, after which the text must end.
    /// - Throws: ``JSONError`` at the first byte that does not fit.
    public mutating func skipDocument() throws(JSONError) {
        try begin()
        try skipValue()
        try finish()
    }

    /// Goes to the first byte of the document's value.
    package mutating func begin() throws(JSONError) {
        if end &- offset >= 3, bytes[offset] == 0xEF, bytes[offset &+ 1] == 0xBB, bytes[offset &+ 2] == 0xBF {
            throw error(.byteOrderMark)
        }
        skipWhitespace()
    }

    /// Makes sure that nothing follows the document's value.
    package mutating func finish() throws(JSONError) {
        skipWhitespace()
        if offset < end { throw error(.trailingBytes) }
    }

    /// The byte where the scanner stands, or nil at the end.
    @inline(__always)
    package var next: UInt8? { offset < end ? bytes[offset] : nil }

    @inline(__always)
    package func error(_ kind: JSONError.Kind) -> JSONError { JSONError(kind: kind, offset: offset) }

    /// Steps over spaces, tabs and line ends.
    @inline(__always)
    public mutating func skipWhitespace() {
        while offset < end {
            let byte = bytes[offset]
            if byte > 0x20 { return }
            guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
            offset &+= 1
        }
    }

    /// Steps over one value of any kind, from its first byte to behind its last.
    /// - Throws: ``JSONError`` at the first byte that does not fit.
    public mutating func skipValue() throws(JSONError) {
        // Which of the open brackets are objects' is one bit each: no recursion and no stack to run out of.
        var objects: UInt64 = 0
        let outermost = depth

        value: while true {
            guard offset < end else { throw error(.unexpectedEnd) }
            switch bytes[offset] {
            case UInt8(ascii: "\""):
                _ = try string()
            case UInt8(ascii: "{"):
                if try enterObject() {
                    objects = objects &<< 1 | 1
                    _ = try name()
                    continue value
                }
            case UInt8(ascii: "["):
                if try enterArray() {
                    objects = objects &<< 1
                    continue value
                }
            case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"):
                try skipNumber()
            default:
                try skipLiteral()
            }
            while depth > outermost {
                if objects & 1 == 1 {
                    if try nextMember() {
                        _ = try name()
                        continue value
                    }
                } else if try nextElement() {
                    continue value
                }
                objects &>>= 1
            }
            return
        }
    }

    /// Steps over a value that is to be put further down into another document, where it must not be too deep either.
    package mutating func skipValue(levelsDown levels: Int) throws(JSONError) {
        depth += levels
        try skipValue()
        depth -= levels
    }

    /// Steps over `true`, `false` or `null`.
    package mutating func skipLiteral() throws(JSONError) {
        guard offset < end else { throw error(.unexpectedEnd) }
        switch bytes[offset] {
        case UInt8(ascii: "t"): try skip("true")
        case UInt8(ascii: "f"): try skip("false")
        case UInt8(ascii: "n"): try skip("null")
        case 0xEF where end &- offset >= 3 && bytes[offset &+ 1] == 0xBB && bytes[offset &+ 2] == 0xBF:
            throw error(.byteOrderMark)
        default: throw error(.expectedValue)
        }
    }

    private mutating func skip(_ word: StaticString) throws(JSONError) {
        for index in 0..<word.utf8CodeUnitCount {
            guard offset &+ index < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
            guard bytes[offset &+ index] == word.utf8Start[index] else { throw error(.invalidLiteral) }
        }
        offset &+= word.utf8CodeUnitCount
    }
}

// Going into objects and arrays. The loop is always
//     var more = try scanner.enterObject()
//     while more { name, value; more = try scanner.nextMember() }
extension JSONScanner {
    /// From `{` into the object.
    /// - Returns: true at the first member's name; false behind the brace of an object without members.
    package mutating func enterObject() throws(JSONError) -> Bool { try enter(closing: UInt8(ascii: "}")) }

    /// From `[` into the array.
    /// - Returns: true at the first element; false behind the bracket of an array without elements.
    package mutating func enterArray() throws(JSONError) -> Bool { try enter(closing: UInt8(ascii: "]")) }

    /// From behind a member's value on.
    /// - Returns: true at the next member's name; false behind the closing brace.
    package mutating func nextMember() throws(JSONError) -> Bool { try proceed(closing: UInt8(ascii: "}")) }

    /// From behind an element on.
    /// - Returns: true at the next element; false behind the closing bracket.
    package mutating func nextElement() throws(JSONError) -> Bool { try proceed(closing: UInt8(ascii: "]")) }

    /// Takes a member's name and goes over the colon to its value.
    @inline(__always)
    package mutating func name() throws(JSONError) -> JSONString {
        guard offset < end else { throw error(.unexpectedEnd) }
        guard bytes[offset] == UInt8(ascii: "\"") else { throw error(.expectedName) }
        let name = try string()
        skipWhitespace()
        guard offset < end else { throw error(.unexpectedEnd) }
        guard bytes[offset] == UInt8(ascii: ":") else { throw error(.expectedColon) }
        offset &+= 1
        skipWhitespace()
        return name
    }

    @inline(__always)
    private mutating func enter(closing: UInt8) throws(JSONError) -> Bool {
        guard depth < Self.maximumDepth else { throw error(.tooDeep) }
        offset &+= 1
        skipWhitespace()
        guard offset < end else { throw error(.unexpectedEnd) }
        if bytes[offset] == closing {
            offset &+= 1
            return false
        }
        depth &+= 1
        return true
    }

    @inline(__always)
    private mutating func proceed(closing: UInt8) throws(JSONError) -> Bool {
        skipWhitespace()
        guard offset < end else { throw error(.unexpectedEnd) }
        if bytes[offset] == closing {
            offset &+= 1
            depth &-= 1
            return false
        }
        guard bytes[offset] == UInt8(ascii: ",") else { throw error(.expectedCommaOrEnd) }
        let comma = offset
        offset &+= 1
        skipWhitespace()
        if offset < end, bytes[offset] == closing { throw JSONError(kind: .trailingComma, offset: comma) }
        return true
    }
}

extension JSONScanner {
    /// Steps over a value.
    /// - Returns: the string, if it is one.
    mutating func stringIfAny() throws(JSONError) -> JSONString? {
        guard next == UInt8(ascii: "\"") else {
            try skipValue()
            return nil
        }
        return try string()
    }

    /// Steps over a value.
    /// - Returns: the place of its first element, if it is an array of at least one.
    mutating func firstElement() throws(JSONError) -> Range<Int>? {
        guard next == UInt8(ascii: "[") else {
            try skipValue()
            return nil
        }
        var first: Range<Int>?
        var more = try enterArray()
        while more {
            let start = offset
            try skipValue()
            if first == nil { first = start..<offset }
            more = try nextElement()
        }
        return first
    }
}
