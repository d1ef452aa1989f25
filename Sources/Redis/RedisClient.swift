import Logging
import NIOCore

/// Sends commands to Redis from one event loop. ``RedisClient`` does; a test can answer them itself.
public protocol RedisSender: AnyObject {
    /// The event loop on which everything is called, and calls back.
    var eventLoop: any EventLoop { get }
    /// True while commands can be sent.
    var isReady: Bool { get }
    /// Sends a command.
    /// - Parameters:
    ///   - deadline: the maximum time to the answer; `nil` for the default of the sender.
    ///   - completion: called on the event loop; before `send` returns when the command cannot be sent at all.
    func send(_ command: RedisCommand, deadline: TimeAmount?, completion: @escaping RedisClient.Completion)
}

extension RedisSender {
    /// Sends a command with the sender's default deadline.
    public func send(_ command: RedisCommand, completion: @escaping RedisClient.Completion) {
        send(command, deadline: nil, completion: completion)
    }
}

/// Keeps one connection to Redis alive on one event loop: finds the server, connects, logs in, and does so again when the
/// connection goes or another server takes the place of this one.
///
/// Use one client for pipelined commands and a second one for blocking commands, which hold up whatever comes after them.
///
/// In a Cluster a client serves one slot, that of the key it was made with, and follows it. After `MOVED` it uses the
/// new owner and sends it the refused commands, in the old order and before anything newer, so that callers notice only
/// the states. After `ASK` it sends the command to the named node: answers may come in another order then. The
/// clients of a ``RedisClients`` share one connection to each node. A command that is refused otherwise (`TRYAGAIN`, `CLUSTERDOWN`, `LOADING`, `READONLY`, …) fails
/// with that answer, for its caller to repeat.
///
/// Whenever a command fails without an answer, a `.ready` state follows once there is a server again.
///
/// `@unchecked Sendable`: all state is touched on `eventLoop` only, which every method that touches it checks.
public final class RedisClient: RedisSender, @unchecked Sendable {
    /// The completion of a command: its reply or its error. An error reply is a failure; an error inside an
    /// array is not.
    public typealias Completion = RedisConnection.Completion

    /// The state of the client.
    public enum State: Sendable, Equatable {
        /// Commands can be sent.
        case ready
        /// There is no connection because of `error`; the next attempt comes after `retryIn`.
        case disconnected(RedisError, retryIn: TimeAmount)
        /// `close` was called.
        case closed
    }

    /// Where the server is, or who knows.
    public let topology: RedisTopology
    /// The event loop that the client lives on.
    public let eventLoop: any EventLoop
    /// Called on the event loop at each change, before commands that are lost to it fail. Set it before `start`.
    public var onStateChange: ((State) -> Void)?

    let configuration: RedisClientConfiguration
    let discovery: ServerDiscovery
    let nodes: NodeConnections
    private let ownsNodes: Bool
    /// The server that commands go to, or where they wait.
    var route = Route<ServerLink>()
    var log: RedisClientLog
    private var masterWatch: (any MasterSource)?

    private let random: @Sendable () -> Double
    private(set) var reconnect: ReconnectState
    private var retry: Scheduled<Void>?
    private var waiters: [ReadinessWaiter] = []

    /// A client of one server, which does nothing before `start`.
    ///
    /// - Parameter random: the jitter's source, from 0 to 1.
    public convenience init(
        endpoint: RedisEndpoint, eventLoop: any EventLoop,
        configuration: RedisClientConfiguration = RedisClientConfiguration(), logger: Logger,
        random: @escaping @Sendable () -> Double = { Double.random(in: 0..<1) }
    ) {
        self.init(
            topology: .single(endpoint), key: "", eventLoop: eventLoop, configuration: configuration, logger: logger,
            random: random)
    }

    /// A client, which does nothing before `start`.
    ///
    /// - Parameters:
    ///   - key: any key of the slot that the client is to serve, when the topology is a Cluster. Commands with keys of
    ///     other slots fail with `MOVED`.
    ///   - random: the jitter's source, from 0 to 1.
    public convenience init(
        topology: RedisTopology, key: String, eventLoop: any EventLoop,
        configuration: RedisClientConfiguration = RedisClientConfiguration(), logger: Logger,
        random: @escaping @Sendable () -> Double = { Double.random(in: 0..<1) }
    ) {
        self.init(
            topology: topology, key: key, eventLoop: eventLoop, configuration: configuration, sharing: nil,
            logger: logger, random: random)
    }

    /// - Parameter nodes: connections that other clients share; `nil` for connections of its own.
    init(
        topology: RedisTopology, key: String, eventLoop: any EventLoop, configuration: RedisClientConfiguration,
        sharing nodes: NodeConnections?, logger: Logger,
        random: @escaping @Sendable () -> Double = { Double.random(in: 0..<1) }
    ) {
        self.topology = topology
        self.eventLoop = eventLoop
        self.configuration = configuration
        log = RedisClientLog(logger, topology: topology)
        self.random = random
        self.reconnect = ReconnectState(backoff: configuration.backoff)
        ownsNodes = nodes == nil
        self.nodes =
            nodes ?? NodeConnections(topology: topology, eventLoop: eventLoop, configuration: configuration)
        discovery = ServerDiscovery(self.nodes, slot: RedisHashSlot.of(key))
    }

