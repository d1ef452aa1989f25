import Foundation
import TestSupport
import Testing

@testable import TLS

@Suite("Base64")
struct Base64Tests {
    @Test("decodes what Foundation encodes, with and without padding and line breaks")
    func roundTrip() throws {
        var generator = SeededGenerator(seed: 5)
        for length in 0..<200 {
            let bytes = (0..<length).map { _ in UInt8.random(in: 0...255, using: &generator) }
            let text = Data(bytes).base64EncodedString()
            #expect(try Base64.decode(text.utf8) == bytes)
            #expect(try Base64.decode(text.replacing("=", with: "").utf8) == bytes)
            let broken = Data(bytes).base64EncodedString(options: [.lineLength64Characters, .endLineWithCarriageReturn])
            #expect(try Base64.decode(" \(broken)\n".utf8) == bytes)
            let url = text.replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
            #expect(Base64.decodeURL(url.utf8) == bytes)
        }
    }

    @Test(
        "reports the position of the error",
        arguments: [
            ("!", 1), ("QUJD!", 5), ("QUJD-", 5), ("A", 2), ("QUJDR", 6), ("=", 1), ("Q=", 2), ("QU=J", 4),
            ("QUI==", 5),
            ("QU=", 4), ("QUJD=", 5), ("QU===", 5), ("-----BEGIN", 1), ("QÜ", 2),
        ])
    func malformed(text: String, position: Int) {
        #expect(throws: Base64.Malformed(position: position)) { try Base64.decode(text.utf8) }
    }

    @Test(
        "for URLs accepts neither padding nor white space, nor another spelling of the same bytes",
        arguments: ["QQ==", "QR", "QUJ", "QUK", "Q", "QU JD", "QU\n", "QU+/", "QUJDR"])
    func strict(text: String) { #expect(Base64.decodeURL(text.utf8) == nil) }
}
