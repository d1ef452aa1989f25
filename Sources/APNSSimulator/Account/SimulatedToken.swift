import LegacyAPNS
import PrintableText

/// A device token in the simulator's memory. The first 32 bytes are four words. The rest is an array, which is empty for the tokens that
/// Apple issues today.
///
/// So a request's token needs no allocation, and a rule's prefix costs four comparisons.
package struct SimulatedToken: Hashable, Sendable {
    var words: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
    var tail: [UInt8] = []

    /// The minimum number of hex digits: 32 bytes, the length of every token that Apple is known to issue.
    package static let minimumDigits = 64
    /// The maximum number of hex digits: 1,024 bytes.
    ///
    /// Apple, "Registering your app with APNs", asks not to assume a length; the longest token seen has 160 bytes.
    package static let maximumDigits = 2048

    init() {}

    /// Reads hex digits of either case.
    /// - Returns: nil unless there are 64 to 2,048 digits, an even number.
    package init?(hex: some StringProtocol) {
        var text = String(hex)
        let token = text.withUTF8 { SimulatedToken(digits: $0) }
        guard let token else { return nil }
        self = token
    }

    init?(digits: UnsafeBufferPointer<UInt8>) {
        let count = digits.count
        guard count >= Self.minimumDigits, count <= Self.maximumDigits, count % 2 == 0 else { return nil }
        var invalid: UInt8 = 0
        words.0 = Hexadecimal.word(digits, at: 0, &invalid)
        words.1 = Hexadecimal.word(digits, at: 16, &invalid)
        words.2 = Hexadecimal.word(digits, at: 32, &invalid)
        words.3 = Hexadecimal.word(digits, at: 48, &invalid)
        if count > Self.minimumDigits {
            tail.reserveCapacity((count - Self.minimumDigits) / 2)
            for offset in stride(from: Self.minimumDigits, to: count, by: 2) {
                let high = Hexadecimal.value(digits[offset])
                let low = Hexadecimal.value(digits[offset + 1])
                invalid |= high | low
                tail.append(high << 4 | low & 0x0F)
            }
        }
        guard invalid & 0xF0 == 0 else { return nil }
    }

    /// Reads a token of the binary protocol.
    /// - Parameter bytes: at least 32.
    init(bytes: UnsafeBufferPointer<UInt8>) {
        tail = Array(bytes.dropFirst(32))
        words.0 = Self.word(bytes, at: 0)
        words.1 = Self.word(bytes, at: 8)
        words.2 = Self.word(bytes, at: 16)
        words.3 = Self.word(bytes, at: 24)
    }

    private static func word(_ bytes: UnsafeBufferPointer<UInt8>, at offset: Int) -> UInt64 {
        UInt64(bigEndian: UnsafeRawBufferPointer(bytes).loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }

    var byteCount: Int { 32 + tail.count }

    var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(32 + tail.count)
        for word in [words.0, words.1, words.2, words.3] { withUnsafeBytes(of: word.bigEndian) { bytes += $0 } }
        return bytes + tail
    }

    /// The lower-case hex digits.
    package var hex: String { bytes.hex }

    package static func == (left: Self, right: Self) -> Bool {
        left.words == right.words && left.tail == right.tail
    }

    /// Hashes a combination of all words, because generated tokens differ in only a few digits.
    package func hash(into hasher: inout Hasher) {
        let odd: UInt64 = 0x9E37_79B9_7F4A_7C15
        let fold = ((words.0 &* odd ^ words.1) &* odd ^ words.2) &* odd ^ words.3
        hasher.combine(fold)
        if !tail.isEmpty { hasher.combine(tail) }
    }
}

/// The target of an event: the device or channel of a notification, the app whose channels a request manages, or ``connection``.
enum EventTarget: Hashable {
    case device(SimulatedToken)
    case channel([UInt8])
    case app([UInt8])
    case connection
}

/// The first digits of a token, as a condition of a rule.
struct TokenPrefix: Equatable, Sendable {
    private let words: [UInt64]
    private let masks: [UInt64]

    /// - Parameter digits: up to 64 hex digits of either case.
    /// - Returns: nil for other text.
    init?(_ digits: some StringProtocol) {
        guard !digits.isEmpty, digits.utf8.count <= 64 else { return nil }
        var words: [UInt64] = [0, 0, 0, 0]
        var masks: [UInt64] = [0, 0, 0, 0]
        for (index, digit) in digits.utf8.enumerated() {
            let value = Hexadecimal.value(digit)
            guard value < 16 else { return nil }
            let shift = UInt64(60 - index % 16 * 4)
            words[index / 16] |= UInt64(value) << shift
            masks[index / 16] |= 0xF << shift
        }
        self.words = words
        self.masks = masks
    }

    func matches(_ token: SimulatedToken) -> Bool {
        token.words.0 & masks[0] == words[0] && token.words.1 & masks[1] == words[1]
            && token.words.2 & masks[2] == words[2] && token.words.3 & masks[3] == words[3]
    }
}

private enum Hexadecimal {
    // A pointer, because an array's subscript checks bounds and uniqueness for every digit of every request. Safe although unchecked: the
    // table is never written after its initialization.
    private nonisolated(unsafe) static let values: UnsafePointer<UInt8> = {
        let table = UnsafeMutablePointer<UInt8>.allocate(capacity: 256)
        for byte in 0..<256 {
            switch UInt8(byte) {
            case 0x30...0x39: table[byte] = UInt8(byte) - 0x30
            case 0x61...0x66: table[byte] = UInt8(byte) - 0x61 + 10
            case 0x41...0x46: table[byte] = UInt8(byte) - 0x41 + 10
            default: table[byte] = 0xFF
            }
        }
        return UnsafePointer(table)
    }()

    /// Returns the digit's value; 255 for other characters.
    static func value(_ digit: UInt8) -> UInt8 { values[Int(digit)] }

    /// Returns the value of 16 digits. Sets a bit of the upper half of `invalid` if a character is not a hex digit.
    static func word(_ digits: UnsafeBufferPointer<UInt8>, at offset: Int, _ invalid: inout UInt8) -> UInt64 {
        let table = values
        var word: UInt64 = 0
        for index in offset..<offset + 16 {
            let value = table[Int(digits[index])]
            invalid |= value
            word = word << 4 | UInt64(value & 0x0F)
        }
        return word
    }
}

extension SimulatedToken {
    static let feedbackForm =
        "\(minimumDigits) to \(GatewayFrame.tokenSizes.upperBound * 2) hex digits, an even number of them"

    /// Reads the hex digits of a token in a record.
    init?(feedback hex: some StringProtocol) {
        guard let token = SimulatedToken(hex: hex), token.fitsFeedback else { return nil }
        self = token
    }

    /// True if the token is short enough for the binary protocol of the service.
    var fitsFeedback: Bool { byteCount <= GatewayFrame.tokenSizes.upperBound }
}
