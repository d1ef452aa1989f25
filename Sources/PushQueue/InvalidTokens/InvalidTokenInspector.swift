import Logging
import NIOCore
import NIOPosix
import Redis

/// Looks at the set of invalid tokens and repairs it from a task, over a client of its own.
public final class InvalidTokenInspector: Sendable {
    private let client: RedisClient
    private let set: NIOLoopBoundBox<InvalidTokenSet>

    private init(_ client: RedisClient, _ set: NIOLoopBoundBox<InvalidTokenSet>) {
        self.client = client
        self.set = set
    }

    /// Begins to connect.
    public static func start(
        topology: RedisTopology, keys: SharedKeys, configuration: RedisClientConfiguration, logger: Logger
    ) -> InvalidTokenInspector {
        let client = RedisClient(
            topology: topology, key: keys.invalidTokens, eventLoop: MultiThreadedEventLoopGroup.singleton.next(),
            configuration: configuration, logger: logger)
        client.start()
        return InvalidTokenInspector(
            client, .makeBoxSendingValue(InvalidTokenSet(client: client, keys: keys), eventLoop: client.eventLoop))
    }

    /// Waits until the server of the set can be asked.
    /// - Throws: `RedisError`.
    public func waitUntilReady(timeout: TimeAmount) async throws {
        try await client.waitUntilReady(timeout: timeout)
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
            client.eventLoop.execute { body(self.set.value) { continuation.resume(returning: $0) } }
        }
        return try result.get()
    }

    /// Closes the connection.
    public func close() async {
        do {
            try await client.close().get()
        } catch {
            // A connection that did not close in good order is as closed.
        }
    }
}
