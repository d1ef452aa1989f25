import NIOCore
import Sockets

/// The connections to the servers of a topology. Each node of a Cluster has one, shared by the clients of an event
/// loop. It is opened when the first client needs it, and closed when it has been unused for a while.
///
/// `@unchecked Sendable`: everything happens on `eventLoop`.
final class NodeConnections: LoopBound, @unchecked Sendable {
    typealias Completion = (Result<ServerLink, RedisError>) -> Void

    let topology: RedisTopology
    let eventLoop: any EventLoop
    let configuration: RedisClientConfiguration
    /// How long an unused connection to a node stays open. While a slot moves, its commands alternate between two nodes.
    var idleTime: TimeAmount = .seconds(10)
    private var nodes: [SharedConnection] = []
    private var inquiries: [RedisLocation: [RedisCommand.Completion]] = [:]
    private var connector: RedisConnector?
    private var isClosed = false

    init(topology: RedisTopology, eventLoop: any EventLoop, configuration: RedisClientConfiguration) {
        self.topology = topology
        self.eventLoop = eventLoop
        self.configuration = configuration
    }

    /// True if there is one connection per server, and not one per client.
    private var isShared: Bool { topology.isCluster }

    /// Provides a connection to a server. The caller must release it.
    ///
    /// - Parameter completion: called at once if there is a connection to share. A connection to a single server or a
    ///   master is always new, because its name may now belong to another server.
    func use(_ location: RedisLocation, completion: @escaping Completion) {
        if isShared, let node = nodes.first(where: { $0.location == location }) {
            switch node.state.use(completion) {
            case .connection(let connection): return completion(.success(node.link(over: connection)))
            case .wait: return
            case .closed: break
            }
        }
        let node = SharedConnection(location: location, owner: self, first: completion)
        nodes.append(node)
        connect(to: endpoint(at: location), timeout: configuration.connectTimeout) { node.attemptEnded($0) }
    }

    /// Asks a node of a Cluster for `CLUSTER SLOTS`, over a separate connection: a search must not block or end working connections.
    /// Concurrent requests to the same node get the same answer.
    func slots(by node: RedisLocation, completion: @escaping RedisCommand.Completion) {
        guard inquiries[node] == nil else {
            inquiries[node]?.append(completion)
            return
        }
        inquiries[node] = [completion]
        func answered(_ result: Result<RESPReply, RedisError>) {
            for completion in inquiries.removeValue(forKey: node) ?? [] { completion(result) }
        }
        connectToSeed(at: node) { [timeout = configuration.askTimeout] result in
            switch result {
            case .failure(let error): answered(.failure(error))
            case .success(let connection):
                connection.send(RedisCommand("CLUSTER", "SLOTS"), timeout: timeout) { result in
                    connection.close()
                    answered(result)
                }
            }
        }
    }

    /// Sends a command to the node that already has its key, although the slot has not moved yet.
    ///
    /// - Parameter completion: called with the result; `nil` if the command was not executed.
    func ask(
        _ node: RedisLocation, _ command: RedisCommand, timeout: TimeAmount?,
        completion: @escaping (Result<RESPReply, RedisError>?) -> Void
    ) {
        use(node) { result in
            guard case .success(let link) = result else { return completion(nil) }
            // ASKING fails only together with the command after it.
            link.connection.send(RedisCommand("ASKING", expecting: 0), timeout: timeout) { _ in }
            link.connection.send(command, timeout: timeout) { result in
                link.release()
                switch result {
                case .failure(.notConnected), .failure(.connectionLost(_, sent: false, _)): completion(nil)
                case .success, .failure: completion(result)
                }
            }
        }
    }

    /// Connects to a Sentinel, or to a node for a single question. The caller closes the connection.
    func connectToSeed(
        at location: RedisLocation, completion: @escaping (Result<RedisConnection, RedisError>) -> Void
    ) {
        var endpoint = endpoint(at: location)
        if case .sentinel(let sentinel) = topology {
            endpoint = RedisEndpoint(location: location, access: sentinel.sentinelAccess)
        }
        connect(to: endpoint, timeout: configuration.askTimeout, completion: completion)
    }

    /// Closes all connections for good.
    /// - Returns: a future that succeeds when all connections have closed.
    func close() -> EventLoopFuture<Void> {
        isClosed = true
        let open = nodes
        nodes = []
        return EventLoopFuture.andAllComplete(open.compactMap { $0.close() }, on: eventLoop)
    }

    private func endpoint(at location: RedisLocation) -> RedisEndpoint {
        switch topology {
        case .single(let endpoint): endpoint
        case .sentinel(let sentinel): RedisEndpoint(location: location, access: sentinel.access)
        case .cluster(let cluster): RedisEndpoint(location: location, access: cluster.access)
        }
    }

