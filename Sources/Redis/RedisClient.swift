import Logging
import NIOCore
import Sockets

/// Sends commands to Redis from one event loop. ``RedisClient`` sends them to Redis; in a test, another type can answer them.
public protocol RedisSender: AnyObject {
    /// The event loop for all calls and callbacks.
    var eventLoop: any EventLoop { get }
    /// True while commands can be sent.
    var isReady: Bool { get }
    /// Sends a command.
    /// - Parameters:
    ///   - deadline: the timeout of the answer; `nil` for the sender's default.
    ///   - completion: called on the event loop; before `send` returns if the command cannot be sent at all.
    func send(_ command: RedisCommand, deadline: TimeAmount?, completion: @escaping RedisCommand.Completion)
    /// Calls back when the first attempt to connect has ended; at once if it has ended already.
    func afterFirstAttempt(_ body: @escaping () -> Void)
}

extension RedisSender {
    /// Sends a command with the sender's default deadline.
    public func send(_ command: RedisCommand, completion: @escaping RedisCommand.Completion) {
        send(command, deadline: nil, completion: completion)
    }

    /// Calls back at once: by default, there is no attempt to connect.
    public func afterFirstAttempt(_ body: @escaping () -> Void) { body() }
}

/// Keeps one connection to Redis open on one event loop: finds the server, connects, logs in, and repeats this when the connection is lost
/// or another server replaces this one.
///
/// Use one client for pipelined commands and a second one for blocking commands, which delay all later commands.
///
/// In a Cluster a client serves the slot of its key. After `MOVED` it switches to the slot's new owner: it sends the refused commands
/// there, in their old order and before newer ones. Callers notice only the changes of state. After `ASK` it sends only that command to the
/// named node, so answers may arrive in another order. The clients of a ``RedisClients`` share one connection to each node. A command that
/// is refused otherwise (`TRYAGAIN`, `CLUSTERDOWN`, `LOADING`, `READONLY`, …) fails with that answer, and its caller can repeat it.
///
/// Whenever a command fails without an answer, a `.ready` state follows once there is a server again.
///
/// `@unchecked Sendable`: all state is accessed only on `eventLoop`, which every method that accesses it checks.
public final class RedisClient: RedisSender, LoopBound, @unchecked Sendable {
    public enum State: Sendable, Equatable {
        /// Commands can be sent.
        case ready
        /// There is no connection because of `error`; the next attempt is made after `retryIn`.
        case disconnected(RedisError, retryIn: TimeAmount)
        /// `close` was called.
        case closed
    }

    /// The servers, or the Sentinels or nodes that know them.
    public let topology: RedisTopology
    public let eventLoop: any EventLoop
    /// Called on the event loop at each change of state, before lost commands fail. Set it before `start`.
    public var onStateChange: ((State) -> Void)?

    private let configuration: RedisClientConfiguration
    private let discovery: ServerDiscovery
    private let masterWatch: MasterWatch?
    private var isWatchingMaster = false
    private let nodes: NodeConnections
    private let ownsNodes: Bool
    /// The server for new commands, or the commands that wait for one.
    private var route = Route<ServerLink>()
    private let attempts: ConnectAttempts

    /// Creates a client. It does nothing before `start`.
    ///
    /// - Parameters:
    ///   - key: any key of the slot to serve, if the topology is a Cluster. Commands with keys of other slots fail with `MOVED`.
    ///   - masterWatch: announces a new master; `nil` for a separate watch. The clients of a process should share one, because each watch
    ///     holds a connection to a Sentinel.
    public convenience init(
        topology: RedisTopology, key: String = "", eventLoop: any EventLoop,
        configuration: RedisClientConfiguration = RedisClientConfiguration(), masterWatch: MasterWatch? = nil,
        logger: Logger
    ) {
        self.init(
            topology: topology, key: key, eventLoop: eventLoop, configuration: configuration, masterWatch: masterWatch,
            sharing: nil, logger: logger)
    }

