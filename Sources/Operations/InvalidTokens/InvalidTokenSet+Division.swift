import NIOCore
import PushQueue
import Redis

/// Functions for the operator who changes the number of shards, while no other process uses the set.
extension InvalidTokenSet {
    /// Records how the set is divided, unless the record is no longer the former one.
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

    /// A key of a form that has something.
    struct Content: Sendable {
        var shard: Int
        var key: String
        /// True for tokens, false for registrations.
        var isSet: Bool
        var count: Int
    }

    /// Counts the tokens and registrations in each key of some shards of a form.
    /// - Parameter completion: gets the keys that have some.
    func contents(of range: Range<Int>, among shards: Int, completion: @escaping Completion<[Content]>) {
        let places = range.flatMap { index in
            let shard = keys.shard(index, of: shards)
            return shard.sets.map { Content(shard: index, key: $0, isSet: true, count: 0) }
                + shard.registrationHashes.map { Content(shard: index, key: $0, isSet: false, count: 0) }
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

    /// Deletes a shard of a form: what ``contents(of:among:completion:)`` counts at last, so that it shows that a part is left.
    func deleteShard(_ index: Int, of shards: Int, completion: @escaping Completion<Void>) {
        let shard = keys.shard(index, of: shards)
        unlink([shard.facts] + shard.detailHashes) { [self] result in
            guard Self.value(result, completion) != nil else { return }
            unlink(shard.sets + shard.registrationHashes, completion: completion)
        }
    }

    /// Deletes keys of one slot.
    private func unlink(_ all: [String], completion: @escaping Completion<Void>) {
        let batches = stride(from: 0, to: all.count, by: 512).map { Array(all[$0...].prefix(512)) }
        ShardClients.join(
            batches, completion: { completion($0.map { _ in }) },
            { (batch: [String], completion: @escaping Completion<Void>) in
                var command = RedisCommand("UNLINK", expecting: batch.count + 1, bytes: batch.count * 64)
                for key in batch { command.append(key) }
                clients.send(command, for: batch[0]) { completion($0.mapError(QueueFailure.redis).map { _ in }) }
            })
    }

    /// A part of a set or hash: the cursor of the next one, and the tokens; of a hash, each with its value.
    typealias Part = (cursor: String, found: [ByteBuffer])

    /// Reads a part of a key.
    func part(of content: Content, after cursor: String, completion: @escaping Completion<Part>) {
        let name = content.isSet ? "SSCAN" : "HSCAN"
        clients.send(RedisCommand(name, content.key, cursor, "COUNT", "1000"), for: content.key) { result in
            guard let part = Self.page(result, completion) else { return }
            completion(.success(part))
        }
    }

    /// A registration as it is stored.
    typealias StoredRegistration = (token: ByteBuffer, at: ByteBuffer)

    /// Writes registrations to a form, and reads them back.
    /// - Parameter completion: gets the values that the form has then, in the order of the registrations.
    func copyRegistrations(
        _ registrations: [StoredRegistration], to form: TokenForm, completion: @escaping Completion<[ByteBuffer?]>
    ) {
        let keys = Dictionary(grouping: registrations.indices) { index in
            let token = registrations[index].token
            return form.shard(of: token).registrations(of: token)
        }
        ShardClients.join(
            Array(keys),
            completion: { result in
                completion(
                    result.map { groups in
                        var values = [ByteBuffer?](repeating: nil, count: registrations.count)
                        for (index, value) in groups.joined() { values[index] = value }
                        return values
                    })
            },
            { (group, completion: @escaping Completion<[(Int, ByteBuffer?)]>) in
                var write = RedisCommand("HSET", group.key)
                var read = RedisCommand("HMGET", group.key)
                for index in group.value {
                    write.append(registrations[index].token)
                    write.append(registrations[index].at)
                    read.append(registrations[index].token)
                }
                clients.send(write, for: group.key) { [self] result in
                    guard Self.value(result.mapError(QueueFailure.redis), completion) != nil else { return }
                    clients.send(read, for: group.key) { result in
                        completion(
                            result.mapError(QueueFailure.redis).map { reply in
                                Array(zip(group.value, reply.root.children.map(\.bytes)))
                            })
                    }
                }
            })
    }
}
