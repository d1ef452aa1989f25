import NIOCore
import Testing

@testable import PushJob

@Suite("JSON scanner")
struct JSONScannerTests {
    @Test(
        "reports the mistake and its byte",
        arguments: [
            ("", JSONError.Kind.unexpectedEnd, 0), ("[1, 2", .unexpectedEnd, 5), ("[1, ?]", .expectedValue, 4),
            (#"{"a":1, b:2}"#, .expectedName, 8), (#"{"a" 1}"#, .expectedColon, 5),
            ("[1 2]", .expectedCommaOrEnd, 3), ("[1, ]", .trailingComma, 2),
            ("[\"ab\u{1}\"]", .controlCharacter, 4), (#"["abcdefghij\q"]"#, .invalidEscape, 12),
            (#"["a\uDC00"]"#, .loneSurrogate, 3), ("[-x]", .invalidNumber, 1), ("[012]", .invalidNumber, 1),
            ("[trye]", .invalidLiteral, 1), ("[] x", .trailingBytes, 3), ("\u{FEFF}[]", .byteOrderMark, 0),
        ])
    func errors(text: String, kind: JSONError.Kind, offset: Int) {
        #expect(Array(text.utf8).jsonError == JSONError(kind: kind, offset: offset))
    }

    @Test("a description names the offset and quotes none of the text")
    func description() throws {
        let error = try #require(Array(#"{"secret": hunter2}"#.utf8).jsonError)
        #expect(error.description == "a value was expected at byte 11")
    }

    @Test("the 65th bracket is too deep, and the error has its position")
    func depth() {
        for (open, close) in [("[", "]"), (#"{"a":"#, "}")] {
            let good = String(repeating: open, count: 64) + "1" + String(repeating: close, count: 64)
            #expect(Array(good.utf8).jsonError == nil)
            let bad = String(repeating: open, count: 65) + "1" + String(repeating: close, count: 65)
            #expect(Array(bad.utf8).jsonError == JSONError(kind: .tooDeep, offset: 64 * open.utf8.count))
        }
    }

    @Test("many consecutive brackets are not deep")
    func wide() {
        let text = "[" + Array(repeating: #"{"a":[[],{}]}"#, count: 1000).joined(separator: ",") + "]"
        #expect(Array(text.utf8).jsonError == nil)
    }

    @Test("a special byte is found at every position of a word, whatever its neighbors")
    func everyPlace() {
        for length in 0..<40 {
            for place in 0...length {
                let before = [UInt8](repeating: 0x7E, count: place)
                let after = [UInt8](repeating: 0x20, count: length - place)
                func document(_ middle: [UInt8]) -> [UInt8] { [0x22] + before + middle + after + [0x22] }
                #expect(document([]).jsonError == nil)
                #expect(document([0x1F]).jsonError == JSONError(kind: .controlCharacter, offset: place + 1))
                #expect(document([0xFF]).jsonError == JSONError(kind: .invalidUTF8, offset: place + 1))
                #expect(document(Array("\\q".utf8)).jsonError == JSONError(kind: .invalidEscape, offset: place + 1))
                #expect(document(Array("\\n".utf8)).jsonError == nil)
                #expect(document([0x21]).jsonError == nil)
                #expect(document([0x23, 0x5B, 0x5D, 0x7F]).jsonError == nil)
                #expect(document(Array("é".utf8)).jsonError == nil)
            }
        }
    }

    @Test("agrees with the standard library on every sequence of two bytes, and on the edges of longer ones")
    func utf8() {
        func check(_ bytes: [UInt8]) {
            let isGood = String(validating: bytes, as: UTF8.self) != nil
            #expect((([0x22] + bytes + [0x22]).jsonError == nil) == isGood, "\(bytes)")
        }
        for first in UInt8(0x80)...0xFF {
            for second in UInt8(0x23)...0xFF where second != 0x5C { check([first, second]) }
        }
        let edges: [UInt8] = [0x24, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xFF]
        for first in UInt8(0xE0)...0xFF {
            for second in edges {
                for third in edges {
                    check([first, second, third])
                    for fourth in edges { check([first, second, third, fourth]) }
                }
            }
        }
    }

    @Test("a string of eight million bytes is read, and its last byte counts")
    func hugeString() {
        var text = [UInt8](repeating: UInt8(ascii: "x"), count: 8 << 20)
        text[0] = UInt8(ascii: "\"")
        text[text.count - 1] = UInt8(ascii: "\"")
        #expect(text.jsonError == nil)
        text[text.count - 2] = 0x07
        #expect(text.jsonError == JSONError(kind: .controlCharacter, offset: text.count - 2))
    }

    @Test("skips one value and stops after it")
    func skipValue() throws {
        let text = Array(#"[{"a":"]"}, 2] tail"#.utf8)
        try text.withUnsafeBytes { bytes in
            var scanner = JSONScanner(bytes)
            try scanner.skipValue()
            #expect(scanner.offset == 14)
        }
    }

    @Test("decodes every escape")
    func unescape() {
        let raw = Array(#"a\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\uD83D\uDE00\u0000z"#.utf8)
        var target = [UInt8](repeating: 0, count: raw.count)
        let count = raw.withUnsafeBytes { raw in target.withUnsafeMutableBytes { JSONText.unescape(raw, into: $0) } }
        let expected = "a\"\\/\u{8}\u{C}\n\r\tA\u{E9}\u{20AC}\u{1F600}\0z"
        #expect(String(decoding: target[..<count], as: UTF8.self) == expected)
    }

    @Test("every scalar written as an escape is decoded to itself")
    func everyScalar() {
        var target = [UInt8](repeating: 0, count: 12)
        for value in stride(from: UInt32(0), through: 0x10FFFF, by: 7) {
            guard let scalar = Unicode.Scalar(value) else { continue }
            let escape = UTF16.encode(scalar).map { units in
                units.map { unit in
                    let digits = String(unit, radix: 16)
                    return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
                }.joined()
            }
            let raw = Array((escape ?? "").utf8)
            let count = raw.withUnsafeBytes { raw in
                target.withUnsafeMutableBytes { JSONText.unescape(raw, into: $0) }
            }
            #expect(target[..<count].elementsEqual(Array(String(scalar).utf8)))
        }
    }

    @Test(
        "reads numbers exactly",
        arguments: [
            ("0", 0, 0), ("-0", 0, 0), ("10", 0, 10), ("-7", 0, -7), ("1e1", 0, 10), ("10.0", 0, 10),
            ("1.5e1", 0, 15), ("100e-2", 0, 1), ("1.5", 0, nil), ("1e-1", 0, nil), ("1e19", 0, nil),
            ("999999999999999999", 0, 999_999_999_999_999_999), ("99999999999999999999", 0, nil),
            ("0e999999999999999999999", 0, 0), ("1e999999999999999999999", 0, nil), ("1.5", 3, 1500),
            ("1700000000.123", 3, 1_700_000_000_123), ("1.7e9", 3, 1_700_000_000_000),
            ("1.00000000000000000000000000", 0, 1), ("1700000000.1239999999999999999999", 3, nil),
        ] as [(String, Int, Int64?)])
    func numbers(text: String, decimals: Int, value: Int64?) {
        let bytes = Array(text.utf8)
        #expect(bytes.withUnsafeBytes { JSONNumber.value(of: $0, decimals: decimals, exact: true) } == value)
    }

    @Test("cuts excess precision if allowed")
    func cut() {
        let bytes = Array("1700000000.1239999999999999999999".utf8)
        let value = bytes.withUnsafeBytes { JSONNumber.value(of: $0, decimals: 3, exact: false) }
        #expect(value == 1_700_000_000_123)
        let tiny = Array("1e-999999999".utf8)
        #expect(tiny.withUnsafeBytes { JSONNumber.value(of: $0, decimals: 3, exact: false) } == 0)
    }

    @Test("writes any bytes as a string that reads back, with U+FFFD for what is not UTF-8")
    func writeString() throws {
        var everyByte = ByteBuffer()
        everyByte.writeBytes(UInt8(0)...UInt8(0xFF))
        let texts = [
            ByteBuffer(), ByteBuffer(string: "plain"), ByteBuffer(string: "\"\\/\u{8}\u{C}\n\r\t\0\u{1F}\u{7F}é😀"),
            everyByte,
        ]
        for text in texts {
            var written = ByteBuffer()
            written.writeJSONString(text)
            try written.withUnsafeReadableBytes { bytes in
                try JSONScanner.validate(bytes)
                var scanner = JSONScanner(bytes)
                let string = try scanner.string()
                let read = JSONText.withCharacters(of: string, in: bytes) { String(decoding: $0, as: UTF8.self) }
                #expect(read == String(decoding: text.readableBytesView, as: UTF8.self))
            }
        }
    }

    @Test("writes integers in decimal", arguments: [0, 7, -7, 10, 1_700_000_000_123, Int64.max, Int64.min])
    func writeInteger(value: Int64) {
        var buffer = ByteBuffer()
        buffer.writeJSONInteger(value)
        #expect(String(buffer: buffer) == "\(value)")
    }
}
