import PrintableText
import Testing

@Suite("Foreign texts")
struct PrintableTextTests {
    @Test("are unchanged if printable", arguments: ["", "plain", "Grüße 👩‍👩‍👧 e\u{301}", "  a\u{A0}b  ", "שלום عليكم नमस्ते"])
    func kept(_ text: String) {
        #expect(text.printable == text)
        #expect(text.printable(replacing: "?", atMost: 100) == text)
    }

    @Test("cannot harm a terminal or a log line")
    func hostile() {
        let controls = "\u{1B}[31m\0a\r\nb\u{7F}\u{85}\u{9B}c\u{2028}\u{2029}\t"
        #expect(controls.printable == "[31mabc")
        #expect(controls.printable(replacing: "?", atMost: 100) == "?[31m?a??b???c???")
        // Trojan Source: these characters make a terminal show the text between them in another order.
        let turned = "a\u{202E}\u{2066}b\u{2069}\u{200F}\u{061C}c\u{FEFF}"
        #expect(turned.printable == "abc")
    }

    @Test("can be cut by Unicode characters, not by bytes")
    func cut() { #expect("éé\u{0}éé".printable(replacing: "?", atMost: 4) == "éé?é") }

    @Test(
        "lose white space around them, and none within",
        arguments: [
            ("", ""), (" ", ""), (" \t\r\n\u{A0}", ""), ("a", "a"), ("\u{2028} a  b\r\n", "a  b"),
            ("é\u{301} ", "é\u{301}"),
        ])
    func trimmed(text: String, expected: String) {
        #expect(text.trimmed == expected && text[...].trimmed == expected && "x\(text)".dropFirst().trimmed == expected)
    }

    @Test("are made of bytes as lower-case hex digits")
    func hex() {
        #expect([0, 9, 10, 0x9F, 0xA0, 255].hex == "00090a9fa0ff" && [UInt8]().hex == "")
    }

    @Test("are hexadecimal only with digits of ASCII")
    func hexadecimal() {
        for text in ["0", "09afAF"] { #expect(text.isHexadecimal, "\(text)") }
        for text in ["g", "0x1", "+1", "０", "é", "1 "] { #expect(!text.isHexadecimal, "\(text)") }
    }
}
