import NIOCore
import PushQueue
import Redis

/// Functions for operators who inspect and repair the set.
extension InvalidTokenSet {
    /// A token that is in the set.
    public struct Listed: Sendable, Equatable {
        /// The token as it is stored.
        public var token: ByteBuffer
        /// The known facts about it.
        public var details: InvalidTokenDetails
    }

    /// A part of the set.
    public struct Page: Sendable {
        /// The cursor of the next part; `nil` after the last.
        public var cursor: String?
        /// Any number of tokens, in no particular order.
        public var tokens: [Listed]
    }

    /// Reads a part of the set. A token that stays in the set is read at least once; if the set grows or shrinks, some
    /// are read twice.
    /// - Parameters:
    ///   - cursor: the cursor of the previous part; `nil` for the first.
    ///   - count: the approximate number of tokens.
    ///   - withDetails: true to read their details, too.
    public func scan(
        after cursor: String?, count: Int, withDetails: Bool,
        completion: @escaping (Result<Page, QueueConnection.Failure>) -> Void
    ) {
        client.send(RedisCommand("SSCAN", keys.invalidTokens, cursor ?? "0", "COUNT", "\(count)")) { result in
            switch result {
            case .failure(let error): completion(.failure(.redis(error)))
            case .success(let reply):
                guard reply.root.count == 2, let next = reply.root[0].string else {
                    return completion(.failure(.unexpectedReply(.findInvalidTokens)))
                }
                let found = reply.root[1].children.compactMap(\.bytes)
                let page = Page(
                    cursor: next == "0" ? nil : next, tokens: found.map { Listed(token: $0, details: .init()) })
                guard withDetails else { return completion(.success(page)) }
                describe(page, completion)
            }
        }
    }

    private func describe(_ page: Page, _ completion: @escaping (Result<Page, QueueConnection.Failure>) -> Void) {
        var tokens = TokenList(expecting: page.tokens.count)
        for listed in page.tokens { tokens.append(anyText: listed.token) }
        find(tokens) { result in
            completion(
                result.map { found in
                    var page = page
                    for token in found { page.tokens[token.place].details = token.details }
                    return page
                })
        }
    }

    /// Counts the candidates that are in the set.
    public func countMembers(
        _ candidates: [ByteBuffer], completion: @escaping (Result<Int, QueueConnection.Failure>) -> Void
    ) {
        guard !candidates.isEmpty else { return completion(.success(0)) }
        var command = RedisCommand("SMISMEMBER", expecting: candidates.count + 1, bytes: candidates.count * 64 + 64)
        command.append(keys.invalidTokens)
        for token in candidates { command.append(token) }
        client.send(command) { result in
            completion(
                result.mapError(QueueConnection.Failure.redis).map { reply in
                    reply.root.children.reduce(0) { $0 + ($1.number ?? 0) }
                })
        }
    }
}
