import NIOCore
import Redis

/// The set of invalid tokens that all queues share, and their details. It can be divided into shards.
///
/// Not thread-safe. Use it only on the clients' event loop; completions are called there, too.
public final class InvalidTokenSet {
    /// Tokens are kept for this time by default, in milliseconds.
    public static let defaultMaximumAge = 365 * 86_400_000
    /// The maximum number of tokens in an entry of the stream of changes.
    private static let tokensOfChange = 50
    /// A reading of the division is used for this time.
    public static let validity = TimeAmount.seconds(2)

    public let keys: SharedKeys
    /// The client for the slot of the shared keys.
    public let client: any RedisSender
    /// The clients for the slots of all keys.
    public let clients: ShardClients
    private let maximumAge: Int
    /// The last reading of the division, unless the division was being changed: the number of shards, and the time of the request.
    private var known: (shards: Int, at: NIODeadline)?

    /// - Parameters:
    ///   - client: a client for the slot of the shared keys.
    ///   - clients: returns the client for the slot of a key, on the same event loop; `nil` if `client` serves all keys.
    ///   - maximumAge: the maximum age of marks and registrations, in milliseconds; 0 to keep them forever. Each addition and each removal
    ///     also removes some older ones. The age of a mark counts in whole days.
    public init(
        client: any RedisSender, clients: ((_ key: String) -> any RedisSender)? = nil, keys: SharedKeys,
        maximumAge: Int = defaultMaximumAge, clock: ClockSource = .server
    ) {
        (self.client, self.keys, self.maximumAge) = (client, keys, maximumAge)
        self.clients = ShardClients(clients ?? { _ in client }, clock: clock)
    }

    /// True while tokens can be added to an undivided set. For a divided set it is a guess, because its shards may be on other servers.
    public var isReady: Bool { client.isReady }

    // MARK: The division

    /// Reads how the set is divided.
    public func readDivision(completion: @escaping Completion<TokenDivision>) {
        let asked = client.eventLoop.now
        clients.send(RedisCommand("GET", keys.invalidTokenDivision), for: keys.invalidTokenDivision) { [self] result in
            completion(
                result.mapError(QueueFailure.redis).flatMap { reply in
                    let recorded =
                        reply.root.isNull ? TokenDivision() : reply.root.string.flatMap { TokenDivision($0) }
                    guard let division = recorded else {
                        return .failure(.unexpectedReply("GET \(keys.invalidTokenDivision)"))
                    }
                    known = division.incomplete == nil ? (division.shards, asked) : nil
                    return .success(division)
                })
        }
    }

    /// Returns the current form of the set. Fails while its number of shards is being changed.
    public func form(completion: @escaping Completion<TokenForm>) {
        if let known, client.eventLoop.now - known.at < Self.validity {
            return completion(.success(form(known.shards)))
        }
        readDivision { [self] result in
            completion(
                result.flatMap { division in
                    division.incomplete == nil ? .success(form(division.shards)) : .failure(.resharding(division))
                })
        }
    }

    private func form(_ shards: Int) -> TokenForm {
        TokenForm(shards: shards, keys: keys, maximumAge: maximumAge, clients: clients) { [self] completion in
            form { result in
                completion(
                    result.flatMap { form in
                        form.shards == shards
                            ? .success(()) : .failure(.resharding(TokenDivision(shards: form.shards)))
                    })
            }
        }
    }

    /// Returns a form for the operator who changes the number of shards. It never removes old marks.
    public func form(changing shards: Int) -> TokenForm {
        TokenForm(shards: shards, keys: keys, maximumAge: 0, clients: clients) { $0(.success(())) }
    }

    /// Makes a call in the current form of the set.
    private func call<Value>(
        _ completion: @escaping Completion<Value>, _ body: @escaping (TokenForm, @escaping Completion<Value>) -> Void
    ) {
        form { result in
            switch result {
            case .success(let form): body(form, completion)
            case .failure(let failure): completion(.failure(failure))
            }
        }
    }

