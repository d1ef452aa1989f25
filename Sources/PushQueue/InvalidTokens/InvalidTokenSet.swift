import NIOCore
import Redis

/// The set of invalid tokens that all queues share, and their details. It can be divided into shards.
///
/// Not thread-safe. Use it only on the clients' event loop; completions are called there, too.
package final class InvalidTokenSet {
    /// The completion of a call: its value, or the failure.
    package typealias Completion<Value> = (Result<Value, QueueFailure>) -> Void

    /// A token that is in the set.
    package struct Found: Sendable, Equatable {
        /// Its index among the tokens that were looked up, from 0.
        package var place: Int
        /// The token.
        package var token: ByteBuffer
        /// The known facts about it.
        package var details: InvalidTokenDetails
    }

    /// The default time for which tokens are kept, in milliseconds.
    package static let defaultMaximumAge = 365 * 86_400_000
    /// The tokens of one entry of the stream of changes.
    private static let tokensOfChange = 50
    /// The number of times that a call learns of a later division. Each step takes longer than that many calls.
    private static let patience = 5

    package let keys: SharedKeys
    /// The client for the slot of the shared keys.
    package let client: any RedisSender
    /// The clients for the slots of all keys.
    package let clients: ShardClients
    private let maximumAge: Int
    /// The latest division that is known. A call that Redis refuses learns of a later one.
    package private(set) var division = TokenDivision()

    /// - Parameters:
    ///   - client: a client for the slot of the shared keys.
    ///   - clients: returns the client for the slot of a key, on the same event loop; `nil` if `client` serves all keys.
    ///   - maximumAge: the time for which tokens are kept after they, or newer details, were added, and registrations
    ///     after they happened, in milliseconds; 0 to keep them forever. Older ones are removed gradually while others
    ///     are added or removed. A day of tokens counts as a whole.
    package convenience init(
        client: any RedisSender, clients: ((_ key: String) -> any RedisSender)? = nil, keys: SharedKeys,
        maximumAge: Int = defaultMaximumAge
    ) {
        self.init(client: client, clients: clients, keys: keys, maximumAge: maximumAge, clock: .server)
    }

    package init(
        client: any RedisSender, clients: ((_ key: String) -> any RedisSender)? = nil, keys: SharedKeys,
        maximumAge: Int = defaultMaximumAge, clock: ClockSource
    ) {
        (self.client, self.keys, self.maximumAge) = (client, keys, maximumAge)
        self.clients = ShardClients(clients ?? { _ in client }, clock: clock)
    }

    /// True while tokens can be added to a set that is not divided, and probably to the shards of one that is.
    package var isReady: Bool { client.isReady }

    // MARK: Divisions

    /// Makes a call for the division that is known, and again if Redis refuses it because there is a later one.
    private func call<Value>(
        _ completion: @escaping Completion<Value>,
        _ body: @escaping (TokenDivision, @escaping Completion<Value>) -> Void
    ) {
        func attempt(_ left: Int) {
            body(division) { [self] result in
                guard left > 0, case .failure(let failure) = result, let later = TokenDivision(refusal: failure) else {
                    return completion(result)
                }
                learn(later)
                attempt(left - 1)
            }
        }
        attempt(Self.patience)
    }

    private func learn(_ later: TokenDivision) { if later.generation > division.generation { division = later } }

    /// Reads how the set is divided. Only needed before one reads the keys themselves, and to notice that another Redis,
    /// in which it is not divided, has replaced the first.
    package func readDivision(completion: @escaping Completion<TokenDivision>) {
        client.send(RedisCommand("GET", keys.invalidTokenDivision)) { [self] result in
            switch result {
            case .failure(let error): completion(.failure(.redis(error)))
            case .success(let reply):
                let recorded = reply.root.string.flatMap { TokenDivision($0) }
                if let recorded { learn(recorded) } else if reply.root.isNull { division = TokenDivision() }
                completion(.success(division))
            }
        }
    }

    /// Returns a form of the set.
    /// - Parameter shards: its number of shards.
    package func form(_ shards: Int, _ division: TokenDivision) -> TokenForm {
        TokenForm(shards: shards, division: division, keys: keys, maximumAge: maximumAge, clients: clients)
    }

    /// Returns the form of the set that is read.
    package func form(_ division: TokenDivision) -> TokenForm { form(division.shards, division) }

    // MARK: Reading

    /// Counts the tokens in the set.
    package func count(completion: @escaping Completion<Int>) {
        call(completion) { [self] division, completion in
            form(division).sizes(of: 0..<division.shards) { completion($0.map { $0.reduce(0, +) }) }
        }
    }

    /// Counts the tokens in the set unless it is divided: `nil` then, because that takes a call to each shard.
    package func countIfUndivided(completion: @escaping Completion<Int?>) {
        call(completion) { [self] _, completion in
            readDivision { [self] result in
                guard case .success(let division) = result, division.shards == 1 else {
                    return completion(result.map { _ in nil })
                }
                form(division).sizes(of: 0..<1) { completion($0.map { $0.first }) }
            }
        }
    }

    /// Tests whether Redis accepts writes, with a key in the slot of the shared keys that expires immediately.
    ///
    /// Redis refuses it while its memory is full, on a replica, while it cannot save (`MISCONF`), and with too few
    /// replicas (`NOREPLICAS`).
    package func probe(completion: @escaping Completion<Void>) {
        client.send(RedisCommand("SET", keys.registrations + ":probe", "", "PX", "1")) { result in
            completion(result.mapError(QueueFailure.redis).map { _ in })
        }
    }

    /// Finds the candidates that are in the set, and their details.
    /// - Parameters:
    ///   - candidates: lower-case hex, at most a few thousand.
    ///   - completion: gets those that are in the set, in ascending order of their places.
    package func find(_ candidates: TokenList, completion: @escaping Completion<[Found]>) {
        guard !candidates.asksNothing else { return completion(.success([])) }
        call(completion) { [self] division, completion in
            form(division).find(candidates) { result in
                completion(
                    result.map { stored in
                        stored.map {
                            Found(
                                place: $0.place, token: $0.token,
                                details: InvalidTokenDetails(at: $0.at, facts: $0.facts))
                        }
                    })
            }
        }
    }

    // MARK: Writing

    /// A device's registration.
    package struct Registration: Sendable, Equatable {
        /// Its token, in lower-case hex.
        package var token: ByteBuffer
        /// The time of the registration, in milliseconds since 1970.
        package var at: Int64

        /// Makes a registration; see the properties for formats and units.
        package init(token: ByteBuffer, at: Int64) {
            self.token = token
            self.at = at
        }
    }

    /// Adds tokens with their details, except tokens whose devices have registered since. Newer details are kept. Works
    /// on a Redis whose memory is full.
    /// - Parameters:
    ///   - marked: at most a few thousand tokens.
    ///   - completion: gets the result for each token, in their order. After a failure, all can be marked again; those
    ///     that were added before it are then ``InvalidToken/Marking/known``.
    package func mark(_ marked: [InvalidToken], completion: @escaping Completion<[InvalidToken.Marking]>) {
        let tokens = marked.map { token in
            TokenForm.Stored(place: 0, token: token.token, at: token.at, day: nil, facts: token.facts)
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
            },
            { [self] division, completion in
                write(division, completion: completion) { form, before, completion in
                    // The other form may not have all registrations yet.
                    let some = before.map { zip(tokens, $0).filter { $1 != .registeredSince }.map(\.0) }
                    form.add(some ?? tokens, completion: completion)
                }
            })
    }

    /// Tells the processes that keep a filter of the set about tokens that were added, or that were in the set: the process
    /// that added them may have ended before it announced them.
    private func announce(_ tokens: [ByteBuffer], completion: @escaping Completion<Void>) {
        clients.run(
            .announceInvalidTokens, [keys.invalidTokenChanges],
            arguments: { command in
                for start in stride(from: 0, to: tokens.count, by: Self.tokensOfChange) {
                    command.append(TokenList(tokens[start...].prefix(Self.tokensOfChange)).bytes)
                }
            }, completion: { completion($0.map { _ in }) }, reading: { $0.number() })
    }

    /// Writes the form that is read, and then the other one, if there is one.
    /// - Parameters:
    ///   - completion: gets the value of the form that is read.
    ///   - body: writes a form. The second time, it gets the value of the first.
    private func write<Value>(
        _ division: TokenDivision, completion: @escaping Completion<Value>,
        _ body: @escaping (TokenForm, _ before: Value?, @escaping Completion<Value>) -> Void
    ) {
        let written = division.written.map { form($0, division) }
        body(written[0], nil) { result in
            guard case .success(let value) = result, let other = written.dropFirst().first else {
                return completion(result)
            }
            body(other, value) { second in
                if case .failure = second { completion(second) } else { completion(result) }
            }
        }
    }

    /// Removes tokens from the set because their devices have registered again, and records the registrations. Works on
    /// a Redis whose memory is full.
    package func register(_ registered: [Registration], completion: @escaping Completion<Void>) {
        remove(registered.map { ($0.token, $0.at) }) { completion($0.map { _ in }) }
    }

    /// Removes tokens that should not be in the set. Works on a Redis whose memory is full.
    /// - Parameter completion: gets the number of tokens that were in the set.
    package func withdraw(_ withdrawn: [ByteBuffer], completion: @escaping Completion<Int>) {
        remove(withdrawn.map { ($0, nil) }, completion: completion)
    }

    private func remove(_ removed: [(token: ByteBuffer, registeredAt: Int64?)], completion: @escaping Completion<Int>) {
        guard !removed.isEmpty else { return completion(.success(0)) }
        call(completion) { [self] division, completion in
            write(division, completion: completion) { form, _, completion in
                form.remove(removed, completion: completion)
            }
        }
    }
}