    /// Begins to connect, and continues until `close`. From anywhere.
    public func start() {
        onLoop {
            if self.reconnect.start() { self.connect() }
        }
    }

    /// True if commands can be sent. On the event loop only.
    public var isReady: Bool {
        eventLoop.preconditionInEventLoop()
        return route.server != nil
    }

    /// The server that commands go to, if there is one. On the event loop only.
    public var server: RedisEndpoint.Location? {
        eventLoop.preconditionInEventLoop()
        return route.server?.location
    }

    /// The number of commands without an answer. On the event loop only.
    public var pendingCount: Int {
        eventLoop.preconditionInEventLoop()
        return (route.server?.pendingCount ?? 0) + (route.retired?.pendingCount ?? 0) + route.keptCount
            + route.askedCount
    }

    /// Sends a command. All commands of one tick of the event loop leave in one write. On the event loop only.
    ///
    /// Nothing is kept for later: without a connection the command fails at once with `.notConnected`. Only while the client
    /// goes from one owner of its slot to the next, the command waits for the new one.
    ///
    /// - Parameters:
    ///   - deadline: how long this answer may take before the connection is given up, instead of the configured
    ///     `commandTimeout`. A blocking command should have its own timeout and some slack.
    ///   - completion: called on the event loop; before `send` returns when the command cannot be sent at all.
    public func send(_ command: RedisCommand, deadline: TimeAmount? = nil, completion: @escaping Completion) {
        eventLoop.preconditionInEventLoop()
        let timeout = deadline ?? configuration.commandTimeout
        let request = RedisRequest(command: isCluster ? command : nil, timeout: timeout, completion: completion)
        switch route.send(request) {
        case .server(let link): transmit(command, request, over: link)
        case .kept: break
        case .none: completion(.failure(notConnected))
        }
    }

    /// Sends a command and waits for the answer. From anywhere.
    ///
    /// - Throws: `RedisError`.
    public func call(_ command: RedisCommand, deadline: TimeAmount? = nil) async throws -> RESPReply {
        let result: Result<RESPReply, RedisError> = await withCheckedContinuation { continuation in
            onLoop {
                self.send(command, deadline: deadline) { continuation.resume(returning: $0) }
            }
        }
        return try result.get()
    }

    /// Waits until commands can be sent. From anywhere, after `start`.
    ///
    /// - Throws: `RedisError`: why there is no connection after `timeout`; at once when the login is refused, which waiting rarely
    ///   cures, or when the client is closed.
    public func waitUntilReady(timeout: TimeAmount) async throws {
        let error: RedisError? = await withCheckedContinuation { continuation in
            onLoop { self.addWaiter(timeout: timeout) { continuation.resume(returning: $0) } }
        }
        if let error { throw error }
    }

    /// Closes the connection for good; unanswered commands fail. From anywhere.
    ///
    /// - Returns: a future of the end of the connection.
    @discardableResult
    public func close() -> EventLoopFuture<Void> {
        eventLoop.flatSubmit {
            guard self.reconnect.phase != .closed else { return self.eventLoop.makeSucceededVoidFuture() }
            let error = RedisError.notConnected(address: self.topology.address, reason: "the client was closed")
            self.reconnect.close(because: error)
            self.retry?.cancel()
            self.masterWatch?.remove(ObjectIdentifier(self))
            self.masterWatch = nil
            let (links, kept) = self.route.close()
            self.onStateChange?(.closed)
            self.onStateChange = nil
            self.resumeWaiters(with: error)
            for request in kept { request.completion(.failure(error)) }
            let end = self.ownsNodes ? self.nodes.close() : self.eventLoop.makeSucceededVoidFuture()
            for link in links { link.release() }
            return end
        }
    }

    private var isCluster: Bool {
        if case .cluster = topology { true } else { false }
    }

    private var notConnected: RedisError {
        let reason =
            switch reconnect.lastError {
            case nil: "no connection has been made yet"
            case .notConnected(_, let reason): reason
            case let error?: error.description
            }
        return .notConnected(address: topology.address, reason: reason)
    }

    private func connect() {
        retry = nil
        discovery.find { result in
            switch result {
            case .success(let link): self.found(link)
            case .failure(let error): self.attemptFailed(error)
            }
        }
    }

    private func found(_ link: ServerLink) {
        guard reconnect.phase == .connecting, route.found(link) else { return link.release() }
        link.onClose = { self.lost(link, $0) }
        switchServer()
    }

