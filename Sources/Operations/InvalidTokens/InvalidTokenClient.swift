import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis

/// The set of invalid tokens for async code: an `InvalidTokenSet` with its own Redis client.
public final class InvalidTokenClient: Sendable {
    private let client: RedisClient
    private let set: NIOLoopBoundBox<InvalidTokenSet>

    private init(_ client: RedisClient, _ set: NIOLoopBoundBox<InvalidTokenSet>) {
        self.client = client
        self.set = set
    }

    /// Makes a client, and starts to connect it.
    /// - Parameter maximumAge: see `InvalidTokenSet/init(client:keys:maximumAge:)`.
    public static func start(
        topology: RedisTopology, keys: SharedKeys, maximumAge: Int = InvalidTokenSet.defaultMaximumAge,
        configuration: RedisClientConfiguration, logger: Logger,
        eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next()
    ) -> InvalidTokenClient {
        let client = RedisClient(
            topology: topology, key: keys.invalidTokens, eventLoop: eventLoop, configuration: configuration,
            logger: logger)
        client.start()
        return InvalidTokenClient(
            client,
            .makeBoxSendingValue(
                InvalidTokenSet(client: client, keys: keys, maximumAge: maximumAge), eventLoop: eventLoop))
    }

    /// Waits until the server of the set is connected. The other functions fail immediately while it is not.
    /// - Throws: `RedisError`.
    public func waitUntilReady(timeout: TimeAmount) async throws {
        try await client.waitUntilReady(timeout: timeout)
    }

    /// See `InvalidTokenSet/mark(_:completion:)`.
    /// - Throws: `QueueConnection/Failure`.
    public func mark(_ tokens: [InvalidToken]) async throws(QueueConnection.Failure) -> [InvalidTokenSet.Marking] {
        try await call { $0.mark(tokens, completion: $1) }
    }

    /// See `InvalidTokenSet/probe(completion:)`.
    /// - Throws: `QueueConnection/Failure`.
    public func probe() async throws(QueueConnection.Failure) {
        try await call { $0.probe(completion: $1) }
    }

    /// See `InvalidTokenSet/scan(after:count:withDetails:completion:)`.
    /// - Throws: `QueueConnection/Failure`.
    public func scan(
        after cursor: String?, count: Int = 500, withDetails: Bool
    ) async throws(QueueConnection.Failure) -> InvalidTokenSet.Page {
        try await call { $0.scan(after: cursor, count: count, withDetails: withDetails, completion: $1) }
    }

    /// See `InvalidTokenSet/countMembers(_:completion:)`.
    /// - Throws: `QueueConnection/Failure`.
    public func countMembers(_ tokens: [ByteBuffer]) async throws(QueueConnection.Failure) -> Int {
        try await call { $0.countMembers(tokens, completion: $1) }
    }

    /// See `InvalidTokenSet/withdraw(_:completion:)`.
    /// - Throws: `QueueConnection/Failure`.
    public func withdraw(_ tokens: [ByteBuffer]) async throws(QueueConnection.Failure) -> Int {
        try await call { $0.withdraw(tokens, completion: $1) }
    }

    private func call<Value: Sendable>(
        _ body:
            @escaping @Sendable (
                InvalidTokenSet, @escaping (Result<Value, QueueConnection.Failure>) -> Void
            ) -> Void
    ) async throws(QueueConnection.Failure) -> Value {
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
            // A connection that did not close cleanly is closed, too.
        }
    }
}
