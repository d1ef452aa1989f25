import NIOCore
import Redis

/// The set of invalid tokens that all queues share, and their details. It can be divided into shards.
///
/// Not thread-safe. Use it only on the clients' event loop; completions are called there, too.
public final class InvalidTokenSet {
    /// The completion of a call: its value, or the failure.
    public typealias Completion<Value> = (Result<Value, QueueFailure>) -> Void

    /// A token that is in the set.
    public struct Found: Sendable, Equatable {
        /// Its index among the tokens that were looked up, from 0.
        public var place: Int
        /// The token.
        public var token: ByteBuffer
        /// The known facts about it.
        public var details: InvalidTokenDetails
    }

    /// A token of a shard, with its details as they are stored.
    package struct Stored: Sendable, Equatable {
        /// Its index among the tokens that were looked up, from 0.
        package var place: Int
        package var token: ByteBuffer
        /// The time since which it is invalid, in milliseconds since 1970; `nil` if unknown.
        package var at: Int64?
        /// The day on which it was marked, since 1970; `nil` if unknown.
        package var day: Int64?
        /// The other facts as JSON; empty for none.
        package var facts: ByteBuffer
    }

    /// The default time for which tokens are kept, in milliseconds.
    public static let defaultMaximumAge = 365 * 86_400_000
    /// The tokens of one entry of the stream of changes.
    private static let tokensOfChange = 50
    /// The number of times that a call learns of a later division. Each step takes longer than that many calls.
    private static let patience = 5

    /// The pause before a call is repeated that Redis refuses while a shard is moved to another server, and the time for which
    /// it is.
    private static let (moveCheck, movePatience) = (TimeAmount.milliseconds(50), TimeAmount.seconds(10))

    package let keys: SharedKeys
    /// The client for the slot of the shared keys.
    package let client: any RedisSender
    /// Returns the client for the slot of a key.
    private let clients: (_ key: String) -> any RedisSender
    private let maximumAge: Int
    private let clock: ClockSource
    private var runners: [ObjectIdentifier: ScriptRunner] = [:]
    /// The latest division that is known. A call that Redis refuses learns of a later one.
    package private(set) var division = TokenDivision()

    /// - Parameters:
    ///   - client: a client for the slot of the shared keys.
    ///   - clients: returns the client for the slot of a key, on the same event loop; `nil` if `client` serves all keys.
    ///   - maximumAge: the time for which tokens are kept after they, or newer details, were added, and registrations
    ///     after they happened, in milliseconds; 0 to keep them forever. Older ones are removed gradually while others
    ///     are added or removed. A day of tokens counts as a whole.
    public convenience init(
        client: any RedisSender, clients: ((_ key: String) -> any RedisSender)? = nil, keys: SharedKeys,
        maximumAge: Int = defaultMaximumAge
    ) {
        self.init(client: client, clients: clients, keys: keys, maximumAge: maximumAge, clock: .server)
    }

    package init(
        client: any RedisSender, clients: ((_ key: String) -> any RedisSender)? = nil, keys: SharedKeys,
        maximumAge: Int = defaultMaximumAge, clock: ClockSource
    ) {
        (self.client, self.keys, self.maximumAge, self.clock) = (client, keys, maximumAge, clock)
        self.clients = clients ?? { _ in client }
    }

    /// True while tokens can be added to a set that is not divided, and probably to the shards of one that is.
    public var isReady: Bool { client.isReady }

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

    /// Runs a script on a shard, once that is not being moved to another server.
    package func run<Value>(
        _ script: QueueScript, _ keyNames: [String], expecting count: Int = 16,
        arguments: @escaping (inout RedisCommand) -> Void, completion: @escaping Completion<Value>,
        reading read: @escaping (inout ScriptReply) -> Value
    ) {
        let client = clients(keyNames[0])
        let end = client.eventLoop.now + Self.movePatience
        func attempt() {
            let runner = runners[ObjectIdentifier(client)] ?? ScriptRunner(client: client, clock: clock)
            runners[ObjectIdentifier(client)] = runner
            runner.run(
                script, keyNames, expecting: count, arguments: arguments,
                completion: { result in
                    guard case .failure(let failure) = result, failure.isOfMove, client.eventLoop.now < end else {
                        return completion(result)
                    }
                    client.eventLoop.assumeIsolated().scheduleTask(in: Self.moveCheck) { attempt() }
                }, reading: read)
        }
        // A shard's client is made when it is first used.
        client.afterFirstAttempt { attempt() }
    }

