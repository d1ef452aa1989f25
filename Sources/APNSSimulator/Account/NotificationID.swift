/// An `apns-id` as 16 bytes.
package struct NotificationID: Hashable, Sendable {
    static let textLength = 36

    let high: UInt64
    let low: UInt64

    /// Hashes a fold of both halves; ids are random or hashes already.
    package func hash(into hasher: inout Hasher) {
        hasher.combine(high &* 0x9E37_79B9_7F4A_7C15 ^ low)
    }
}

extension NotificationID {
    /// Generates an id, a version 4 UUID.
    init(random generator: inout SeededGenerator) {
        high = generator.next() & ~0xF000 | 0x4000
        low = generator.next() & ~(3 << 62) | (2 << 62)
    }

    /// Reads the canonical form, 8-4-4-4-12 hex digits, in either case.
    ///
    /// Source: Apple, "Sending notification requests to APNs", `apns-id`.
    package init?(_ text: some StringProtocol) {
        var text = String(text)
        let id = text.withUTF8 { NotificationID(text: $0) }
        guard let id else { return nil }
        self = id
    }

    init?(text: UnsafeBufferPointer<UInt8>) {
        guard text.count == Self.textLength else { return nil }
        var invalid: UInt8 = 0
        var words: (UInt64, UInt64) = (0, 0)
        for index in 0..<Self.textLength {
            switch index {
            case 8, 13, 18, 23:
                invalid |= text[index] == 0x2D ? 0 : 0xFF
            default:
                let value = Hexadecimal.value(text[index])
                invalid |= value
                if index < 19 {
                    words.0 = words.0 << 4 | UInt64(value & 0x0F)
                } else {
                    words.1 = words.1 << 4 | UInt64(value & 0x0F)
                }
            }
        }
        guard invalid & 0xF0 == 0 else { return nil }
        self.init(high: words.0, low: words.1)
    }

    /// The canonical form in upper case, as APNs writes the ids that it generates.
    package var text: String {
        String(
            decoding: [UInt8](unsafeUninitializedCapacity: Self.textLength) { buffer, count in
                if let base = buffer.baseAddress { write(to: base) }
                count = Self.textLength
            }, as: UTF8.self)
    }

    /// Writes the 36 characters of ``text``.
    func write(to bytes: UnsafeMutablePointer<UInt8>) {
        var position = 0
        for digit in 0..<32 {
            if digit == 8 || digit == 12 || digit == 16 || digit == 20 {
                bytes[position] = 0x2D
                position += 1
            }
            let word = digit < 16 ? high : low
            let value = UInt8(truncatingIfNeeded: word >> UInt64(60 - digit % 16 * 4)) & 0x0F
            bytes[position] = value < 10 ? value + 0x30 : value - 10 + 0x41
            position += 1
        }
    }
}
