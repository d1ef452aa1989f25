/// The address of an HTTP server's resource: `http://host[:port]/path?query`, or `https`.
struct HTTPAddress: Equatable, Sendable, CustomStringConvertible {
    let usesTLS: Bool
    /// A name or an IP address, without brackets.
    let host: String
    let port: Int
    /// The path and the query, as in a request line.
    var target: String

    /// Makes the address of a resource without TLS.
    init(host: String, port: Int, target: String) {
        (usesTLS, self.host, self.port, self.target) = (false, host, port, target)
    }

    /// - Throws: ``Mistake``. Its text never includes the path or the query, which may hold a secret.
    init(_ text: String) throws(Mistake) {
        let isPlain = text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
        guard isPlain, let scheme = text.firstRange(of: "://") else {
            throw Mistake("it must be a URL such as https://example.com/path")
        }
        switch text[..<scheme.lowerBound].lowercased() {
        case "https": usesTLS = true
        case "http": usesTLS = false
        default: throw Mistake("its scheme must be https or http")
        }
        let rest = text[scheme.upperBound...].prefix { $0 != "#" }
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        let resource = rest[authority.endIndex...]
        target = resource.hasPrefix("/") ? String(resource) : "/" + resource
        guard !authority.contains("@") else {
            throw Mistake("it has a user or a password, which is not supported")
        }
        guard let (host, port) = Self.hostAndPort(authority) else {
            throw Mistake("“\(authority)” is not a host name or address with an optional port")
        }
        self.host = host
        self.port = port ?? (usesTLS ? 443 : 80)
    }

    private static func hostAndPort(_ text: Substring) -> (String, Int?)? {
        var (host, rest) = (text, text[text.endIndex...])
        if text.hasPrefix("["), let end = text.firstIndex(of: "]") {
            (host, rest) = (text[text.index(after: text.startIndex)..<end], text[text.index(after: end)...])
        } else if let colon = text.firstIndex(of: ":") {
            (host, rest) = (text[..<colon], text[colon...])
        }
        let isAddress = text.hasPrefix("[")
        let isHost = host.utf8.allSatisfy { byte in
            byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || byte == UInt8(ascii: ".") || byte == UInt8(ascii: "-")
                || byte == UInt8(ascii: "_") || (isAddress && byte == UInt8(ascii: ":"))
        }
        guard !host.isEmpty, isHost else { return nil }
        guard !rest.isEmpty else { return (String(host), nil) }
        let digits = rest.dropFirst()
        guard rest.hasPrefix(":"), digits.utf8.allSatisfy({ $0 &- 0x30 < 10 }), let port = Int(digits),
            (1...65_535).contains(port)
        else { return nil }
        return (String(host), port)
    }

    /// The host and port, as in a `Host` header.
    var authority: String {
        let name = host.contains(":") ? "[\(host)]" : host
        return port == (usesTLS ? 443 : 80) ? name : "\(name):\(port)"
    }

    /// The scheme, host and port. The path and the query are omitted, because they may hold a secret.
    var description: String { "\(usesTLS ? "https" : "http")://\(authority)" }
}
