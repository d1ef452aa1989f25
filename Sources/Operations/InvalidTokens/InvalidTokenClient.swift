import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis
import Sockets

/// The set of invalid tokens for async code.
package final class InvalidTokenClient: LoopBound {
    private let clients: RedisClients
    /// The client for the slot of the shared keys.
    private let client: RedisClient
    private let set: NIOLoopBoundBox<InvalidTokenSet>

    /// - Parameter client: the client for the slot of the shared keys, which the set uses.
    init(_ clients: RedisClients, _ client: RedisClient, _ set: sending InvalidTokenSet) {
        (self.clients, self.client) = (clients, client)
        self.set = .makeBoxSendingValue(set, eventLoop: clients.eventLoop)
    }

    /// Makes a client with its own connections, and begins to connect.
    /// - Parameter maximumAge: see `InvalidTokenSet/init(client:clients:keys:maximumAge:)`.
    package static func start(
        topology: RedisTopology, keys: SharedKeys, maximumAge: Int = InvalidTokenSet.defaultMaximumAge,
        configuration: RedisClientConfiguration, logger: Logger,
        eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next()
    ) -> InvalidTokenClient {
        let clients = RedisClients(
            topology: topology, eventLoop: eventLoop, configuration: configuration, logger: logger)
        let client = clients.prepareClient(for: keys.invalidTokens)
        client.start()
        return InvalidTokenClient(
            clients, client,
            InvalidTokenSet(client: client, clients: { clients.client(for: $0) }, keys: keys, maximumAge: maximumAge))
    }

    /// Makes a client that only reads, over the connections of the fleet.
    package static func reading(_ fleet: Fleet) async throws -> InvalidTokenClient {
        let (clients, keys) = (fleet.clients, fleet.sharedKeys)
        let client = try await fleet.client(for: keys.invalidTokens)
        return InvalidTokenClient(
            clients, client, InvalidTokenSet(client: client, clients: { clients.client(for: $0) }, keys: keys))
    }

    /// Waits until the server of the shared keys is connected. The other functions fail immediately while it is not.
    /// - Throws: `RedisError`.
    package func waitUntilReady(timeout: TimeAmount) async throws {
        try await client.waitUntilReady(timeout: timeout)
    }

    package func count() async throws(QueueFailure) -> Int { try await call { $0.count(completion: $1) } }

    /// Counts the tokens in the set's form with a number of shards, even while that number is changed.
    func count(among shards: Int) async throws(QueueFailure) -> Int {
        try await call { set, completion in
            set.form(changing: shards).sizes(of: 0..<shards) { completion($0.map { $0.reduce(0, +) }) }
        }
    }

    func badRegistrations(among shards: Int) async throws(QueueFailure) -> String? {
        try await call { $0.badRegistrations(among: shards, completion: $1) }
    }

    package func find(_ tokens: TokenList) async throws(QueueFailure) -> [InvalidToken.Found] {
        try await call { $0.find(tokens, completion: $1) }
    }

    package func registration(of token: ByteBuffer) async throws(QueueFailure) -> Int64? {
        try await call { $0.registration(of: token, completion: $1) }
    }

    package func division() async throws(QueueFailure) -> TokenDivision {
        try await call { $0.readDivision(completion: $1) }
    }

    package func mark(_ tokens: [InvalidToken]) async throws(QueueFailure) -> [InvalidToken.Marking] {
        try await call { $0.mark(tokens, completion: $1) }
    }

    package func probe() async throws(QueueFailure) {
        try await call { $0.probe(completion: $1) }
    }

    package func scan(
        after cursor: String?, count: Int = 500, withDetails: Bool, sets: TokenSets = .all, beginning: String = ""
    ) async throws(QueueFailure) -> InvalidTokenSet.Page {
        try await call {
            $0.scan(
                after: cursor, count: count, withDetails: withDetails, sets: sets, beginning: beginning, completion: $1)
        }
    }

    /// - Parameter unread: gets the shards that can't be read. The other functions fail if a shard can't be read.
    /// - Throws: `QueueFailure`, if the set is not divided; or another error.
    package func scan(
        after cursor: String?, count: Int = 500, withDetails: Bool, sets: TokenSets = .all, _ unread: inout UnreadParts
    ) async throws -> InvalidTokenSet.Page {
        let page = try await call {
            $0.scan(
                after: cursor, count: count, withDetails: withDetails, sets: sets, skipsUnread: true, completion: $1)
        }
        if let (shard, failure) = page.unread { try unread.record(failure, of: shard) }
        return page
    }

    /// Reads all marks that match.
    /// - Parameter page: gets the matching marks of each part; returns `false` to stop.
    /// - Throws: `QueueFailure`, or an error of `page`.
    package func sweep(
        _ filter: InvalidTokenFilter, _ page: ([InvalidTokenSet.Listed]) async throws -> Bool
    ) async throws {
        var unread = UnreadParts()
        try await sweep(filter, skipsUnread: false, &unread, page)
    }

    /// Reads all marks that match, in the shards that can be read.
    /// - Parameters:
    ///   - withDetails: false to read only the tokens. Ignored unless the filter is empty.
    ///   - unread: gets the shards that can't be read.
    ///   - page: gets the matching marks of each part; returns `false` to stop.
    /// - Throws: the first error if no shard can be read, or an error of `page`.
    package func sweep(
        _ filter: InvalidTokenFilter, withDetails: Bool = true, sets: TokenSets = .all, skipsUnread: Bool = true,
        _ unread: inout UnreadParts, _ page: ([InvalidTokenSet.Listed]) async throws -> Bool
    ) async throws {
        var (cursor, isRead) = (String?.none, false)
        repeat {
            try Task.checkCancellation()
            let describes = withDetails || !filter.isEmpty
            let found =
                skipsUnread
                ? try await scan(after: cursor, withDetails: describes, sets: sets, &unread)
                : try await scan(after: cursor, withDetails: describes, sets: sets)
            isRead = isRead || found.unread == nil
            let fitting = filter.isEmpty ? found.tokens : found.tokens.filter { filter.fits($0.details) }
            guard try await page(fitting) else { return }
            cursor = found.cursor
        } while cursor != nil
        if !isRead { try unread.throwFirst() }
    }

    package func remove(_ removals: [InvalidToken.Removal]) async throws(QueueFailure) -> Int {
        try await call { $0.remove(removals, completion: $1) }
    }

    package func withdraw(_ tokens: [ByteBuffer]) async throws(QueueFailure) -> Int {
        try await remove(tokens.map { InvalidToken.Removal($0, .all) })
    }

    /// Uses the set on its event loop.
    func call<Value: Sendable>(
        _ body:
            @escaping @Sendable (
                InvalidTokenSet, @escaping (Result<Value, QueueFailure>) -> Void
            ) -> Void
    ) async throws(QueueFailure) -> Value {
        let result: Result<Value, QueueFailure> = await withCheckedContinuation { continuation in
            clients.eventLoop.execute { body(self.set.value) { continuation.resume(returning: $0) } }
        }
        return try result.get()
    }

    /// Closes the connections. Call this only for a client that `start` has made. Other clients use connections of the fleet.
    package func close() async {
        do {
            try await clients.eventLoop.flatSubmit { [clients] in clients.close() }.get()
        } catch {
            // The connection is closed even after an error.
        }
    }
}
