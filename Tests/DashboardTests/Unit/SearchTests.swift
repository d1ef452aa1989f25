import Testing

@testable import Dashboard

@Suite("The search of the dashboard")
struct SearchTests {
    @Test("takes eight or more hex digits for a device token", arguments: ["00fc13ad", "00FC13AD", "deadbeefcafe0123"])
    func token(text: String) { #expect(SearchPage.isToken(text)) }

    @Test(
        "takes no other text for one", arguments: ["", "00fc13a", "spring-sale", "00fc13ag", "00fc 13ad", "００ｆｃ１３ａｄ"])
    func noToken(text: String) { #expect(!SearchPage.isToken(text)) }

    @Test("finds names that contain a text, ignoring case, and marks the whole name")
    func names() {
        let found = SearchPage.matching("Spring", ["spring", "spring-sale", "autumn", "offspring"])
        #expect(found.map(\.name) == ["spring", "spring-sale", "offspring"])
        #expect(found.map(\.isExact) == [true, false, false])
        #expect(SearchPage.matching("x", (0..<50).map { "x\($0)" }).count == 20)
    }
}