    private func connect(
        to endpoint: RedisEndpoint, timeout: TimeAmount,
        completion: @escaping (Result<RedisConnection, RedisError>) -> Void
    ) {
        guard !isClosed else {
            return completion(.failure(.notConnected(address: endpoint.address, reason: "the client was closed")))
        }
        do throws(RedisError) {
            try existingOrNewConnector().connect(to: endpoint, timeout: timeout, completion: completion)
        } catch {
            completion(.failure(error))
        }
    }

    /// Returns the connector, made at the first attempt and kept: with TLS it holds the system's certificate authorities.
    private func existingOrNewConnector() throws(RedisError) -> RedisConnector {
        if let connector { return connector }
        let new = try RedisConnector(
            usesTLS: topology.usesTLS, address: topology.address, eventLoop: eventLoop, configuration: configuration)
        connector = new
        return new
    }

    fileprivate func ended(_ node: SharedConnection) {
        nodes.removeAll { $0 === node }
    }

    /// Called when the last user has released the node's connection.
    fileprivate func unused(_ node: SharedConnection) {
        let useCount = node.state.useCount
        guard isShared else { return node.closeIfIdle(since: useCount) }
        eventLoop.scheduleTask(in: idleTime) { node.closeIfIdle(since: useCount) }
    }
}

/// A server with its connection, or the attempt to open it.
///
/// `@unchecked Sendable`: everything happens on the event loop of its owner.
fileprivate final class SharedConnection: LoopBound, @unchecked Sendable {
    let location: RedisLocation
    var state: NodeState<RedisConnection, NodeConnections.Completion>
    private let owner: NodeConnections
    private var links: [ServerLink] = []

    init(
        location: RedisLocation, owner: NodeConnections, first completion: @escaping NodeConnections.Completion
    ) {
        self.location = location
        self.owner = owner
        state = NodeState(first: completion)
    }

    func attemptEnded(_ result: Result<RedisConnection, RedisError>) {
        switch result {
        case .success(let connection):
            let waiting = state.connected(connection)
            guard !waiting.isEmpty else {
                connection.close()
                return
            }
            connection.onClose = { self.lost($0) }
            // All links are made before the first callback, which may release its own at once, or close the connection.
            let links = waiting.map { _ in link(over: connection) }
            for (completion, link) in zip(waiting, links) {
                completion(connection.ended.map(Result.failure) ?? .success(link))
            }
        case .failure(let error):
            owner.ended(self)
            for completion in state.close() { completion(.failure(error)) }
        }
    }

    func link(over connection: RedisConnection) -> ServerLink {
        let link = ServerLink(connection: connection, of: self)
        links.append(link)
        return link
    }

    func release(_ link: ServerLink) {
        links.removeAll { $0 === link }
        if state.release() { owner.unused(self) }
    }

    private func lost(_ error: RedisError) {
        owner.ended(self)
        // An open connection has no waiters.
        _ = state.close()
        let links = links
        self.links = []
        for link in links { link.lost(error) }
    }

    func closeIfIdle(since useCount: Int) {
        state.idle(since: useCount)?.close(reason: "it is unused")
    }

    /// - Returns: a future that succeeds when the server's connection has closed; `nil` if there is none.
    func close() -> EventLoopFuture<Void>? {
        let connection = state.connection
        let error = RedisError.notConnected(address: location.address, reason: "the client was closed")
        for completion in state.close() { completion(.failure(error)) }
        return connection?.close()
    }
}

/// One user's share of a connection to a server, which may have other users.
///
/// `@unchecked Sendable`: everything happens on the connection's event loop.
final class ServerLink: LoopBound, @unchecked Sendable {
    let connection: RedisConnection
    let location: RedisLocation
    /// The user's unanswered commands; counted by the user.
    var pendingCount = 0
    /// Called once when the connection ends, before the unanswered commands fail. Not called after `release`.
    var onClose: ((RedisError) -> Void)?
    private var retirement: Scheduled<Void>?
    private var node: SharedConnection?

    fileprivate init(connection: RedisConnection, of node: SharedConnection) {
        self.connection = connection
        self.node = node
        location = node.location
    }

    /// Releases the connection. Commands in flight can still be answered.
    func release() {
        retirement?.cancel()
        onClose = nil
        node?.release(self)
        node = nil
    }

    /// Closes the connection after this time, if this is its only user and has not released it; unanswered commands fail.
    func retire(within time: TimeAmount, reason: String) {
        retirement = connection.eventLoop.scheduleTask(in: time) { [self] in
            if node?.state.users == 1 { connection.close(reason: reason) }
        }
    }

    fileprivate func lost(_ error: RedisError) {
        retirement?.cancel()
        node = nil
        let onClose = onClose
        self.onClose = nil
        onClose?(error)
    }
}
