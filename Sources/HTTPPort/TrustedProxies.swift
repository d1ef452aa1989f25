import Sockets

/// The proxies whose `X-Forwarded-For` is trusted.
package struct TrustedProxies: Sendable {
    /// A text that is neither an address nor a range of addresses.
    package struct Malformed: Error, CustomStringConvertible {
        package let description: String
    }

    private let ranges: [AddressRange]

    /// - Parameter texts: addresses such as `10.0.0.1`, or ranges such as `10.0.0.0/8` and `fd00::/8`.
    package init(_ texts: [String] = []) throws(Malformed) {
        ranges = try texts.map { (text) throws(Malformed) in
            guard let range = AddressRange(text) else {
                throw Malformed(description: "\(text) is neither an address nor a range such as 10.0.0.0/8")
            }
            return range
        }
    }

    /// Returns the address of a request's client: the last address of the chain that does not belong to a trusted proxy.
    /// - Parameters:
    ///   - peer: the address of the connection's other end.
    ///   - forwarded: the values of `X-Forwarded-For`, in order.
    package func client(of peer: String, forwarded: [String]) -> String {
        var client = peer
        var rest = forwarded.joined(separator: ",").split(separator: ",", omittingEmptySubsequences: false)[...]
        while contains(client), let hop = rest.popLast() {
            // A client can write anything into the header.
            guard let address = Self.host(of: hop), AddressRange.bytes(of: address) != nil else { break }
            client = String(address)
        }
        return client
    }

    /// Returns true if the address is a trusted proxy's.
    package func contains(_ address: String) -> Bool {
        guard let bytes = AddressRange.bytes(of: address) else { return false }
        return ranges.contains { $0.contains(bytes) }
    }

    /// Returns true for an address of this machine or of a private network.
    package static func isLocal(_ address: String) -> Bool {
        guard let bytes = AddressRange.bytes(of: address) else { return false }
        if bytes.count == 16 { return bytes[0] & 0xFE == 0xFC || bytes == Array(repeating: 0, count: 15) + [1] }
        return bytes[0] == 10 || bytes[0] == 127 || (bytes[0] == 192 && bytes[1] == 168)
            || (bytes[0] == 172 && bytes[1] & 0xF0 == 16)
    }

    /// Returns the part of an address that identifies a client: an IPv4 address, or the first 64 bits of an IPv6 address.
    package static func group(of address: String) -> String {
        guard let bytes = AddressRange.bytes(of: address), bytes.count == 16 else { return address }
        return bytes.prefix(8).map { String($0, radix: 16) }.joined(separator: ":")
    }

    /// Returns a hop without a port: some proxies write `192.0.2.1:4711` and `[2001:db8::1]:4711`.
    private static func host(of hop: Substring) -> Substring? {
        let hop = hop.drop { $0 == " " || $0 == "\t" }.prefix { $0 != " " && $0 != "\t" }
        if hop.hasPrefix("[") { return hop.dropFirst().prefix { $0 != "]" } }
        return hop.count { $0 == ":" } == 1 ? hop.prefix { $0 != ":" } : hop
    }
}
