import Logging
import NIOCore

/// Keeps one connection to Redis alive on one event loop: finds the server, connects, logs in, and does so again when the
/// connection goes or another server takes the place of this one.
///
/// Use one client for pipelined commands and a second one for blocking commands, which hold up whatever comes after them.
///
/// In a Cluster a client serves one slot, that of the key it was made with, and follows it. After `MOVED` it goes to the
/// new owner and sends what was refused there, in the old order and before anything newer, so that callers see nothing of
/// it but the states. After `ASK` it sends the command to the node named, over a connection of its own: answers may come
/// in another order then. A command that is refused otherwise (`TRYAGAIN`, `CLUSTERDOWN`, `LOADING`, `READONLY`, …) fails
/// with that answer, for its caller to repeat.
///
/// Whenever a command fails without an answer, a `.ready` state follows once there is a server again.
///
/// `@unchecked Sendable`: all state is touched on `eventLoop` only, which every method that touches it checks.
public final class RedisClient: @unchecked Sendable {
    /// What is told of a command: its reply, or why there is none. An error reply is a failure; an error inside an array is not.
    public typealias Completion = RedisConnection.Completion

    /// What the client is up to.
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
    let logger: Logger
    let finder: ServerFinder
    /// The server that commands go to.
    var current: ServerFinder.Reached?
    /// The connection to a server that is not the right one any more, until all it was sent is answered.
    var leaving: RedisConnection?
    var leavingLimit: Scheduled<Void>?
    /// The server that takes over when the one before is left.
    var next: ServerFinder.Reached?
    var handover = Handover()
    var askedNodes: [RedisEndpoint.Location: AskedNode] = [:]
    var hasToldOfCluster = false
    private var refresh: Scheduled<Void>?
    private var watch: SentinelWatch?

    private let random: @Sendable () -> Double
    private(set) var reconnect: ReconnectState
    private var retry: Scheduled<Void>?
    private var lastError: RedisError?
    private var waiters: [(id: Int, resume: (RedisError?) -> Void)] = []
    private var nextWaiter = 0

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
    public init(
        topology: RedisTopology, key: String, eventLoop: any EventLoop,
        configuration: RedisClientConfiguration = RedisClientConfiguration(), logger: Logger,
        random: @escaping @Sendable () -> Double = { Double.random(in: 0..<1) }
    ) {
        self.topology = topology
        self.eventLoop = eventLoop
        self.configuration = configuration
        self.logger = logger
        self.random = random
        self.reconnect = ReconnectState(backoff: configuration.backoff)
        finder = ServerFinder(
            topology: topology, slot: RedisHashSlot.of(key), eventLoop: eventLoop, configuration: configuration)
    }

    /// Begins to connect, and goes on until `close`. From anywhere.
    public func start() {
        onLoop {
            if self.reconnect.start() { self.connect() }
        }
    }

    /// Whether commands can be sent. On the event loop only.
    public var isReady: Bool {
        eventLoop.preconditionInEventLoop()
        return current != nil
    }

    /// The server that commands go to, if there is one. On the event loop only.
    public var server: RedisEndpoint.Location? {
        eventLoop.preconditionInEventLoop()
        return current?.location
    }