    /// Makes the found server current, once the others have answered all commands in flight.
    func switchServer() {
        guard let (link, kept) = route.switchServer() else { return }
        log.connected(to: link.location, after: reconnect.connected(at: eventLoop.now).recovery)
        for request in kept {
            if let command = request.command { transmit(command, request, over: link) }
        }
        watchMaster()
        onStateChange?(.ready)
        resumeWaiters(with: nil)
        followMaster()
    }

    /// A connection has ended; the commands that are lost with it have not failed yet.
    private func lost(_ link: ServerLink, _ error: RedisError) {
        // A server that is no longer current gets no more commands. Lost commands fail before the next one is current.
        if route.retired === link { return eventLoop.execute { self.dropRetired(link) } }
        switch route.lost(link) {
        case .ofServer:
            discovery.demote(link.location)
            tryAgain(because: error)
        case .ofNextServer:
            attemptFailed(error)
        case .ofPreviousServer, .ofNothing:
            break
        }
    }

    private func attemptFailed(_ error: RedisError) {
        tryAgain(because: error)
        // They were refused and not executed; further waiting is for their callers to decide.
        for request in route.giveUpKept() {
            request.completion(.failure(request.redirectedBy.map(RedisError.server) ?? notConnected))
        }
    }

    func tryAgain(because error: RedisError) {
        guard let retry = reconnect.failed(because: error, at: eventLoop.now, random: random()) else { return }
        log.failed(error, retry)
        self.retry = eventLoop.scheduleTask(in: retry.delay) {
            if self.reconnect.waited() { self.connect() }
        }
        onStateChange?(.disconnected(error, retryIn: retry.delay))
        if case .authentication = error { resumeWaiters(with: error) }
    }

    // MARK: The master

    /// Sentinels know of a failover that the old master does not know of, and would not report.
    private func watchMaster() {
        guard masterWatch == nil, case .sentinel = topology else { return }
        masterWatch =
            configuration.masterWatch
            ?? MasterWatch(topology, eventLoop: eventLoop, configuration: configuration)
        masterWatch?.add(ObjectIdentifier(self), on: eventLoop) { location in
            self.discovery.announced = location
            self.followMaster()
        }
    }

    private func followMaster() {
        guard let link = route.server, let location = discovery.announced, location != link.location else { return }
        // The Sentinel that this client asks first may have older news.
        discovery.moved(to: location)
        let reason = "the Sentinels now name \(location.address) as the master"
        retire(link, because: .connectionLost(address: link.location.address, sent: false, reason: reason))
    }

    private func addWaiter(timeout: TimeAmount, resume: @escaping (RedisError?) -> Void) {
        if route.server != nil { return resume(nil) }
        if reconnect.phase == .closed { return resume(notConnected) }
        if case .authentication = reconnect.lastError { return resume(reconnect.lastError) }
        let waiter = ReadinessWaiter(resume)
        waiter.timer = eventLoop.assumeIsolated().scheduleTask(in: timeout) {
            self.waiters.removeAll { $0 === waiter }
            waiter.resume(with: self.reconnect.lastError ?? self.notConnected)
        }
        waiters.append(waiter)
    }

    private func resumeWaiters(with error: RedisError?) {
        let resumed = waiters
        waiters = []
        for waiter in resumed { waiter.resume(with: error) }
    }

    private func onLoop(_ body: @escaping @Sendable () -> Void) {
        if eventLoop.inEventLoop {
            body()
        } else {
            eventLoop.execute(body)
        }
    }
}

extension RedisClient {
    /// Sends two commands, one directly behind the other on the same connection.
    ///
    /// For `WAIT`, which counts the replicas that have what its own connection has written; on another connection it may
    /// count too many. So neither command is redirected: in a Cluster, one whose slot has moved fails with `MOVED` or
    /// `ASK`, and the caller repeats both when the client is ready again.
    /// - Parameter deadline: how long each of the answers may take.
    /// - Returns: the answer to the first command, and the result of the second.
    /// - Throws: `RedisError` of the first.
    public func call(
        _ command: RedisCommand, then second: RedisCommand, deadline: TimeAmount
    ) async throws -> (RESPReply, Result<RESPReply, RedisError>) {
        let (first, second): (Result<RESPReply, RedisError>, Result<RESPReply, RedisError>) =
            await withCheckedContinuation { continuation in
                eventLoop.execute {
                    guard let server = self.route.server else {
                        let error = RedisError.notConnected(
                            address: self.topology.address, reason: "no connection is ready")
                        return continuation.resume(returning: (.failure(error), .failure(error)))
                    }
                    var answer: Result<RESPReply, RedisError>?
                    self.transmit(
                        command, RedisRequest(command: nil, timeout: deadline) { answer = $0 }, over: server)
                    // Answers come in order, and so do failures.
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

/// A caller that waits until commands can be sent.
private final class ReadinessWaiter {
    var timer: Scheduled<Void>?
    private let resume: (RedisError?) -> Void

    init(_ resume: @escaping (RedisError?) -> Void) { self.resume = resume }

    func resume(with error: RedisError?) {
        timer?.cancel()
        resume(error)
    }
}
