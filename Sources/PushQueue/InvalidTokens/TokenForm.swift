import NIOCore
import Redis

/// A form of the set of invalid tokens: its tokens in a certain number of shards. Two forms exist only while that number is changed.
public struct TokenForm {
    /// Tokens that are in one shard, by their indexes.
    public typealias Group = (shard: TokenShard, indexes: [Int])

    /// The number of shards; 1 for a form that is not divided.
    public let shards: Int
    let keys: SharedKeys
    /// The maximum age of marks and registrations, in milliseconds; 0 to keep them forever.
    let maximumAge: Int
    let clients: ShardClients
    /// Fails if the set may no longer have this form.
    let check: ShardClients.Check

    public func shard(of token: ByteBuffer) -> TokenShard {
        keys.shard(TokenDivision.shard(of: token, among: shards), of: shards)
    }

    /// Returns the groups of tokens that are in one shard, in the order of the shards.
    public func groups(_ tokens: [ByteBuffer]) -> [Group] {
        guard shards > 1 else { return tokens.isEmpty ? [] : [(keys.shard(0, of: 1), Array(0..<tokens.count))] }
        var indexes: [Int: [Int]] = [:]
        for (index, token) in tokens.enumerated() {
            indexes[TokenDivision.shard(of: token, among: shards), default: []].append(index)
        }
        return indexes.sorted { $0.key < $1.key }.map { (keys.shard($0.key, of: shards), $0.value) }
    }

    /// The stream of changes, which only an undivided set has in its slot.
    private func changes(of shard: TokenShard) -> [String] { shard.isShard ? [] : [keys.invalidTokenChanges] }

    // MARK: Reading

    /// Counts the tokens in some shards.
    public func sizes(of shards: Range<Int>, completion: @escaping Completion<[Int]>) {
        ShardClients.join(Array(shards), completion: completion) { index, completion in
            let shard = keys.shard(index, of: self.shards)
            clients.run(
                .countInvalidTokens, [shard.tokens], if: check, arguments: { $0.append(shard.isShard ? 1 : 0) },
                completion: completion, reading: { $0.number() })
        }
    }

