import APNS
import Foundation
import NIOCore
import Testing

@Suite("A device token")
struct DeviceTokenTests {
    private let hex = String(repeating: "0123456789abcdef", count: 4)

    @Test("in Apple's form is used without copying")
    func canonical() throws {
        let text = ByteBuffer(string: hex)
        let token = try DeviceToken(text)
        #expect(token.hex == text)
        let isSameMemory = token.hex.withUnsafeReadableBytes { taken in
            text.withUnsafeReadableBytes { $0.baseAddress == taken.baseAddress }
        }
        #expect(isSameMemory)
    }

    @Test(
        "is accepted in the common spellings",
        arguments: [
            "ABCDEF01", "<abcdef01>", "<abcd ef01>", "ab cd ef 01", "  AbCdEf01  ", "<ABCD EF01> ",
        ])
    func spellings(text: String) throws { #expect(try DeviceToken(text) == DeviceToken("abcdef01")) }

    @Test("in base64 may have the characters of both alphabets, and small bytes")
    func base64Alphabets() throws {
        let bytes = String(repeating: "00ff", count: 15) + "fbef"
        #expect(try DeviceToken("AP8A/wD/AP8A/wD/AP8A/wD/AP8A/wD/AP8A/wD/++8=") == DeviceToken(bytes))
        #expect(try DeviceToken("AP8A_wD_AP8A_wD_AP8A_wD_AP8A_wD_AP8A_wD_--8") == DeviceToken(bytes))
    }

    @Test(
        "of 32 to 1,024 bytes may be base64, in either alphabet, with and without padding",
        arguments: [32, 33, 34, 80, 100, 128, 1023, 1024])
    func longBase64(count: Int) throws {
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: 251 &- 7 &* $0) }
        let hex = bytes.map { String(format: "%02x", $0) }.joined()
        let text = Data(bytes).base64EncodedString()
        let plain = text.filter { $0 != "=" }
        let url = plain.map { $0 == "+" ? "-" : $0 == "/" ? "_" : String($0) }.joined()
        for spelling in [text, plain, url] { #expect(try DeviceToken(spelling) == DeviceToken(hex)) }
    }

