import Logging
import NIOCore
import NIOPosix
import Redis

/// Writes into the set of invalid tokens from a task, over clients of its own.
public final class InvalidTokenWriter: Sendable {
    private let clients: RedisClients
    private let set: NIOLoopBoundBox<InvalidTokenSet>

    private init(_ clients: RedisClients, _ set: NIOLoopBoundBox<InvalidTokenSet>) {
        self.clients = clients
        self.set = set
    }

    /// Begins to connect.
    public static func start(
        topology: RedisTopology, keys: SharedKeys, configuration: RedisClientConfiguration, logger: Logger,
        eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next()
    ) async throws -> InvalidTokenWriter {
        let clients = RedisClients(
            topology: topology, eventLoop: eventLoop, configuration: configuration, logger: logger)
        return try await eventLoop.submit {
            InvalidTokenWriter(
                clients, NIOLoopBoundBox(InvalidTokenSet(clients: clients, keys: keys), eventLoop: eventLoop))
        }.get()
    }

    /// See ``InvalidTokenSet/mark(_:completion:)``. Fails at once while there is no connection.
    /// - Throws: ``QueueConnection/Failure``.
    public func mark(_ tokens: [InvalidToken]) async throws(QueueConnection.Failure) -> [InvalidTokenSet.Marking] {
        let result: Result<[InvalidTokenSet.Marking], QueueConnection.Failure> = await withCheckedContinuation {
            continuation in
            clients.eventLoop.execute {
                self.set.value.mark(tokens) { continuation.resume(returning: $0) }
            }
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
