import PrintableText

/// The location of a server, without the access to it.
public enum RedisLocation: Sendable, Hashable {
    /// A host name or IP address (IPv6 without brackets) and a TCP port.
    case host(String, port: Int)
    /// The absolute path of a Unix domain socket.
    case unixSocket(String)

    /// Creates a location from a server's announcement. An empty host means the sender's host (`cluster-preferred-endpoint-type
    /// unknown-endpoint`). The host `?` means that the node has no host name to announce.
    init?(announced host: String?, port: Int?, by sender: RedisLocation) {
        guard let port, (1...65535).contains(port), host != "?" else { return nil }
        if let host, !host.isEmpty {
            self = .host(host, port: port)
        } else if case .host(let own, _) = sender {
            self = .host(own, port: port)
        } else {
            return nil
        }
    }

    /// The common notation: `host:port`, `[::1]:6379` or the socket's path.
    public var address: String {
        switch self {
        case .host(let host, let port): host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
        case .unixSocket(let path): path
        }
    }
}

extension RedisLocation {
    /// Parses `host`, `host:port` or `[address]:port` in a URL.
    init(_ text: Substring, defaultPort: Int = 6379) throws(RedisURLError) {
        let host: Substring
        let port: Substring?
        if text.first == "[" {
            guard let end = text.firstIndex(of: "]") else { throw .host }
            host = text[text.index(after: text.startIndex)..<end]
            let rest = text[text.index(after: end)...]
            guard rest.isEmpty || rest.first == ":" else { throw .host }
            guard host.split(whereSeparator: { $0 == ":" || $0 == "." }).allSatisfy(\.isHexadecimal) else {
                throw .host
            }
            port = rest.isEmpty ? nil : rest.dropFirst()
        } else {
            let parts = text.splitOnce(at: ":")
            host = parts?.0 ?? text
            port = parts?.1
            guard host.utf8.allSatisfy(\.isHostNameByte) else { throw .host }
        }
        guard !host.isEmpty else { throw .host }
        var number = defaultPort
        if let port {
            guard let given = port.decimal, (1...65535).contains(given) else { throw .port }
            number = given
        }
        self = .host(String(host), port: number)
    }

    /// Parses a list of servers separated by commas, and removes duplicates.
    static func list(_ text: Substring, defaultPort: Int) throws(RedisURLError) -> [RedisLocation] {
        var locations: [RedisLocation] = []
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let location = try RedisLocation(part, defaultPort: defaultPort)
            if !locations.contains(location) { locations.append(location) }
        }
        return locations
    }
}

extension UInt8 {
    /// Letters, digits, `-`, `.`, and `_`, which occurs in service names of compose files.
    fileprivate var isHostNameByte: Bool {
        (0x30...0x39).contains(self) || (0x41...0x5a).contains(self) || (0x61...0x7a).contains(self)
            || self == UInt8(ascii: "-") || self == UInt8(ascii: ".") || self == UInt8(ascii: "_")
    }
}