    /// - Parameter nodes: connections shared with other clients; `nil` for separate ones.
    init(
        topology: RedisTopology, key: String, eventLoop: any EventLoop, configuration: RedisClientConfiguration,
        masterWatch: MasterWatch?, sharing nodes: NodeConnections?, logger: Logger
    ) {
        self.topology = topology
        self.eventLoop = eventLoop
        self.configuration = configuration
        self.masterWatch = masterWatch ?? MasterWatch(topology, eventLoop: eventLoop, configuration: configuration)
        let log = RedisClientLog(logger: logger, topology: topology)
        attempts = ConnectAttempts(
            address: topology.address, on: eventLoop, backoff: configuration.backoff, log: log)
        ownsNodes = nodes == nil
        self.nodes =
            nodes ?? NodeConnections(topology: topology, eventLoop: eventLoop, configuration: configuration)
        discovery = ServerDiscovery(self.nodes, slot: RedisHashSlot.of(key))
        discovery.onReplacement = { log.otherDeployment() }
    }

    /// Starts to connect, and keeps connecting until `close`. Can be called from anywhere.
    public func start() {
        eventLoop.enter {
            guard self.attempts.start() else { return }
            self.connect()
            self.discovery.keepChecking { [weak self] in self?.route.server != nil }
        }
    }

    /// True if commands can be sent. Only on the event loop.
    public var isReady: Bool {
        eventLoop.preconditionInEventLoop()
        return route.server != nil
    }

    /// The server for new commands, if there is one. Only on the event loop.
    public var server: RedisLocation? {
        eventLoop.preconditionInEventLoop()
        return route.server?.location
    }

    /// Sends a command. All commands of one tick of the event loop are sent in one write. Only on the event loop.
    ///
    /// Commands are not queued: without a connection they fail at once with `.notConnected`. They wait only while the
    /// client switches from one owner of its slot to the next.
    ///
    /// - Parameters:
    ///   - deadline: the timeout of this answer, after which the connection is closed; overrides the configured
    ///     `commandTimeout`. For a blocking command, use its own timeout plus some slack.
    ///   - completion: called on the event loop; before `send` returns if the command cannot be sent at all.
    public func send(
        _ command: RedisCommand, deadline: TimeAmount? = nil, completion: @escaping RedisCommand.Completion
    ) {
        eventLoop.preconditionInEventLoop()
        let timeout = deadline ?? configuration.commandTimeout
        let request = RedisRequest(
            command: topology.isCluster ? command : nil, timeout: timeout, completion: completion)
        switch route.send(request) {
        case .server(let link): transmit(command, request, over: link)
        case .kept: break
        case .none: completion(.failure(notConnected))
        }
    }

    /// Sends a command and waits for the answer. Can be called from anywhere.
    ///
    /// - Throws: `RedisError`.
    public func call(_ command: RedisCommand, deadline: TimeAmount? = nil) async throws -> RESPReply {
        let result: Result<RESPReply, RedisError> = await withCheckedContinuation { continuation in
            eventLoop.enter {
                self.send(command, deadline: deadline) { continuation.resume(returning: $0) }
            }
        }
        return try result.get()
    }

    /// Waits until commands can be sent. Can be called from anywhere, after `start`.
    ///
    /// - Throws: `RedisError`, the reason why there is no connection after `timeout`. Thrown at once if the login
    ///   is refused, because waiting rarely helps, or if the client is closed.
    public func waitUntilReady(timeout: TimeAmount) async throws {
        let error: RedisError? = await withCheckedContinuation { continuation in
            eventLoop.enter {
                guard self.route.server == nil else { return continuation.resume(returning: nil) }
                self.attempts.wait(for: timeout) { continuation.resume(returning: $0) }
            }
        }
        if let error { throw error }
    }

    /// Calls back when the first attempt to connect has ended; at once if it has ended already. Only on the event loop.
    public func afterFirstAttempt(_ body: @escaping () -> Void) {
        eventLoop.preconditionInEventLoop()
        guard route.server == nil, attempts.lastError == nil else { return body() }
        attempts.wait(for: configuration.connectTimeout) { _ in body() }
    }

