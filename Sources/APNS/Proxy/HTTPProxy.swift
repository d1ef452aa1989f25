import NIOCore

/// A proxy that connects its clients by HTTP's CONNECT (RFC 9110 §9.3.6).
public struct HTTPProxy: Sendable, Hashable, CustomStringConvertible {
    /// A user and a password for Basic authentication (RFC 7617). It is never described by its contents.
    public struct Credentials: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
        /// Without colons.
        public var user: String
        /// May be empty.
        public var password: String

        /// Takes both as they are.
        public init(user: String, password: String) {
            self.user = user
            self.password = password
        }

        /// Nothing of them.
        public var description: String { "(not shown)" }
        /// Nothing of them.
        public var customMirror: Mirror { Mirror(self, children: []) }
    }

    /// What is wrong with a proxy's URL, or with the environment that was to give one. Never quotes credentials.
    public struct Invalid: Error, Sendable, Hashable, CustomStringConvertible {
        /// What is wrong, and what would be right.
        public let description: String
    }

    /// A host name or an IP address, without brackets.
    public var host: String
    /// A TCP port.
    public var port: Int
    /// For proxies that ask for them.
    public var credentials: Credentials?

    /// Takes the parts as they are.
    public init(host: String, port: Int, credentials: Credentials? = nil) {
        self.host = host
        self.port = port
        self.credentials = credentials
    }

    /// Reads `http://host:port` or `http://user:password@host:port`. `http://` may be missing, and the port is then and
    /// otherwise 80. User and password may be percent-encoded, and must be where they contain `@`, `:`, `/` or `%`.
    /// - Throws: ``Invalid``, which does not quote the user and the password.
    public init(_ url: String) throws(Invalid) {
        var rest = Substring(url.trimmed)
        if let separator = rest.firstRange(of: "://") {
            let scheme = rest[..<separator.lowerBound].lowercased()
            guard scheme == "http" else { throw .scheme(scheme) }
            rest = rest[separator.upperBound...]
        }
        if let slash = rest.lastIndex(of: "/"), rest.index(after: slash) == rest.endIndex { rest = rest[..<slash] }
        var credentials: Credentials?
        if let at = rest.lastIndex(of: "@") {
            credentials = try Self.credentials(rest[..<at])
            rest = rest[rest.index(after: at)...]
        }
        guard let (host, port) = APNSEndpoint.hostAndPort(rest) else {
            throw Invalid(
                description: "“\(rest)” is not the host and port of a proxy; it should read http://host:port or "
                    + "http://user:password@host:port")
        }
        self.init(host: host, port: port ?? 80, credentials: credentials)
    }

    /// The URL without user and password.
    public var description: String { "http://\(host.contains(":") ? "[\(host)]" : host):\(port)" }

    private static func credentials(_ text: Substring) throws(Invalid) -> Credentials {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard let user = percentDecoded(parts[0]), let password = percentDecoded(parts.count > 1 ? parts[1] : "") else {
            throw Invalid(
                description: "the user or password in the proxy's URL has a % that is not followed by two hex digits, "
                    + "or stands for no UTF-8; write % itself as %25")
        }
        let isPlain = (user + password).unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7F }
        guard isPlain, !user.contains(":") else {
            throw Invalid(
                description: "the user or password in the proxy's URL has what Basic authentication cannot carry: "
                    + "control characters, or a colon in the user's name")
        }
        return Credentials(user: user, password: password)
    }

    private static func percentDecoded(_ text: Substring) -> String? {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.popFirst().flatMap(hexDigit), let low = rest.popFirst().flatMap(hexDigit) else {
                return nil
            }
            bytes.append(high << 4 | low)
        }
        return String(validating: bytes, as: UTF8.self)
    }

    private static func hexDigit(_ byte: UInt8) -> UInt8? {
        Character(UnicodeScalar(byte)).hexDigitValue.flatMap(UInt8.init(exactly:))
    }
}

extension HTTPProxy.Invalid {
    fileprivate static func scheme(_ scheme: String) -> HTTPProxy.Invalid {
        HTTPProxy.Invalid(
            description:
                "a proxy's URL begins with http://, not \(scheme)://; supported are HTTP proxies that are spoken "
                + "to in the clear and connect by CONNECT (what goes through them is encrypted all the same)")
    }
}

extension String {
    /// Without white space around it.
    var trimmed: String {
        let isSpace = { (character: Character) in character.isWhitespace }
        guard let first = firstIndex(where: { !isSpace($0) }), let last = lastIndex(where: { !isSpace($0) }) else {
            return ""
        }
        return String(self[first...last])
    }
}
