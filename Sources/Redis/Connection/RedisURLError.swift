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
    /// There is a user without a password, which is more likely a password without its colon.
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
