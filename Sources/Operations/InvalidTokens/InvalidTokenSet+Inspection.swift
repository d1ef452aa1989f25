import NIOCore
import PushQueue
import Redis

/// A place in the set of invalid tokens, for reading it in parts.
package struct InvalidTokenCursor: Sendable {
    /// The number of shards of the form that is read.
    let shards: Int
    /// The index of the key among the keys of all shards.
    var key: Int
    /// Redis' cursor in that key.
    var cursor: String

    init(shards: Int, key: Int = 0, cursor: String = "0") {
        (self.shards, self.key, self.cursor) = (shards, key, cursor)
    }

    /// Parses a cursor: `48` in a set that is not divided, `16.3.48` in shard 3 of a set of 16 shards. `nil` for other texts.
    package init?(_ text: String) {
        let words = text.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        guard words.count == 1 || words.count == 3, let last = words.last, UInt64(last) != nil else { return nil }
        guard words.count == 3 else {
            self.init(shards: 1, cursor: last)
            return
        }
        guard let shards = Int(words[0]), TokenDivision.isNumberOfShards(shards), let key = Int(words[1]), key >= 0
        else { return nil }
        self.init(shards: shards, key: key, cursor: last)
    }

    package var text: String { shards == 1 && key == 0 ? cursor : "\(shards).\(key).\(cursor)" }
}

extension InvalidTokenSet {
    /// A mark of a token that is in one of the sets.
    package struct Listed: Sendable, Equatable {
        /// The token as it is stored.
        package var token: ByteBuffer
        /// The known facts about the mark; none if they were not read, or if another program added the token.
        package var details = InvalidTokenDetails()
        /// The set for other programs that has the token because of this mark. Empty without that set, or if the marks were not read.
        package var set: TokenSets = []

        /// Returns the marks of a token. A token without marks gets one without details.
        static func marks(of found: InvalidToken.Found) -> [Listed] {
            let own = found.sets.intersection(.own)
            guard !found.marks.isEmpty else { return [Listed(token: found.token, set: own)] }
            return found.details.map { details in
                Listed(token: found.token, details: details, set: own.intersection(details.set))
            }
        }
    }

    /// A part of the set.
    package struct Page: Sendable {
        /// The cursor of the next part; `nil` after the last.
        package var cursor: String?
        /// Any number of tokens, in no particular order. With details, a token occurs once for each of its marks.
        package var tokens: [Listed]
        /// The shard with a key that could not be read, and the error. The page then has no tokens, and the next page begins after that
        /// key.
        package var unread: (shard: String, failure: QueueFailure)?
    }

    /// Reads a part of the set. A token that stays in the set is read at least once; if the set grows or shrinks, or gets another number of
    /// shards, some tokens are read twice.
    /// - Parameters:
    ///   - cursor: the cursor of the previous part; `nil` for the first.
    ///   - count: the approximate number of tokens.
    ///   - withDetails: true to read their details, too.
    ///   - sets: the sets to read.
    ///   - beginning: the first hex digits of the tokens, at least four; empty for all tokens. Pages can be empty.
    ///   - skipsUnread: true to return ``Page/unread`` instead of failing if a key of a divided set can't be read.
    package func scan(
        after cursor: String?, count: Int, withDetails: Bool, sets: TokenSets = .all, beginning: String = "",
        skipsUnread: Bool = false, completion: @escaping Completion<Page>
    ) {
        form { [self] result in
            guard let shards = Self.value(result, completion)?.shards else { return }
            let keysOfShard = keys.shard(0, of: shards).keys(of: sets).count
            // All tokens with the same beginning are in one shard.
            let shard =
                beginning.isEmpty
                ? nil : TokenDivision.shard(of: ByteBuffer(string: beginning), among: shards)
            let end = (shard.map { $0 + 1 } ?? shards) * keysOfShard
            let first = InvalidTokenCursor(shards: shards, key: (shard ?? 0) * keysOfShard)
            var place = cursor.flatMap { InvalidTokenCursor($0) } ?? first
            // The cursor may belong to another number of shards.
            if place.shards != shards { place = first }
            scan(
                place, until: end, sets, beginning, count: count, withDetails: withDetails,
                skipsUnread: skipsUnread && shards > 1, completion: completion)
        }
    }

