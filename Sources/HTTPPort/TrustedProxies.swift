import NIOCore

/// The proxies whose word about the addresses of their clients is believed (`X-Forwarded-For`).
package struct TrustedProxies: Sendable {
    /// A text that is neither an address nor a range of addresses.
    package struct Malformed: Error, CustomStringConvertible {
        package let description: String
    }

    /// The bits of an address that a range has in common.
    private struct Range: Sendable {
        let bytes: [UInt8]
        let bits: Int

        func contains(_ address: [UInt8]) -> Bool {
            guard address.count == bytes.count else { return false }
            let whole = bits / 8
            guard address.prefix(whole) == bytes.prefix(whole) else { return false }
            let rest = UInt8(bits % 8)
            return rest == 0 || (address[whole] ^ bytes[whole]) >> (8 - rest) == 0
        }
    }

    private let ranges: [Range]

    /// - Parameter texts: addresses such as `10.0.0.1`, or ranges such as `10.0.0.0/8` and `fd00::/8`.
    package init(_ texts: [String] = []) throws(Malformed) {
        var ranges: [Range] = []
        for text in texts {
            let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
            let bytes = Self.bytes(parts[0])
            let most = (bytes?.count ?? 0) * 8
            let bits = parts.count == 1 ? most : Int(parts[1]) ?? -1
            guard let bytes, (0...most).contains(bits) else {
                throw Malformed(description: "\(text) is neither an address nor a range such as 10.0.0.0/8")
            }
            ranges.append(Range(bytes: bytes, bits: bits))
        }
        self.ranges = ranges
    }

    /// Returns the address of a request's client: the last one of the chain that no trusted proxy has.
    /// - Parameters:
    ///   - peer: the address of the connection's other end.
    ///   - forwarded: the values of `X-Forwarded-For`, in order.
    package func client(of peer: String, forwarded: [String]) -> String {
        var client = peer
        var rest = forwarded.joined(separator: ",").split(separator: ",", omittingEmptySubsequences: false)[...]
        while contains(client), let hop = rest.popLast() {
            // A client can write anything here.
            guard let address = Self.host(of: hop), Self.bytes(address) != nil else { break }
            client = String(address)
        }
        return client
    }

    /// Returns true if the address is a trusted proxy's.
    package func contains(_ address: String) -> Bool {
        guard let bytes = Self.bytes(address) else { return false }
        return ranges.contains { $0.contains(bytes) }
    }

    /// Returns true for an address of this machine or of a private network.
    package static func isLocal(_ address: String) -> Bool {
        guard let bytes = bytes(address) else { return false }
        if bytes.count == 16 { return bytes[0] & 0xFE == 0xFC || bytes == Array(repeating: 0, count: 15) + [1] }
        return bytes[0] == 10 || bytes[0] == 127 || (bytes[0] == 192 && bytes[1] == 168)
            || (bytes[0] == 172 && bytes[1] & 0xF0 == 16)
    }

    /// Returns the addresses that belong to one client: an IPv4 address, or the first 64 bits of an IPv6 address.
    package static func group(of address: String) -> String {
        guard let bytes = bytes(address), bytes.count == 16 else { return address }
        return bytes.prefix(8).map { String($0, radix: 16) }.joined(separator: ":")
    }

    /// Returns a hop without a port: some proxies write `192.0.2.1:4711` and `[2001:db8::1]:4711`.
    private static func host(of hop: Substring) -> Substring? {
        let hop = hop.drop { $0 == " " || $0 == "\t" }.prefix { $0 != " " && $0 != "\t" }
        if hop.hasPrefix("[") { return hop.dropFirst().prefix { $0 != "]" } }
        return hop.count { $0 == ":" } == 1 ? hop.prefix { $0 != ":" } : hop
    }

    /// Returns the 4 or 16 bytes of an address; 4 for an IPv4 address that is written as an IPv6 address.
    private static func bytes(_ text: some StringProtocol) -> [UInt8]? {
        let address: SocketAddress
        do {
            address = try SocketAddress(ipAddress: String(text), port: 0)
        } catch {
            return nil
        }
        switch address {
        case .v4(let address): return withUnsafeBytes(of: address.address.sin_addr) { Array($0) }
        case .v6(let address):
            let bytes = withUnsafeBytes(of: address.address.sin6_addr) { Array($0) }
            return bytes.prefix(12) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF] ? Array(bytes.suffix(4)) : bytes
        case .unixDomainSocket: return nil
        }
    }
}
