import NIOCore
import Redis

/// The set of invalid tokens that all queues share, and the hash of what is known about each.
///
/// Not thread-safe; everything is called, and calls back, on the client's event loop.
public struct InvalidTokenSet {
    /// A token that is in the set.
    public struct Found: Sendable, Equatable {
        /// Its place among those that were looked for, from 0.
        public var place: Int
        /// The token.
        public var token: ByteBuffer
        /// The known facts about it.
        public var details: InvalidTokenDetails
    }

    /// The default time for which tokens are kept, in milliseconds.
    public static let defaultMaximumAge = 365 * 86_400_000

    let keys: SharedKeys
    let client: any RedisSender
    let scripts: ScriptRunner
    let maximumAge: Int

    /// - Parameters:
    ///   - client: of the slot of the shared keys.
    ///   - maximumAge: how long tokens are kept after they were added, or after newer details were, in milliseconds; 0 for
    ///     ever. Older ones are removed little by little while tokens are added.
    public init(client: any RedisSender, keys: SharedKeys, maximumAge: Int = defaultMaximumAge) {
        self.init(client: client, keys: keys, maximumAge: maximumAge, clock: .server)
    }

    package init(
        client: any RedisSender, keys: SharedKeys, maximumAge: Int = defaultMaximumAge, clock: ClockSource
    ) {
        self.keys = keys
        self.maximumAge = maximumAge
        self.client = client
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// True if this is the client that the set is read and written with.
    public func isWith(_ client: any RedisSender) -> Bool { self.client === client }

    /// True while tokens can be added.
    public var isReady: Bool { client.isReady }

    /// Counts the tokens in the set.
    public func count(completion: @escaping (Result<Int, RedisError>) -> Void) {
        client.send(RedisCommand("SCARD", keys.invalidTokens)) { completion($0.map { $0.root.integer ?? 0 }) }
    }

    /// Tests whether Redis accepts writes now, by a key beside the set that expires at once.
    ///
    /// Redis refuses it while its memory is full, on a replica, while it cannot save (`MISCONF`), and with too few replicas
    /// (`NOREPLICAS`).
    public func probe(completion: @escaping (Result<Void, QueueConnection.Failure>) -> Void) {
        // In the slot of the set.
        client.send(RedisCommand("SET", keys.registrations + ":probe", "", "PX", "1")) { result in
            completion(result.mapError(QueueConnection.Failure.redis).map { _ in })
        }
    }

    /// Finds those of some tokens that are in the set, and what is known of them.
    /// - Parameters:
    ///   - candidates: lower-case hex, at most some thousands.
    ///   - completion: gets the places of those that are in it, in ascending order, and the tokens.
    public func find(
        _ candidates: TokenList, completion: @escaping (Result<[Found], QueueConnection.Failure>) -> Void
    ) {
        guard candidates.count > 0 else { return completion(.success([])) }
        scripts.run(
            .findInvalidTokens, [keys.invalidTokens, keys.invalidTokenDetails],
            arguments: { command in command.append(candidates.bytes) },
            completion: { completion($0.flatMap { Self.found($0, among: candidates) }) })
    }

    private static func found(
        _ reply: RESPReply, among candidates: TokenList
    ) -> Result<[Found], QueueConnection.Failure> {
        // Nearly always.
        guard reply.root.count > 0 else { return .success([]) }
        var (places, details): ([Int], [InvalidTokenDetails]) = ([], [])
        var elements = reply.root.children
        while let place = elements.next()?.integer, let known = elements.next()?.bytes {
            places.append(place)
            details.append(InvalidTokenDetails(known))
        }
        let tokens = candidates.tokens(at: places)
        guard places.count * 2 == reply.root.count, tokens.count == places.count else {
            return .failure(.unexpectedReply(.findInvalidTokens))
        }
        return .success(zip(zip(places, tokens), details).map { Found(place: $0.0, token: $0.1, details: $1) })
    }
}
