import Logging
import NIOCore
import NIOPosix
import TLS

/// What a pool tells its user, on the pool's event loop.
public protocol ConnectionPoolDelegate: AnyObject {
    /// A notification's request has ended.
    func connectionPool(_ pool: ConnectionPool, completed tag: UInt64, with result: RequestResult)
    /// Streams became free, or connections came or went.
    func connectionPoolChanged(_ pool: ConnectionPool)
}

/// The connections of one credential to one endpoint, on one event loop.
///
/// Not thread-safe: everything is called on, and calls back on, the event loop. ``check(now:)`` has to be called a few
/// times a second: it keeps the deadlines, asks silent servers for life, and opens connections when their time has come.
public final class ConnectionPool {
    /// How a pool connects and waits.
    public struct Configuration: Sendable {
        /// Where to.
        public var endpoint: APNSEndpoint
        /// Trust, and the client certificate where that is the credential. `h2` must be among its protocols.
        public var tls: TLSContext
        /// Connections that are kept open while nothing is sent.
        public var minimumConnections = 1
        /// Connections at the most.
        public var maximumConnections = 4
        /// Requests at once on a connection, whatever more the server would allow.
        public var maximumStreams = 1000
        /// How long a request may go unanswered.
        public var requestTimeout = TimeAmount.seconds(20)
        /// How long TCP and TLS may each take.
        public var connectTimeout = TimeAmount.seconds(10)
        /// After how long a silence of the server it is sent a PING.
        public var pingAfter = TimeAmount.seconds(15)
        /// How long it has to answer that.
        public var pingTimeout = TimeAmount.seconds(5)
        /// Looks up host names; `nil` asks the system.
        var resolver: (any Resolver & Sendable)?

        /// Takes the endpoint and the TLS context; the rest has defaults.
        public init(endpoint: APNSEndpoint, tls: TLSContext) {
            self.endpoint = endpoint
            self.tls = tls
        }
    }

    /// Where the pool's connections go.
    public var endpoint: APNSEndpoint { configuration.endpoint }
    /// Who hears of completions. Held strongly until ``close()`` is done.
    public var delegate: (any ConnectionPoolDelegate)?
    /// Why the last connection could not be made; `nil` while one works.
    public private(set) var lastFailure: (any Error)?

    private let configuration: Configuration
    private let eventLoop: any EventLoop
    private let logger: Logger
    private(set) var state: ConnectionPoolState
    private var connections: [HTTP2Connection] = []
    private var authorization: HeaderText?
    private var nextID = 0
    private var isWanted = false
    private var closed: EventLoopPromise<Void>?
    private var lastLogged = NIODeadline.distantPast

    /// Makes a pool; connections are opened by ``check(now:)``.
    public init(_ configuration: Configuration, eventLoop: any EventLoop, logger: Logger) {
        self.configuration = configuration
        self.eventLoop = eventLoop
        self.logger = logger
        var limits = ConnectionPoolState.Configuration()
        limits.minimumConnections = configuration.minimumConnections
        limits.maximumConnections = max(configuration.maximumConnections, configuration.minimumConnections)
        state = ConnectionPoolState(limits)
    }

    /// How many notifications can be submitted now.
    public var freeStreams: Int {
        var count = 0
        for connection in connections { count += connection.freeStreams }
        return count
    }

    /// Requests that have been submitted and not completed.
    public var inFlight: Int { connections.reduce(0) { $0 + $1.state.inFlight } }

    /// Connections that take requests.
    public var usableConnections: Int { state.usable }

    /// Sets the `authorization` of the requests to come.
    /// - Parameter providerToken: a signed provider token, or `nil` for certificate credentials.
    public func setProviderToken(_ providerToken: String?) {
        authorization = providerToken.map { HeaderText("bearer \($0)") }
    }

    /// Sends a notification on the least busy connection.
    /// - Parameter tag: comes back with the result.
    /// - Returns: `false` where no stream is free; the notification has then not been taken.
    public func submit(_ notification: consuming Notification, tag: UInt64) -> Bool {
        var best: HTTP2Connection?
        var most = 0
        for connection in connections {
            let free = connection.freeStreams
            if free > most { (best, most) = (connection, free) }
        }
        guard let best else { return false }
        return best.submit(
            notification, tag: tag, deadline: eventLoop.now + configuration.requestTimeout,
            authorization: authorization)
    }

    /// Says that notifications wait while no stream is free: another connection is opened if there may be one.
    public func wantStreams() {
        isWanted = true
        openConnections(now: eventLoop.now)
    }

    /// Keeps deadlines and opens connections; see the type.
    public func check(now: NIODeadline) {
        for connection in connections { connection.check(now: now) }
        openConnections(now: now)
    }

    /// Finishes what is under way and closes all connections.
    public func close() -> EventLoopFuture<Void> {
        if let closed { return closed.futureResult }
        let promise = eventLoop.makePromise(of: Void.self)
        closed = promise
        state.close()
        for connection in connections { connection.drain(reason: "shutdown") }
        finishClosing()
        return promise.futureResult
    }

    /// Closes all connections at once; what is under way completes as lost.
    public func closeNow() {
        _ = close()
        for connection in connections { connection.close(APNSConnectionError.shutdown(endpoint)) }
    }

