import Sockets

/// A proxy that opens tunnels by HTTP's CONNECT (RFC 9110 §9.3.6).
public struct HTTPProxy: Sendable, Hashable, CustomStringConvertible {
    /// A user name and a password for Basic authentication (RFC 7617). Descriptions do not show them.
    public struct Credentials: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
        /// The user name, which contains no colon.
        public var user: String
        public var password: String

        public init(user: String, password: String) {
            self.user = user
            self.password = password
        }

        public var description: String { "(not shown)" }
        public var customMirror: Mirror { Mirror(self, children: []) }
    }

    /// An error in a proxy's URL, or in the environment variable with the URL. Never quotes credentials.
    public struct Invalid: Error, Sendable, Hashable, CustomStringConvertible {
        public let description: String
    }

    /// A host name, or an IP address without brackets.
    public var host: String
    public var port: Int
    /// The credentials, for proxies that require them.
    public var credentials: Credentials?

    public init(host: String, port: Int, credentials: Credentials? = nil) {
        self.host = host
        self.port = port
        self.credentials = credentials
    }

    /// Reads `http://host:port` or `http://user:password@host:port`. `http://` is optional, and the default port is 80.
    /// User and password can be percent-encoded, and must be if they contain `@`, `:`, `/` or `%`.
    /// - Throws: ``Invalid``, which does not quote the user or the password.
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
        guard let user = parts[0].percentDecoded, let password = parts.count > 1 ? parts[1].percentDecoded : "" else {
            throw Invalid(
                description: "the user or password in the proxy's URL has a % that is not followed by two hex digits, "
                    + "or is not UTF-8; write % itself as %25")
        }
        let isPlain = (user + password).unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7F }
        guard isPlain, !user.contains(":") else {
            throw Invalid(
                description: "the user or password in the proxy's URL has characters that Basic authentication does "
                    + "not allow: control characters, or a colon in the user's name")
        }
        return Credentials(user: user, password: password)
    }
}

extension HTTPProxy.Invalid {
    fileprivate static func scheme(_ scheme: String) -> HTTPProxy.Invalid {
        HTTPProxy.Invalid(
            description:
                "a proxy's URL begins with http://, not \(scheme)://; only plaintext HTTP proxies with CONNECT are "
                + "supported (the tunnelled data is still encrypted)")
    }
}

extension String {
    var trimmed: String {
        let isSpace = { (character: Character) in character.isWhitespace }
        guard let first = firstIndex(where: { !isSpace($0) }), let last = lastIndex(where: { !isSpace($0) }) else {
            return ""
        }
        return String(self[first...last])
    }
}

extension HTTPProxy {
    /// Returns the proxy for an endpoint from the environment: `HTTPS_PROXY` or `https_proxy`, unless `NO_PROXY` or
    /// `no_proxy` exempts the endpoint. Upper case has priority; an empty variable counts as unset.
    /// - Returns: `nil` if no proxy should be used.
    /// - Throws: ``Invalid``, which names the variable.
    public static func fromEnvironment(
        _ environment: [String: String], for endpoint: APNSEndpoint
    ) throws(Invalid) -> HTTPProxy? {
        guard let (name, url) = value(of: "HTTPS_PROXY", environment) else { return nil }
        if let (name, text) = value(of: "NO_PROXY", environment) {
            let exceptions: ProxyExceptions
            do {
                exceptions = try ProxyExceptions(text)
            } catch {
                throw Invalid(description: "\(name): \(error)")
            }
            if exceptions.contain(endpoint) { return nil }
        }
        do {
            return try HTTPProxy(url)
        } catch {
            throw Invalid(description: "\(name): \(error)")
        }
    }

    private static func value(of name: String, _ environment: [String: String]) -> (name: String, value: String)? {
        for name in [name, name.lowercased()] {
            if let value = environment[name]?.trimmed, !value.isEmpty { return (name, value) }
        }
        return nil
    }
}

/// The contents of `NO_PROXY`: the hosts to reach without the proxy, separated by commas or white space.
///
/// No standard defines the format. This accepts what curl, Go and Python agree on: `*`; a host name, which also matches
/// the names below it, with or without a leading dot (or `*.`) and a port; IP addresses; and networks such as
/// `10.0.0.0/8`. Names are not resolved to be compared with addresses.
struct ProxyExceptions {
    private enum Entry {
        case everything
        case name(String, port: Int?)
        case network(AddressRange, port: Int?)
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
        let address = AddressRange.bytes(of: host)
        return entries.contains { entry in
            switch entry {
            case .everything: return true
            case .name(let name, let port):
                guard port ?? endpoint.port == endpoint.port, address == nil else { return false }
                return host == name || host.hasSuffix("." + name)
            case .network(let network, let port):
                guard port ?? endpoint.port == endpoint.port, let address else { return false }
                return network.contains(address)
            }
        }
    }

    private static func entry(_ word: Substring) throws(HTTPProxy.Invalid) -> Entry {
        if word == "*" { return .everything }
        // This comes before the search for a port, because an IPv6 address without brackets contains colons.
        if let network = AddressRange(word) { return .network(network, port: nil) }
        guard !word.contains("/") else {
            throw HTTPProxy.Invalid(description: "“\(word)” is not a network such as 10.0.0.0/8 or fd00::/8")
        }
        var name = word
        if name.hasPrefix("*.") { name = name.dropFirst() }
        if name.hasPrefix(".") { name = name.dropFirst() }
        guard let (host, port) = APNSEndpoint.hostAndPort(name) else {
            throw HTTPProxy.Invalid(
                description: "“\(word)” is not a host, a .domain, an address or a network, or its port is invalid")
        }
        if let address = AddressRange(host) { return .network(address, port: port) }
        return .name(normalised(host), port: port)
    }

    private static func normalised(_ host: String) -> String {
        let name = host.lowercased()
        return name.hasSuffix(".") ? String(name.dropLast()) : name
    }
}
