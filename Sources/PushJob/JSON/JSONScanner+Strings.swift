extension JSONScanner {
    /// Steps over a string, from its opening quote to after its closing one.
    package mutating func string() throws(JSONError) -> JSONString {
        let start = offset &+ 1
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
                offset = at &+ 1
                return JSONString(range: Range(uncheckedBounds: (start, at)), hasEscapes: hasEscapes)
            }
            if byte >= 0x80 {
                at = try endOfNonASCII(at)
            } else if byte == UInt8(ascii: "\\") {
                hasEscapes = true
                at = try endOfEscape(at)
            } else if byte < 0x20 {
                throw JSONError(kind: .controlCharacter, offset: at)
            } else {
                at &+= 1
            }
        }
    }

    /// The top bit of the lowest byte that is a quote, a backslash, a control character or not ASCII; zero if none is.
    ///
    /// Each subtraction borrows from the next byte when it finds something, so bits above the lowest may be wrong.
    @inline(__always)
    private static func special(in word: UInt64) -> UInt64 {
        let ones: UInt64 = 0x0101_0101_0101_0101
        let quotes = (word ^ (ones &* 0x22)) &- ones
        let backslashes = (word ^ (ones &* 0x5C)) &- ones
        let controls = word &- (ones &* 0x20)
        return (quotes | backslashes | controls | word) & (ones &* 0x80)
    }

    /// Checks the escape sequence that starts at `start`; a surrogate pair is one sequence.
    private func endOfEscape(_ start: Int) throws(JSONError) -> Int {
        guard start &+ 1 < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
        switch bytes[start &+ 1] {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
            UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
            return start &+ 2
        case UInt8(ascii: "u"):
            let unit = try codeUnit(start)
            guard unit & 0xF800 == 0xD800 else { return start &+ 6 }
            guard unit < 0xDC00 else { throw JSONError(kind: .loneSurrogate, offset: start) }
            let second = start &+ 6
            guard second < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
            guard bytes[second] == UInt8(ascii: "\\") else { throw JSONError(kind: .loneSurrogate, offset: start) }
            guard second &+ 1 < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
            guard bytes[second &+ 1] == UInt8(ascii: "u"), try codeUnit(second) & 0xFC00 == 0xDC00 else {
                throw JSONError(kind: .loneSurrogate, offset: start)
            }
            return second &+ 6
        default:
            throw JSONError(kind: .invalidEscape, offset: start)
        }
    }

    /// Returns the value of the four hex digits of the `\u` at `start`.
    private func codeUnit(_ start: Int) throws(JSONError) -> UInt16 {
        var unit: UInt16 = 0
        for index in (start &+ 2)..<(start &+ 6) {
            guard index < end else { throw JSONError(kind: .unexpectedEnd, offset: end) }
            guard let digit = JSONText.hexValue(bytes[index]) else {
                throw JSONError(kind: .invalidEscape, offset: start)
            }
            unit = unit &<< 4 | UInt16(digit)
        }
        return unit
    }

    /// Checks that the run of bytes beyond ASCII that starts at `start` is UTF-8.
    ///
    /// The ranges of the second byte exclude overlong forms, surrogates and values beyond U+10FFFF (the Unicode
    /// standard, table 3-7).
    private func endOfNonASCII(_ start: Int) throws(JSONError) -> Int {
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
}