    /// Finds the candidates that are in this form.
    /// - Parameters:
    ///   - candidates: lower-case hex, at most a few thousand.
    ///   - completion: gets the candidates that are in this form, in ascending order of their places.
    public func find(_ candidates: TokenList, completion: @escaping Completion<[InvalidToken.Found]>) {
        guard shards > 1 else { return find(candidates, in: keys.shard(0, of: 1), completion) }
        let tokens = candidates.asked
        ShardClients.join(
            groups(tokens),
            completion: { result in
                completion(result.map { $0.joined().sorted { $0.place < $1.place } })
            },
            { group, completion in
                find(TokenList(group.indexes.map { tokens[$0] }), in: group.shard) { result in
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

    private func find(
        _ candidates: TokenList, in shard: TokenShard, _ completion: @escaping Completion<[InvalidToken.Found]>
    ) {
        clients.run(
            .findInvalidTokens, [shard.tokens, shard.details, shard.facts, shard.registrations], if: check,
            arguments: { command in
                command.append(candidates.bytes)
                command.append(shard.isShard ? 1 : 0)
            },
            completion: completion, reading: { Self.read(&$0, among: candidates) })
    }

    private static func read(_ reply: inout ScriptReply, among candidates: TokenList) -> [InvalidToken.Found] {
        // Nearly always, no token was found.
        guard !reply.isAtEnd else { return [] }
        var (indexes, found): ([Int], [InvalidToken.Found]) = ([], [])
        while !reply.isAtEnd {
            let index = reply.number()
            if candidates.place(of: index) == nil { reply.refuse() }
            indexes.append(index)
            var one = InvalidToken.Found(
                place: candidates.place(of: index) ?? 0, token: ByteBuffer(), sets: TokenSets(rawValue: reply.number()),
                registeredAt: reply.numberIfAny())
            for _ in 0..<min(reply.number(), reply.count) where !reply.isAtEnd {
                one.marks.append(
                    InvalidToken.Found.Mark(at: Int64(reply.number()), day: Int64(reply.number()), facts: reply.bytes())
                )
            }
            found.append(one)
        }
        let tokens = candidates.tokens(at: indexes)
        if tokens.count != found.count { reply.refuse() }
        for (index, token) in tokens.enumerated() where index < found.count { found[index].token = token }
        return found
    }

    // MARK: Writing

    public struct Addition: Sendable {
        /// Lower-case hex.
        var token: ByteBuffer
        /// The time when it became invalid, in milliseconds since 1970; `nil` for a token without a mark.
        var at: Int64?
        /// The facts except ``at`` and ``day``, as JSON; empty for none.
        var facts = ByteBuffer()
        /// The day of the marking, counted from 1970; `nil` for today.
        var day: Int64?
        /// The sets that the token enters; `nil` if they follow from the facts.
        var sets: TokenSets?
        /// A registration that may not be recorded yet, in milliseconds since 1970.
        var registeredAt: Int64?
    }

    /// Adds tokens as they were found in another form.
    public func copy(_ found: [InvalidToken.Found], completion: @escaping Completion<[InvalidToken.Marking]>) {
        let additions = found.flatMap { one in
            one.marks.isEmpty
                ? [Addition(token: one.token, sets: one.sets)]
                : one.marks.map {
                    Addition(token: one.token, at: $0.at, facts: $0.facts, day: $0.day, sets: one.sets)
                }
        }
        add(additions, completion: completion)
    }

    /// Adds marks, except those of tokens whose devices have registered since. Newer marks are kept.
    /// - Parameter completion: gets the result for each token, in their order.
    public func add(_ tokens: [Addition], completion: @escaping Completion<[InvalidToken.Marking]>) {
        var groups = groups(tokens.map(\.token))
        // Without tokens, the script only checks the types of the keys.
        if groups.isEmpty { groups = [(keys.shard(0, of: shards), [])] }
        ShardClients.join(
            groups,
            completion: { [groups] (result: Result<[[InvalidToken.Marking]], QueueFailure>) in
                completion(
                    result.map { answers in
                        var markings = [InvalidToken.Marking](repeating: .known, count: tokens.count)
                        for (group, answer) in zip(groups, answers) {
                            for (index, marking) in zip(group.indexes, answer) { markings[index] = marking }
                        }
                        return markings
                    })
            },
            { group, completion in add(group.indexes.map { tokens[$0] }, to: group.shard, completion) })
    }

    private func add(
        _ tokens: [Addition], to shard: TokenShard, _ completion: @escaping Completion<[InvalidToken.Marking]>
    ) {
        clients.run(
            .addInvalidTokens,
            [shard.tokens, shard.registrations, shard.details, shard.facts] + changes(of: shard), if: check,
            expecting: tokens.count * 6,
            arguments: { [maximumAge] command in
                command.append(maximumAge)
                command.append(shard.isShard ? 1 : 0)
                func append(_ number: Int64?) {
                    if let number { command.append(Int(number)) } else { command.append("") }
                }
                for token in tokens {
                    command.append(token.token)
                    append(token.at)
                    command.append(token.facts)
                    append(token.day)
                    append(token.sets.map { Int64($0.rawValue) })
                    append(token.registeredAt)
                }
            },
            completion: completion
        ) { reply in
            if reply.count != tokens.count { reply.refuse() }
            return tokens.map { _ in reply.value(else: .known) }
        }
    }

    /// Removes marks, and tokens without marks.
    /// - Parameter completion: gets the number of removals that found something to remove.
    public func remove(_ removed: [InvalidToken.Removal], completion: @escaping Completion<Int>) {
        ShardClients.join(
            groups(removed.map(\.token)), completion: { completion($0.map { $0.reduce(0, +) }) },
            { (group: Group, completion: @escaping Completion<Int>) in
                let shard = group.shard
                clients.run(
                    .removeInvalidTokens,
                    [shard.tokens, shard.registrations, shard.details, shard.facts] + changes(of: shard), if: check,
                    expecting: group.indexes.count * 5,
                    arguments: { [maximumAge] command in
                        command.append(maximumAge)
                        command.append(shard.isShard ? 1 : 0)
                        for index in group.indexes {
                            let removal = removed[index]
                            command.append(removal.token)
                            command.append(removal.reason.rawValue)
                            if let at = removal.registeredAt { command.append(Int(at)) } else { command.append("") }
                            command.append(removal.environment ?? ByteBuffer())
                            command.append(removal.topic ?? ByteBuffer())
                        }
                    },
                    completion: completion, reading: { $0.number() })
            })
    }
}
