import Testing

@testable import HTTPPort

@Suite("Requests that web pages make")
struct ForeignRequestsTests {
    private let rule = ForeignRequests(names: ["Simulator"])

    @Test(
        "exclude requests for an address, localhost or a configured name",
        arguments: [
            "localhost", "localhost:8444", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8444", "10.1.2.3:80", "[::1]",
            "[::1]:8444", "[fe80::1]:80", "simulator:8444", "SIMULATOR",
        ])
    func own(host: String) {
        #expect(rule.refusal(host: host, origin: nil) == nil)
        #expect(rule.refusal(host: host, origin: "http://\(host)") == nil)
    }

    @Test(
        "include requests for another name, or for an invalid one",
        arguments: [
            "evil.example", "evil.example:8444", "localhost.evil.example", "127.0.0.1.evil.example", "localhost@evil",
            "2130706433", "127.1", "0x7f000001", "[evil]", "[::1", "[::1]x", "localhost:x", "localhost:99999",
            "127.0.0.1:80:80", "::1", "", " localhost", "127.0.0.1, evil",
        ])
    func foreign(host: String) { #expect(rule.refusal(host: host, origin: nil) != nil) }

    @Test(
        "include those from another origin, and those that hide theirs",
        arguments: [
            "http://evil.example", "https://127.0.0.1:8444", "http://127.0.0.1", "http://127.0.0.1:8445", "null",
            "http://127.0.0.1:8444.evil.example", "",
        ])
    func origin(_ origin: String) {
        #expect(rule.refusal(host: "127.0.0.1:8444", origin: origin) != nil)
        #expect(rule.refusal(host: nil, origin: origin) != nil)
    }

    @Test("exclude those of clients that send neither")
    func neither() { #expect(rule.refusal(host: nil, origin: nil) == nil) }
}
