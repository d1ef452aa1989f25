import Glibc

/// A string in a JSON text: its range without the quotes, and whether it has escapes that must be decoded.
package struct JSONString {
    package var range: Range<Int>
    package var hasEscapes: Bool
}

/// Reads the characters of strings that the scanner has validated.
package enum JSONText {
    /// Returns the value of a hex digit in either case.
    @inline(__always)
    package static func hexValue(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte &- UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte &- UInt8(ascii: "a") &+ 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte &- UInt8(ascii: "A") &+ 10
        default: nil
        }
    }

    /// Passes a string's characters to a closure: the bytes in place or, if there are escapes, decoded on the stack.
    @inline(__always)
    package static func withCharacters<Result>(
        of string: JSONString, in bytes: UnsafeRawBufferPointer, _ body: (UnsafeRawBufferPointer) -> Result
    ) -> Result {
        let raw = UnsafeRawBufferPointer(rebasing: bytes[string.range])
        guard string.hasEscapes else { return body(raw) }
        return withUnsafeTemporaryAllocation(byteCount: raw.count, alignment: 1) { buffer in
            let count = unescape(raw, into: buffer)
            return body(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
        }
    }

    /// Returns a string's characters.
    static func string(_ string: JSONString, in bytes: UnsafeRawBufferPointer) -> String {
        withCharacters(of: string, in: bytes) { String(decoding: $0, as: UTF8.self) }
    }

    /// Decodes a string's escapes.
    /// - Parameters:
    ///   - raw: the bytes between the quotes. The scanner has validated them, so every escape is complete.
    ///   - target: a buffer of at least the length of `raw`; decoding never makes a string longer.
    /// - Returns: the number of bytes that were written.
    package static func unescape(_ raw: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer) -> Int {
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

    /// Returns the offset in a string as written that corresponds to a number of bytes of its characters, which must
    /// end at the end of a scalar.
    package static func offset(in raw: UnsafeRawBufferPointer, after count: Int, from start: Int) -> Int {
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

extension UnsafeRawBufferPointer {
    /// Returns true if the bytes are those of a literal, which must not be empty.
    @inline(__always)
    package func isEqual(to literal: StaticString) -> Bool {
        guard count == literal.utf8CodeUnitCount, let baseAddress else { return false }
        return memcmp(baseAddress, literal.utf8Start, literal.utf8CodeUnitCount) == 0
    }

    /// A hash of a name: of its length, its first and its last eight bytes. The same in every process.
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

    /// Returns the offset of the next occurrence of a byte; nil if there is none.
    package func firstOffset(of byte: UInt8, from start: Int) -> Int? {
        guard let baseAddress, start < count,
            let found = memchr(baseAddress + start, Int32(byte), count - start)
        else { return nil }
        return UnsafeRawPointer(found) - baseAddress
    }
}
