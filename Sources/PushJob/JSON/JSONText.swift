import Glibc

/// The range of a string in a JSON text, without its quotes. It must be decoded if it has escapes.
public struct JSONString {
    public var range: Range<Int>
    public var hasEscapes: Bool
}

/// Validates the strings of a JSON text, and reads the characters of valid ones.
public enum JSONText {
    /// Returns the value of a hex digit in either case.
    @inline(__always)
    public static func hexValue(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte &- UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte &- UInt8(ascii: "a") &+ 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte &- UInt8(ascii: "A") &+ 10
        default: nil
        }
    }

    // MARK: Validating

    /// Validates a string.
    /// - Parameters:
    ///   - quote: the offset of its opening quote.
    ///   - end: the end of the text, which may be before the end of the bytes.
    @inline(__always)
    static func scan(
        _ bytes: UnsafeRawBufferPointer, from quote: Int, to end: Int
    ) throws(JSONError) -> JSONString {
        let start = quote &+ 1
        var at = start
        var hasEscapes = false
        while true {
            // Reads eight bytes at a time until one needs a closer look: a quote, a backslash, a control character or a
            // byte beyond ASCII. Payloads are mostly runs without any of these.
            while at &+ 8 <= end {
                let word = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
                let special = Self.special(in: word)
                if special != 0 {
                    at &+= special.trailingZeroBitCount &>> 3
                    break
                }
                at &+= 8
            }
            guard at < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
            let byte = bytes[at]
            if byte == UInt8(ascii: "\"") {
                return JSONString(range: Range(uncheckedBounds: (start, at)), hasEscapes: hasEscapes)
            }
            if byte >= 0x80 {
                at = try endOfNonASCII(at, in: bytes, to: end)
            } else if byte == UInt8(ascii: "\\") {
                hasEscapes = true
                at = try endOfEscape(at, in: bytes, to: end)
            } else if byte < 0x20 {
                throw JSONError(kind: .controlCharacter, offset: at)
            } else {
                at &+= 1
            }
        }
    }

    /// Finds the first byte that is a quote, a backslash, a control character or not ASCII. The lowest bit that is set in the
    /// result is the top bit of this byte. The result is 0 if there is no such byte. Higher bits may be wrong, because subtraction borrows.
    @inline(__always)
    private static func special(in word: UInt64) -> UInt64 {
        let ones: UInt64 = 0x0101_0101_0101_0101
        let quotes = (word ^ (ones &* 0x22)) &- ones
        let backslashes = (word ^ (ones &* 0x5C)) &- ones
        let controls = word &- (ones &* 0x20)
        return (quotes | backslashes | controls | word) & (ones &* 0x80)
    }

    /// Checks the escape sequence that starts at `start`; a surrogate pair is one sequence.
    private static func endOfEscape(
        _ start: Int, in bytes: UnsafeRawBufferPointer, to end: Int
    ) throws(JSONError) -> Int {
        guard start &+ 1 < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
        switch bytes[start &+ 1] {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
            UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
            return start &+ 2
        case UInt8(ascii: "u"):
            let unit = try escapedUnit(start, in: bytes, to: end)
            guard unit & 0xF800 == 0xD800 else { return start &+ 6 }
            guard unit < 0xDC00 else { throw JSONError(kind: .loneSurrogate, offset: start) }
            let second = start &+ 6
            guard second < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
            guard bytes[second] == UInt8(ascii: "\\") else { throw JSONError(kind: .loneSurrogate, offset: start) }
            guard second &+ 1 < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
            guard bytes[second &+ 1] == UInt8(ascii: "u"),
                try escapedUnit(second, in: bytes, to: end) & 0xFC00 == 0xDC00
            else {
                throw JSONError(kind: .loneSurrogate, offset: start)
            }
            return second &+ 6
        default:
            throw JSONError(kind: .invalidEscape, offset: start)
        }
    }

    /// Returns the value of the four hex digits of the `\u` at `start`.
    private static func escapedUnit(
        _ start: Int, in bytes: UnsafeRawBufferPointer, to end: Int
    ) throws(JSONError) -> UInt16 {
        var unit: UInt16 = 0
        for index in (start &+ 2)..<(start &+ 6) {
            guard index < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
            guard let digit = hexValue(bytes[index]) else {
                throw JSONError(kind: .invalidEscape, offset: start)
            }
            unit = unit &<< 4 | UInt16(digit)
        }
        return unit
    }

    /// Checks that the run of bytes beyond ASCII that starts at `start` is UTF-8.
    ///
    /// The ranges of the second byte exclude overlong forms, surrogates and values beyond U+10FFFF (the Unicode standard, table 3-7).
    private static func endOfNonASCII(
        _ start: Int, in bytes: UnsafeRawBufferPointer, to end: Int
    ) throws(JSONError) -> Int {
        var at = start
        while at < end, bytes[at] >= 0x80 {
            let second: ClosedRange<UInt8>
            let length: Int
            switch bytes[at] {
            case 0xC2...0xDF: (length, second) = (2, 0x80...0xBF)
            case 0xE0: (length, second) = (3, 0xA0...0xBF)
            case 0xE1...0xEC, 0xEE...0xEF: (length, second) = (3, 0x80...0xBF)
            case 0xED: (length, second) = (3, 0x80...0x9F)
            case 0xF0: (length, second) = (4, 0x90...0xBF)
            case 0xF1...0xF3: (length, second) = (4, 0x80...0xBF)
            case 0xF4: (length, second) = (4, 0x80...0x8F)
            default: throw JSONError(kind: .invalidUTF8, offset: at)
            }
            guard at &+ 1 < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
            guard second.contains(bytes[at &+ 1]) else { throw JSONError(kind: .invalidUTF8, offset: at) }
            var index = at &+ 2
            while index < at &+ length {
                guard index < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
                guard bytes[index] & 0xC0 == 0x80 else { throw JSONError(kind: .invalidUTF8, offset: at) }
                index &+= 1
            }
            at = index
        }
        return at
    }

    // MARK: Reading

    /// Passes a string's characters to a closure: the bytes in place or, if there are escapes, decoded on the stack.
    @inline(__always)
    public static func withCharacters<Result>(
        of string: JSONString, in bytes: UnsafeRawBufferPointer, _ body: (UnsafeRawBufferPointer) -> Result
    ) -> Result {
        let raw = UnsafeRawBufferPointer(rebasing: bytes[string.range])
        guard string.hasEscapes else { return body(raw) }
        return withUnsafeTemporaryAllocation(byteCount: raw.count, alignment: 1) { buffer in
            let count = unescape(raw, into: buffer)
            return body(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
        }
    }

    /// Returns a string with its escapes decoded.
    static func string(_ string: JSONString, in bytes: UnsafeRawBufferPointer) -> String {
        withCharacters(of: string, in: bytes) { String(decoding: $0, as: UTF8.self) }
    }

    /// Decodes a string's escapes.
    /// - Parameters:
    ///   - raw: the bytes between the quotes. The scanner has validated them, so every escape is complete.
    ///   - target: a buffer of at least the length of `raw`; decoding never makes a string longer.
    /// - Returns: the number of bytes that were written.
    public static func unescape(_ raw: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer) -> Int {
        var read = 0
        var written = 0
        while read < raw.count {
            let byte = raw[read]
            guard byte == UInt8(ascii: "\\") else {
                target[written] = byte
                read &+= 1
                written &+= 1
                continue
            }
            let escape = raw[read &+ 1]
            if escape == UInt8(ascii: "u") {
                var scalar = codeUnit(raw, at: read &+ 2)
                read &+= 6
                if scalar & 0xFC00 == 0xD800 {
                    scalar = 0x10000 &+ (scalar &- 0xD800) &<< 10 &+ (codeUnit(raw, at: read &+ 2) &- 0xDC00)
                    read &+= 6
                }
                written &+= encode(scalar, into: target, at: written)
            } else {
                target[written] = character(ofEscape: escape)
                read &+= 2
                written &+= 1
            }
        }
        return written
    }

    /// Converts a number of decoded bytes to an offset in the string as it is written.
    /// - Parameter count: the number of decoded bytes after `start`. They must end with a whole Unicode scalar.
    public static func offset(in raw: UnsafeRawBufferPointer, after count: Int, from start: Int) -> Int {
        var offset = start
        var rest = count
        while rest > 0, offset < raw.count {
            guard raw[offset] == UInt8(ascii: "\\") else {
                offset &+= 1
                rest &-= 1
                continue
            }
            guard raw[offset &+ 1] == UInt8(ascii: "u") else {
                offset &+= 2
                rest &-= 1
                continue
            }
            let unit = codeUnit(raw, at: offset &+ 2)
            let isPair = unit & 0xFC00 == 0xD800
            offset &+= isPair ? 12 : 6
            rest &-= isPair ? 4 : unit < 0x80 ? 1 : unit < 0x800 ? 2 : 3
        }
        return offset
    }

    private static func character(ofEscape escape: UInt8) -> UInt8 {
        switch escape {
        case UInt8(ascii: "b"): 0x08
        case UInt8(ascii: "f"): 0x0C
        case UInt8(ascii: "n"): 0x0A
        case UInt8(ascii: "r"): 0x0D
        case UInt8(ascii: "t"): 0x09
        default: escape
        }
    }

    private static func codeUnit(_ raw: UnsafeRawBufferPointer, at start: Int) -> UInt32 {
        var unit: UInt32 = 0
        for index in start..<(start &+ 4) { unit = unit &<< 4 | UInt32(hexValue(raw[index]) ?? 0) }
        return unit
    }

    private static func encode(
        _ scalar: UInt32, into target: UnsafeMutableRawBufferPointer, at index: Int
    ) -> Int {
        func continuation(_ shift: UInt32) -> UInt8 { UInt8(0x80 | (scalar &>> shift) & 0x3F) }
        switch scalar {
        case ..<0x80:
            target[index] = UInt8(scalar)
            return 1
        case ..<0x800:
            target[index] = UInt8(0xC0 | scalar &>> 6)
            target[index &+ 1] = continuation(0)
            return 2
        case ..<0x10000:
            target[index] = UInt8(0xE0 | scalar &>> 12)
            target[index &+ 1] = continuation(6)
            target[index &+ 2] = continuation(0)
            return 3
        default:
            target[index] = UInt8(0xF0 | scalar &>> 18)
            target[index &+ 1] = continuation(12)
            target[index &+ 2] = continuation(6)
            target[index &+ 3] = continuation(0)
            return 4
        }
    }
}

