import HTTPPort
import Testing

@Suite("The addresses of clients behind proxies")
struct TrustedProxiesTests {
    @Test(
        "are what trusted proxies say",
        arguments: [
            // The connection is not from a trusted proxy.
            ([], "192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
            (["10.0.0.0/8"], "192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
            // One proxy. The client may have written the values before the proxy's.
            (["10.0.0.0/8"], "10.1.2.3", ["198.51.100.7"], "198.51.100.7"),
            (["10.0.0.0/8"], "10.1.2.3", ["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            (["10.0.0.0/8"], "10.1.2.3", ["203.0.113.9", "198.51.100.7"], "198.51.100.7"),
            // Several proxies.
            (["10.0.0.0/8", "::1"], "::1", ["203.0.113.9, 198.51.100.7, 10.9.9.9"], "198.51.100.7"),
            // Only proxies.
            (["10.0.0.0/8"], "10.1.2.3", ["10.0.0.9"], "10.0.0.9"), (["10.0.0.0/8"], "10.1.2.3", [], "10.1.2.3"),
            // Ports, brackets and mapped addresses.
            (["10.0.0.1"], "::ffff:10.0.0.1", ["198.51.100.7:4711"], "198.51.100.7"),
            (["fd00::/8"], "fd12::1", ["[2001:db8::1]:4711"], "2001:db8::1"),
            (["fd00::/8"], "fd12::1", ["2001:db8::1"], "2001:db8::1"),
            // Not an address.
            (["10.0.0.0/8"], "10.1.2.3", ["unknown"], "10.1.2.3"),
            (["10.0.0.0/8"], "10.1.2.3", ["198.51.100.7, , 10.0.0.2"], "10.0.0.2"),
            (["10.0.0.0/8"], "10.1.2.3", [""], "10.1.2.3"), (["0.0.0.0/0"], "local", ["1.2.3.4"], "local"),
            // Ranges that end within a byte.
            (["10.0.0.0/9"], "10.127.0.1", ["1.2.3.4"], "1.2.3.4"),
            (["10.0.0.0/9"], "10.128.0.1", ["1.2.3.4"], "10.128.0.1"),
        ] as [([String], String, [String], String)])
    func client(trusted: [String], peer: String, forwarded: [String], expected: String) throws {
        #expect(try TrustedProxies(trusted).client(of: peer, forwarded: forwarded) == expected)
    }

    @Test(
        "need addresses or ranges",
        arguments: ["", "proxy", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "::/129", "10.0.0"])
    func malformed(text: String) { #expect(throws: TrustedProxies.Malformed.self) { try TrustedProxies([text]) } }

    @Test("of IPv6 belong together if their first half is the same")
    func groups() {
        #expect(TrustedProxies.group(of: "2001:db8::1") == TrustedProxies.group(of: "2001:db8:0:0:ffff::2"))
        #expect(TrustedProxies.group(of: "2001:db8::1") != TrustedProxies.group(of: "2001:db8:0:1::1"))
        #expect(TrustedProxies.group(of: "192.0.2.1") == "192.0.2.1")
    }
}
