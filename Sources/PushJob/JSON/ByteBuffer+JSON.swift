import NIOCore
import PrintableText

extension ByteBuffer {
    /// Writes a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD: the output is always JSON.
    /// - Parameter text: the characters, neither quoted nor escaped.
    public mutating func writeJSONString(_ text: ByteBuffer) {
        text.withUnsafeReadableBytes { writeJSONString($0) }
    }

    /// Writes a JSON string with its quotes.
    public mutating func writeJSONString(_ text: String) {
        var text = text
        text.withUTF8 { writeJSONString(UnsafeRawBufferPointer($0)) }
    }

    /// Writes a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
    public mutating func writeJSONString(_ text: UnsafeRawBufferPointer) {
        if Self.isPlainASCII(text) {
            writeInteger(UInt8(ascii: "\""))
            writeBytes(text)
            writeInteger(UInt8(ascii: "\""))
            return
        }
        guard Self.isUTF8(text) else {
            return writeJSONString(String(decoding: text, as: UTF8.self))
        }
        writeInteger(UInt8(ascii: "\""))
        var start = 0
        for (index, byte) in text.enumerated() where byte < 0x20 || byte == 0x22 || byte == 0x5C {
            writeBytes(text[start..<index])
            start = index + 1
            writeInteger(UInt8(ascii: "\\"))
            switch byte {
            case 0x08: writeInteger(UInt8(ascii: "b"))
            case 0x09: writeInteger(UInt8(ascii: "t"))
            case 0x0A: writeInteger(UInt8(ascii: "n"))
            case 0x0C: writeInteger(UInt8(ascii: "f"))
            case 0x0D: writeInteger(UInt8(ascii: "r"))
            case ..<0x20: writeString("u00" + [byte].hex)
            default: writeInteger(byte)
            }
        }
        writeBytes(text[start...])
        writeInteger(UInt8(ascii: "\""))
    }

    /// True for a text that needs no escapes, such as a device token. The loop has no early exit, so that the compiler can vectorize it.
    private static func isPlainASCII(_ text: UnsafeRawBufferPointer) -> Bool {
        var others: UInt8 = 0
        for byte in text {
            others |= byte & 0x80
            others |= byte < 0x20 || byte == 0x22 || byte == 0x5C ? 1 : 0
        }
        return others == 0
    }

    public mutating func writeJSONInteger(_ value: Int64) {
        guard value != .min else { return _ = writeString(String(value)) }
        if value < 0 { writeInteger(UInt8(ascii: "-")) }
        var rest = abs(value)
        withUnsafeTemporaryAllocation(byteCount: 20, alignment: 1) { digits in
            var start = digits.count
            repeat {
                start -= 1
                digits[start] = UInt8(ascii: "0") + UInt8(rest % 10)
                rest /= 10
            } while rest > 0
            _ = writeBytes(UnsafeRawBufferPointer(rebasing: digits[start...]))
        }
    }

    /// Writes a time in seconds, with a fraction only if there are milliseconds.
    public mutating func writeJSONSeconds(_ milliseconds: Int64) {
        let (seconds, rest) = milliseconds.magnitude.quotientAndRemainder(dividingBy: 1000)
        writeString((milliseconds < 0 ? "-" : "") + "\(seconds)")
        if rest != 0 { writeString("." + "\(1000 + rest)".dropFirst()) }
    }

    private static func isUTF8(_ text: UnsafeRawBufferPointer) -> Bool {
        if text.allSatisfy({ $0 < 0x80 }) { return true }
        return String(validating: text, as: UTF8.self) != nil
    }
}