    /// Closes the connection for good; unanswered commands fail. Can be called from anywhere.
    ///
    /// - Returns: a future that succeeds when the connection has closed.
    @discardableResult
    public func close() -> EventLoopFuture<Void> {
        eventLoop.flatSubmit {
            guard !self.attempts.isClosed else { return self.eventLoop.makeSucceededVoidFuture() }
            let error = RedisError.notConnected(address: self.topology.address, reason: "the client was closed")
            self.attempts.close(because: error)
            self.discovery.stop()
            self.masterWatch?.remove(ObjectIdentifier(self))
            let (links, kept) = self.route.close()
            self.onStateChange?(.closed)
            self.onStateChange = nil
            self.attempts.resumeWaiting(with: error)
            for request in kept { request.completion(.failure(error)) }
            let end = self.ownsNodes ? self.nodes.close() : self.eventLoop.makeSucceededVoidFuture()
            for link in links { link.release() }
            return end
        }
    }

    private var notConnected: RedisError { attempts.notConnected }

    private func connect() {
        discovery.find { result in
            switch result {
            case .success(let link): self.found(link)
            case .failure(let error): self.attemptFailed(error)
            }
        }
    }

    private func found(_ link: ServerLink) {
        guard attempts.isConnecting, route.found(link) else { return link.release() }
        link.onClose = { self.lost(link, $0) }
        switchServer()
    }

    /// Makes the found server current, once all other servers have answered their commands in flight.
    private func switchServer() {
        guard let (link, kept) = route.switchServer() else { return }
        attempts.succeeded(with: link.location)
        for request in kept {
            if let command = request.command { transmit(command, request, over: link) }
        }
        watchMaster()
        onStateChange?(.ready)
        attempts.resumeWaiting(with: nil)
        followMaster()
    }

    /// Handles the end of a connection; the commands lost with it have not failed yet.
    private func lost(_ link: ServerLink, _ error: RedisError) {
        // The lost commands of a retired server must fail before the next server becomes current, so the retired server is dropped later.
        if route.retired === link { return eventLoop.execute { self.dropRetired(link) } }
        switch route.lost(link) {
        case .ofServer:
            discovery.search.demote(link.location)
            tryAgain(because: error)
        case .ofNextServer:
            attemptFailed(error)
        case .ofPreviousServer, .ofNothing:
            break
        }
    }

    private func attemptFailed(_ error: RedisError) {
        tryAgain(because: error)
        // These commands were refused and not executed. Their callers decide if they repeat them.
        for request in route.giveUpKept() {
            request.completion(.failure(request.redirectedBy.map(RedisError.server) ?? notConnected))
        }
    }

    private func tryAgain(because error: RedisError) {
        guard let wait = attempts.failed(because: error, connect: { self.connect() }) else { return }
        onStateChange?(.disconnected(error, retryIn: wait))
        if case .authentication = error { attempts.resumeWaiting(with: error) }
    }

    // MARK: Redirections

    /// The time for a retired server to answer the commands in flight. Blocking commands are cut off.
    private static let retirementTime: TimeAmount = .seconds(1)

    private func transmit(_ command: RedisCommand, _ request: RedisRequest, over link: ServerLink) {
        link.pendingCount += 1
        link.connection.send(command, timeout: request.timeout) { result in
            link.pendingCount -= 1
            if case .failure(.server(let error)) = result {
                self.refused(request, by: link, because: error)
            } else {
                request.completion(result)
            }
            self.endRetirement(link)
        }
    }

    private func refused(_ request: RedisRequest, by link: ServerLink, because error: RedisServerError) {
        let refusal = RedisRefusal(error, topology: topology, slot: discovery.slot, sender: link.location)
        switch refusal {
        case .none:
            request.completion(.failure(.server(error)))
        case .wrongServer:
            discovery.search.demote(link.location)
            retire(link, because: .server(error))
            request.completion(.failure(.server(error)))
        case .moved(let owner):
            discovery.search.moved(to: owner)
            retire(link, because: .server(error), keepsCommands: true)
            if !route.sentAway(request, because: error) { request.completion(.failure(.server(error))) }
        case .ask(let owner):
            ask(owner, for: request, because: error)
        }
    }

    // MARK: Asking another node

    /// Sends a command to the node that already has its key, although the slot has not moved yet.
    private func ask(_ node: RedisLocation, for request: RedisRequest, because error: RedisServerError) {
        guard let command = request.command else { return request.completion(.failure(.server(error))) }
        route.asks()
        nodes.ask(node, command, timeout: request.timeout) { result in
            // `nil` means that the command was not executed. Its caller can repeat it, as after any refusal.
            self.asked(result ?? .failure(.server(error)), for: request)
        }
    }

