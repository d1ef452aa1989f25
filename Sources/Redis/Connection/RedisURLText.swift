import PrintableText
import Sockets

/// The parts of a Redis URL. Errors never repeat its text.
enum RedisURLText {
    /// User and password from the URL, decoded.
    struct Credentials: Equatable {
        var user: String?
        var password: String?
        var passwordFile: String?
    }

    /// Splits off `?query`.
    static func splitQuery(
        _ text: Substring, allowing names: Set<String>
    ) throws(RedisURLError) -> (place: Substring, query: [String: String]) {
        guard !text.contains("#") else { throw .query }
        guard let (place, query) = text.splitOnce(at: "?") else { return (text, [:]) }
        var values: [String: String] = [:]
        for item in query.split(separator: "&", omittingEmptySubsequences: false) where !query.isEmpty {
            guard let (name, value) = item.splitOnce(at: "="), names.contains(String(name)), !value.isEmpty,
                values.updateValue(try percentDecoded(value), forKey: String(name)) == nil
            else { throw .query }
        }
        return (place, values)
    }

    /// Splits off `user:password@`.
    static func splitCredentials(
        _ authority: Substring, passwordFile: String?
    ) throws(RedisURLError) -> (credentials: Credentials, server: Substring) {
        var credentials = Credentials(passwordFile: passwordFile)
        // The last @, so that a password can contain one.
        guard let at = authority.lastIndex(of: "@") else { return (credentials, authority) }
        let server = authority[authority.index(after: at)...]
        if let (user, password) = authority[..<at].splitOnce(at: ":") {
            if !user.isEmpty { credentials.user = try percentDecoded(user) }
            // `user:@` is a user with an empty password, which an ACL may allow; `:@` has neither user nor password.
            if passwordFile == nil {
                if !user.isEmpty || !password.isEmpty { credentials.password = try percentDecoded(password) }
            } else {
                guard password.isEmpty else { throw .passwordTwice }
            }
        } else if at != authority.startIndex {
            guard passwordFile != nil else { throw .userWithoutPassword }
            credentials.user = try percentDecoded(authority[..<at])
        }
        return (credentials, server)
    }

    /// Parses `host`, `host:port` or `[address]:port`.
    static func server(_ text: Substring, defaultPort: Int = 6379) throws(RedisURLError) -> RedisEndpoint.Location {
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
        guard let port else { return .host(String(host), port: defaultPort) }
        guard let number = decimal(port), (1...65535).contains(number) else { throw .port }
        return .host(String(host), port: number)
    }

    /// Parses a list of servers separated by commas, and removes duplicates.
    static func servers(_ text: Substring, defaultPort: Int) throws(RedisURLError) -> [RedisEndpoint.Location] {
        var servers: [RedisEndpoint.Location] = []
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let server = try server(part, defaultPort: defaultPort)
            if !servers.contains(server) { servers.append(server) }
        }
        return servers
    }

    static func database(_ text: some StringProtocol) throws(RedisURLError) -> Int {
        guard let number = decimal(text) else { throw .database }
        return number
    }

    static func percentDecoded(_ text: Substring) throws(RedisURLError) -> String {
        guard let decoded = text.percentDecoded else { throw .percentEncoding }
        return decoded
    }

    private static func decimal(_ text: some StringProtocol) -> Int? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return Int(text)
    }
}

extension StringProtocol where SubSequence == Substring {
    func splitOnce(at separator: String) -> (Substring, Substring)? {
        guard let range = self.firstRange(of: separator) else { return nil }
        return (self[..<range.lowerBound], self[range.upperBound...])
    }
}

extension UInt8 {
    /// Letters, digits, `-`, `.`, and `_`, which occurs in service names of compose files.
    fileprivate var isHostNameByte: Bool {
        (0x30...0x39).contains(self) || (0x41...0x5a).contains(self) || (0x61...0x7a).contains(self)
            || self == UInt8(ascii: "-") || self == UInt8(ascii: ".") || self == UInt8(ascii: "_")
    }
}
