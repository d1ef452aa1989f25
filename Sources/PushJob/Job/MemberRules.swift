/// The rules for the values of a job's members. Escapes are decoded before characters are checked.
enum MemberRules {
    /// Returns true for names that are safe in logs and keys: 1 to 255 bytes, no control characters.
    @inline(__always)
    static func isIdentifier(
        _ string: JSONString, in bytes: UnsafeRawBufferPointer, atMost limit: Int = 255
    ) -> Bool {
        check(string, in: bytes, atMost: limit) { text in
            var previous: UInt8 = 0
            var isGood = true
            for byte in text {
                // U+0080 to U+009F are control characters too; in UTF-8 they are C2 80 to C2 9F.
                if byte < 0x20 || byte == 0x7F || (previous == 0xC2 && byte < 0xA0) { isGood = false }
                previous = byte
            }
            return isGood
        }
    }

    /// Returns true for the value of a header: printable ASCII without spaces.
    @inline(__always)
    static func isHeaderValue(_ string: JSONString, in bytes: UnsafeRawBufferPointer) -> Bool {
        check(string, in: bytes, atMost: 255) { text in
            var isGood = true
            for byte in text where byte &- 0x21 > 0x7E - 0x21 { isGood = false }
            return isGood
        }
    }

    /// Returns true for a collapse id. It can have spaces, but not at its ends: HTTP drops spaces there, so two ids could become one.
    @inline(__always)
    static func isCollapseID(_ string: JSONString, in bytes: UnsafeRawBufferPointer) -> Bool {
        check(string, in: bytes, atMost: 64) { text in
            var isGood = text[0] != 0x20 && text[text.count &- 1] != 0x20
            for byte in text where byte &- 0x20 > 0x7E - 0x20 { isGood = false }
            return isGood
        }
    }

    /// Returns true for a broadcast channel's id: base64 in either alphabet. Apple may change the length of ids, but a header has a maximum
    /// length.
    static func isChannelID(_ text: UnsafeRawBufferPointer) -> Bool {
        (1...255).contains(text.count)
            && text.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "/"), UInt8(ascii: "="),
                    UInt8(ascii: "-"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }

    /// Returns true for a UUID of 8-4-4-4-12 hex digits.
    @inline(__always)
    static func isUUID(_ string: JSONString, in bytes: UnsafeRawBufferPointer) -> Bool {
        check(string, in: bytes, atMost: 36) { text in
            guard text.count == 36 else { return false }
            for (index, byte) in text.enumerated() {
                switch index {
                case 8, 13, 18, 23:
                    if byte != UInt8(ascii: "-") { return false }
                default:
                    if JSONText.hexValue(byte) == nil { return false }
                }
            }
            return true
        }
    }

    @inline(__always)
    private static func check(
        _ string: JSONString, in bytes: UnsafeRawBufferPointer, atMost limit: Int,
        _ rule: (UnsafeRawBufferPointer) -> Bool
    ) -> Bool {
        // An escape is at most six times as long as its character: longer strings need not be decoded.
        guard !string.range.isEmpty, string.range.count <= (string.hasEscapes ? limit * 6 : limit) else { return false }
        return JSONText.withCharacters(of: string, in: bytes) { text in
            text.count <= limit && rule(text)
        }
    }
}
