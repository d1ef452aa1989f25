import NIOCore
import TLS

/// A device token as APNs expects it in a path: an even number of lower-case hex digits, at most 2,048.
///
/// If the input is already in this form, the digits are a slice of its buffer, so that a job's token is neither copied
/// nor converted to a `String`.
///
/// Source for the size: Apple, "Registering your app with APNs": "APNs device tokens are of variable length. Do not
/// hard-code their size." Tokens of devices have 32 bytes, those of Live Activities 80 or more.
public struct DeviceToken: Hashable, Sendable {
    /// The lower-case hex digits.
    public let hex: ByteBuffer

    /// The maximum number of hex digits: 1,024 bytes.
    public static let maximumDigits = 2048

    /// No device: a placeholder, to which APNs would answer `MissingDeviceToken`.
    public static let none = DeviceToken()

    private init() { hex = ByteBuffer() }

    /// - Parameter hex: an even number of lower-case hex digits, 2 to 2,048.
    init(canonical hex: ByteBuffer) { self.hex = hex }

    public enum Invalid: Error, Equatable, Sendable, CustomStringConvertible {
        case empty
        case notHexadecimal(offset: Int)
        case decorated(Decoration, offset: Int)
        case foreign(Service)
        case oddNumberOfDigits(Int)
        case tooLong(digits: Int)
        /// The text has several tokens, divided by white space.
        case several

        /// The problem and its position; never the token itself.
        public var description: String {
            switch self {
            case .empty: "the device token is empty"
            case .notHexadecimal(let offset): "the device token has a character that is not hexadecimal at \(offset)"
            case .decorated(let decoration, let offset):
                "the device token has \(decoration.rawValue) at \(offset); send its hex digits alone"
            case .foreign(let service): "the device token is \(service.rawValue)"
            case .oddNumberOfDigits(let digits): "the device token has an odd number of hex digits (\(digits))"
            case .several: "the text has more than one device token; write each on a line of its own"
            case .tooLong(let digits):
                "the device token has \(digits) hex digits, more than \(DeviceToken.maximumDigits)"
            }
        }
    }

    /// Characters that programs add to the hex digits when they print them. A text with them is rejected: digits may be missing.
    public enum Decoration: String, Sendable {
        case separator = "a separator"
        case quote = "a quotation mark"
        case prefix = "the prefix 0x"
        case base64 = "base64 of hex digits"
        /// `{length = 32, bytes = 0x1234 … abcd}`: most of the digits are missing.
        case dataDescription = "the description of a Data object, which does not contain the whole token,"
    }

    /// Services whose identifiers are mistaken for device tokens. The raw values also describe how to get the device token instead.
    public enum Service: String, Sendable, CaseIterable {
        case firebase = """
            a token of Firebase (FCM), which APNs does not accept; have the app send that of \
            `didRegisterForRemoteNotificationsWithDeviceToken`
            """
        case expo = "a token of Expo; have the app send the result of `getDevicePushTokenAsync`"
        case uuid = """
            a UUID, such as an ID of OneSignal or of the vendor; have the app send the token of \
            `didRegisterForRemoteNotificationsWithDeviceToken`
            """

        /// - Parameter text: a text that is not a device token.
        init?(_ text: ByteBuffer) {
            let view = text.readableBytesView
            if Self.isFirebase(view) {
                self = .firebase
            } else if view.starts(with: "ExponentPushToken[".utf8) || view.starts(with: "ExpoPushToken[".utf8) {
                self = .expo
            } else if Self.isUUID(view) {
                self = .uuid
            } else {
                return nil
            }
        }

        /// A Firebase token is an instance ID, a colon, and a part that begins with APA91b. Old tokens are only that part.
        static func isFirebase(_ text: ByteBufferView) -> Bool {
            let start = text.firstIndex(of: UInt8(ascii: ":")).map { $0 + 1 } ?? text.startIndex
            return text[start...].starts(with: "APA91".utf8)
        }

