import NIOCore
import Redis

/// The set of invalid tokens that all queues share, and the hash of what is known about each.
///
/// Not thread-safe; everything is called, and calls back, on the clients' event loop.
public struct InvalidTokenSet {
    /// A token that is in the set.
    public struct Found: Sendable, Equatable {
        /// Its place among those that were looked for, from 0.
        public var place: Int
        /// The token.
        public var token: ByteBuffer
        /// What is known of it.
        public var details: InvalidTokenDetails
    }

    let keys: SharedKeys
    let details: RedisClient
    let scripts: ScriptRunner
    let detailScripts: ScriptRunner
    let tokens: RedisClient

    /// - Parameter clients: in a Cluster the two keys may be with two servers.
    public init(clients: RedisClients, keys: SharedKeys) {
        self.keys = keys
        tokens = clients.client(for: keys.invalidTokens)
        details = clients.client(for: keys.invalidTokenDetails)
        scripts = ScriptRunner(client: tokens)
        detailScripts = tokens === details ? scripts : ScriptRunner(client: details)
    }

    /// Whether one server has the set and the details, so that one script can write both.
    var isWithOneServer: Bool { tokens === details }

    /// Whether that client's server has the set and the details.
    public func isWith(_ client: RedisClient) -> Bool { tokens === client && isWithOneServer }

    /// Whether tokens can be added now.
    public var isReady: Bool { tokens.isReady && details.isReady }

    /// How many tokens are in the set.
    public func count(completion: @escaping (Result<Int, RedisError>) -> Void) {
        tokens.send(RedisCommand("SCARD", keys.invalidTokens)) { completion($0.map { $0.root.integer ?? 0 }) }
    }

    /// Finds those of some tokens that are in the set, and what is known of them.
    /// - Parameters:
    ///   - candidates: lower-case hex, not more than some thousands.
    ///   - completion: gets the places of those that are in it, in ascending order, and the tokens.
    public func find(
        _ candidates: TokenList, completion: @escaping (Result<[Found], QueueConnection.Failure>) -> Void
    ) {
        guard candidates.count > 0 else { return completion(.success([])) }
        scripts.run(
            .find, [keys.invalidTokens], arguments: { command in command.append(candidates.bytes) },
            completion: { result in
                switch result {
                case .failure(let failure): completion(.failure(failure))
                case .success(let reply):
                    let places = reply.root.children.compactMap(\.integer)
                    guard !places.isEmpty else { return completion(.success([])) }
                    readDetails(candidates.tokens(at: places), at: places, completion)
                }
            })
    }

    private func readDetails(
        _ found: [ByteBuffer], at places: [Int],
        _ completion: @escaping (Result<[Found], QueueConnection.Failure>) -> Void
    ) {
        guard found.count == places.count else { return completion(.failure(.unexpectedReply(.find))) }
        var command = RedisCommand("HMGET", expecting: found.count + 1, bytes: found.count * 64 + 64)
        command.append(keys.invalidTokenDetails)
        for token in found { command.append(token) }
        details.send(command) { result in
            switch result {
            case .failure(let error): completion(.failure(.redis(error)))
            case .success(let reply):
                let known = reply.root.children.map { $0.bytes.map(InvalidTokenDetails.init) ?? .init() }
                completion(
                    .success(
                        zip(zip(places, found), known).map {
                            Found(place: $0.0, token: $0.1, details: $1)
                        }))
            }
        }
    }

    /// Takes tokens out of the set: their devices have registered again.
    /// - Parameter completion: called when Redis has done so, or not.
    public func remove(_ removed: [ByteBuffer], completion: @escaping (Result<Void, RedisError>) -> Void) {
        guard !removed.isEmpty else { return completion(.success(())) }
        var remove = RedisCommand("SREM", expecting: removed.count + 1, bytes: removed.count * 64)
        remove.append(keys.invalidTokens)
        var forget = RedisCommand("HDEL", expecting: removed.count + 1, bytes: removed.count * 64)
        forget.append(keys.invalidTokenDetails)
        for token in removed {
            remove.append(token)
            forget.append(token)
        }
        sendBoth(remove, forget, completion)
    }

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
        sendBoth(add, describe, completion)
    }

    private func sendBoth(
        _ ofTokens: RedisCommand, _ ofDetails: RedisCommand, _ completion: @escaping (Result<Void, RedisError>) -> Void
    ) {
        var (open, failure) = (2, RedisError?.none)
        func answered(_ result: Result<RESPReply, RedisError>) {
            if case .failure(let error) = result { failure = failure ?? error }
            open -= 1
            if open == 0 { completion(failure.map(Result.failure) ?? .success(())) }
        }
        tokens.send(ofTokens) { answered($0) }
        details.send(ofDetails) { answered($0) }
    }
}
