import NIOCore
import Redis

/// The device tokens that APNs has had enough of, which all workers leave alone for a while.
///
/// Not thread-safe; everything is called, and calls back, on the client's event loop.
public struct ThrottledTokens {
    /// Tokens that are read at once; there are hardly ever more than a few.
    private static let maximumCount = 1000

    private let key: String
    private let client: RedisClient

    /// - Parameter clients: whose client for the key is used.
    public init(clients: RedisClients, keys: SharedKeys) {
        key = keys.throttledTokens
        client = clients.client(for: key)
    }

    /// Tells the other workers of a token, and drops those whose time has passed.
    /// - Parameters:
    ///   - until: when it may be tried again, in milliseconds since 1970.
    ///   - now: milliseconds since 1970.
    public func add(
        _ token: ByteBuffer, until: Int64, now: Int64, completion: @escaping (Result<Void, RedisError>) -> Void
    ) {
        var add = RedisCommand("ZADD", key)
        // Never to an earlier time: two workers may have heard of it.
        add.append("GT")
        add.append(Int(until))
        add.append(token)
        client.send(RedisCommand("ZREMRANGEBYSCORE", key, "-inf", "\(now)")) { _ in }
        client.send(add) { completion($0.map { _ in }) }
    }

    /// Reads the tokens that are to be left alone, and until when (ms since 1970).
    public func read(
        now: Int64, completion: @escaping (Result<[(token: ByteBuffer, until: Int64)], RedisError>) -> Void
    ) {
        let command = RedisCommand(
            "ZRANGEBYSCORE", key, "(\(now)", "+inf", "WITHSCORES", "LIMIT", "0", "\(Self.maximumCount)")
        client.send(command) { result in
            completion(
                result.map { reply in
                    var tokens: [(token: ByteBuffer, until: Int64)] = []
                    var elements = reply.root.children
                    while let token = elements.next()?.bytes, let score = elements.next()?.string {
                        guard let until = Double(score).flatMap({ Int64(exactly: $0.rounded()) }) else { continue }
                        tokens.append((token, until))
                    }
                    return tokens
                })
        }
    }
}