        private static func isUUID(_ text: ByteBufferView) -> Bool {
            text.count == 36
                && text.enumerated().allSatisfy { index, byte in
                    [8, 13, 18, 23].contains(index) == (byte == UInt8(ascii: "-"))
                        && (byte == UInt8(ascii: "-") || DeviceToken.isHexadecimal(byte))
                }
        }
    }

    /// Reads a token as people store it. White space, and `<` and `>` around the digits, are removed, and capital letters are accepted. If
    /// white space divides a whole token from another text, that is an error. Base64 of 32 to 1,024 bytes is accepted too, in either
    /// alphabet, with or without padding. At least eight of its characters must not be hex digits; otherwise it counts as a hex token with
    /// typing errors.
    public init(_ text: ByteBuffer) throws(Invalid) {
        let isCanonical = text.withUnsafeReadableBytes { bytes in
            bytes.count > 0 && bytes.count <= Self.maximumDigits && bytes.count % 2 == 0 && Self.areHexDigits(bytes)
        }
        hex = isCanonical ? text : try Self.normalized(text)
    }

    public init(_ text: String) throws(Invalid) {
        try self.init(ByteBuffer(string: text))
    }

    /// The first eight digits: enough to find a token in a log, not enough to send to it.
    public var shortened: String {
        String(decoding: hex.readableBytesView.prefix(8), as: UTF8.self) + "…"
    }

    /// Returns true if all bytes are hex digits.
    /// - Parameter capitals: true to accept capital letters.
    public static func areHexDigits(_ bytes: UnsafeRawBufferPointer, capitals: Bool = false) -> Bool {
        // The constants need explicit types: without them, the compiler compares lane by lane.
        let (zero, ten) = (SIMD16<UInt8>(repeating: 0x30), SIMD16<UInt8>(repeating: 10))
        let (a, six) = (SIMD16<UInt8>(repeating: 0x61), SIMD16<UInt8>(repeating: 6))
        let caseBit: UInt8 = capitals ? 0x20 : 0
        let caseBits = SIMD16<UInt8>(repeating: caseBit)
        // The result is collected without branches.
        var areDigits = SIMDMask<SIMD16<Int8>>(repeating: true)
        var offset = 0
        while offset &+ 16 <= bytes.count {
            let block = bytes.loadUnaligned(fromByteOffset: offset, as: SIMD16<UInt8>.self)
            areDigits = areDigits .& (block &- zero .< ten .| (block | caseBits) &- a .< six)
            offset &+= 16
        }
        let halves = unsafeBitCast(areDigits, to: SIMD2<UInt64>.self)
        guard halves[0] & halves[1] == .max else { return false }
        while offset < bytes.count {
            guard bytes[offset] &- 0x30 < 10 || (bytes[offset] | caseBit) &- 0x61 < 6 else { return false }
            offset &+= 1
        }
        return true
    }

    /// The minimum number of hex digits of a whole token from Apple: 32 bytes.
    public static let wholeDigits = 64
    /// The number of base64 characters of 32 bytes, without and with padding.
    private static let wholeBase64 = 43...44

