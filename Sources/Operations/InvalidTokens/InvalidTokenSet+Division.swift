import NIOCore
import PushQueue
import Redis

/// Functions that divide the set in another way while workers use it. Each of them can be repeated.
extension InvalidTokenSet {
    /// The time for which the shards of a former division refuse calls of processes that know only that one, in
    /// milliseconds.
    private static let formerLifetime = 7 * 86_400_000

    /// Records a division: in the slot of the shared keys, and then in those of all shards, so that each refuses calls of
    /// an earlier one.
    /// - Parameter completion: gets the division that is in effect: a later one, if another process has recorded it.
    func record(_ division: TokenDivision, completion: @escaping Completion<TokenDivision>) {
        record(division, lifetime: 0, at: keys.invalidTokenDivision) { [self] result in
            guard case .success(let recorded) = result, recorded == division else { return completion(result) }
            let forms = Set([division.shards] + (division.other.map { [$0.shards] } ?? [])).subtracting([1])
            let slots = forms.flatMap { shards in
                let isFormer = division.other.map { $0.step == .deleting && $0.shards == shards } ?? false
                return (0..<shards).map { index in
                    (key: keys.shard(index, of: shards).division, lifetime: isFormer ? Self.formerLifetime : 0)
                }
            }
            ShardClients.join(
                slots, completion: { completion($0.map { _ in division }) },
                { (slot: (key: String, lifetime: Int), completion: @escaping Completion<TokenDivision>) in
                    record(division, lifetime: slot.lifetime, at: slot.key, completion: completion)
                })
        }
    }

    private func record(
        _ division: TokenDivision, lifetime: Int, at key: String, completion: @escaping Completion<TokenDivision>
    ) {
        clients.run(
            .divide, [key],
            arguments: { command in
                command.append(division.text)
                command.append(lifetime)
            }, completion: completion,
            reading: { reply in
                if let recorded = TokenDivision(reply.text()) { return recorded }
                reply.refuse()
                return division
            })
    }

    /// The cursor after a part of a set or hash that was copied, and the number of its tokens.
    typealias Copied = (cursor: String, tokens: Int)

    /// Copies the registrations of a part of a hash to the other form.
    func copyRegistrations(
        _ key: String, after cursor: String, _ division: TokenDivision, completion: @escaping Completion<Copied>
    ) {
        guard let other = division.other else { return completion(.success(("0", 0))) }
        clients.send(RedisCommand("HSCAN", key, cursor, "COUNT", "1000"), for: key) { [self] result in
            guard let (next, found) = Self.page(result, completion) else { return }
            let pairs = stride(from: 0, to: found.count - 1, by: 2).map { (token: found[$0], at: found[$0 + 1]) }
            ShardClients.join(
                form(other.shards, division).groups(pairs.map(\.token)),
                completion: { completion($0.map { _ in (next, 0) }) },
                { (group: TokenForm.Group, completion: @escaping Completion<Int>) in
                    let shard = group.shard
                    clients.run(
                        .copyRegistrations, [shard.registrations, shard.division], expecting: group.indexes.count * 2,
                        arguments: { command in
                            shard.append(division, to: &command)
                            for index in group.indexes {
                                command.append(pairs[index].token)
                                command.append(pairs[index].at)
                            }
                        }, completion: completion, reading: { $0.number() })
                })
        }
    }

    /// Copies the tokens of a part of a set to the other form.
    func copyTokens(
        _ key: String, after cursor: String, _ division: TokenDivision,
        completion: @escaping Completion<Copied>
    ) {
        guard let other = division.other else { return completion(.success(("0", 0))) }
        clients.send(RedisCommand("SSCAN", key, cursor, "COUNT", "1000"), for: key) { [self] result in
            guard let (next, found) = Self.page(result, completion) else { return }
            copy(
                found, from: form(division), to: form(other.shards, division),
                completion: { completion($0.map { (next, found.count) }) })
        }
    }

    /// Makes the other form have of some tokens what the form that is read has.
    ///
    /// Others can remove a token between its reading and its copying, and can add it again while it is being removed
    /// here. They change the form that is read first, so the forms agree once it was read after the last copy and had
    /// the same.
    /// - Parameter copied: the places of the tokens that the other form has by now.
    private func copy(
        _ tokens: [ByteBuffer], copied: Set<Int> = [], from read: TokenForm, to other: TokenForm,
        completion: @escaping Completion<Void>
    ) {
        read.find(TokenList(tokens)) { [self] result in
            guard let present = Self.value(result, completion) else { return }
            let places = Set(present.map(\.place))
            let changed = places.symmetricDifference(copied).sorted()
            guard !changed.isEmpty else { return completion(.success(())) }
            other.add(present.filter { !copied.contains($0.place) }) { [self] result in
                guard Self.value(result, completion) != nil else { return }
                let gone = changed.filter { !places.contains($0) }.map {
                    (token: tokens[$0], registeredAt: Int64?.none)
                }
                other.remove(gone) { [self] result in
                    guard Self.value(result, completion) != nil else { return }
                    copy(
                        changed.map { tokens[$0] },
                        copied: Set(changed.indices.filter { places.contains(changed[$0]) }),
                        from: read, to: other, completion: completion)
                }
            }
        }
    }

    /// Deletes the tokens and registrations of a shard of a form that is not read.
    func deleteShard(_ index: Int, of shards: Int, completion: @escaping Completion<Void>) {
        let shard = keys.shard(index, of: shards)
        let all = shard.sets + shard.registrationHashes + [shard.facts] + shard.detailHashes
        let batches = stride(from: 0, to: all.count, by: 512).map { Array(all[$0...].prefix(512)) }
        ShardClients.join(
            batches, completion: { completion($0.map { _ in }) },
            { (batch: [String], completion: @escaping Completion<Void>) in
                var command = RedisCommand("UNLINK", expecting: batch.count + 1, bytes: batch.count * 64)
                for key in batch { command.append(key) }
                clients.send(command, for: shard.division) {
                    completion($0.mapError(QueueFailure.redis).map { _ in })
                }
            })
    }
}
