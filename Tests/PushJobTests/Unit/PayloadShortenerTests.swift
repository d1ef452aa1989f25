import Foundation
import NIOCore
import TestSupport
import Testing

@testable import PushJob

@Suite("Shortened payloads")
struct PayloadShortenerTests {
    /// Returns the payload that is sent for a job with this payload and `truncate`.
    static func sent(_ payload: String, limit: Int) throws -> String {
        let job = try decodeJob(#"{"token":"ab","truncate":true,"payload":\#(payload)}"#)
        return String(buffer: try job.payload(limit: limit))
    }

    private static func error(_ payload: String, limit: Int) -> JobError? {
        #expect(throws: JobError.self) { try sent(payload, limit: limit) }
    }

    @Test("a payload that fits is unchanged, to the byte")
    func fits() throws {
        let payload = #"{"aps":{"alert":"Hello"}}"#
        #expect(try Self.sent(payload, limit: payload.utf8.count) == payload)
        #expect(try Self.sent(payload, limit: payload.utf8.count - 1) == #"{"aps":{"alert":"H…"}}"#)
    }

    @Test("without truncate nothing is shortened")
    func unasked() throws {
        let long = String(repeating: "x", count: 5000)
        for members in [#""payload":{"aps":{"alert":"\#(long)"}}"#, #""alert":"\#(long)""#] {
            #expect(try decodeJob(shortJob(members)).payload(limit: 4096).readableBytes > 5000)
        }
    }

    @Test("everything except the body is unchanged, whether the alert is a string or an object")
    func rest() throws {
        let payload =
            #"{ "a":[1] , "\u0061ps" : {"badge":1, "alert" : { "title":"Hello World", "body" : "Hello World" }} , "b":"World" }"#
        let short = try Self.sent(payload, limit: payload.utf8.count - 1)
        #expect(
            short
                == #"{ "a":[1] , "\u0061ps" : {"badge":1, "alert" : { "title":"Hello World", "body" : "Hello…" }} , "b":"World" }"#
        )
    }

