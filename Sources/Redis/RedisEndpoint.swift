/// Where a Redis server is and who we are to it.
///
/// Its descriptions, reflections included, never show the password.
public struct RedisEndpoint: Sendable, Equatable {
    /// How to reach the server.
    public enum Location: Sendable, Equatable {
        /// A host name or IP address (IPv6 without brackets) and a TCP port.
        case host(String, port: Int)
        /// The absolute path of a Unix domain socket.
        case unixSocket(String)
    }

    /// Where the server listens.
    public var location: Location
    /// The ACL user; `nil` for the default user.
    public var user: String?
    /// The password; `nil` for no authentication.
    public var password: String?
    /// The number of the database.
    public var database: Int
    /// Whether the connection is over TLS (`rediss://`).
    public var usesTLS: Bool

    /// An endpoint from its parts.
    public init(
        location: Location, user: String? = nil, password: String? = nil, database: Int = 0, usesTLS: Bool = false
    ) {
        self.location = location
        self.user = user
        self.password = password
        self.database = database
        self.usesTLS = usesTLS
    }

    /// Parses `redis://[user[:password]@]host[:port][/db]`, the same with `rediss://` for TLS, and
    /// `unix://[user:password@]/path[?db=n]` (also as `redis+unix:`). User, password and path may be percent-encoded.
    ///
    /// - Throws: `RedisURLError`, which never repeats a part of the URL.
    public init(url: String) throws(RedisURLError) {
        guard let (scheme, rest) = url.splitOnce(at: "://") else { throw .scheme }
        switch scheme.lowercased() {
        case "redis": try self.init(network: rest, usesTLS: false)
        case "rediss": try self.init(network: rest, usesTLS: true)
        case "unix", "redis+unix": try self.init(socket: rest)
        default: throw .scheme
        }
    }

    private init(network rest: Substring, usesTLS: Bool) throws(RedisURLError) {
        guard !rest.contains("?"), !rest.contains("#") else { throw .query }
        let (authority, path) = rest.splitOnce(at: "/") ?? (rest, "")
        let (credentials, server) = try Self.credentials(of: authority)
        self.init(
            location: try Self.server(server), user: credentials.user, password: credentials.password,
            database: path.isEmpty ? 0 : try Self.database(path), usesTLS: usesTLS)
    }

    private init(socket rest: Substring) throws(RedisURLError) {
        guard !rest.contains("#") else { throw .query }
        let (place, query) = rest.splitOnce(at: "?") ?? (rest, "")
        guard let slash = place.firstIndex(of: "/") else { throw .socketPath }
        let (credentials, host) = try Self.credentials(of: place[..<slash])
        guard host.isEmpty, place[slash...].count > 1 else { throw .socketPath }
        var database = 0
        if !query.isEmpty {
            guard query.hasPrefix("db=") else { throw .query }
            database = try Self.database(query.dropFirst(3))
        }
        self.init(
            location: .unixSocket(try percentDecoded(place[slash...])), user: credentials.user,
            password: credentials.password, database: database)
    }

    /// The address as people write it: `host:port`, `[::1]:6379` or the socket's path.
    public var address: String {
        switch location {
        case .host(let host, let port): host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
        case .unixSocket(let path): path
        }
    }

    private static func credentials(
        of authority: Substring
    ) throws(RedisURLError) -> (credentials: (user: String?, password: String?), server: Substring) {
        // The last @, so that one in a password does no harm.
        guard let at = authority.lastIndex(of: "@") else { return ((nil, nil), authority) }
        let server = authority[authority.index(after: at)...]
        guard let (user, password) = authority[..<at].splitOnce(at: ":") else {
            guard at == authority.startIndex else { throw .userWithoutPassword }
            return ((nil, nil), server)
        }
        // `user:@` is a user with an empty password, which an ACL may allow; `:@` is nobody.
        if user.isEmpty && password.isEmpty { return ((nil, nil), server) }
        return ((user.isEmpty ? nil : try percentDecoded(user), try percentDecoded(password)), server)
    }

    private static func server(_ text: Substring) throws(RedisURLError) -> Location {
        let host: Substring
        let port: Substring?
        if text.first == "[" {
            guard let end = text.firstIndex(of: "]") else { throw .host }
            host = text[text.index(after: text.startIndex)..<end]
            let rest = text[text.index(after: end)...]
            guard rest.isEmpty || rest.first == ":" else { throw .host }
            guard host.utf8.allSatisfy({ $0.isHexDigit || $0 == UInt8(ascii: ":") || $0 == UInt8(ascii: ".") }) else {
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
        guard let port else { return .host(String(host), port: 6379) }
        guard let number = decimal(port), (1...65535).contains(number) else { throw .port }
        return .host(String(host), port: number)
    }

    private static func database(_ text: Substring) throws(RedisURLError) -> Int {
        guard let number = decimal(text) else { throw .database }
        return number
    }

    private static func decimal(_ text: Substring) -> Int? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return Int(text)
    }
}

extension RedisEndpoint: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The URL without its password.
    public var description: String {
        let scheme: String
        switch location {
        case .host: scheme = usesTLS ? "rediss" : "redis"
        case .unixSocket: scheme = "unix"
        }
        let credentials = password == nil ? "" : "\(user ?? ""):***@"
        let database =
            switch location {
            case .host: self.database == 0 ? "" : "/\(self.database)"
            case .unixSocket: self.database == 0 ? "" : "?db=\(self.database)"
            }
        return "\(scheme)://\(credentials)\(address)\(database)"
    }

    /// As `description`.
    public var debugDescription: String { description }

    /// Only what `description` shows, so that `dump` shows no password either.
    public var customMirror: Mirror { Mirror(self, children: ["url": description]) }
}

private func percentDecoded(_ text: Substring) throws(RedisURLError) -> String {
    var bytes: [UInt8] = []
    var rest = text.utf8[...]
    while let byte = rest.popFirst() {
        guard byte == UInt8(ascii: "%") else {
            bytes.append(byte)
            continue
        }
        let digits = rest.prefix(2)
        guard digits.count == 2, digits.allSatisfy(\.isHexDigit), let value = UInt8(Substring(digits), radix: 16) else {
            throw .percentEncoding
        }
        bytes.append(value)
        rest = rest.dropFirst(2)
    }
    guard let decoded = String(validating: bytes, as: UTF8.self) else { throw .percentEncoding }
    return decoded
}

extension StringProtocol where SubSequence == Substring {
    fileprivate func splitOnce(at separator: String) -> (Substring, Substring)? {
        guard let range = self.firstRange(of: separator) else { return nil }
        return (self[..<range.lowerBound], self[range.upperBound...])
    }
}

extension UInt8 {
    fileprivate var isHexDigit: Bool {
        (0x30...0x39).contains(self) || (0x41...0x46).contains(self) || (0x61...0x66).contains(self)
    }

    /// Letters, digits, `-`, `.`, and `_`, which service names in compose files have.
    fileprivate var isHostNameByte: Bool {
        (0x30...0x39).contains(self) || (0x41...0x5a).contains(self) || (0x61...0x7a).contains(self)
            || self == UInt8(ascii: "-") || self == UInt8(ascii: ".") || self == UInt8(ascii: "_")
    }
}