    private func asked(_ result: Result<RESPReply, RedisError>, for request: RedisRequest) {
        route.asked()
        switch result {
        case .success, .failure(.server), .failure(.commandTooLarge):
            request.completion(result)
        case .failure(let error):
            // Callers repeat unanswered commands when the client becomes ready, so it must become ready again.
            if let link = route.server { retire(link, because: error) }
            request.completion(result)
        }
        switchServer()
    }

    // MARK: Retiring a server

    /// Sends nothing more to a server, and looks for another one. It can still answer the commands in flight.
    /// - Parameter keepsCommands: true if new commands wait for the other server; otherwise they fail.
    private func retire(_ link: ServerLink, because error: RedisError, keepsCommands: Bool = false) {
        guard route.retire(link, keepsCommands: keepsCommands) else { return }
        link.retire(
            within: Self.retirementTime,
            reason: "this process switches to another server, and the last answers did not arrive in time")
        tryAgain(because: error)
        endRetirement(link)
    }

    /// Releases a retired server that has answered everything.
    private func endRetirement(_ link: ServerLink) {
        guard link.pendingCount == 0, route.retired === link else { return }
        link.release()
        eventLoop.execute { self.dropRetired(link) }
    }

    private func dropRetired(_ link: ServerLink) {
        if route.lost(link) == .ofPreviousServer { switchServer() }
    }

    // MARK: The master

    /// Follows the announcements of the Sentinels, because an old master does not know of a failover and would not report it.
    private func watchMaster() {
        guard let masterWatch, !isWatchingMaster else { return }
        isWatchingMaster = true
        masterWatch.add(ObjectIdentifier(self), of: discovery.search.deployment, on: eventLoop) { location in
            let isNew = self.discovery.search.announced != location
            self.discovery.search.announced = location
            // A client that waits before its next attempt can connect at once.
            if isNew, self.route.server == nil, self.attempts.endWait() { self.connect() }
            self.followMaster()
        }
    }

    private func followMaster() {
        guard let link = route.server, let location = discovery.search.announced, location != link.location else {
            return
        }
        // The Sentinel that this client asks first may have older information.
        discovery.search.moved(to: location)
        let reason = "the Sentinels now name \(location.address) as the master"
        retire(link, because: .connectionLost(address: link.location.address, sent: false, reason: reason))
    }
}

extension RedisClient {
    /// Returns the server's time in milliseconds since 1970.
    /// - Throws: `RedisError`.
    public func time() async throws -> Int64 {
        let parts = try await call(RedisCommand("TIME")).root.children.compactMap { $0.string.flatMap { Int64($0) } }
        guard parts.count == 2 else {
            throw RedisError.protocolViolation(address: topology.address, reason: "its answer to TIME is not a time")
        }
        return parts[0] * 1000 + parts[1] / 1000
    }

    /// Sends two commands, one directly after the other on the same connection.
    ///
    /// Used for `WAIT`, which counts the replicas that have received the writes of its own connection. On another connection the number may
    /// be too high. So neither command follows a redirection. If the slot has moved, a command fails with `MOVED` or `ASK`, and the caller
    /// repeats both commands when the client is ready again.
    /// - Parameter deadline: the timeout of each answer.
    /// - Returns: the answer to the first command, and the result of the second.
    /// - Throws: `RedisError` of the first.
    public func call(
        _ command: RedisCommand, then second: RedisCommand, deadline: TimeAmount
    ) async throws -> (RESPReply, Result<RESPReply, RedisError>) {
        let (first, second): (Result<RESPReply, RedisError>, Result<RESPReply, RedisError>) =
            await withCheckedContinuation { continuation in
                eventLoop.execute {
                    guard let server = self.route.server else {
                        return continuation.resume(
                            returning: (.failure(self.notConnected), .failure(self.notConnected)))
                    }
                    var answer: Result<RESPReply, RedisError>?
                    self.transmit(
                        command, RedisRequest(command: nil, timeout: deadline) { answer = $0 }, over: server)
                    // The second command completes last, because answers and failures come in order.
                    self.transmit(
                        second,
                        RedisRequest(command: nil, timeout: deadline) {
                            continuation.resume(returning: (answer ?? $0, $0))
                        }, over: server)
                }
            }
        return (try first.get(), second)
    }
}
