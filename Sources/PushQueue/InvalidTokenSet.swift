import Redis

/// The set of invalid tokens that all queues share, and the hash of what is known about each.
///
/// Not thread-safe; everything is called, and calls back, on the clients' event loop.
public struct InvalidTokenSet {
    private let keys: SharedKeys
    private let tokens: RedisClient
    private let details: RedisClient

    /// - Parameter clients: in a Cluster the two keys may be with two servers.
    public init(clients: RedisClients, keys: SharedKeys) {
        self.keys = keys
        tokens = clients.client(for: keys.invalidTokens)
        details = clients.client(for: keys.invalidTokenDetails)
    }

    /// Whether tokens can be added now.
    public var isReady: Bool { tokens.isReady && details.isReady }

    /// Adds tokens, with what is known about each.
    /// - Parameter completion: called when Redis has them all, or not; adding them again does no harm.
    public func add(_ added: [InvalidToken], completion: @escaping (Result<Void, RedisError>) -> Void) {
        guard !added.isEmpty else { return completion(.success(())) }
        var add = RedisCommand("SADD", expecting: added.count + 1, bytes: added.count * 64)
        add.append(keys.invalidTokens)
        var describe = RedisCommand("HSET", expecting: added.count * 2 + 1, bytes: added.count * 200)
        describe.append(keys.invalidTokenDetails)
        for token in added {
            add.append(token.token)
            describe.append(token.token)
            describe.append(token.details)
        }
        var (open, failure) = (2, RedisError?.none)
        func answered(_ result: Result<RESPReply, RedisError>) {
            if case .failure(let error) = result { failure = failure ?? error }
            open -= 1
            if open == 0 { completion(failure.map(Result.failure) ?? .success(())) }
        }
        tokens.send(add) { answered($0) }
        details.send(describe) { answered($0) }
    }
}