    // MARK: Reading

    public func count(completion: @escaping Completion<Int>) {
        call(completion) { form, completion in
            form.sizes(of: 0..<form.shards) { completion($0.map { $0.reduce(0, +) }) }
        }
    }

    /// Counts the tokens of an undivided set; `nil` for a divided one, because counting it would take a call to each shard. It always reads
    /// the division, which later calls then use for ``validity``.
    public func countIfUndivided(completion: @escaping Completion<Int?>) {
        readDivision { [self] result in
            if case .failure(let failure) = result { return completion(.failure(failure)) }
            call(completion) { form, completion in
                guard form.shards == 1 else { return completion(.success(nil)) }
                form.sizes(of: 0..<1) { completion($0.map { $0.first }) }
            }
        }
    }

    /// Finds out if Redis accepts writes: writes a key that expires after a millisecond, in the slot of the shared keys.
    ///
    /// Redis refuses writes while its memory is full, on a replica, while it cannot save (`MISCONF`), and with too few replicas
    /// (`NOREPLICAS`).
    public func probe(completion: @escaping Completion<Void>) {
        client.send(RedisCommand("SET", keys.registrations + ":probe", "", "PX", "1")) { result in
            completion(result.mapError(QueueFailure.redis).map { _ in })
        }
    }

    /// Finds the candidates that are in the set, and their details.
    /// - Parameters:
    ///   - candidates: lower-case hex, at most a few thousand.
    ///   - completion: gets the candidates that are in the set, in ascending order of their places.
    public func find(_ candidates: TokenList, completion: @escaping Completion<[InvalidToken.Found]>) {
        guard !candidates.asksNothing else { return completion(.success([])) }
        call(completion) { form, completion in form.find(candidates, completion: completion) }
    }

    // MARK: Writing

    /// Marks tokens, except those whose devices have registered since. A newer mark for the same topic and environment is kept. Works
    /// on a Redis whose memory is full.
    /// - Parameters:
    ///   - marked: at most a few thousand tokens.
    ///   - completion: gets the result for each token, in their order. After a failure, all can be marked again. Tokens that were added
    ///     before the failure are then ``InvalidToken/Marking/known``.
    public func mark(_ marked: [InvalidToken], completion: @escaping Completion<[InvalidToken.Marking]>) {
        let tokens = marked.map {
            TokenForm.Addition(token: $0.token, at: $0.at, facts: $0.facts, registeredAt: $0.registeredAt)
        }
        call(
            { [self] (result: Result<[InvalidToken.Marking], QueueFailure>) in
                guard case .success = result else { return completion(result) }
                announce(tokens.map(\.token)) { announced in
                    if case .failure(let failure) = announced {
                        completion(.failure(failure))
                    } else {
                        completion(result)
                    }
                }
            }, { form, completion in form.add(tokens, completion: completion) })
    }

    /// Announces tokens to the processes that keep a filter of the set. This includes tokens that were already in the set, because the
    /// process that added them may have ended before it announced them.
    private func announce(_ tokens: [ByteBuffer], completion: @escaping Completion<Void>) {
        clients.run(
            .announceInvalidTokens, [keys.invalidTokenChanges],
            arguments: { command in
                for start in stride(from: 0, to: tokens.count, by: Self.tokensOfChange) {
                    command.append(TokenList(tokens[start...].prefix(Self.tokensOfChange)).bytes)
                }
            }, completion: { completion($0.map { _ in }) }, reading: { $0.number() })
    }

    /// Removes marks, and tokens without marks from their sets. Works on a Redis whose memory is full.
    /// - Parameter completion: gets the number of removals that found something to remove.
    public func remove(_ removed: [InvalidToken.Removal], completion: @escaping Completion<Int>) {
        guard !removed.isEmpty else { return completion(.success(0)) }
        call(completion) { form, completion in form.remove(removed, completion: completion) }
    }
}