    @Test(
        "of hex digits with a typing error, or too long, is not read as base64",
        arguments: [
            "AAECAwQF", String(repeating: "0", count: 57) + "OoOlIgG", String(repeating: "a", count: 41) + "xy",
            String(repeating: "A", count: 63) + "g", String(repeating: "g", count: 42),
            String(repeating: "g", count: 45), String(repeating: "g", count: 42) + "==",
            // Too many bytes.
            Data((0..<1025).map { UInt8(truncatingIfNeeded: 251 &- 7 &* $0) }).base64EncodedString(),
        ])
    func notBase64(text: String) { #expect(throws: DeviceToken.Invalid.self) { try DeviceToken(text) } }

    @Test("of 44 hex digits is hexadecimal, and of 43 is an error")
    func hexadecimalFirst() throws {
        let digits = String(repeating: "a", count: 44)
        #expect(try DeviceToken(digits).hex == ByteBuffer(string: digits))
        #expect(throws: DeviceToken.Invalid.oddNumberOfDigits(43)) { try DeviceToken(String(digits.dropLast())) }
    }

    @Test("may have any even number of digits up to 2,048", arguments: [2, 64, 160, 200, 202, 256, 512, 2046, 2048])
    func lengths(digits: Int) throws {
        #expect(try DeviceToken(String(repeating: "A", count: digits)).hex.readableBytes == digits)
        #expect(try DeviceToken(String(repeating: "a", count: digits)).hex.readableBytes == digits)
    }

    @Test(
        "is refused with the reason",
        arguments: [
            ("", DeviceToken.Invalid.empty), ("  <> ", .empty), ("abc", .oddNumberOfDigits(3)),
            ("<a b c>", .oddNumberOfDigits(3)), ("abcdxx", .notHexadecimal(offset: 4)),
            ("abcd\u{0}f", .notHexadecimal(offset: 4)), ("ab\u{1}cd", .notHexadecimal(offset: 2)),
            ("ab/../cd", .notHexadecimal(offset: 2)), ("äb", .notHexadecimal(offset: 0)),
            (String(repeating: "a", count: 2049), .tooLong(digits: 2049)),
            (String(repeating: "A", count: 2050), .tooLong(digits: 2050)),
            // Other printed text, which the error names.
            ("ab-cd", .decorated(.separator, offset: 2)), ("ab:cd", .decorated(.separator, offset: 2)),
            ("\"abcd\"", .decorated(.quote, offset: 0)), ("'abcd'", .decorated(.quote, offset: 0)),
            ("0xabcd", .decorated(.prefix, offset: 0)),
            ("{length = 32, bytes = 0x1234abcd ... 5678cdef }", .decorated(.dataDescription, offset: 0)),
            // The base64 of a token's own digits.
            (Data(one.utf8).base64EncodedString(), .decorated(.base64, offset: 0)),
        ])
    func refused(text: String, error: DeviceToken.Invalid) { #expect(throws: error) { try DeviceToken(text) } }

    private static let groups = Array(repeating: "abababab", count: 8).joined(separator: " ")
    private static let (one, other) = (String(repeating: "ab", count: 32), String(repeating: "cd", count: 32))
    private static let base64 = "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="

    @Test(
        "may have white space at its ends, between groups of digits, and in base64",
        arguments: [
            " \(one)", "\n\t\(one)\r\n", groups, "<\(groups)>", " < \(groups) >\n", base64, "\n\(base64)\t",
            "\(base64.prefix(20))\r\n\(base64.dropFirst(20))",
        ])
    func whiteSpace(text: String) throws { #expect(try DeviceToken(text) == DeviceToken(Self.one)) }

    @Test(
        "is not made of two, or of one and something else",
        arguments: [
            "\(one) \(other)", "\(one)\t\(other)", "\(one)\r\(other)\r", "<\(groups)> <\(groups)>", "\(one) 2026",
            "\(base64) \(base64.dropLast())", "\(one) \(one)",
        ])
    func several(text: String) { #expect(throws: DeviceToken.Invalid.self) { try DeviceToken(text) } }

    @Test("accepts exactly the hexadecimal characters, for each of the 256 bytes")
    func everyByte() {
        for byte in UInt8.min...UInt8.max {
            let text = ByteBuffer(bytes: [0x61, byte, 0x62, 0x63])
            let isDigit = "0123456789abcdefABCDEF".utf8.contains(byte)
            let isStripped = " <>\t\n\u{0B}\u{0C}\r".utf8.contains(byte)
            do {
                let token = try DeviceToken(text)
                #expect(isDigit, "byte \(byte)")
                #expect(String(buffer: token.hex) == String(buffer: text).lowercased())
            } catch {
                let expected: DeviceToken.Invalid =
                    isStripped
                    ? .oddNumberOfDigits(3)
                    : "-:".utf8.contains(byte)
                        ? .decorated(.separator, offset: 1)
                        : "'\"".utf8.contains(byte) ? .decorated(.quote, offset: 1) : .notHexadecimal(offset: 1)
                #expect(error == expected, "byte \(byte)")
                #expect(!isDigit, "byte \(byte)")
            }
        }
    }

    @Test("never appears in its own error, and is shortened for logs")
    func secrecy() throws {
        #expect(throws: DeviceToken.Invalid.self) { try DeviceToken(hex + "zz") }
        do {
            _ = try DeviceToken(hex + "zz")
        } catch {
            #expect(!error.description.contains("0123"))
        }
        #expect(try DeviceToken(hex).shortened == "01234567…")
    }

    @Test("finds each byte that is not a hex digit, at any position", arguments: [false, true])
    func foreignBytes(capitals: Bool) {
        for length in 1...35 {
            for position in 0..<length {
                for byte in UInt8.min...UInt8.max {
                    var bytes = [UInt8](repeating: UInt8(ascii: "f"), count: length)
                    bytes[position] = byte
                    let isHex =
                        (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte)
                        || (capitals && (0x41...0x46).contains(byte))
                    let found = bytes.withUnsafeBytes { DeviceToken.areHexDigits($0, capitals: capitals) }
                    if found != isHex { Issue.record("\(byte) at \(position) of \(length): \(found)") }
                }
            }
        }
    }
}