/// Lets a `switch` over the bytes of a name have literals as its cases.
@inline(__always)
func ~= (literal: StaticString, name: UnsafeRawBufferPointer) -> Bool { name.isEqual(to: literal) }

extension UnsafeRawBufferPointer {
    /// Returns true if the bytes are those of a literal, which must not be empty.
    @inline(__always)
    public func isEqual(to literal: StaticString) -> Bool {
        guard count == literal.utf8CodeUnitCount, let baseAddress else { return false }
        return memcmp(baseAddress, literal.utf8Start, literal.utf8CodeUnitCount) == 0
    }

    /// A hash of a name's length and of its first and last eight bytes. It is the same in every process.
    @inline(__always)
    var nameHash: UInt64 {
        let factor: UInt64 = 0x9E37_79B9_7F4A_7C15
        var hash = UInt64(truncatingIfNeeded: count) &* factor
        if count >= 8 {
            hash = (hash ^ loadUnaligned(fromByteOffset: 0, as: UInt64.self)) &* factor
            hash ^= loadUnaligned(fromByteOffset: count &- 8, as: UInt64.self)
        } else if count >= 4 {
            hash ^= UInt64(loadUnaligned(fromByteOffset: 0, as: UInt32.self)) &<< 32
            hash ^= UInt64(loadUnaligned(fromByteOffset: count &- 4, as: UInt32.self))
        } else {
            for byte in self { hash = hash &<< 8 ^ UInt64(byte) }
        }
        hash = hash &* factor
        return (hash ^ hash &>> 32) &* factor
    }
}
