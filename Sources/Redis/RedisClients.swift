import Logging
import NIOCore
import Sockets

/// The clients for keys of several slots, on one event loop: in a Cluster one per slot, otherwise one for all. In a
/// Cluster they share one connection to each node.
///
/// `@unchecked Sendable`: all state is accessed only on `eventLoop`, which every method checks.
public final class RedisClients: LoopBound, @unchecked Sendable {
    /// The servers, or the Sentinels or nodes that know them.
    public let topology: RedisTopology
    public let eventLoop: any EventLoop
    /// Called on the event loop at each change of a client's state. Set it before the first client is requested.
    public var onStateChange: ((RedisClient, RedisClient.State) -> Void)?

    private let configuration: RedisClientConfiguration
    private let masterWatch: MasterWatch?
    private let logger: Logger
    private let nodes: NodeConnections?
    private var clients: [Int: RedisClient] = [:]

    /// - Parameter masterWatch: announces a new master; `nil` for a separate watch.
    public init(
        topology: RedisTopology, eventLoop: any EventLoop,
        configuration: RedisClientConfiguration = RedisClientConfiguration(), masterWatch: MasterWatch? = nil,
        logger: Logger
    ) {
        self.topology = topology
        self.eventLoop = eventLoop
        self.configuration = configuration
        self.masterWatch = masterWatch
        self.logger = logger
        nodes =
            topology.isCluster
            ? NodeConnections(topology: topology, eventLoop: eventLoop, configuration: configuration) : nil
    }

    /// Returns the client for a key. A new client starts to connect. Only on the event loop.
    public func client(for key: String) -> RedisClient {
        eventLoop.preconditionInEventLoop()
        let client = prepareClient(for: key)
        // A second start of a client does nothing.
        client.start()
        return client
    }

    /// Returns the client for a key, which connects with ``start()``. Only on the event loop, or before any other call.
    public func prepareClient(for key: String) -> RedisClient {
        let slot = topology.isCluster ? RedisHashSlot.of(key) : 0
        if let client = clients[slot] { return client }
        let client = RedisClient(
            topology: topology, key: key, eventLoop: eventLoop, configuration: configuration, masterWatch: masterWatch,
            sharing: nodes, logger: logger)
        clients[slot] = client
        client.onStateChange = { [weak self, weak client] state in
            if let self, let client { self.onStateChange?(client, state) }
        }
        return client
    }

    /// Makes all prepared clients connect. Only on the event loop.
    public func start() {
        eventLoop.preconditionInEventLoop()
        for client in clients.values { client.start() }
    }

    /// Closes all clients for good. Only on the event loop.
    /// - Returns: a future that succeeds when all connections have closed.
    public func close() -> EventLoopFuture<Void> {
        eventLoop.preconditionInEventLoop()
        let ends = clients.values.map { $0.close() }
        return EventLoopFuture.andAllComplete(ends + (nodes.map { [$0.close()] } ?? []), on: eventLoop)
    }
}