    private func finishClosing() {
        guard let closed, connections.isEmpty, state.connecting == 0 else { return }
        delegate = nil
        closed.succeed(())
    }

    private func openConnections(now: NIODeadline) {
        for _ in 0..<state.connectionsToOpen(isWanted: isWanted, now: now) { open() }
        isWanted = false
    }

    private func open() {
        let limits = HTTP2ConnectionState.Limits(
            pingAfter: configuration.pingAfter, pingTimeout: configuration.pingTimeout)
        let connection: HTTP2Connection
        do {
            connection = try HTTP2Connection(
                id: nextID, endpoint: endpoint, maximumStreams: configuration.maximumStreams, limits: limits,
                owner: self)
        } catch {
            return connectionFailed(error, wasConnecting: true)
        }
        nextID += 1
        let bound = NIOLoopBound((self, connection), eventLoop: eventLoop)
        ClientBootstrap(group: eventLoop)
            .resolver(configuration.resolver)
            .connectTimeout(configuration.connectTimeout)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            // A second read that finds nothing costs as much as the first; if there is more, the loop comes back at once.
            .channelOption(.maxMessagesPerRead, value: 1)
            .connect(host: endpoint.host, port: endpoint.port)
            .assumeIsolated()
            .whenComplete { result in
                let (pool, connection) = bound.value
                switch result {
                case .success(let channel): pool.adopt(connection, on: channel)
                case .failure(let error):
                    pool.connectionFailed(
                        APNSConnectionError.cannotConnect(pool.endpoint, "\(error)"), wasConnecting: true)
                    pool.finishClosing()
                }
            }
    }

    /// Takes over a channel on which TCP is set up. Not earlier: a host's addresses are tried one after the other or
    /// together, each on a channel of its own, and the connection belongs to the one that succeeds.
    private func adopt(_ connection: HTTP2Connection, on channel: any Channel) {
        connections.append(connection)
        let pipeline = channel.pipeline.syncOperations
        do {
            try pipeline.addHandler(connection)
            try pipeline.addHandler(TLSHandler(client: configuration.tls, host: endpoint.host), position: .first)
        } catch {
            // The channel has closed already.
            channel.close(promise: nil)
            return connection.failed(APNSConnectionError.cannotConnect(endpoint, "\(error)"))
        }
        guard closed == nil else { return connection.close(APNSConnectionError.shutdown(endpoint)) }
        let timeout = configuration.connectTimeout
        eventLoop.assumeIsolated().scheduleTask(in: timeout) { [endpoint] in
            guard connection.state.phase == .connecting else { return }
            connection.close(
                APNSConnectionError.unresponsive(endpoint, "TLS was not set up within \(timeout.inWords)"))
        }
    }

    private func connectionFailed(_ error: any Error, wasConnecting: Bool) {
        let now = eventLoop.now
        let pause = state.failed(wasConnecting: wasConnecting, now: now, jitter: Double.random(in: 0..<1))
        lastFailure = error
        // One line an incident: the first failure, and then a reminder now and again.
        if state.failures == 1 || now - lastLogged > .seconds(60) {
            lastLogged = now
            logger.error(
                "no connection to APNs: \(error)",
                metadata: ["endpoint": "\(endpoint)", "failures": "\(state.failures)", "retry_in": "\(pause.inWords)"])
        }
        delegate?.connectionPoolChanged(self)
    }
}

extension ConnectionPool: HTTP2ConnectionOwner {
    func connectionChanged(_ connection: HTTP2Connection) {
        if connection.isCounted != connection.state.isUsable {
            connection.isCounted.toggle()
            if connection.isCounted {
                connection.usableSince = eventLoop.now
                state.connected()
            } else {
                state.retired()
            }
        }
        if !connection.isProven, connection.state.hasAnswered {
            connection.isProven = true
            if state.failures > 0 { logger.notice("connected to APNs again", metadata: ["endpoint": "\(endpoint)"]) }
            state.worked()
            lastFailure = nil
        }
        delegate?.connectionPoolChanged(self)
    }

    func connection(_ connection: HTTP2Connection, completed tag: UInt64, with result: RequestResult) {
        delegate?.connectionPool(self, completed: tag, with: result)
    }

    func connectionClosed(_ connection: HTTP2Connection, error: any Error) {
        connections.removeAll { $0 === connection }
        let wasConnecting = connection.usableSince == nil
        // A server may close a connection on which nothing was sent for long; that is no failure.
        let lasted = connection.usableSince.map { eventLoop.now - $0 > .seconds(10) } ?? false
        if connection.isCounted {
            connection.isCounted = false
            state.retired()
        }
        if closed != nil {
            if wasConnecting { state.failed(wasConnecting: true, now: eventLoop.now, jitter: 0) }
        } else if connection.state.hasAnswered || lasted {
            logger.info("an APNs connection ended: \(error)", metadata: ["endpoint": "\(endpoint)"])
            delegate?.connectionPoolChanged(self)
        } else {
            connectionFailed(error, wasConnecting: wasConnecting)
        }
        finishClosing()
    }
}
