import Sockets

/// The parts of a Redis URL. Errors never repeat its text.
enum RedisURLText {
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

    /// Splits off `user:password@`, decoded.
    static func splitCredentials(
        _ authority: Substring, passwordFile: String?
    ) throws(RedisURLError) -> (access: RedisAccess, server: Substring) {
        var access = RedisAccess(passwordFile: passwordFile)
        // Splits at the last @, so that a password can contain @.
        guard let at = authority.lastIndex(of: "@") else { return (access, authority) }
        let server = authority[authority.index(after: at)...]
        if let (user, password) = authority[..<at].splitOnce(at: ":") {
            if !user.isEmpty { access.user = try percentDecoded(user) }
            // `user:@` is a user with an empty password, which an ACL may allow; `:@` has neither user nor password.
            if passwordFile == nil {
                if !user.isEmpty || !password.isEmpty { access.password = try percentDecoded(password) }
            } else {
                guard password.isEmpty else { throw .passwordTwice }
            }
        } else if at != authority.startIndex {
            guard passwordFile != nil else { throw .userWithoutPassword }
            access.user = try percentDecoded(authority[..<at])
        }
        return (access, server)
    }

    static func database(_ text: some StringProtocol) throws(RedisURLError) -> Int {
        guard let number = text.decimal else { throw .database }
        return number
    }

    static func percentDecoded(_ text: Substring) throws(RedisURLError) -> String {
        guard let decoded = text.percentDecoded else { throw .percentEncoding }
        return decoded
    }
}

extension StringProtocol where SubSequence == Substring {
    func splitOnce(at separator: String) -> (Substring, Substring)? {
        guard let range = self.firstRange(of: separator) else { return nil }
        return (self[..<range.lowerBound], self[range.upperBound...])
    }
}

extension StringProtocol {
    /// The value of a text of decimal digits; `nil` for other text.
    var decimal: Int? {
        guard !isEmpty, utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return Int(self)
    }
}

/// The reason why a text is not a Redis URL.
///
/// The messages never repeat a part of the URL: any part may belong to a password that is not percent-encoded.
public enum RedisURLError: Error, Sendable, Equatable, CustomStringConvertible {
    case scheme
    /// There is no host, or it has invalid characters.
    case host
    /// The port is not a number from 1 to 65535.
    case port
    /// The database is not a non-negative number.
    case database
    /// A Cluster has only database 0.
    case clusterDatabase
    /// There is a user without a password. It is more likely a password that lacks its colon.
    case userWithoutPassword
    /// There are both a password and a password file.
    case passwordTwice
    /// A `%` is not followed by two hex digits, or the decoded bytes are not UTF-8.
    case percentEncoding
    /// A `unix:` URL has no absolute path.
    case socketPath
    /// A Sentinel URL does not name the master.
    case sentinelMaster
    /// There is a user for the Sentinels without a password.
    case sentinelUser
    /// There is a `?query` or `#fragment` that is not supported.
    case query

    /// The problem, and how the URL should look.
    public var description: String {
        let encodingHint = "; if the password holds any of / ? # @ : %, percent-encode them"
        return switch self {
        case .scheme:
            "the Redis URL must start with redis://, rediss:// (TLS), unix://, redis+unix://, redis+sentinel:// or "
                + "redis+cluster:// (with TLS: rediss+sentinel://, rediss+cluster://)"
        case .host:
            "the Redis URL has no valid host: write redis://[user:password@]host[:port][/db], and host:port,host:port "
                + "for Sentinels and Cluster nodes" + encodingHint
        case .port:
            "the port of the Redis URL must be a number from 1 to 65535" + encodingHint
        case .database:
            "the database of the Redis URL must be a number such as /0" + encodingHint
        case .clusterDatabase:
            "a Redis Cluster has only database 0: omit the /db of the Redis URL" + encodingHint
        case .userWithoutPassword:
            "the Redis URL has a user without a password: write redis://user:password@host, "
                + "or redis://:password@host when there is no user"
        case .passwordTwice:
            "the Redis URL has both a password and a password file: omit one of them"
        case .percentEncoding:
            "the Redis URL has a % that does not begin an escape such as %2F, or an escape that is not UTF-8"
        case .socketPath:
            "the Redis URL must name a socket by its absolute path: unix:///run/redis/redis.sock"
        case .sentinelMaster:
            "the Redis URL must name the master that the Sentinels monitor: "
                + "redis+sentinel://host1,host2/?master=mymaster"
        case .sentinelUser:
            "the Redis URL has a sentinel_user without sentinel_password or sentinel_password_file"
        case .query:
            "the Redis URL has an unknown ? or # part (allowed after the ?: password_file=/path; for "
                + "unix: also db=1; for Sentinel also master=, sentinel_user=, sentinel_password= and "
                + "sentinel_password_file=)" + encodingHint
        }
    }
}
