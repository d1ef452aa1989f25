import NIOCore
import PushQueue
import Redis

/// Functions for the operator who changes the number of shards, while no other process uses the set.
extension InvalidTokenSet {
    /// Records how the set is divided, if the present record is `former`.
    /// - Parameter completion: gets the record before this call.
    func record(_ next: TokenDivision, after former: TokenDivision, completion: @escaping Completion<TokenDivision>) {
        clients.run(
            .divide, [keys.invalidTokenDivision],
            arguments: { command in
                command.append(former.text)
                command.append(next.text)
            }, completion: completion,
            reading: { reply in
                if let known = TokenDivision(reply.text()) { return known }
                reply.refuse()
                return former
            })
    }

    /// A key of the set in one of its forms, and the number of the key's tokens or registrations.
    struct Content: Sendable {
        var shard: Int
        var key: String
        /// True for tokens, false for registrations.
        var isSet: Bool
        var count = 0
    }

    /// Counts the tokens and registrations in each key of some shards of a form.
    /// - Parameter completion: gets the keys that are not empty.
    func contents(of range: Range<Int>, among shards: Int, completion: @escaping Completion<[Content]>) {
        let places = range.flatMap { index in
            let shard = keys.shard(index, of: shards)
            return shard.sets.map { Content(shard: index, key: $0, isSet: true) }
                + shard.registrationHashes.map { Content(shard: index, key: $0, isSet: false) }
        }
        ShardClients.join(
            places, completion: { completion($0.map { $0.filter { $0.count > 0 } }) },
            { (place: Content, completion: @escaping Completion<Content>) in
                clients.send(RedisCommand(place.isSet ? "SCARD" : "HLEN", place.key), for: place.key) { result in
                    var place = place
                    completion(
                        result.mapError(QueueFailure.redis).map {
                            place.count = $0.root.number ?? 0
                            return place
                        })
                }
            })
    }

    /// Deletes a shard of a form. The keys that ``contents(of:among:completion:)`` counts are deleted last, so that a count still finds a
    /// shard that was deleted in part.
    func deleteShard(_ index: Int, of shards: Int, completion: @escaping Completion<Void>) {
        let shard = keys.shard(index, of: shards)
        unlink([shard.facts] + shard.detailHashes) { [self] result in
            guard Self.value(result, completion) != nil else { return }
            unlink(shard.sets + shard.registrationHashes, completion: completion)
        }
    }

    /// Deletes keys of one slot.
    private func unlink(_ all: [String], completion: @escaping Completion<Void>) {
        ShardClients.join(
            all.batches(of: 512), completion: { completion($0.map { _ in }) },
            { (batch: [String], completion: @escaping Completion<Void>) in
                var command = RedisCommand("UNLINK", expecting: batch.count + 1, bytes: batch.count * 64)
                for key in batch { command.append(key) }
                clients.send(command, for: batch[0]) { completion($0.mapError(QueueFailure.redis).map { _ in }) }
            })
    }

    /// The result of copying a part of a key: the cursor of the next part, and the number of copied tokens.
    typealias Copied = (cursor: String, tokens: Int)

    func copy(
        _ content: Content, after cursor: String, from former: Int, to next: Int,
        completion: @escaping Completion<Copied>
    ) {
        let name = content.isSet ? "SSCAN" : "HSCAN"
        clients.send(RedisCommand(name, content.key, cursor, "COUNT", "1000"), for: content.key) { [self] result in
            guard let (cursor, found) = Self.page(result, completion) else { return }
            guard content.isSet else {
                return copyRegistrations(found, to: form(changing: next)) { completion($0.map { (cursor, 0) }) }
            }
            form(changing: former).find(TokenList(found)) { [self] result in
                guard let stored = Self.value(result, completion) else { return }
                form(changing: next).copy(stored) { completion($0.map { _ in (cursor, stored.count) }) }
            }
        }
    }

    /// - Parameter pairs: tokens, each followed by the time of its registration as it is stored.
    private func copyRegistrations(
        _ pairs: [ByteBuffer], to form: TokenForm, completion: @escaping Completion<Void>
    ) {
        let places = Dictionary(grouping: stride(from: 0, to: pairs.count - 1, by: 2)) {
            form.shard(of: pairs[$0]).registrations(of: pairs[$0])
        }
        ShardClients.join(
            Array(places), completion: { completion($0.map { _ in }) },
            { (place, completion: @escaping Completion<Void>) in
                var command = RedisCommand("HSET", place.key)
                for index in place.value {
                    command.append(pairs[index])
                    command.append(pairs[index + 1])
                }
                clients.send(command, for: place.key) { completion($0.mapError(QueueFailure.redis).map { _ in }) }
            })
    }
}