    /// Sends a command to the server of a shard's key.
    package func send(_ command: RedisCommand, for key: String, completion: @escaping RedisClient.Completion) {
        let client = clients(key)
        client.afterFirstAttempt { client.send(command, completion: completion) }
    }

    /// Calls several shards at once.
    /// - Parameter completion: gets the values, in the order of the shards, or the first failure.
    package func join<Item, Value>(
        _ items: [Item], completion: @escaping Completion<[Value]>,
        _ body: (Item, @escaping Completion<Value>) -> Void
    ) {
        guard !items.isEmpty else { return completion(.success([])) }
        var values = [Value?](repeating: nil, count: items.count)
        var (left, failure): (Int, QueueFailure?) = (items.count, nil)
        for (index, item) in items.enumerated() {
            body(item) { result in
                switch result {
                case .success(let value): values[index] = value
                case .failure(let error): failure = failure ?? error
                }
                left -= 1
                if left == 0 { completion(failure.map { .failure($0) } ?? .success(values.compactMap { $0 })) }
            }
        }
    }

    /// Returns the indexes of tokens by the shards that they are in.
    package static func places(
        _ tokens: [ByteBuffer], among shards: Int
    ) -> [(shard: Int, indexes: [Int])] {
        guard shards > 1 else { return tokens.isEmpty ? [] : [(0, Array(0..<tokens.count))] }
        var places: [Int: [Int]] = [:]
        for (index, token) in tokens.enumerated() {
            places[TokenDivision.shard(of: token, among: shards), default: []].append(index)
        }
        return places.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    // MARK: Reading

    /// Counts the tokens in the set.
    public func count(completion: @escaping Completion<Int>) {
        call(completion) { [self] division, completion in
            sizes(of: 0..<division.shards, division) { completion($0.map { $0.reduce(0, +) }) }
        }
    }

    /// Counts the tokens in the set unless it is divided: `nil` then, because that takes a call to each shard.
    package func countIfUndivided(completion: @escaping Completion<Int?>) {
        call(completion) { [self] _, completion in
            readDivision { [self] result in
                guard case .success(let division) = result, division.shards == 1 else {
                    return completion(result.map { _ in nil })
                }
                sizes(of: 0..<1, division) { completion($0.map { $0.first }) }
            }
        }
    }

    /// Counts the tokens in some shards.
    package func sizes(of shards: Range<Int>, _ division: TokenDivision, completion: @escaping Completion<[Int]>) {
        join(Array(shards), completion: completion) { (shard: Int, completion: @escaping Completion<Int>) in
            let keys = self.keys.shard(shard, of: division.shards)
            run(
                .countInvalidTokens, [keys.tokens, keys.division], arguments: { keys.append(division, to: &$0) },
                completion: completion, reading: { $0.number() })
        }
    }

    /// Tests whether Redis accepts writes, with a key in the slot of the shared keys that expires immediately.
    ///
    /// Redis refuses it while its memory is full, on a replica, while it cannot save (`MISCONF`), and with too few
    /// replicas (`NOREPLICAS`).
    public func probe(completion: @escaping Completion<Void>) {
        client.send(RedisCommand("SET", keys.registrations + ":probe", "", "PX", "1")) { result in
            completion(result.mapError(QueueFailure.redis).map { _ in })
        }
    }

    /// Finds the candidates that are in the set, and their details.
    /// - Parameters:
    ///   - candidates: lower-case hex, at most a few thousand.
    ///   - completion: gets those that are in the set, in ascending order of their places.
    public func find(_ candidates: TokenList, completion: @escaping Completion<[Found]>) {
        guard !candidates.asksNothing else { return completion(.success([])) }
        call(completion) { [self] division, completion in
            stored(candidates, among: division.shards, division) { result in
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

    /// Finds the candidates that are in a form of the set.
    /// - Parameter shards: its number of shards.
    package func stored(
        _ candidates: TokenList, among shards: Int, _ division: TokenDivision,
        completion: @escaping Completion<[Stored]>
    ) {
        guard shards > 1 else { return stored(candidates, in: keys.shard(0, of: 1), division, completion: completion) }
        let tokens = candidates.asked
        join(
            Self.places(tokens, among: shards),
            completion: { result in
                completion(result.map { $0.joined().sorted { $0.place < $1.place } })
            },
            { group, completion in
                let some = TokenList(group.indexes.map { tokens[$0] })
                stored(some, in: keys.shard(group.shard, of: shards), division) { result in
                    completion(
                        result.map { found in
                            found.map {
                                var found = $0
                                found.place = candidates.place(of: group.indexes[found.place]) ?? 0
                                return found
                            }
                        })
                }
            })
    }

    private func stored(
        _ candidates: TokenList, in shard: TokenShard, _ division: TokenDivision,
        completion: @escaping Completion<[Stored]>
    ) {
        run(
            .findInvalidTokens, [shard.tokens, shard.details, shard.facts, shard.division],
            arguments: { command in
                command.append(candidates.bytes)
                shard.append(division, to: &command)
            },
            completion: completion, reading: { Self.stored(&$0, among: candidates) })
    }

    private static func stored(_ reply: inout ScriptReply, among candidates: TokenList) -> [Stored] {
        // This is nearly always the case.
        guard !reply.isAtEnd else { return [] }
        var (indexes, found): ([Int], [Stored]) = ([], [])
        while !reply.isAtEnd {
            let index = reply.number()
            if candidates.place(of: index) == nil { reply.refuse() }
            indexes.append(index)
            found.append(
                Stored(
                    place: candidates.place(of: index) ?? 0, token: ByteBuffer(), at: reply.numberIfAny(),
                    day: reply.numberIfAny(), facts: reply.bytes()))
        }
        let tokens = candidates.tokens(at: indexes)
        if tokens.count != found.count { reply.refuse() }
        for (index, token) in tokens.enumerated() where index < found.count { found[index].token = token }
        return found
    }

    // MARK: Writing

    /// The result of marking a token as invalid.
    public enum Marking: Int, Sendable {
        /// It was added.
        case added = 1
        /// It was in the set already.
        case known = 0
        /// It was not added, because its device has registered since.
        case registeredSince = -1
    }

    /// A device's registration.
    public struct Registration: Sendable, Equatable {
        /// Its token, in lower-case hex.
        public var token: ByteBuffer
        /// The time of the registration, in milliseconds since 1970.
        public var at: Int64

        /// Makes a registration; see the properties for formats and units.
        public init(token: ByteBuffer, at: Int64) {
            self.token = token
            self.at = at
        }
    }

    /// Adds tokens with their details, except tokens whose devices have registered since. Newer details are kept. Works
    /// on a Redis whose memory is full.
    /// - Parameters:
    ///   - marked: at most a few thousand tokens.
    ///   - completion: gets the result for each token, in their order. After a failure, all can be marked again; those
    ///     that were added before it are then ``Marking/known``.
    public func mark(_ marked: [InvalidToken], completion: @escaping Completion<[Marking]>) {
        let tokens = marked.map { token in
            Stored(place: 0, token: token.token, at: token.at, day: nil, facts: token.facts)
        }
        call(
            { [self] (result: Result<[Marking], QueueFailure>) in
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
                write(division, completion: completion) { [self] shards, before, completion in
                    // The other form may not have all registrations yet.
                    let some = before.map { zip(tokens, $0).filter { $1 != .registeredSince }.map(\.0) }
                    add(some ?? tokens, among: shards, division, completion: completion)
                }
            })
    }

    /// Tells the processes that keep a filter of the set about tokens that were added, or that were in the set: the process
    /// that added them may have ended before it announced them.
    private func announce(_ tokens: [ByteBuffer], completion: @escaping Completion<Void>) {
        run(
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
        _ body: @escaping (_ shards: Int, _ before: Value?, @escaping Completion<Value>) -> Void
    ) {
        let written = division.written
        body(written[0], nil) { result in
            guard case .success(let value) = result, let other = written.dropFirst().first else {
                return completion(result)
            }
            body(other, value) { second in
                if case .failure = second { completion(second) } else { completion(result) }
            }
        }
    }

    /// The stream of changes, if it is in the slot of a shard.
    private func changes(of shard: TokenShard) -> [String] { shard.isShard ? [] : [keys.invalidTokenChanges] }

    /// Adds tokens to a form of the set.
    package func add(
        _ tokens: [Stored], among shards: Int, _ division: TokenDivision, completion: @escaping Completion<[Marking]>
    ) {
        var places = Self.places(tokens.map(\.token), among: shards)
        // Without tokens it only checks the keys.
        if places.isEmpty { places = [(0, [])] }
        join(
            places,
            completion: { [places] (result: Result<[[Marking]], QueueFailure>) in
                completion(
                    result.map { groups in
                        var markings = [Marking](repeating: .known, count: tokens.count)
                        for (place, group) in zip(places, groups) {
                            for (index, marking) in zip(place.indexes, group) { markings[index] = marking }
                        }
                        return markings
                    })
            },
            { place, completion in
                add(
                    place.indexes.map { tokens[$0] }, to: self.keys.shard(place.shard, of: shards), division, completion
                )
            })
    }

    private func add(
        _ tokens: [Stored], to shard: TokenShard, _ division: TokenDivision,
        _ completion: @escaping Completion<[Marking]>
    ) {
        run(
            .addInvalidTokens,
            [shard.tokens, shard.registrations, shard.details, shard.facts, shard.division] + changes(of: shard),
            expecting: tokens.count * 4,
            arguments: { [maximumAge] command in
                command.append(maximumAge)
                shard.append(division, to: &command)
                for token in tokens {
                    command.append(token.token)
                    if let at = token.at { command.append(Int(at)) } else { command.append("") }
                    command.append(token.facts)
                    if let day = token.day { command.append(Int(day)) } else { command.append("") }
                }
            },
            completion: completion
        ) { reply in
            if reply.count != tokens.count { reply.refuse() }
            return tokens.map { _ in reply.value(else: .known) }
        }
    }

    /// Removes tokens from the set because their devices have registered again, and records the registrations. Works on
    /// a Redis whose memory is full.
    public func register(_ registered: [Registration], completion: @escaping Completion<Void>) {
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
            write(division, completion: completion) { [self] shards, _, completion in
                remove(removed, among: shards, division, completion: completion)
            }
        }
    }

    /// Removes tokens from a form of the set.
    package func remove(
        _ removed: [(token: ByteBuffer, registeredAt: Int64?)], among shards: Int, _ division: TokenDivision,
        completion: @escaping Completion<Int>
    ) {
        join(
            Self.places(removed.map(\.token), among: shards),
            completion: { completion($0.map { $0.reduce(0, +) }) },
            { (place: (shard: Int, indexes: [Int]), completion: @escaping Completion<Int>) in
                let keys = self.keys.shard(place.shard, of: shards)
                run(
                    .removeInvalidTokens,
                    [keys.tokens, keys.registrations, keys.details, keys.division] + changes(of: keys),
                    expecting: place.indexes.count * 2,
                    arguments: { [maximumAge] command in
                        command.append(maximumAge)
                        keys.append(division, to: &command)
                        for index in place.indexes {
                            let (token, registeredAt) = removed[index]
                            command.append(token)
                            if let registeredAt { command.append(Int(registeredAt)) } else { command.append("") }
                        }
                    },
                    completion: completion, reading: { $0.number() })
            })
    }
}
