import NIOCore
import Redis

/// The set of invalid tokens that all queues share, and their details.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public struct InvalidTokenSet {
    /// A token that is in the set.
    public struct Found: Sendable, Equatable {
        /// Its index among the tokens that were looked up, from 0.
        public var place: Int
        /// The token.
        public var token: ByteBuffer
        /// The known facts about it.
        public var details: InvalidTokenDetails
    }

    /// The default time for which tokens are kept, in milliseconds.
    public static let defaultMaximumAge = 365 * 86_400_000

    package let keys: SharedKeys
    package let client: any RedisSender
    let scripts: ScriptRunner
    let maximumAge: Int

    /// - Parameters:
    ///   - client: a client for the slot of the shared keys.
    ///   - maximumAge: the time for which tokens are kept after they, or newer details, were added, and registrations
    ///     after they happened, in milliseconds; 0 to keep them forever. Older ones are removed gradually while others
    ///     are added or removed. A day of tokens counts as a whole.
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

    /// True while tokens can be added.
    public var isReady: Bool { client.isReady }

    /// Counts the tokens in the set.
    public func count(completion: @escaping (Result<Int, QueueConnection.Failure>) -> Void) {
        client.send(RedisCommand("SCARD", keys.invalidTokens)) { result in
            completion(result.mapError(QueueConnection.Failure.redis).map { $0.root.number ?? 0 })
        }
    }

    /// Tests whether Redis accepts writes, with a key in the slot of the set that expires immediately.
    ///
    /// Redis refuses it while its memory is full, on a replica, while it cannot save (`MISCONF`), and with too few
    /// replicas (`NOREPLICAS`).
    public func probe(completion: @escaping (Result<Void, QueueConnection.Failure>) -> Void) {
        // In the slot of the set.
        client.send(RedisCommand("SET", keys.registrations + ":probe", "", "PX", "1")) { result in
            completion(result.mapError(QueueConnection.Failure.redis).map { _ in })
        }
    }

    /// Finds the candidates that are in the set, and their details.
    /// - Parameters:
    ///   - candidates: lower-case hex, at most a few thousand.
    ///   - completion: gets those that are in the set, in ascending order of their places.
    public func find(
        _ candidates: TokenList, completion: @escaping (Result<[Found], QueueConnection.Failure>) -> Void
    ) {
        guard !candidates.asksNothing else { return completion(.success([])) }
        scripts.run(
            .findInvalidTokens, [keys.invalidTokens, keys.invalidTokenDetails, keys.invalidTokenFacts],
            arguments: { command in command.append(candidates.bytes) },
            completion: completion, reading: { Self.found(&$0, among: candidates) })
    }

    private static func found(_ reply: inout ScriptReply, among candidates: TokenList) -> [Found] {
        // This is nearly always the case.
        guard !reply.isAtEnd else { return [] }
        var (indexes, places, details): ([Int], [Int], [InvalidTokenDetails]) = ([], [], [])
        while !reply.isAtEnd {
            let index = reply.number()
            if let place = candidates.place(of: index) { places.append(place) } else { reply.refuse() }
            indexes.append(index)
            details.append(InvalidTokenDetails(at: reply.numberIfAny(), facts: reply.bytes()))
        }
        let tokens = candidates.tokens(at: indexes)
        if tokens.count != places.count { reply.refuse() }
        return zip(zip(places, tokens), details).map { Found(place: $0.0, token: $0.1, details: $1) }
    }

    /// Finds the details of one token.
    /// - Parameter token: lower-case hex.
    /// - Returns: `nil` if it is not in the set.
    /// - Throws: `RedisError`, or ``QueueConnection/Failure/unexpectedReply(_:)``.
    package static func details(
        of token: String, _ client: RedisClient, _ keys: SharedKeys
    ) async throws -> InvalidTokenDetails? {
        var candidates = TokenList(expecting: 1)
        candidates.append(ByteBuffer(string: token))
        return try await QueueScript.findInvalidTokens.run(
            client, [keys.invalidTokens, keys.invalidTokenDetails, keys.invalidTokenFacts],
            arguments: { $0.append(candidates.bytes) }, reading: { Self.found(&$0, among: candidates) }
        ).first?.details
    }
}
