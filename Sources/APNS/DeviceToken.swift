import NIOCore

/// A device token as APNs wants it in a path: lower-case hex digits, an even number of them, at most 200.
///
/// The digits are a slice of the buffer that the token came in wherever that was already in this form, so that a job's
/// token is neither copied nor turned into a `String` on its way.
public struct DeviceToken: Hashable, Sendable {
    /// The lower-case hex digits.
    public let hex: ByteBuffer

    /// The longest token that is taken, in hex digits. Apple's are 64 today and documented as growing to 100 bytes.
    public static let maximumDigits = 200

    /// No device: a placeholder in what notifications share. APNs answers `MissingDeviceToken` to it.
    public static let none = DeviceToken()

    private init() { hex = ByteBuffer() }

    /// - Parameter hex: lower-case hex digits, an even number of them, 2 to 200.
    init(canonical hex: ByteBuffer) { self.hex = hex }

    /// What is wrong with a token.
    public enum Invalid: Error, Equatable, Sendable, CustomStringConvertible {
        case empty
        case notHexadecimal(offset: Int)
        case oddNumberOfDigits(Int)
        case tooLong(digits: Int)
        /// The binary gateway takes tokens of 64 digits only.
        case notForGateway(digits: Int)

        /// What is wrong and where; never the token itself.
        public var description: String {
            switch self {
            case .empty: "the device token is empty"
            case .notHexadecimal(let offset): "the device token has a character that is not hexadecimal at \(offset)"
            case .oddNumberOfDigits(let digits): "the device token has an odd number of hex digits (\(digits))"
            case .tooLong(let digits):
                "the device token has \(digits) hex digits, more than \(DeviceToken.maximumDigits)"
            case .notForGateway(let digits): "the device token has \(digits) hex digits; the binary gateway takes 64"
            }
        }
    }

    /// Takes a token as people store it: spaces, `<` and `>` are stripped and digits are lower-cased. Base64 of 32 bytes,
    /// 43 characters with or without the padding, is a token too; of another number of bytes it is not, for then a hex token
    /// with a typing error could be one.
    /// - Parameter text: the token's characters.
    /// - Throws: ``Invalid`` when what is left is not a device token.
    public init(_ text: ByteBuffer) throws(Invalid) {
        switch Self.scan(text) {
        case .canonical: hex = text
        case .other: hex = try Self.normalized(text)
        }
    }

    /// The same for a `String`.
    /// - Parameter text: the token's characters.
    /// - Throws: ``Invalid`` when what is left is not a device token.
    public init(_ text: String) throws(Invalid) {
        try self.init(ByteBuffer(string: text))
    }

    /// The first eight digits: enough to find a token in a log, not enough to send to it.
    public var shortened: String {
        String(decoding: hex.readableBytesView.prefix(8), as: UTF8.self) + "…"
    }

    private enum Form { case canonical, other }

    private static func scan(_ text: ByteBuffer) -> Form {
        text.withUnsafeReadableBytes { bytes in
            guard bytes.count > 0, bytes.count <= maximumDigits, bytes.count % 2 == 0 else { return .other }
            // One look-up a byte, and one decision at the end, keeps this free of branches.
            var foreign: UInt8 = 0
            for byte in bytes {
                let digit = byte &- 0x30 < 10
                let letter = byte &- 0x61 < 6
                foreign |= (digit || letter) ? 0 : 1
            }
            return foreign == 0 ? .canonical : .other
        }
    }

    private static func normalized(_ text: ByteBuffer) throws(Invalid) -> ByteBuffer {
        if let bytes = base64(text) { return bytes }
        var digits = ByteBuffer()
        digits.reserveCapacity(min(text.readableBytes, maximumDigits))
        var count = 0
        for (offset, byte) in text.readableBytesView.enumerated() {
            switch byte {
            case 0x20, 0x3C, 0x3E: continue
            case 0x30...0x39, 0x61...0x66: count += 1
            case 0x41...0x46: count += 1
            default: throw .notHexadecimal(offset: offset)
            }
            if count <= maximumDigits { digits.writeInteger(byte | 0x20) }
        }
        guard count > 0 else { throw .empty }
        guard count <= maximumDigits else { throw .tooLong(digits: count) }
        guard count % 2 == 0 else { throw .oddNumberOfDigits(count) }
        return digits
    }

    /// The hex digits of a token in base64, in either alphabet.
    private static func base64(_ text: ByteBuffer) -> ByteBuffer? {
        guard (43...44).contains(text.readableBytes) else { return nil }
        var characters = text.readableBytesView[...]
        if characters.last == UInt8(ascii: "=") { characters = characters.dropLast() }
        guard characters.count == 43, !characters.allSatisfy(isHexadecimal) else { return nil }
        let bytes = (try? Base64.decode(characters)) ?? Base64.decodeURL(characters)
        guard let bytes, bytes.count == 32 else { return nil }
        return ByteBuffer(string: bytes.hexadecimal)
    }

    private static func isHexadecimal(_ byte: UInt8) -> Bool { byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 6 }
}

extension [UInt8] {
    fileprivate var hexadecimal: String {
        reduce(into: "") { text, byte in
            if byte < 16 { text += "0" }
            text += String(byte, radix: 16)
        }
    }
}

extension DeviceToken {
    private static let digits = Array("0123456789abcdef".utf8)

    /// A token from its bytes.
    /// - Parameter bytes: 1 to 100 of them.
    init(bytes: ByteBuffer) {
        precondition((1...Self.maximumDigits / 2).contains(bytes.readableBytes))
        var hex = ByteBufferAllocator().buffer(capacity: bytes.readableBytes * 2)
        for byte in bytes.readableBytesView {
            hex.writeInteger(Self.digits[Int(byte >> 4)])
            hex.writeInteger(Self.digits[Int(byte & 0x0F)])
        }
        self.init(canonical: hex)
    }
}
