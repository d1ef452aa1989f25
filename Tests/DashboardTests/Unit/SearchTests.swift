import Testing

@testable import Dashboard

@Suite("The search of the dashboard")
struct SearchTests {
    @Test("takes eight or more hex digits for a device token", arguments: ["00fc13ad", "00FC13AD", "deadbeefcafe0123"])
    func token(text: String) { #expect(SearchPage.isToken(text)) }

    @Test(
        "takes no other text for one", arguments: ["", "00fc13a", "spring-sale", "00fc13ag", "00fc 13ad", "００ｆｃ１３ａｄ"])
    func noToken(text: String) { #expect(!SearchPage.isToken(text)) }

    @Test("A viewer cannot find out a token digit by digit")
    func beginnings() {
        let digits = "0123456789abcdef01"
        var visitor = Visitor(role: .viewer, seesContent: false)
        #expect(DevicePage.searched(digits, by: visitor) == "01234567")
        #expect(DevicePage.searched("0123", by: visitor) == "0123")
        visitor.seesContent = true
        #expect(DevicePage.searched(digits, by: visitor) == digits)
    }

    @Test("One visitor's searches of whole queues are few, and do not keep others from theirs")
    func wholeSearches() async throws {
        let (searches, gate) = (WholeSearches(), TestGate())
        @Sendable func visitor(_ name: String) -> Visitor { Visitor(name: name, role: .viewer, seesContent: false) }
        let began = AsyncStream<Void>.makeStream()
        var begun = began.stream.makeAsyncIterator()
        @Sendable func wait() async throws {
            began.continuation.yield()
            while !gate.isOpen { try await Task.sleep(for: .milliseconds(5)) }
        }
        let running = (0..<WholeSearches.ofVisitor).map { _ in
            Task { try await searches.run(for: visitor("vic")) { try await wait() } }
        }
        for _ in running { await begun.next() }
        let refusal = await #expect(throws: WebError.self) { try await searches.run(for: visitor("vic")) {} }
        #expect(refusal?.status == .tooManyRequests && refusal?.retryAfter != nil)
        #expect(try await searches.run(for: visitor("ada")) { 7 } == 7)
        gate.open()
        for one in running { try await one.value }
        #expect(try await searches.run(for: visitor("vic")) { 8 } == 8)
    }

    @Test("finds names that contain a text, ignoring case, and marks the whole name")
    func names() {
        let found = SearchPage.matching("Spring", ["spring", "spring-sale", "autumn", "offspring"])
        #expect(found.map(\.name) == ["spring", "spring-sale", "offspring"])
        #expect(found.map(\.isExact) == [true, false, false])
        #expect(SearchPage.matching("x", (0..<50).map { "x\($0)" }).count == 20)
    }
}
