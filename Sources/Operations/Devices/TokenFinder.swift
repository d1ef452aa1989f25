import NIOCore
import PushJob

/// Finds device tokens in bytes: in hex of either case, also with spaces and angle brackets, and in base64 of either
/// alphabet, wherever they begin.
struct TokenFinder: Sendable {
    /// The spellings of tokens by their first bytes.
    private struct Spellings: Sendable {
        private static let keySize = 8
        private var byKey: [UInt64: [[UInt8]]] = [:]
        private(set) var shortest = Int.max
        private var key = keySize

        init(_ texts: [[UInt8]]) {
            shortest = texts.map(\.count).min() ?? .max
            key = min(Self.keySize, shortest)
            for text in texts {
                text.withUnsafeBytes { byKey[Self.key(of: $0, at: 0, key), default: []].append(text) }
            }
        }

        private static func key(of bytes: UnsafeRawBufferPointer, at start: Int, _ size: Int) -> UInt64 {
            var key: UInt64 = 0
            for index in start..<start + size { key = key << 8 | UInt64(bytes[index]) }
            return key
        }

        func isIn(_ bytes: UnsafeRawBufferPointer) -> Bool {
            guard bytes.count >= shortest else { return false }
            for start in 0...(bytes.count - shortest) {
                guard let texts = byKey[Self.key(of: bytes, at: start, key)] else { continue }
                for text in texts where bytes.count - start >= text.count {
                    if UnsafeRawBufferPointer(rebasing: bytes[start..<start + text.count]).elementsEqual(text) {
                        return true
                    }
                }
            }
            return false
        }
    }

    private let hex: Spellings
    private let base64: Spellings

    /// - Parameter tokens: lower-case hex.
    init(_ tokens: [String]) {
        hex = Spellings(tokens.map { Array($0.utf8) })
        base64 = Spellings(tokens.flatMap { TokenText.forms(ofHex: $0).dropFirst() }.map { Array($0.utf8) })
    }

    func isIn(_ text: ByteBuffer) -> Bool { text.withUnsafeReadableBytes(isIn) }

    /// Returns true if a text, perhaps with JSON escapes, contains one of the tokens.
    func isIn(_ bytes: UnsafeRawBufferPointer) -> Bool {
        if isPlain(in: bytes) { return true }
        guard bytes.contains(UInt8(ascii: "\\")) else { return false }
        return Self.unescaped(bytes).withUnsafeBytes(isPlain)
    }

    private func isPlain(in bytes: UnsafeRawBufferPointer) -> Bool {
        var digits: [UInt8] = []
        var start = 0
        for index in 0...bytes.count {
            let byte = index < bytes.count ? bytes[index] : 0
            if let digit = Self.hexDigit(byte) {
                digits.append(digit)
            } else if !Self.isSeparator(byte), !digits.isEmpty {
                if digits.withUnsafeBytes(hex.isIn) { return true }
                digits.removeAll(keepingCapacity: true)
            }
            if !Self.isBase64(byte) {
                if base64.isIn(UnsafeRawBufferPointer(rebasing: bytes[start..<index])) { return true }
                start = index + 1
            }
        }
        return false
    }

    /// Returns the lower-case digit; `nil` for another byte.
    private static func hexDigit(_ byte: UInt8) -> UInt8? {
        if byte &- 0x30 < 10 { return byte }
        let lower = byte | 0x20
        return lower &- 0x61 < 6 ? lower : nil
    }

    private static func isSeparator(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x3C || byte == 0x3E }

    private static func isBase64(_ byte: UInt8) -> Bool {
        byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || byte == UInt8(ascii: "+") || byte == UInt8(ascii: "/")
            || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_") || byte == UInt8(ascii: "=")
    }

    /// Decodes the JSON escapes that can occur in a token: `\/`, and `\u` for ASCII. The text need not be JSON.
    private static func unescaped(_ bytes: UnsafeRawBufferPointer) -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(bytes.count)
        var index = 0
        while index < bytes.count {
            let byte = bytes[index]
            index += 1
            guard byte == UInt8(ascii: "\\"), index < bytes.count else {
                text.append(byte)
                continue
            }
            let escape = bytes[index]
            index += 1
            var code: UInt32?
            if escape == UInt8(ascii: "u"), bytes.count - index >= 4 {
                code = 0
                for place in index..<index + 4 {
                    code = code.flatMap { code in JSONText.hexValue(bytes[place]).map { code << 4 | UInt32($0) } }
                }
            }
            if let code, code < 0x80 {
                text.append(UInt8(code))
                index += 4
            } else if escape == UInt8(ascii: "/") {
                text.append(escape)
            } else {
                text.append(byte)
                text.append(escape)
            }
        }
        return text
    }
}