    @Test("short forms are shortened too")
    func shortForms() throws {
        let job = try decodeJob(
            shortJob(#""truncate":true,"alert":{"body":"Hello World","title":"T"},"custom":{"a":1}"#))
        let whole = #"{"aps":{"alert":{"body":"Hello World","title":"T"}},"a":1}"#
        #expect(String(buffer: try job.payload(limit: whole.utf8.count)) == whole)
        #expect(
            String(buffer: try job.payload(limit: whole.utf8.count - 2))
                == #"{"aps":{"alert":{"body":"Hello…","title":"T"}},"a":1}"#)
    }

    @Test("it ends after a word if that is at most 20 characters back, without the space")
    func words() throws {
        func body(_ text: String, _ room: Int) throws -> String {
            let frame = #"{"aps":{"alert":""}}"#.utf8.count
            return String(
                try Self.sent(#"{"aps":{"alert":"\#(text)"}}"#, limit: frame + room).dropFirst(17).dropLast(3))
        }
        #expect(try body("Hello World", 9) == "Hello…")
        #expect(try body("Hello World", 8) == "Hello…")
        #expect(try body("Hello World", 7) == "Hell…")
        #expect(try body("Hello   World", 10) == "Hello…")
        #expect(try body("   HelloWorld", 9) == "   Hel…")
        let word = String(repeating: "x", count: 30)
        #expect(try body("Hello " + word, 3 + 6 + 19) == "Hello…")
        #expect(try body("Hello " + word, 3 + 6 + 20) == "Hello \(String(repeating: "x", count: 20))…")
        #expect(try body(#"Hello\nWorld"#, 11) == "Hello…")
        #expect(try body("Hello", 3) == "…")
        #expect(try body("Hello", 2) == "")
        #expect(try body("Hello", 0) == "")
    }

    @Test(
        "a character is never cut",
        arguments: [
            "👨‍👩‍👧‍👦", "🇩🇪", "e\u{301}\u{302}", "각", "\u{1112}\u{1161}\u{11AB}", "👍🏽", "नि", "\u{D}\u{A}", "❤️",
        ])
    func characters(character: String) throws {
        #expect(character.count == 1)
        for writing in Self.writings(of: character) {
            let body = "ab" + writing + "cd"
            let frame = #"{"aps":{"alert":""}}"#.utf8.count
            // From a limit at which the character just does not fit to a limit at which it fits.
            for room in 5..<(body.utf8.count) {
                let text = try Self.body(of: Self.sent(#"{"aps":{"alert":"\#(body)"}}"#, limit: frame + room))
                let isWhitespace = character.allSatisfy(\.isWhitespace)
                let expected =
                    room < 5 + writing.utf8.count || isWhitespace
                    ? "ab…" : room < 6 + writing.utf8.count ? "ab\(character)…" : nil
                if let expected { #expect(text == expected, "\(writing) in \(room)") }
            }
        }
    }

    /// Returns a text as it is, and with all characters escaped. A control character must be escaped.
    private static func writings(of text: String) -> [String] {
        let escaped = text.utf16.map { "\\u" + String(0x10000 + Int($0), radix: 16).dropFirst() }.joined()
        return text.unicodeScalars.contains { $0.value < 0x20 } ? [escaped, #"\r\n"#] : [text, escaped]
    }

    private static func body(of payload: String) throws -> String? {
        let object = try JSONSerialization.jsonObject(with: Data(payload.utf8)) as? [String: Any]
        let alert = (object?["aps"] as? [String: Any])?["alert"]
        return alert as? String ?? (alert as? [String: Any])?["body"] as? String
    }

    @Test("without a body to shorten, the error has the number of excess bytes")
    func tooLong() {
        let cases = [
            (#"{"aps":{"alert":"abc"}}"#, 10, 10), (#"{"aps":{"badge":1}}"#, 10, 9), (#"{"a":"bcdefghijkl"}"#, 9, 10),
            (#"{"aps":{"alert":{"title":"abc"}}}"#, 30, 3), (#"{"aps":{"alert":{"body":{"loc-key":"abc"}}}}"#, 40, 4),
            (#"{"aps":[{"alert":"abc"}]}"#, 24, 1), (#"{"alert":"abc"}"#, 14, 1), ("{}", 0, 2),
        ]
        for (payload, limit, excess) in cases {
            #expect(Self.error(payload, limit: limit) == .payloadTooLong(excess: excess, limit: limit), "\(payload)")
        }
        let description = JobError.payloadTooLong(excess: 7, limit: 4096).description
        #expect(description.hasPrefix("the payload is 7 bytes too long for the limit of 4096"))
    }

    /// A text and its written form: scalar by scalar, each plain or escaped.
    private struct Written {
        var scalars: [(scalar: Unicode.Scalar, raw: String)] = []

        var text: String {
            var text = ""
            text.unicodeScalars.append(contentsOf: scalars.map(\.scalar))
            return text
        }

        var raw: String { scalars.map(\.raw).joined() }

        /// The written lengths in bytes of the first 0, 1, 2, … characters.
        var lengths: [Int] {
            var lengths = [0]
            var rest = scalars[...]
            for character in text {
                let count = character.unicodeScalars.count
                lengths.append(lengths[lengths.count - 1] + rest.prefix(count).reduce(0) { $0 + $1.raw.utf8.count })
                rest = rest.dropFirst(count)
            }
            return lengths
        }

        init(using random: inout SeededGenerator) {
            let pieces = [
                "a", "b", "Wort ", " ", "  ", "lang", "é", "e\u{301}", "👨‍👩‍👧‍👦", "🇩🇪", "🇫", "👍🏽", "각",
                "\u{1112}\u{1161}\u{11AB}",
                "\"", "\\", "\n", "\r\n", "\t", "\u{0}", "/", "中文", "ไทย", "नि", "\u{200D}", "\u{FE0F}", "\u{A0}",
                "\u{600}", "…", "\u{10FFFF}",
            ]
            // Long texts are not read from their start, so some must have plain stretches and some must not.
            let isPlain = Bool.random(using: &random)
            for _ in 0..<Int.random(in: 0...(Bool.random(using: &random) ? 40 : 400), using: &random) {
                if isPlain, Int.random(in: 0..<10, using: &random) > 0 {
                    scalars += "plain ".unicodeScalars.map { ($0, String($0)) }
                    continue
                }
                for scalar in pieces[.random(in: 0..<pieces.count, using: &random)].unicodeScalars {
                    scalars.append((scalar, Self.writing(of: scalar, using: &random)))
                }
            }
        }

        private static func writing(of scalar: Unicode.Scalar, using random: inout SeededGenerator) -> String {
            let short: [Unicode.Scalar: String] = [
                "\"": #"\""#, "\\": #"\\"#, "\n": #"\n"#, "\r": #"\r"#, "\t": #"\t"#, "/": #"\/"#,
            ]
            let mustEscape = scalar.value < 0x20 || scalar == "\"" || scalar == "\\"
            if !mustEscape, Bool.random(using: &random) { return String(scalar) }
            if let short = short[scalar], Bool.random(using: &random) { return short }
            return Character(scalar).utf16.map { "\\u" + String(0x10000 + Int($0), radix: 16).dropFirst() }.joined()
        }
    }

    /// Returns the number of characters to keep, found by trying: up to the end of a word if that is within the last 20 characters that
    /// fit, otherwise all that fit.
    private static func kept(_ written: Written, room: Int) -> Int {
        let characters = Array(written.text)
        let lengths = written.lengths
        let most = lengths.lastIndex { $0 + 3 <= room } ?? 0
        for count in stride(from: most, through: max(1, most - 20), by: -1) where count < characters.count && count > 0
        {
            if characters[count].isWhitespace, !characters[count - 1].isWhitespace { return count }
        }
        return most
    }

    @Test("on 2,000 random texts and limits it fits, is JSON, and is the longest valid prefix")
    func properties() throws {
        var random = SeededGenerator(seed: 0xFEED)
        var shortened = 0
        for _ in 0..<2000 {
            let written = Written(using: &random)
            let isObject = Bool.random(using: &random)
            let (start, end) =
                isObject
                ? (#"{"aps":{"alert":{"body":""#, #"","title":"t"}},"x":"é"}"#) : (#"{"aps":{"alert":""#, #""}}"#)
            let payload = start + written.raw + end
            let frame = start.utf8.count + end.utf8.count
            let limit = Int.random(in: (frame - 2)...(payload.utf8.count + 2), using: &random)
            if limit < frame {
                #expect(Self.error(payload, limit: limit) == .payloadTooLong(excess: frame - limit, limit: limit))
                continue
            }
            let result = try Self.sent(payload, limit: limit)
            #expect(result.utf8.count <= limit)
            #expect(Array(result.utf8).jsonError == nil)
            if payload.utf8.count <= limit {
                #expect(result == payload)
                continue
            }
            shortened += 1
            let room = limit - frame
            let characters = Array(written.text)
            let expected = room < 3 ? "" : String(characters.prefix(Self.kept(written, room: room))) + "…"
            // As bytes, because a body can begin with a mark that forms one character with the quote before it.
            #expect(result.utf8.starts(with: start.utf8) && result.utf8.reversed().starts(with: end.utf8.reversed()))
            // As scalars, because Swift's strings are equal if they are canonically equal.
            #expect(
                try Self.body(of: result).map { Array($0.unicodeScalars) } == Array(expected.unicodeScalars),
                "\(payload) in \(limit): \(result) not \(expected.debugDescription)")
        }
        #expect(shortened > 700, "\(shortened)")
    }

    @Test("bodies of megabytes, of one word or one character, are shortened quickly")
    func huge() throws {
        for piece in ["x", " ", "\u{301}", #"\u0301"#, "👍", "ab "] {
            let body = String(repeating: piece, count: 1_000_000)
            let result = try Self.sent(#"{"aps":{"alert":"\#(body)"}}"#, limit: 4096)
            #expect(result.utf8.count <= 4096 && result.hasSuffix(#"…"}}"#))
        }
    }
}
