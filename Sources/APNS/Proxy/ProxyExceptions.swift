import NIOCore

/// What `NO_PROXY` says: the hosts that are reached without the proxy, separated by commas or white space.
///
/// No standard tells what may stand there. This takes what curl, Go and Python agree on: `*`, a host name that also stands
/// for the names below it, with or without a dot (or `*.`) before it, each with or without a port; IP addresses, and
/// networks as `10.0.0.0/8`. Names are not looked up to be compared with addresses.
struct ProxyExceptions {
    private enum Entry {
        case everything
        case name(String, port: Int?)
        case network([UInt8], bits: Int, port: Int?)
    }

    private let entries: [Entry]

    init(_ text: String) throws(HTTPProxy.Invalid) {
        var entries: [Entry] = []
        for word in text.split(whereSeparator: { $0 == "," || $0.isWhitespace }) {
            entries.append(try Self.entry(word))
        }
        self.entries = entries
    }

    func contain(_ endpoint: APNSEndpoint) -> Bool {
        let host = Self.normalised(endpoint.host)
        let address = Self.addressBytes(host)
        return entries.contains { entry in
            switch entry {
            case .everything: return true
            case .name(let name, let port):
                guard port ?? endpoint.port == endpoint.port, address == nil else { return false }
                return host == name || host.hasSuffix("." + name)
            case .network(let network, let bits, let port):
                guard port ?? endpoint.port == endpoint.port, let address else { return false }
                return Self.agree(network, address, bits: bits)
            }
        }
    }

    private static func entry(_ word: Substring) throws(HTTPProxy.Invalid) -> Entry {
        if word == "*" { return .everything }
        if let slash = word.firstIndex(of: "/") {
            let bits = word[word.index(after: slash)...]
            guard let address = addressBytes(String(word[..<slash])), bits.utf8.allSatisfy({ $0 &- 0x30 < 10 }),
                let count = Int(bits), count <= address.count * 8
            else {
                throw HTTPProxy.Invalid(description: "“\(word)” is not a network such as 10.0.0.0/8 or fd00::/8")
            }
            return .network(address, bits: count, port: nil)
        }
        // An IPv6 address without brackets is all colons.
        if let address = addressBytes(String(word)) { return .network(address, bits: address.count * 8, port: nil) }
        var name = word
        if name.hasPrefix("*.") { name = name.dropFirst() }
        if name.hasPrefix(".") { name = name.dropFirst() }
        guard let (host, port) = APNSEndpoint.hostAndPort(name) else {
            throw HTTPProxy.Invalid(
                description: "“\(word)” is not a host, a .domain, an address or a network, or has no right port")
        }
        if let address = addressBytes(host) { return .network(address, bits: address.count * 8, port: port) }
        return .name(normalised(host), port: port)
    }

    private static func normalised(_ host: String) -> String {
        let name = host.lowercased()
        return name.hasSuffix(".") ? String(name.dropLast()) : name
    }

    private static func agree(_ network: [UInt8], _ address: [UInt8], bits: Int) -> Bool {
        guard network.count == address.count else { return false }
        let (whole, rest) = bits.quotientAndRemainder(dividingBy: 8)
        guard network.prefix(whole) == address.prefix(whole) else { return false }
        guard rest > 0 else { return true }
        let mask = UInt8(truncatingIfNeeded: 0xFF00 >> rest)
        return network[whole] & mask == address[whole] & mask
    }

    /// An IP address in network order; an IPv4 address that is written as IPv6 is the same address.
    private static func addressBytes(_ text: String) -> [UInt8]? {
        switch try? SocketAddress(ipAddress: text, port: 0) {
        case .v4(let address)?: return withUnsafeBytes(of: address.address.sin_addr, Array.init)
        case .v6(let address)?:
            let bytes = withUnsafeBytes(of: address.address.sin6_addr, Array.init)
            let isMapped = bytes.prefix(10).allSatisfy { $0 == 0 } && bytes[10..<12] == [0xFF, 0xFF]
            return isMapped ? Array(bytes.suffix(4)) : bytes
        default: return nil
        }
    }
}
