import Logging
import NIOCore

/// Keeps one connection to Redis alive on one event loop: connects, logs in, and connects again when the connection goes.
///
/// Use one client for pipelined commands and a second one for blocking commands, which hold up whatever comes after them.
/// Which server to talk to is the endpoint's word alone; a topology (Sentinel, Cluster) is a layer that makes clients for
/// the endpoints it finds.
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

    /// Where the server is.
    public let endpoint: RedisEndpoint
    /// The event loop that the client lives on.
    public let eventLoop: any EventLoop
    /// Called on the event loop at each change, before commands that are lost to it fail. Set it before `start`.
    public var onStateChange: ((State) -> Void)?

    private let configuration: RedisClientConfiguration
    private let logger: Logger
    private let random: @Sendable () -> Double
    private var connector: RedisConnector?
    private var connection: RedisConnection?
    private var reconnect: ReconnectState
    private var retry: Scheduled<Void>?
    private var lastError: RedisError?
    private var waiters: [(id: Int, resume: (RedisError?) -> Void)] = []
    private var nextWaiter = 0

    /// A client, which does nothing before `start`.
    ///
    /// - Parameter random: the jitter's source, from 0 to 1.
    public init(
        endpoint: RedisEndpoint, eventLoop: any EventLoop,
        configuration: RedisClientConfiguration = RedisClientConfiguration(), logger: Logger,
        random: @escaping @Sendable () -> Double = { Double.random(in: 0..<1) }
    ) {
        self.endpoint = endpoint
        self.eventLoop = eventLoop
        self.configuration = configuration
        self.logger = logger
        self.random = random
        self.reconnect = ReconnectState(backoff: configuration.backoff)
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
        return connection != nil
    }

    /// The number of commands without an answer. On the event loop only.
    public var pendingCount: Int {
        eventLoop.preconditionInEventLoop()
        return connection?.pendingCount ?? 0
    }

    /// Sends a command. All commands of one tick of the event loop leave in one write. On the event loop only.
    ///
    /// Nothing is kept for later: without a connection the command fails at once with `.notConnected`.
    ///
    /// - Parameters:
    ///   - deadline: how long this answer may take before the connection is given up, instead of the configured
    ///     `commandTimeout`. A blocking command should have its own timeout and some slack.
    ///   - completion: called on the event loop; before `send` returns when the command cannot be sent at all.
    public func send(_ command: RedisCommand, deadline: TimeAmount? = nil, completion: @escaping Completion) {
        eventLoop.preconditionInEventLoop()
        guard let connection else {
            completion(.failure(notConnected))
            return
        }
        connection.send(command, timeout: deadline ?? configuration.commandTimeout, completion: completion)
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
            let connection = self.connection
            self.connection = nil
            self.lastError = .notConnected(address: self.endpoint.address, reason: "the client was closed")
            self.onStateChange?(.closed)
            self.onStateChange = nil
            self.resumeWaiters(with: self.lastError)
            return connection?.close() ?? self.eventLoop.makeSucceededVoidFuture()
        }
    }

    private var notConnected: RedisError {
        let reason =
            switch lastError {
            case nil: "no connection has been made yet"
            case .notConnected(_, let reason): reason
            case let error?: error.description
            }
        return .notConnected(address: endpoint.address, reason: reason)
    }

    private func connect() {
        retry = nil
        let connector: RedisConnector
        do throws(RedisError) {
            connector = try existingOrNewConnector()
        } catch {
            return failed(error)
        }
        connector.connect { result in
            switch result {
            case .success(let connection): self.connected(connection)
            case .failure(let error): self.failed(error)
            }
        }
    }

    /// Made at the first attempt and kept: with TLS it holds the system's certificate authorities.
    private func existingOrNewConnector() throws(RedisError) -> RedisConnector {
        if let connector { return connector }
        let new = try RedisConnector(endpoint: endpoint, eventLoop: eventLoop, configuration: configuration)
        connector = new
        return new
    }

    private func connected(_ connection: RedisConnection) {
        let (isWanted, recovery) = reconnect.connected(at: eventLoop.now)
        guard isWanted else {
            connection.close()
            return
        }
        self.connection = connection
        lastError = nil
        connection.onClose = { self.failed($0) }
        if let recovery {
            logger.notice(
                "Redis is back",
                metadata: [
                    "redis": "\(endpoint)", "after": "\(recovery.after.inWords)",
                    "failed-attempts": "\(recovery.failures)",
                ])
        } else {
            logger.debug("connected to Redis", metadata: ["redis": "\(endpoint)"])
        }
        onStateChange?(.ready)
        resumeWaiters(with: nil)
    }

    private func failed(_ error: RedisError) {
        connection = nil
        guard let retry = reconnect.failed(at: eventLoop.now, random: random()) else { return }
        lastError = error
        let metadata: Logger.Metadata = [
            "redis": "\(endpoint)", "retry-in": "\(retry.delay.inWords)", "failed-attempts": "\(retry.failures)",
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

    private func addWaiter(timeout: TimeAmount, resume: @escaping (RedisError?) -> Void) {
        if connection != nil { return resume(nil) }
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
    fileprivate var headline: String {
        guard case .connectionLost(let address, _, let reason) = self else { return description }
        return "the connection to Redis at \(address) was lost: \(reason)"
    }
}
