import Logging
import NIOCore
import NIOPosix
import Redis

/// Writes into the set of invalid tokens from a task, over a client of its own.
public final class InvalidTokenWriter: Sendable {
    private let client: RedisClient
    private let set: NIOLoopBoundBox<InvalidTokenSet>

    private init(_ client: RedisClient, _ set: NIOLoopBoundBox<InvalidTokenSet>) {
        self.client = client
        self.set = set
    }

    /// Begins to connect.
    /// - Parameter maximumAge: see ``InvalidTokenSet/init(client:keys:maximumAge:)``.
    public static func start(
        topology: RedisTopology, keys: SharedKeys, maximumAge: Int = InvalidTokenSet.defaultMaximumAge,
        configuration: RedisClientConfiguration, logger: Logger,
        eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next()
    ) -> InvalidTokenWriter {
        let client = RedisClient(
            topology: topology, key: keys.invalidTokens, eventLoop: eventLoop, configuration: configuration,
            logger: logger)
        client.start()
        return InvalidTokenWriter(
            client,
            .makeBoxSendingValue(
                InvalidTokenSet(client: client, keys: keys, maximumAge: maximumAge), eventLoop: eventLoop))
    }

    /// See ``InvalidTokenSet/mark(_:completion:)``. Fails at once while there is no connection.
    /// - Throws: ``QueueConnection/Failure``.
    public func mark(_ tokens: [InvalidToken]) async throws(QueueConnection.Failure) -> [InvalidTokenSet.Marking] {
        let result: Result<[InvalidTokenSet.Marking], QueueConnection.Failure> = await withCheckedContinuation {
            continuation in
            client.eventLoop.execute {
                self.set.value.mark(tokens) { continuation.resume(returning: $0) }
            }
        }
        return try result.get()
    }

    /// See ``InvalidTokenSet/probe(completion:)``.
    /// - Throws: ``QueueConnection/Failure``.
    public func probe() async throws(QueueConnection.Failure) {
        let result: Result<Void, QueueConnection.Failure> = await withCheckedContinuation { continuation in
            client.eventLoop.execute { self.set.value.probe { continuation.resume(returning: $0) } }
        }
        try result.get()
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
