extension Unicode.Scalar {
    /// True if the character could end a line, move a terminal's cursor, or change the direction of text, and so
    /// mislead the reader of a line. Characters that join the parts of emoji or letters are not included.
    package var isUnprintable: Bool {
        switch value {
        case 0..<0x20, 0x7F..<0xA0, 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: true
        default: false
        }
    }
}

extension Unicode.Scalar {
    /// The escape of a character of at most four hex digits, as all unprintable ones are, in JSON: `\u202e`.
    package var jsonEscape: String {
        let digits = String(value, radix: 16)
        return #"\u"# + String(repeating: "0", count: max(0, 4 - digits.count)) + digits
    }
}

extension StringProtocol {
    /// The text without white space around it.
    package var trimmed: String {
        // Not of the generic type, whose views the compiler does not optimize: a producer's request needs this three times.
        var text = Substring(String(self))
        while text.first?.isWhitespace == true { text.removeFirst() }
        while text.last?.isWhitespace == true { text.removeLast() }
        return String(text)
    }

    /// True if each character is a hex digit of ASCII, as for programs; `Character.isHexDigit` also accepts those of
    /// other scripts.
    package var isHexadecimal: Bool { allSatisfy { $0.isASCII && $0.isHexDigit } }

    /// The text without unprintable characters, safe for a terminal or a log line.
    package var printable: String {
        String(String.UnicodeScalarView(unicodeScalars.filter { !$0.isUnprintable }))
    }

    /// Returns the text with unprintable characters replaced, cut off after a number of characters: for untrusted
    /// names, in which removed characters must be visible.
    package func printable(replacing character: Unicode.Scalar, atMost count: Int) -> String {
        String(String.UnicodeScalarView(unicodeScalars.prefix(count).map { $0.isUnprintable ? character : $0 }))
    }
}

extension StringProtocol {
    /// Returns the number of bytes to insert, remove, replace or swap with their neighbour to change one text into the
    /// other.
    package func editDistance(to other: some StringProtocol) -> Int {
        let (one, two) = (Array(utf8), Array(other.utf8))
        var beforeLast: [Int] = []
        var last = Array(0...two.count)
        for (i, byte) in one.enumerated() {
            var row = [i + 1]
            for (j, otherByte) in two.enumerated() {
                var best = Swift.min(last[j + 1] + 1, row[j] + 1, last[j] + (byte == otherByte ? 0 : 1))
                if i > 0, j > 0, byte == two[j - 1], one[i - 1] == otherByte {
                    best = Swift.min(best, beforeLast[j - 1] + 1)
                }
                row.append(best)
            }
            (beforeLast, last) = (last, row)
        }
        return last[two.count]
    }

    /// Returns the name that a mistyped one probably means; `nil` if none is similar enough.
    package func nearest(of names: some Sequence<String>) -> String? {
        let limit = Swift.max(1, utf8.count / 3)
        let own = lowercased()
        return names.map { (name: $0, distance: own.editDistance(to: $0.lowercased())) }
            .filter { $0.distance <= limit }.min { $0.distance < $1.distance }?.name
    }
}

extension Sequence<UInt8> {
    /// The bytes as lower-case hex digits.
    package var hex: String {
        var digits: [UInt8] = []
        digits.reserveCapacity(2 * underestimatedCount)
        func append(_ half: UInt8) {
            digits.append(half < 10 ? UInt8(ascii: "0") + half : UInt8(ascii: "a") - 10 + half)
        }
        for byte in self {
            append(byte >> 4)
            append(byte & 15)
        }
        return String(decoding: digits, as: UTF8.self)
    }
}

extension Int {
    /// The number with commas between groups of three digits, such as `12,345`.
    package var grouped: String {
        var digits = String(magnitude)
        var groups: [String] = []
        while digits.count > 3 {
            groups.insert(String(digits.suffix(3)), at: 0)
            digits.removeLast(3)
        }
        return (self < 0 ? "-" : "") + ([digits] + groups).joined(separator: ",")
    }
}
