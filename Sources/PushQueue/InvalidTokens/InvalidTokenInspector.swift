import Logging
import NIOCore
import NIOPosix
import Redis

/// Looks at the set of invalid tokens and repairs it from a task, over clients of its own.
public final class InvalidTokenInspector: Sendable {
    private let clients: RedisClients
    private let both: [RedisClient]
    private let set: NIOLoopBoundBox<InvalidTokenSet>

    private init(_ clients: RedisClients, _ both: [RedisClient], _ set: NIOLoopBoundBox<InvalidTokenSet>) {
        self.clients = clients
        self.both = both
        self.set = set
    }

    /// Begins to connect.
    public static func start(
        topology: RedisTopology, keys: SharedKeys, configuration: RedisClientConfiguration, logger: Logger
    ) async throws -> InvalidTokenInspector {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        let clients = RedisClients(
            topology: topology, eventLoop: eventLoop, configuration: configuration, logger: logger)
        return try await eventLoop.submit {
            InvalidTokenInspector(
                clients, [clients.client(for: keys.invalidTokens), clients.client(for: keys.invalidTokenDetails)],
                NIOLoopBoundBox(InvalidTokenSet(clients: clients, keys: keys), eventLoop: eventLoop))
        }.get()
    }

    /// Waits until the servers of the set and of the details answer.
    /// - Throws: `RedisError`.
    public func waitUntilReady(timeout: TimeAmount) async throws {
        for client in both { try await client.waitUntilReady(timeout: timeout) }
    }

    /// See ``InvalidTokenSet/scan(after:count:withDetails:completion:)``.
    /// - Throws: ``QueueConnection/Failure``.
    public func scan(
        after cursor: String?, count: Int = 500, withDetails: Bool
    ) async throws -> InvalidTokenSet.Page {
        try await call { $0.scan(after: cursor, count: count, withDetails: withDetails, completion: $1) }
    }

    /// See ``InvalidTokenSet/countMembers(_:completion:)``.
    /// - Throws: ``QueueConnection/Failure``.
    public func countMembers(_ tokens: [ByteBuffer]) async throws -> Int {
        try await call { $0.countMembers(tokens, completion: $1) }
    }

    /// See ``InvalidTokenSet/withdraw(_:completion:)``.
    /// - Throws: ``QueueConnection/Failure``.
    public func withdraw(_ tokens: [ByteBuffer]) async throws -> Int {
        try await call { $0.withdraw(tokens, completion: $1) }
    }

    private func call<Value: Sendable>(
        _ body:
            @escaping @Sendable (
                InvalidTokenSet, @escaping (Result<Value, QueueConnection.Failure>) -> Void
            ) -> Void
    ) async throws -> Value {
        let result: Result<Value, QueueConnection.Failure> = await withCheckedContinuation { continuation in
            clients.eventLoop.execute { body(self.set.value) { continuation.resume(returning: $0) } }
        }
        return try result.get()
    }

    /// Closes the connections.
    public func close() async {
        do {
            try await clients.eventLoop.flatSubmit { self.clients.close() }.get()
        } catch {
            // A connection that did not close in good order is as closed.
        }
    }
}
