/// Why a text is not a Redis URL.
///
/// The messages never repeat a part of the URL: with a password that is not percent-encoded, any part may be a piece of it.
public enum RedisURLError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The scheme is none of `redis`, `rediss`, `unix` and `redis+unix`.
    case scheme
    /// There is no host, or it holds characters that no host has.
    case host
    /// The port is not a number from 1 to 65535.
    case port
    /// The database is not a number from 0 up.
    case database
    /// A user without a password, which is more likely a password without its colon.
    case userWithoutPassword
    /// A `%` that two hex digits do not follow, or bytes that are not UTF-8.
    case percentEncoding
    /// A `unix:` URL without an absolute path.
    case socketPath
    /// A `?query` or `#fragment` that means nothing here.
    case query

    /// What is wrong and how the URL should look.
    public var description: String {
        let encodingHint = "; if the password holds any of / ? # @ : %, percent-encode them"
        return switch self {
        case .scheme:
            "the Redis URL must start with redis://, rediss:// (TLS), unix:// or redis+unix://"
        case .host:
            "the Redis URL has no valid host: write redis://[user:password@]host[:port][/db]" + encodingHint
        case .port:
            "the port of the Redis URL must be a number from 1 to 65535" + encodingHint
        case .database:
            "the database of the Redis URL must be a number such as /0" + encodingHint
        case .userWithoutPassword:
            "the Redis URL has a user without a password: write redis://user:password@host, "
                + "or redis://:password@host when there is no user"
        case .percentEncoding:
            "the Redis URL has a % that does not begin an escape such as %2F, or an escape that is not UTF-8"
        case .socketPath:
            "the Redis URL must name a socket by its absolute path: unix:///run/redis/redis.sock"
        case .query:
            "the Redis URL has a ? or # part that is not understood (only unix: URLs take ?db=1)" + encodingHint
        }
    }
}