    /// - Parameter end: the number of the key before which the search ends.
    private func scan(
        _ place: InvalidTokenCursor, until end: Int, _ sets: TokenSets, _ beginning: String, count: Int,
        withDetails: Bool, skipsUnread: Bool, completion: @escaping Completion<Page>
    ) {
        let keysOfShard = keys.shard(0, of: place.shards).keys(of: sets).count
        let shard = min(place.key / keysOfShard, place.shards - 1)
        let names = keys.shard(shard, of: place.shards).keys(of: sets)
        let completion: Completion<Page> = { result in
            guard skipsUnread, case .failure(let failure) = result else { return completion(result) }
            let next = InvalidTokenCursor(shards: place.shards, key: place.key + 1)
            let name = "shard \(shard + 1) of \(place.shards) of the invalid tokens"
            completion(.success(Page(cursor: next.key < end ? next.text : nil, tokens: [], unread: (name, failure))))
        }
        let key = names[place.key % keysOfShard]
        var command = RedisCommand("SSCAN", key, place.cursor, "COUNT", "\(count)")
        if !beginning.isEmpty {
            command.append("MATCH")
            command.append("\(beginning)*")
        }
        clients.send(command, for: key) { [self] result in
            guard let (cursor, found) = Self.page(result, completion) else { return }
            var next = place
            next.cursor = cursor
            if cursor == "0" { next.key += 1 }
            let isLast = next.key >= end
            // The sets of a shard can be empty, so the search continues with the next key.
            if found.isEmpty, !isLast, beginning.isEmpty {
                return scan(
                    next, until: end, sets, beginning, count: count, withDetails: withDetails,
                    skipsUnread: skipsUnread, completion: completion)
            }
            let page = Page(cursor: isLast ? nil : next.text, tokens: found.map { Listed(token: $0) })
            guard withDetails else { return completion(.success(page)) }
            // A token that is in several sets is listed only with the first of these sets.
            let earlier = TokenSets.all(before: key, of: keys.shard(shard, of: place.shards)).intersection(sets)
            describe(page, skipping: earlier, completion)
        }
    }

    private func describe(_ page: Page, skipping earlier: TokenSets, _ completion: @escaping Completion<Page>) {
        find(TokenList(page.tokens.map(\.token))) { result in
            completion(
                result.map { found in
                    var described = page
                    described.tokens = found.filter { $0.sets.isDisjoint(with: earlier) }.flatMap(Listed.marks)
                    return described
                })
        }
    }

    /// Finds the time of the last registration of a token's device, in milliseconds since 1970.
    package func registration(of token: ByteBuffer, completion: @escaping Completion<Int64?>) {
        form { [self] result in
            guard let form = Self.value(result, completion) else { return }
            let key = form.shard(of: token).registrations(of: token)
            clients.send(RedisCommand("HGET", key, String(buffer: token)), for: key) { result in
                completion(
                    result.mapError(QueueFailure.redis).map {
                        $0.root.string.flatMap { Int64(bounding: $0) }
                    })
            }
        }
    }

    /// The size of a sample of registrations.
    private static let sample = 100
    /// A smaller number is a time in seconds, and not in milliseconds, since 1970.
    private static let firstMillisecond: Int64 = 100_000_000_000

    /// Checks a sample of one shard's registrations, because other programs can write registrations.
    /// - Parameter completion: gets one mistake, and the number of wrong registrations; `nil` if all are right.
    func badRegistrations(among shards: Int, completion: @escaping Completion<String?>) {
        let shard = keys.shard(.random(in: 0..<shards), of: shards)
        let key = shard.registrationHashes.randomElement() ?? shard.registrations
        clients.send(RedisCommand("HRANDFIELD", key, "\(Self.sample)", "WITHVALUES"), for: key) { result in
            completion(
                result.mapError(QueueFailure.redis).map { reply in
                    let pairs = reply.root.children.map { $0.string ?? "" }
                    var (count, found) = (0, "")
                    for index in stride(from: 0, to: pairs.count - 1, by: 2) {
                        guard let wrong = Self.mistake(pairs[index], pairs[index + 1]) else { continue }
                        (count, found) = (count + 1, wrong)
                    }
                    return count == 0
                        ? nil : "\(found) (\(count) of \(Words.count(pairs.count / 2, "sampled registration")))"
                })
        }
    }

    private static func mistake(_ token: String, _ time: String) -> String? {
        guard TokenText.isToken(token), token == token.lowercased() else { return "a token is not lower-case hex" }
        guard let at = Int64(time) else { return "a time is not a number" }
        return at < firstMillisecond ? "a time is not in milliseconds since 1970" : nil
    }

    /// Reads a reply of SSCAN or HSCAN; passes a failure on.
    static func page<Value>(
        _ result: Result<RESPReply, RedisError>, _ completion: Completion<Value>
    ) -> (cursor: String, found: [ByteBuffer])? {
        guard let reply = value(result.mapError(QueueFailure.redis), completion) else { return nil }
        guard reply.root.count == 2, let cursor = reply.root[0].string else {
            completion(.failure(.unexpectedReply("SSCAN or HSCAN")))
            return nil
        }
        return (cursor, reply.root[1].children.compactMap(\.bytes))
    }

    /// Returns a value; passes a failure on.
    static func value<Some, Value>(
        _ result: Result<Some, QueueFailure>, _ completion: Completion<Value>
    ) -> Some? {
        switch result {
        case .success(let value): return value
        case .failure(let failure):
            completion(.failure(failure))
            return nil
        }
    }
}
