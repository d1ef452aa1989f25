import Foundation
import NIOCore
import TestSupport
import Testing

@testable import PushJob

@Suite("JSON mutations")
struct JSONMutationTests {
    static let job = #"""
        {"id":"o-17\u002f3","token":"a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90",
         "topic":"com.example.app","priority":10,"expiration":"1h30m","send_at":"2030-01-31T12:00:00.5+02:00",
         "collapse_id":"a b","extra":[true,false,null,-1.5e+3,{"x":"\uD83D\uDE00"}],"on_uncertain":"drop",
         "payload":{"aps":{"alert":{"title":"Grüße 😀","body":"\"quoted\"\n"},"badge":3},"n":0.25}}
        """#

    @Test("no prefix of a job is a job or JSON")
    func truncations() {
        let bytes = Array(Self.job.utf8)
        #expect(bytes.jsonError == nil)
        #expect(throws: Never.self) { try JobDecoder.decode(ByteBuffer(bytes: bytes)) }
        for length in 0..<bytes.count {
            let part = Array(bytes[..<length])
            #expect(part.jsonError == JSONError(kind: .unexpectedEnd, offset: length), "cut at \(length)")
            let error = #expect(throws: JobError.self) { try JobDecoder.decode(ByteBuffer(bytes: part)) }
            #expect(error == .malformedJSON(JSONError(kind: .unexpectedEnd, offset: length)), "cut at \(length)")
        }
    }

    @Test("the scanner, the decoder and Foundation agree on jobs with one changed byte")
    func everyByteEveryValue() {
        let original = Array(
            #"{"token":"0aF9","payload":{"a":[1,-0.5e1,"\u00e9\n","é"]},"x":tru"#.utf8 + Array("e}".utf8))
        #expect(original.jsonError == nil)
        for index in original.indices {
            for value in UInt8.min...UInt8.max {
                var bytes = original
                bytes[index] = value
                compare(bytes)
            }
        }
    }

    @Test("on 30,000 documents with up to four random changes, the scanner, the decoder and Foundation agree")
    func randomChanges() {
        var random = SeededGenerator(seed: 0x5EED)
        let seeds = [Self.job] + Self.fragments
        var good = 0
        for _ in 0..<30_000 {
            var bytes = Array(seeds[Int.random(in: 0..<seeds.count, using: &random)].utf8)
            for _ in 0..<Int.random(in: 1...4, using: &random) { Self.change(&bytes, using: &random) }
            if compare(bytes) { good += 1 }
        }
        // With few documents of either kind, the comparison would prove little.
        #expect((2000..<28_000).contains(good), "\(good) documents were good")
    }

    static let fragments = [
        #"{"a":[1,2.5,-3e4,"x\u0041\\"],"b":{"c":null,"d":[true,false]}}"#,
        #"["\uD83D\uDE00","\u0000\u001f","a\/b",""]"#,
        "[\"Grüße\",\"😀\",\"\u{7FF}\u{800}\u{FFFF}\u{10000}\"]",
        " [ 0 , -0 , 1e5 , 1.25E-2 , 10 ] ",
        "{\"\":{},\"k\":[[[[]]]],\n\t\"k2\":\"v\"}\r\n",
    ]

    /// Pieces that often matter to a parser.
    private static let pieces: [[UInt8]] =
        [
            "\"", "\\", "{", "}", "[", "]", ",", ":", " ", "\n", "0", "1", "-", "+", ".", "e", "E", "t", "null", "true",
            "\\u", "\\uD800", "\\uDC00", "\\uD83D\\uDE00", "\\n", "\\/", "\u{0}", "\u{1F}", "\u{7F}", "é", "😀", "[]",
            "{}", "\"a\":1", ",1", "00",
        ].map { Array($0.utf8) } + [
            [0x80], [0xC0, 0x80], [0xED, 0xA0, 0x80], [0xF4, 0x90, 0x80, 0x80], [0xFF], [0xE2, 0x82],
        ]

    static func change(_ bytes: inout [UInt8], using random: inout SeededGenerator) {
        let index = Int.random(in: 0...bytes.count, using: &random)
        switch Int.random(in: 0..<6, using: &random) {
        case 0 where index < bytes.count: bytes[index] = .random(in: 0...255, using: &random)
        case 1 where index < bytes.count: bytes.remove(at: index)
        case 2: bytes.insert(.random(in: 0x20...0x7E, using: &random), at: index)
        case 3 where index < bytes.count: bytes[index] ^= 1 << UInt8.random(in: 0..<8, using: &random)
        case 4 where bytes.count > 1:
            let other = Int.random(in: 0..<bytes.count, using: &random)
            if index < bytes.count { bytes.swapAt(index, other) }
        default: bytes.insert(contentsOf: pieces[Int.random(in: 0..<pieces.count, using: &random)], at: index)
        }
    }

    /// The known differences of Foundation from RFC 8259, or from the rules of this project.
    private enum Difference {
        /// Foundation accepts UTF-8 with a byte order mark, and UTF-16 and UTF-32, which it recognizes by their NUL bytes. RFC 8259, 8.1:
        /// "JSON text … MUST be encoded using UTF-8", and no mark may be added. The scanner refuses them.
        static func isOtherEncoding(_ bytes: [UInt8]) -> Bool {
            bytes.starts(with: [0xEF, 0xBB, 0xBF]) || bytes.starts(with: [0xFE, 0xFF])
                || bytes.starts(with: [0xFF, 0xFE]) || bytes.prefix(4).contains(0)
        }

        /// Foundation converts numbers, and refuses those that a double cannot hold. RFC 8259, 6, allows them; nothing
        /// here needs their value.
        static func hasHugeNumber(_ error: NSError) -> Bool {
            (error.userInfo[NSDebugDescriptionErrorKey] as? String)?.contains("not representable") ?? false
        }
    }

    /// - Returns: true if the document is JSON.
    @discardableResult
    private func compare(_ bytes: [UInt8]) -> Bool {
        let scannerError = bytes.jsonError
        var foundation: Any?
        var foundationError: NSError?
        do {
            foundation = try JSONSerialization.jsonObject(with: Data(bytes), options: [.fragmentsAllowed])
        } catch {
            foundationError = error as NSError
        }
        if let foundationError {
            #expect(
                scannerError != nil || Difference.hasHugeNumber(foundationError),
                "only the scanner takes \(bytes): \(String(decoding: bytes, as: UTF8.self)) \(foundationError)")
        } else if let scannerError, scannerError.kind == .trailingComma {
            // Foundation on Linux accepts a comma before a closing bracket, which the grammar (RFC 8259, 4 and 5) does not allow. Without
            // that comma, both parsers must agree.
            var rest = bytes
            rest.remove(at: scannerError.offset)
            compare(rest)
        } else if let scannerError {
            #expect(
                Difference.isOtherEncoding(bytes),
                "only Foundation takes \(bytes): \(String(decoding: bytes, as: UTF8.self)) \(scannerError)")
        }
        compareJob(bytes, scannerError, foundation as? [String: Any])
        return scannerError == nil
    }

    private func compareJob(_ bytes: [UInt8], _ scannerError: JSONError?, _ object: [String: Any]?) {
        do {
            let job = try JobDecoder.decode(ByteBuffer(bytes: bytes))
            #expect(scannerError == nil, "decoded, but not JSON: \(String(decoding: bytes, as: UTF8.self))")
            guard let object else { return }
            let texts = [("token", job.token), ("id", job.id), ("topic", job.topic), ("collapse_id", job.collapseID)]
            for (name, field) in texts { #expect(job.string(field) == object[name] as? String) }
            #expect(job.priority == (object["priority"] as? NSNumber)?.intValue)
            let payload = try JSONSerialization.jsonObject(with: Data(job.bytes(job.payload).readableBytesView))
            #expect(payload as? NSDictionary == object["payload"] as? NSDictionary)
        } catch let error as JobError {
            if let scannerError {
                #expect(error.plain == .malformedJSON(scannerError))
            } else {
                #expect(error.code.rawValue != "MalformedJSON", "\(String(decoding: bytes, as: UTF8.self))")
            }
        } catch {
            Issue.record("Foundation refuses a payload that was taken: \(error)")
        }
    }
}