    /// The number of commands without an answer. On the event loop only.
    public var pendingCount: Int {
        eventLoop.preconditionInEventLoop()
        return (current?.connection.pendingCount ?? 0) + (leaving?.pendingCount ?? 0) + handover.count
            + askedNodes.values.reduce(0) { $0 + $1.pendingCount }
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
        if let current {
            transmit(command, request, over: current)
        } else if !handover.take(request) {
            completion(.failure(notConnected))
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

    /// Closes the connection for good; what is unanswered fails. From anywhere.
    ///
    /// - Returns: a future of the end of the connection.
    @discardableResult
    public func close() -> EventLoopFuture<Void> {
        eventLoop.flatSubmit {
            guard self.reconnect.phase != .closed else { return self.eventLoop.makeSucceededVoidFuture() }
            self.reconnect.close()
            self.retry?.cancel()
            self.refresh?.cancel()
            self.watch?.stop()
            self.watch = nil
            self.leavingLimit?.cancel()
            let open = [self.current?.connection, self.leaving, self.next?.connection].compactMap { $0 }
            (self.current, self.leaving, self.next) = (nil, nil, nil)
            let error = RedisError.notConnected(address: self.topology.address, reason: "the client was closed")
            self.lastError = error
            self.onStateChange?(.closed)
            self.onStateChange = nil
            self.resumeWaiters(with: error)
            for request in self.handover.close() { request.completion(.failure(error)) }
            for node in self.askedNodes.values { node.close() }
            self.askedNodes = [:]
            return EventLoopFuture.andAllComplete(open.map { $0.close() }, on: self.eventLoop)
        }
    }

    private var isCluster: Bool {
        if case .cluster = topology { true } else { false }
    }

    private var notConnected: RedisError {
        let reason =
            switch lastError {
            case nil: "no connection has been made yet"
            case .notConnected(_, let reason): reason
            case let error?: error.description
            }
        return .notConnected(address: topology.address, reason: reason)
    }

    private func connect() {
        retry = nil
        finder.find { result in
            switch result {
            case .success(let reached): self.reached(reached)
            case .failure(let error): self.attemptFailed(error)
            }
        }
    }

    private func reached(_ reached: ServerFinder.Reached) {
        guard reconnect.phase == .connecting else {
            reached.connection.close()
            return
        }
        next = reached
        reached.connection.onClose = {
            self.next = nil
            self.attemptFailed($0)
        }
        takeOver()
    }

    /// Lets the server that was found take over, once the one before has answered what it was sent.
    func takeOver() {
        guard let reached = next, leaving == nil, askedNodes.values.allSatisfy({ $0.pendingCount == 0 }) else { return }
        next = nil
        let recovery = reconnect.connected(at: eventLoop.now).recovery
        for node in askedNodes.values { node.close() }
        askedNodes = [:]
        current = reached
        lastError = nil
        reached.connection.onClose = { self.lost($0, location: reached.location) }
        var metadata: Logger.Metadata = ["redis": "\(topology)", "server": "\(reached.location.address)"]
        if let recovery {
            metadata["after_ms"] = "\(recovery.after.nanoseconds / 1_000_000)"
            metadata["failures"] = "\(recovery.failures)"
            logger.notice("Redis is back", metadata: metadata)
        } else {
            logger.debug("connected to Redis", metadata: metadata)
        }
        for request in handover.close() {
            if let command = request.command { transmit(command, request, over: reached) }
        }
        scheduleRefresh()
        watchSentinels()
        onStateChange?(.ready)
        resumeWaiters(with: nil)
    }

    private func lost(_ error: RedisError, location: RedisEndpoint.Location) {
        finder.mistrust(location)
        tryAgain(because: error)
    }

    private func attemptFailed(_ error: RedisError) {
        tryAgain(because: error)
        // They were refused, and by nobody executed; further waiting is for their callers to decide on.
        for request in handover.close() {
            request.completion(.failure(request.redirectedBy.map(RedisError.server) ?? notConnected))
        }
    }

    func tryAgain(because error: RedisError) {
        current = nil
        refresh?.cancel()
        guard let retry = reconnect.failed(at: eventLoop.now, random: random()) else { return }
        lastError = error
        let metadata: Logger.Metadata = [
            "redis": "\(topology)", "retry_in_ms": "\(retry.delay.nanoseconds / 1_000_000)",
            "failures": "\(retry.failures)",
        ]
        if retry.isReported {
            logger.warning("\(error.headline)", metadata: metadata)
        } else {
            logger.debug("\(error.headline)", metadata: metadata)
        }
        self.retry = eventLoop.scheduleTask(in: retry.delay) {
            if self.reconnect.waited() { self.connect() }
        }
        onStateChange?(.disconnected(error, retryIn: retry.delay))
        if case .authentication = error { resumeWaiters(with: error) }
    }

    /// Sentinels know of a failover that the old master has not heard of, and that we would not hear of from it.
    private func watchSentinels() {
        guard watch == nil, case .sentinel(let sentinel) = topology else { return }
        let watch = SentinelWatch(master: sentinel.master, finder: finder, eventLoop: eventLoop) {
            self.checkServer()
        }
        self.watch = watch
        watch.start()
    }

    private func scheduleRefresh() {
        guard case .sentinel = topology else { return }
        let spread = 0.8 + 0.4 * random()
        let delay = TimeAmount.nanoseconds(Int64(Double(configuration.refreshInterval.nanoseconds) * spread))
        refresh = eventLoop.scheduleTask(in: delay) {
            self.scheduleRefresh()
            self.checkServer()
        }
    }

    /// Asks whether the server is still the one, and leaves it if it is not.
    private func checkServer() {
        guard let reached = current else { return }
        finder.check { location in
            guard let location, location != reached.location else { return }
            let reason = "the Sentinels name \(location.address) the master now"
            self.leave(
                reached, because: .connectionLost(address: reached.location.address, sent: false, reason: reason))
        }
    }

    private func addWaiter(timeout: TimeAmount, resume: @escaping (RedisError?) -> Void) {
        if current != nil { return resume(nil) }
        if reconnect.phase == .closed { return resume(notConnected) }
        if case .authentication = lastError { return resume(lastError) }
        let id = nextWaiter
        nextWaiter += 1
        let timer = eventLoop.scheduleTask(in: timeout) {
            guard let index = self.waiters.firstIndex(where: { $0.id == id }) else { return }
            self.waiters.remove(at: index).resume(self.lastError ?? self.notConnected)
        }
        waiters.append(
            (
                id,
                {
                    timer.cancel()
                    resume($0)
                }
            ))
    }

    private func resumeWaiters(with error: RedisError?) {
        let resumed = waiters
        waiters = []
        for waiter in resumed { waiter.resume(error) }
    }

    private func onLoop(_ body: @escaping @Sendable () -> Void) {
        if eventLoop.inEventLoop {
            body()
        } else {
            eventLoop.execute(body)
        }
    }
}

extension RedisError {
    /// As `description`, but of the connection itself: whether commands were lost with it is told to their callers.
    public var headline: String {
        switch self {
        case .connectionLost(let address, _, let reason): "the connection to Redis at \(address) was lost: \(reason)"
        case .server(let error): "another Redis server has to be found: \(error.message)"
        default: description
        }
    }
}
