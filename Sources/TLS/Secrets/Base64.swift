/// A decoder of untrusted base64 (RFC 4648). Foundation's does not report the position of an error, and has no URL-safe
/// alphabet.
public enum Base64 {
    /// The text is not base64 from this position on.
    public struct Malformed: Error, Equatable {
        /// In bytes, counted from 1.
        public let position: Int
    }

    /// Decodes the standard alphabet. White space is skipped; padding is optional.
    public static func decode(_ text: some Sequence<UInt8>) throws(Malformed) -> [UInt8] {
        var decoder = Decoder(characters: (UInt8(ascii: "+"), UInt8(ascii: "/")))
        var padding = 0
        var position = 0
        for character in text {
            position += 1
            switch character {
            case 0x09, 0x0A, 0x0D, 0x20: continue
            case UInt8(ascii: "="):
                padding += 1
                let isPlausible = decoder.pendingDigits >= 2 && decoder.pendingDigits + padding <= 4
                guard isPlausible else { throw Malformed(position: position) }
            default:
                guard padding == 0, decoder.take(character) else { throw Malformed(position: position) }
            }
        }
        let isWhole = padding == 0 || decoder.pendingDigits + padding == 4
        guard isWhole, decoder.pendingDigits != 1 else { throw Malformed(position: position + 1) }
        return decoder.bytes
    }

    /// Decodes the URL-safe alphabet without padding, as used by JWTs (RFC 7515 §2).
    /// - Returns: nil for malformed text. Of several texts that decode to the same bytes, only the one that an encoder writes is accepted.
    public static func decodeURL(_ text: some Collection<UInt8>) -> [UInt8]? {
        var decoder = Decoder(characters: (UInt8(ascii: "-"), UInt8(ascii: "_")))
        for character in text {
            guard decoder.take(character) else { return nil }
        }
        return decoder.pendingDigits != 1 && decoder.leftover == 0 ? decoder.bytes : nil
    }

    private struct Decoder {
        /// The last two characters of the alphabet.
        let characters: (UInt8, UInt8)
        var bytes: [UInt8] = []
        /// The number of digits in the incomplete group of four.
        var pendingDigits = 0
        /// The bits that do not form a byte yet.
        var leftover: UInt32 = 0

        init(characters: (UInt8, UInt8)) {
            self.characters = characters
        }

        mutating func take(_ character: UInt8) -> Bool {
            let value: UInt8
            switch character {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = character - UInt8(ascii: "A")
            case UInt8(ascii: "a")...UInt8(ascii: "z"): value = character - UInt8(ascii: "a") + 26
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = character - UInt8(ascii: "0") + 52
            case characters.0: value = 62
            case characters.1: value = 63
            default: return false
            }
            leftover = leftover << 6 | UInt32(value)
            pendingDigits = (pendingDigits + 1) % 4
            guard pendingDigits != 1 else { return true }
            let spare = UInt32(pendingDigits == 0 ? 0 : 8 - 2 * pendingDigits)
            bytes.append(UInt8(truncatingIfNeeded: leftover >> spare))
            leftover &= (1 << spare) - 1
            return true
        }
    }
}
