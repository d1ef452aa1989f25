/// Validates a JSON text (RFC 8259) without decoding it.
///
/// A job's payload goes to Apple byte for byte, so nothing is decoded, and nothing is allocated. The scanner steps over whole values
/// (``skipValue()``) or, for callers that search for a member, into objects and arrays.
///
/// Some parsers that read the text later are stricter than the RFC. So the scanner also refuses a byte order mark, nesting beyond
/// ``maximumDepth``, and an escaped surrogate that is not half of a pair.
public struct JSONScanner {
    public static let maximumDepth = 64

    public let bytes: UnsafeRawBufferPointer
    public let end: Int

    /// The position of the scanner, counted from the start of the bytes that it was given.
    public internal(set) var offset: Int

    /// The number of arrays and objects that the caller has entered.
    private(set) var depth = 0

    /// - Parameter bytes: the text; it must outlive the scanner.
    public init(_ bytes: UnsafeRawBufferPointer) {
        self.init(bytes, in: 0..<bytes.count)
    }

    /// Scans only `range`; offsets still count from the start of the bytes.
    public init(_ bytes: UnsafeRawBufferPointer, in range: Range<Int>) {
        self.bytes = bytes
        offset = range.lowerBound
        end = range.upperBound
    }

    /// Checks that the bytes are one JSON value with nothing but white space around it.
    public static func validate(_ bytes: UnsafeRawBufferPointer) throws(JSONError) {
        var scanner = JSONScanner(bytes)
        try scanner.skipDocument()
    }

    /// Steps over the whole text, which must be one value with white space around it.
    public mutating func skipDocument() throws(JSONError) {
        try begin()
        try skipValue()
        try finish()
    }

    /// Moves to the first byte of the document's value.
    public mutating func begin() throws(JSONError) {
        if end &- offset >= 3, bytes[offset] == 0xEF, bytes[offset &+ 1] == 0xBB, bytes[offset &+ 2] == 0xBF {
            throw error(.byteOrderMark)
        }
        skipWhitespace()
    }

    /// Checks that nothing follows the document's value.
    public mutating func finish() throws(JSONError) {
        skipWhitespace()
        if offset < end { throw error(.trailingBytes) }
    }

    /// The byte at the scanner's position, or nil at the end.
    @inline(__always)
    public var next: UInt8? { offset < end ? bytes[offset] : nil }

    @inline(__always)
    public func error(_ kind: JSONError.Kind) -> JSONError { JSONError(kind: kind, offset: offset) }

    @inline(__always)
    public mutating func skipWhitespace() {
        while offset < end {
            let byte = bytes[offset]
            if byte > 0x20 { return }
            guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
            offset &+= 1
        }
    }

    /// Steps over one value of any kind, from its first byte to after its last.
    public mutating func skipValue() throws(JSONError) {
        // One bit per open bracket, 1 for an object: no recursion, and no stack that could overflow.
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

    /// Steps over a value that will be `levels` deeper in another document. ``maximumDepth`` applies to that document.
    public mutating func skipValue(levelsDown levels: Int) throws(JSONError) {
        depth += levels
        try skipValue()
        depth -= levels
    }

    /// Steps over `true`, `false` or `null`.
    public mutating func skipLiteral() throws(JSONError) {
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

// Entering objects and arrays. The loop is always
//     var more = try scanner.enterObject()
//     while more { name, value; more = try scanner.nextMember() }
extension JSONScanner {
    /// Enters the object at `{`.
    /// - Returns: true at the first member's name; false after the brace of an object without members.
    public mutating func enterObject() throws(JSONError) -> Bool { try enter(closing: UInt8(ascii: "}")) }

    /// Enters the array at `[`.
    /// - Returns: true at the first element; false after the bracket of an array without elements.
    public mutating func enterArray() throws(JSONError) -> Bool { try enter(closing: UInt8(ascii: "]")) }

    /// Moves on from the end of a member's value.
    /// - Returns: true at the next member's name; false after the closing brace.
    public mutating func nextMember() throws(JSONError) -> Bool { try proceed(closing: UInt8(ascii: "}")) }

    /// Moves on from the end of an element.
    /// - Returns: true at the next element; false after the closing bracket.
    public mutating func nextElement() throws(JSONError) -> Bool { try proceed(closing: UInt8(ascii: "]")) }

    /// Reads a member's name, and moves past the colon to its value.
    @inline(__always)
    public mutating func name() throws(JSONError) -> JSONString {
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

// Reading values.
extension JSONScanner {
    /// Steps over a string, from its opening quote to after its closing one.
    public mutating func string() throws(JSONError) -> JSONString {
        let string = try JSONText.scan(bytes, from: offset, to: end)
        offset = string.range.upperBound &+ 1
        return string
    }

    public mutating func skipNumber() throws(JSONError) {
        offset = try JSONNumber.scan(bytes, from: offset, to: end)
    }

    /// - Returns: the number's value; nil if there is no number, or it is not an integer or not in the range.
    @inline(__always)
    public mutating func integer(in range: ClosedRange<Int64>) throws(JSONError) -> Int64? {
        guard let number = try number(),
            let value = JSONNumber.value(of: number, decimals: 0, exact: true), range.contains(value)
        else { return nil }
        return value
    }

    @inline(__always)
    mutating func number() throws(JSONError) -> UnsafeRawBufferPointer? {
        guard let first = next, first == UInt8(ascii: "-") || first &- UInt8(ascii: "0") < 10 else { return nil }
        let start = offset
        try skipNumber()
        return UnsafeRawBufferPointer(rebasing: bytes[start..<offset])
    }

    /// Reads a number; nil if there is none, or a `Double` can't hold it.
    mutating func finiteNumber() throws(JSONError) -> Double? {
        guard let number = try number(), let value = Double(String(decoding: number, as: UTF8.self)), value.isFinite
        else { return nil }
        return value
    }

    /// Reads true, false, 1 or 0; nil for any other value.
    mutating func flag() throws(JSONError) -> Bool? {
        switch next {
        case UInt8(ascii: "t"), UInt8(ascii: "f"):
            let isSet = next == UInt8(ascii: "t")
            try skipLiteral()
            return isSet
        default: return try integer(in: 0...1).map { $0 == 1 }
        }
    }

    /// Steps over an empty array, if there is one: PHP writes an empty object in this way.
    mutating func skipEmptyArray() throws(JSONError) -> Bool {
        guard next == UInt8(ascii: "[") else { return false }
        var probe = self
        guard try !probe.enterArray() else { return false }
        self = probe
        return true
    }

    /// Steps over a value.
    /// - Returns: the value, if it is a string.
    mutating func stringIfAny() throws(JSONError) -> JSONString? {
        guard next == UInt8(ascii: "\"") else {
            try skipValue()
            return nil
        }
        return try string()
    }

    /// Steps over a value.
    /// - Returns: the range of its first element, if it is an array with elements.
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

enum JSONKind {
    case text, number, truth, null, array, object

    init?(first byte: UInt8?) {
        guard let byte else { return nil }
        switch byte {
        case UInt8(ascii: "\""): self = .text
        case UInt8(ascii: "t"), UInt8(ascii: "f"): self = .truth
        case UInt8(ascii: "n"): self = .null
        case UInt8(ascii: "["): self = .array
        case UInt8(ascii: "{"): self = .object
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): self = .number
        default: return nil
        }
    }
}
