import Testing

@testable import Operations

@Suite("The tokens that begin with some digits")
struct TokenMatchesTests {
    private static let one = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

    @Test(
        "a beginning has eight digits or more, and fewer than a token",
        arguments: [
            ("00fc13ad", true), ("00FC13ADF", true), (String(one.dropLast()), true), (one, false), ("00fc13a", false),
            ("", false), ("00fc13ag", false), ("00fc13ad…", false),
        ])
    func beginnings(text: String, isOne: Bool) {
        #expect((TokenMatches(text) != nil) == isOne)
    }

    @Test("each token is found once, however it is written, and at most some")
    func found() throws {
        var matches = try #require(TokenMatches("00FC13AD"))
        for form in TokenText.forms(ofHex: Self.one) + [Self.one.uppercased()] { matches.add(form) }
        matches.add("10" + Self.one.dropFirst(2))
        matches.add("00fc13ad-channel")
        #expect(matches.tokens == [Self.one] && !matches.isPartial)
        for number in 0..<TokenMatches.limit { matches.add("00fc13ad" + String(100 + number) + "0") }
        #expect(matches.tokens.count == TokenMatches.limit && matches.isPartial)
    }
}
