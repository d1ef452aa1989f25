import Foundation
import PrintableText
import TestSupport
import Testing

@testable import TokenLists

@Suite("Lists of device tokens")
struct ListedTokensTests {
    /// The result of reading a list.
    private struct Read: Equatable {
        var tokens: [String]
        /// The numbers of the lines that are not tokens.
        var refused: [Int] = []
        var repeated = 0
    }

    private static func read(_ list: Data, _ format: TokenListFormat = .lines) throws -> Read {
        var refused: [Int] = []
        let listed = try listed(list, format) { refused.append($0.line) }
        var tokens: [String] = []
        while let token = try listed.tokens.next() { tokens.append(token.hex) }
        #expect(tokens.count == listed.tokens.count && refused.count == listed.refused)
        return Read(tokens: tokens, refused: refused, repeated: listed.tokens.repeated)
    }

    private static func listed(
        _ list: Data, _ format: TokenListFormat = .lines, refusal: (ListedTokens.Refusal) -> Void = { _ in }
    ) throws -> ListedTokens {
        let directory = FileManager.default.temporaryDirectory.path
        let descriptor = try ScratchFile.open(in: directory)
        let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: false)
        try file.write(contentsOf: list)
        try file.seek(toOffset: 0)
        return try ListedTokens(
            ListInput(descriptor: descriptor, closes: true), format, in: directory, refusal: refusal)
    }

    private static func read(_ list: String, _ format: TokenListFormat = .lines) throws -> Read {
        try read(Data(list.utf8), format)
    }

    private static func expectFailure(_ words: String, _ list: Data, _ format: TokenListFormat = .lines) {
        do {
            _ = try read(list, format)
            Issue.record("it was read")
        } catch { #expect("\(error)".contains(words), "\(error)") }
    }

    @Test("Lines can have white space, capitals, a byte order mark, CRLF, base64, and no last line end.")
    func lines() throws {
        let bytes = Data((0..<32).map { UInt8($0 * 7) })
        let list = "\u{FEFF}ABcd\r\n\r\n  \n <0102 0304>\n\(bytes.base64EncodedString())\nzz\nab\n01 02"
        let expected = ["abcd", "01020304", bytes.hex, "ab", "0102"]
        #expect(try Self.read(list) == Read(tokens: expected, refused: [6]))
    }

    @Test("Only the first of equal tokens remains, in whatever form it is written.")
    func repetitions() throws {
        #expect(try Self.read("ab\ncd\nAB\n<a b>\ncd\nab01\n") == Read(tokens: ["ab", "cd", "ab01"], repeated: 3))
    }

    @Test("Of many tokens in any order the first ones remain, exactly.")
    func manyTokens() throws {
        var random = SeededGenerator(seed: 41)
        var (tokens, unique, known) = ([String](), [String](), Set<String>())
        for _ in 0..<60_000 {
            // Some tokens are long, and all have the same beginning and end.
            let number = UInt32.random(in: 0..<40_000, using: &random)
            let token = String(repeating: "ab", count: number % 50 == 0 ? 900 : 12) + String(number + 100_000) + "cd"
            tokens.append(token)
            if known.insert(token).inserted { unique.append(token) }
        }
        let read = try Self.read(tokens.joined(separator: "\n"))
        #expect(read == Read(tokens: unique, repeated: tokens.count - unique.count))
    }

    // MARK: Shares

    /// Returns the tokens of a list, those of a share first, and the number of tokens in the share.
    private static func ordered(_ tokens: [String], _ share: TokenShare) throws -> (tokens: [String], first: Int) {
        let listed = try listed(Data(tokens.joined(separator: "\n").utf8))
        let digest = listed.tokens.digest
        let first = try listed.tokens.putFirst(share)
        #expect(listed.tokens.digest == digest)
        var read: [String] = []
        // Before the second reading, only a part of the list was read.
        for _ in 0..<3 { _ = try listed.tokens.next() }
        listed.tokens.rewind()
        while let token = try listed.tokens.next() { read.append(token.hex) }
        #expect(try listed.tokens.next() == nil)
        return (read, first)
    }

    private static let many = (0..<20_000).map { String(repeating: "ab", count: 28) + String($0 + 10_000_000) }

    /// The numbers of the tokens in a share of 10 percent, among the tokens with the numbers 0 to 199.
    private static let knownShare = [
        2, 27, 34, 37, 52, 53, 66, 92, 101, 103, 128, 129, 137, 154, 158, 159, 161, 172, 197, 199,
    ]

    @Test("A share is read first, the rest after it, each in the order of the list and each once.")
    func share() throws {
        let (read, first) = try Self.ordered(Self.many, TokenShare(percent: 5, name: "spring"))
        let chosen = Set(read.prefix(first))
        #expect(read == Self.many.filter { chosen.contains($0) } + Self.many.filter { !chosen.contains($0) })
    }

    @Test("A share depends neither on the order of the list nor on other tokens, and is the same in each process.")
    func stableShare() throws {
        let share = TokenShare(percent: 2, name: "spring")
        func chosen(_ tokens: [String]) throws -> Set<String> {
            let (read, first) = try Self.ordered(tokens, share)
            return Set(read.prefix(first))
        }
        let all = try chosen(Self.many)
        #expect(try chosen(Self.many.reversed()) == all)
        let half = Array(Self.many.prefix(Self.many.count / 2))
        #expect(try chosen(half) == all.intersection(half))
        // A command that continues after a crash must choose the same tokens.
        let known = (0..<200).filter { number in
            [UInt8(number), 7, 9].withUnsafeBytes { TokenShare(percent: 10, name: "spring").contains($0) }
        }
        #expect(known == Self.knownShare)
    }

    @Test(
        "A share has its size, a larger one includes it, and another name chooses others.", arguments: [0.5, 1, 10, 60])
    func shareSize(percent: Double) throws {
        func chosen(_ percent: Double, _ name: String) throws -> Set<String> {
            let (read, first) = try Self.ordered(Self.many, TokenShare(percent: percent, name: name))
            return Set(read.prefix(first))
        }
        let found = try chosen(percent, "spring")
        let (expected, all) = (percent / 100 * Double(Self.many.count), Double(Self.many.count))
        // Five standard deviations.
        let tolerance = 5 * (expected * (1 - expected / all)).squareRoot()
        #expect(abs(Double(found.count) - expected) < tolerance, "\(found.count)")
        #expect(try chosen(percent + 10, "spring").isSuperset(of: found))
        let both = Double(try chosen(percent, "autumn").intersection(found).count)
        #expect(abs(both - expected * percent / 100) < 5 * (expected * percent / 100).squareRoot() + 1, "\(both)")
    }

    @Test("The digest depends on the tokens and their order only.")
    func digest() throws {
        func digest(_ list: String) throws -> String { try Self.listed(Data(list.utf8)).tokens.digest }
        let known = try digest("ab\ncd\n")
        #expect(try digest("AB\r\n\r\nzz\ncd\nab") == known)
        for other in ["cd\nab", "ab", "abcd", "ab\ncd\nef"] { #expect(try digest(other) != known) }
    }

    @Test(
        "A table's column is found by its name, with quotes and any delimiter.",
        arguments: [
            "id,token,name\r\n1,ab,x\r\n2,\"cd\",\"a \"\"b\"\",\nc\"\r\n\r\n3,ef,y", "id;token\n1;ab\n2;cd\n3;ef\n",
            "id\ttoken\n1\tab\n2\t\"cd\"\n3\tef", "\u{FEFF}\"token\"\nab\ncd\n\nef\n",
            "\"a, \"\"x\"\"\",token\n1,ab\n2, cd \n3,ef\n",
        ])
    func columns(_ list: String) throws {
        #expect(try Self.read(list, .column("token")) == Read(tokens: ["ab", "cd", "ef"]))
    }

    @Test("Rows without a token are refused with the numbers of their first lines.")
    func rows() throws {
        let list = "id,token\n\"1\n2\",ab\n2\n3,\n4,zz\n5,\(String(repeating: "a", count: 9000))\n6,cd\n"
        #expect(try Self.read(list, .column("token")) == Read(tokens: ["ab", "cd"], refused: [4, 5, 6, 7]))
    }

    @Test(
        "A row that does not fit the header yields no other column's value.",
        arguments: [
            ("id,token\n1,2,ab\n3,cd\n", [2]), ("token,id\nab\ncd,1\n", [2]), ("id,token\n1,\"x\"y\n2,cd\n", [2]),
            // The first quotation mark hides the next line.
            ("name,token\n\"Smith,ab\n\"Jones\",ef\nBrown,cd\n", [2]),
        ])
    func misfits(_ list: String, refused: [Int]) throws {
        #expect(try Self.read(list, .column("token")) == Read(tokens: ["cd"], refused: refused))
    }

    @Test("Tokens that are shorter than Apple's are counted.")
    func short() throws {
        let whole = String(repeating: "ab", count: 32)
        let base64 = Data(repeating: 7, count: 32).base64EncodedString()
        let list = try Self.listed(Data("\(whole)\n4711\n\(base64)\n\(whole.dropLast(2))\nzz\n".utf8))
        #expect(list.short.count == 2 && list.short.line == 2 && list.refused == 1)
    }

    @Test("JSON lines are read by a member, and lines without it are refused.")
    func json() throws {
        let list = """
            {"user":1,"token":"ab"}
            {"token":1}
            []

            {"x":{"token":"ee"},"token":"\\u0063d"}
            {"token":"ef"
            {"user":2}
            """
        #expect(try Self.read(list, .member("token")) == Read(tokens: ["ab", "cd"], refused: [2, 3, 6, 7]))
    }

    @Test("gzip is recognized by its content, also in several members and with padding.")
    func gzip() throws {
        let ab = try #require(Data(base64Encoded: "H4sIAAAAAAACA0tM4gIAPphKAQMAAAA="))
        let cd = try #require(Data(base64Encoded: "H4sIAAAAAAACA0tO4QIA1uuUVAMAAAA="))
        #expect(try Self.read(ab + cd + Data(count: 600)) == Read(tokens: ["ab", "cd"]))
        Self.expectFailure("ends early", ab + cd.dropLast(3))
        Self.expectFailure("ends early", ab.prefix(12))
        Self.expectFailure("damaged", ab + Data("xx".utf8))
        var damaged = ab
        damaged[16] ^= 0x55
        Self.expectFailure("damaged", damaged)
    }

    @Test("A list that cannot be what was meant is refused as a whole.")
    func failures() {
        Self.expectFailure("UTF-16", Data([0xFF, 0xFE, 0x61, 0x00]))
        Self.expectFailure("did you mean token?", Data("id,token\n1,ab".utf8), .column("tokn"))
        Self.expectFailure("its header is: a, b", Data("a,b\n1,ab".utf8), .column("registration"))
        Self.expectFailure("several columns token", Data("token,id,token\n1,2,ab".utf8), .column("token"))
        Self.expectFailure("begins in line 3", Data("id,token\n1,ab\n2,\"cd\n3,ef\n".utf8), .column("token"))
    }

    @Test("A line longer than any token is refused without being kept.")
    func longLine() throws {
        let list = Data(repeating: 0x61, count: 3 << 20) + Data("\nab\n".utf8)
        #expect(try Self.read(list) == Read(tokens: ["ab"], refused: [1]))
        #expect(try Self.read(list, .member("token")) == Read(tokens: [], refused: [1, 2]))
    }
}