    private static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || 0x09...0x0D ~= byte }

    private static func normalized(_ spaced: ByteBuffer) throws(Invalid) -> ByteBuffer {
        let words = spaced.readableBytesView.split(whereSeparator: isSpace)
        let text = words.count == 1 ? ByteBuffer(bytes: words[0]) : spaced
        if let service = Service(text) { throw .foreign(service) }
        let joined = words.count == 1 ? text : ByteBuffer(bytes: words.joined())
        if let hex = base64(joined) {
            guard words.count == 1 || !words.contains(where: { wholeBase64 ~= $0.count }) else { throw .several }
            guard !isTextOfDigits(hex) else { throw .decorated(.base64, offset: 0) }
            return hex
        }
        let opened = words.joined().count { $0 == UInt8(ascii: "<") }
        if opened > 1 || words.count > 1 && words.contains(where: { $0.count >= wholeDigits }) { throw .several }
        var digits = ByteBuffer()
        digits.reserveCapacity(min(text.readableBytes, maximumDigits))
        var count = 0
        for (offset, byte) in text.readableBytesView.enumerated() {
            switch byte {
            case _ where isSpace(byte), 0x3C, 0x3E: continue
            case 0x30...0x39, 0x61...0x66: count += 1
            case 0x41...0x46: count += 1
            default: throw Self.invalid(byte, at: offset, in: text)
            }
            if count <= maximumDigits { digits.writeInteger(byte | 0x20) }
        }
        guard count > 0 else { throw .empty }
        guard count <= maximumDigits else { throw .tooLong(digits: count) }
        guard count % 2 == 0 else { throw .oddNumberOfDigits(count) }
        return digits
    }

    /// Returns true if the decoded bytes are hex digits themselves, because someone encoded the digits in base64.
    private static func isTextOfDigits(_ hex: ByteBuffer) -> Bool {
        let digits = Array(hex.readableBytesView)
        return stride(from: 0, to: digits.count - 1, by: 2).allSatisfy { index in
            switch digits[index] {
            case UInt8(ascii: "3"): digits[index + 1] < UInt8(ascii: "a")
            case UInt8(ascii: "4"), UInt8(ascii: "6"): UInt8(ascii: "1")...UInt8(ascii: "6") ~= digits[index + 1]
            default: false
            }
        }
    }

    private static func invalid(_ byte: UInt8, at offset: Int, in text: ByteBuffer) -> Invalid {
        switch byte {
        case UInt8(ascii: "-"), UInt8(ascii: ":"): .decorated(.separator, offset: offset)
        case UInt8(ascii: "\""), UInt8(ascii: "'"): .decorated(.quote, offset: offset)
        case UInt8(ascii: "x") where offset == 1 && text.readableBytesView.first == UInt8(ascii: "0"):
            .decorated(.prefix, offset: 0)
        case UInt8(ascii: "{") where text.readableBytesView.starts(with: "{length".utf8):
            .decorated(.dataDescription, offset: offset)
        default: .notHexadecimal(offset: offset)
        }
    }

    /// The minimum number of non-hex characters in base64. A text with fewer is hex digits with typing errors. Of 43 random base64
    /// characters, 28 are not hex digits.
    private static let foreignDigits = 8

    /// Returns the hex digits of a token in base64, in either alphabet.
    private static func base64(_ text: ByteBuffer) -> ByteBuffer? {
        // The length in base64 of 32 to 1,024 bytes.
        guard (43...1368).contains(text.readableBytes) else { return nil }
        var characters = text.readableBytesView[...]
        while characters.last == UInt8(ascii: "="), text.readableBytes - characters.count < 2 {
            characters = characters.dropLast()
        }
        let padding = text.readableBytes - characters.count
        var foreign = 0
        for character in characters {
            guard isBase64(character) else { return nil }
            if !isHexadecimal(character) { foreign += 1 }
        }
        guard foreign >= foreignDigits, padding == 0 || text.readableBytes % 4 == 0 else { return nil }
        let bytes = (try? Base64.decode(characters)) ?? Base64.decodeURL(characters)
        guard let bytes, (32...maximumDigits / 2).contains(bytes.count) else { return nil }
        return DeviceToken(bytes: ByteBuffer(bytes: bytes)).hex
    }

    private static func isBase64(_ byte: UInt8) -> Bool {
        byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || byte == UInt8(ascii: "+") || byte == UInt8(ascii: "/")
            || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
    }

    fileprivate static func isHexadecimal(_ byte: UInt8) -> Bool { byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 6 }
}

extension DeviceToken {
    private static let digits = Array("0123456789abcdef".utf8)

    /// - Parameter bytes: 1 to 1,024 bytes.
    public init(bytes: ByteBuffer) {
        precondition((1...Self.maximumDigits / 2).contains(bytes.readableBytes))
        var hex = ByteBufferAllocator().buffer(capacity: bytes.readableBytes * 2)
        for byte in bytes.readableBytesView {
            hex.writeInteger(Self.digits[Int(byte >> 4)])
            hex.writeInteger(Self.digits[Int(byte & 0x0F)])
        }
        self.init(canonical: hex)
    }
}
