import NIOCore
import PushQueue
import Redis

/// A place in the set of invalid tokens, for reading it in parts.
package struct InvalidTokenCursor: Sendable {
    /// The number of shards of the form that is read.
    let shards: Int
    /// The number of the key among those of all shards, from 0.
    var key: Int
    /// Redis' cursor in it.
    var cursor: String

    init(shards: Int, key: Int = 0, cursor: String = "0") {
        (self.shards, self.key, self.cursor) = (shards, key, cursor)
    }

    /// Parses a cursor, such as `48` of a set that is not divided, or `16.3.48`; `nil` for other texts.
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

    package var text: String { shards == 1 ? cursor : "\(shards).\(key).\(cursor)" }
}

/// Functions for operators who inspect and repair the set.
extension InvalidTokenSet {
    /// A token that is in the set.
    package struct Listed: Sendable, Equatable {
        /// The token as it is stored.
        package var token: ByteBuffer
        /// The known facts about it.
        package var details: InvalidTokenDetails
    }

    /// A part of the set.
    package struct Page: Sendable {
        /// The cursor of the next part; `nil` after the last.
        package var cursor: String?
        /// Any number of tokens, in no particular order.
        package var tokens: [Listed]
        /// The shard of which a key could not be read, and the error. The page then has no tokens, and the next one begins
        /// after that key.
        package var unread: (shard: String, failure: QueueFailure)?
    }

    /// Reads a part of the set. A token that stays in the set is read at least once; if the set grows or shrinks, or gets
    /// another number of shards, some are read twice.
    /// - Parameters:
    ///   - cursor: the cursor of the previous part; `nil` for the first.
    ///   - count: the approximate number of tokens.
    ///   - withDetails: true to read their details, too.
    ///   - beginning: at least four hex digits with which the tokens begin; empty for all tokens. Pages can be empty.
    package func scan(
        after cursor: String?, count: Int, withDetails: Bool, beginning: String = "",
        completion: @escaping Completion<Page>
    ) {
        scan(
            after: cursor, count: count, withDetails: withDetails, beginning: beginning, skipsUnread: false,
            completion: completion)
    }

    /// Reads a part of the set, as the function above.
    /// - Parameter skipsUnread: true for a ``Page/unread`` instead of a failure if a key of a divided set can't be read.
    package func scan(
        after cursor: String?, count: Int, withDetails: Bool, beginning: String, skipsUnread: Bool,
        completion: @escaping Completion<Page>
    ) {
        form { [self] result in
            guard let shards = Self.value(result, completion)?.shards else { return }
            let keysOfShard = keys.shard(0, of: shards).sets.count
            // Tokens that begin alike are in one shard.
            let shard =
                beginning.isEmpty
                ? nil : TokenDivision.shard(of: ByteBuffer(string: beginning), among: shards)
            let end = (shard.map { $0 + 1 } ?? shards) * keysOfShard
            let first = InvalidTokenCursor(shards: shards, key: (shard ?? 0) * keysOfShard)
            var place = cursor.flatMap { InvalidTokenCursor($0) } ?? first
            // The cursor may be one of another number of shards.
            if place.shards != shards { place = first }
            scan(
                place, until: end, beginning, count: count, withDetails: withDetails,
                skipsUnread: skipsUnread && shards > 1, completion: completion)
        }
    }

    /// - Parameter end: the number of the key before which the search ends.
    private func scan(
        _ place: InvalidTokenCursor, until end: Int, _ beginning: String, count: Int, withDetails: Bool,
        skipsUnread: Bool, completion: @escaping Completion<Page>
    ) {
        let keysOfShard = keys.shard(0, of: place.shards).sets.count
        let shard = min(place.key / keysOfShard, place.shards - 1)
        let sets = keys.shard(shard, of: place.shards).sets
        let completion: Completion<Page> = { result in
            guard skipsUnread, case .failure(let failure) = result else { return completion(result) }
            let next = InvalidTokenCursor(shards: place.shards, key: place.key + 1)
            let name = "shard \(shard + 1) of \(place.shards) of the invalid tokens"
            completion(.success(Page(cursor: next.key < end ? next.text : nil, tokens: [], unread: (name, failure))))
        }
        let key = sets[place.key % keysOfShard]
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
            // Shards can have empty sets.
            if found.isEmpty, !isLast, beginning.isEmpty {
                return scan(
                    next, until: end, beginning, count: count, withDetails: withDetails, skipsUnread: skipsUnread,
                    completion: completion)
            }
            let page = Page(
                cursor: isLast ? nil : next.text, tokens: found.map { Listed(token: $0, details: .init()) })
            guard withDetails else { return completion(.success(page)) }
            describe(page, completion)
        }
    }

    private func describe(_ page: Page, _ completion: @escaping Completion<Page>) {
        find(TokenList(page.tokens.map(\.token))) { result in
            completion(
                result.map { found in
                    var page = page
                    for token in found { page.tokens[token.place].details = token.details }
                    return page
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
