import Glibc

extension Unicode.Scalar {
    /// True if the character could end a line, move a terminal's cursor, or change the direction of text, and so
    /// mislead the reader of a line. Characters that join the parts of emoji or letters are not included.
    public var isUnprintable: Bool {
        switch value {
        case 0..<0x20, 0x7F..<0xA0, 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: true
        default: false
        }
    }

    /// The character's escape in JSON, such as `\u202e`. The code point must have at most four hex digits, as all unprintable characters
    /// have.
    public var jsonEscape: String {
        #"\u"# + value.digits(4, radix: 16)
    }
}

extension StringProtocol {
    public var trimmed: String {
        // A `String`, because the compiler does not optimize the views of the generic type. A producer's request needs this three times.
        var text = Substring(String(self))
        while text.first?.isWhitespace == true { text.removeFirst() }
        while text.last?.isWhitespace == true { text.removeLast() }
        return String(text)
    }

    /// True if each character is an ASCII hex digit. `Character.isHexDigit` also accepts full-width digits.
    public var isHexadecimal: Bool { allSatisfy { $0.isASCII && $0.isHexDigit } }

    /// The text without unprintable characters, safe for a terminal or a log line.
    public var printable: String {
        String(String.UnicodeScalarView(unicodeScalars.filter { !$0.isUnprintable }))
    }

    /// Returns the first characters of the text, and replaces unprintable characters, so that a reader of an untrusted name notices them.
    public func printable(replacing character: Unicode.Scalar, atMost count: Int) -> String {
        String(String.UnicodeScalarView(unicodeScalars.prefix(count).map { $0.isUnprintable ? character : $0 }))
    }
}

extension StringProtocol {
    /// Returns the name that this mistyped name probably means; `nil` if no name is similar enough.
    public func nearest(of names: some Sequence<String>) -> String? {
        let own = Array(lowercased().utf8)
        // A longer text is not a name, and the time of a comparison grows with its length.
        guard own.count <= 60 else { return nil }
        let limit = Swift.min(Swift.max(1, own.count / 3), 4)
        return names.compactMap { name in
            own.editDistance(to: Array(name.lowercased().utf8), atMost: limit).map { (name: name, distance: $0) }
        }
        .min { $0.distance < $1.distance }?.name
    }
}

extension [UInt8] {
    /// Returns the number of bytes to insert, remove, replace or swap with a neighbour to get the other bytes; `nil` if it is more than
    /// `limit`. The limit should be at most 4, because each further step costs four times as much.
    public func editDistance(to other: [UInt8], atMost limit: Int) -> Int? {
        (0...limit).first { Self.isNear(self[...], other[...], within: $0) }
    }

    private static func isNear(_ one: ArraySlice<UInt8>, _ two: ArraySlice<UInt8>, within limit: Int) -> Bool {
        guard abs(one.count - two.count) <= limit else { return false }
        var (one, two) = (one, two)
        while let byte = one.first, byte == two.first { (one, two) = (one.dropFirst(), two.dropFirst()) }
        if one.isEmpty || two.isEmpty { return true }
        if limit == 0 { return false }
        let (oneRest, twoRest) = (one.dropFirst(), two.dropFirst())
        let isSwapped = one.first == twoRest.first && two.first == oneRest.first
        return isNear(oneRest, twoRest, within: limit - 1) || isNear(oneRest, two, within: limit - 1)
            || isNear(one, twoRest, within: limit - 1)
            || isSwapped && isNear(oneRest.dropFirst(), twoRest.dropFirst(), within: limit - 1)
    }
}

extension Sequence<UInt8> {
    /// The bytes as lower-case hex digits.
    public var hex: String {
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

extension BinaryInteger {
    /// Returns the digits of a number that is not negative, after zeros up to a width.
    public func digits(_ width: Int, radix: Int = 10, uppercase: Bool = false) -> String {
        let digits = String(self, radix: radix, uppercase: uppercase)
        return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }
}

extension Int {
    /// The number with commas between groups of three digits, such as `12,345`.
    public var grouped: String {
        var digits = String(magnitude)
        var groups: [String] = []
        while digits.count > 3 {
            groups.insert(String(digits.suffix(3)), at: 0)
            digits.removeLast(3)
        }
        return (self < 0 ? "-" : "") + ([digits] + groups).joined(separator: ",")
    }
}

extension [String] {
    /// Returns the texts as a list, such as "a, b and c".
    public func joined(by word: String) -> String {
        guard count > 1, let last else { return first ?? "" }
        return dropLast().joined(separator: ", ") + " \(word) " + last
    }
}

/// Formats seconds since 1970 as `2026-01-31T12:00:00Z`.
public func utcTime(_ seconds: Int64) -> String {
    var time = time_t(seconds)
    var parts = tm()
    guard gmtime_r(&time, &parts) != nil else { return "\(seconds)" }
    let capacity = 40
    return String(unsafeUninitializedCapacity: capacity) { buffer in
        buffer.withMemoryRebound(to: CChar.self) { text in
            // From glibc 2.41 on, the buffer's type is not optional.
            guard let start = text.baseAddress else { return 0 }
            return strftime(start, capacity, "%Y-%m-%dT%H:%M:%SZ", &parts)
        }
    }
}
