import Logging
import NIOCore
import NIOPosix
import Sockets
import TLS

/// The connections of one credential to one endpoint, on one event loop.
///
/// Not thread-safe: call everything on the event loop, on which the pool calls back. Call ``check(now:)`` several times
/// per second: it enforces deadlines, pings silent servers, and opens connections when they are due.
public final class ConnectionPool: IsolatingPool {
    /// The settings of a pool.
    public typealias Configuration = HTTP2PoolConfiguration

    /// The server.
    public var endpoint: APNSEndpoint { configuration.endpoint }
    /// The receiver of completions. Held strongly until ``close()`` has completed.
    public var delegate: (any TransportDelegate)? { didSet { for pool in isolated { pool.delegate = delegate } } }
    /// The state of the answers to its requests.
    var answerState: AnswerDrought.State {
        // A server that can no longer be reached is another problem.
        answers.state == .unanswered && connections.state.usable == 0 && !connections.failures.isOfAnswers
            ? .unansweredLately : answers.state
    }

    let configuration: Configuration
    let eventLoop: any EventLoop
    let logger: Logger
    public let connections: PoolConnections<ConnectionPool>
    private let ids: ConnectionIDs
    public var isolated: [ConnectionPool] = []
    var answers = AnswerWatch()
    /// The tags of requests that were accepted, and are returned because there was no connection to send them on.
    var toGiveBack: [UInt64] = []
    private var authorization: HeaderText?

    /// Creates a pool. ``check(now:)`` opens its connections.
    public convenience init(_ configuration: Configuration, eventLoop: any EventLoop, logger: Logger) {
        self.init(configuration, ids: ConnectionIDs(), eventLoop: eventLoop, logger: logger)
    }

    private init(_ configuration: Configuration, ids: ConnectionIDs, eventLoop: any EventLoop, logger: Logger) {
        self.ids = ids
        self.configuration = configuration
        self.eventLoop = eventLoop
        self.logger = logger
        connections = PoolConnections(configuration.connections, of: "APNs", eventLoop: eventLoop, logger: logger)
        connections.belong(to: self)
    }

    /// The number of requests in flight.
    public var inFlight: Int { connections.all.reduce(0) { $0 + $1.state.inFlight } }

    /// Connections that accept requests.
    public var usableConnections: Int { connections.state.usable }

    /// See ``Transport/isDormant``.
    public var isDormant: Bool { connections.state.isDormant }

    /// The state of the connections.
    public var statistics: PoolStatistics {
        var statistics = connections.statistics
        statistics.isUnanswered = answerState == .unanswered
        for pool in isolated { statistics.streamsInUse += pool.inFlight }
        return statistics
    }

    /// Sets the `authorization` of further requests. Before setting another key's token, call
    /// ``replaceConnections(reason:)``: APNs accepts tokens of only one team's key per connection, and connections that
    /// are being replaced keep their authorization.
    /// - Parameter providerToken: a signed provider token, or `nil` for certificate credentials.
    public func setProviderToken(_ providerToken: String?) {
        authorization = providerToken.map { HeaderText("bearer \($0)") }
        for pool in isolated { pool.authorization = authorization }
    }

    /// Sets the trust and the certificate of connections made from now on. Existing connections stay; see
    /// ``replaceConnections(reason:)``.
    public func setTLS(_ tls: TLSContext) {
        connections.configuration.tls = tls
        for pool in isolated { pool.connections.configuration.tls = tls }
    }

    /// Replaces all connections. Each works until its replacement is ready, with the provider token that was set when
    /// this was called. Connections that have not been used recently and are not needed for the minimum are closed at
    /// once.
    /// - Parameter reason: for the log.
    public func replaceConnections(reason: String) { replaceConnections(reason: reason, now: eventLoop.now) }

    func replaceConnections(reason: String, now: NIODeadline) {
        for pool in isolated { pool.replaceConnections(reason: reason, now: now) }
        connections.outdate()
        replace(
            connections.all.filter { !$0.membership.isBeingReplaced }, reason: reason, keeping: .kept(authorization),
            now: now)
    }

    /// Retires all connections and opens others, after APNs has refused their credential. Requests in flight are
    /// finished.
    /// - Parameter reason: for the log.
    public func retireConnections(reason: String) {
        for pool in isolated { pool.retireConnections(reason: reason) }
        for connection in connections.all where connection.isUsable { connection.retire(reason: reason) }
    }

    /// The number of notifications that can be submitted now.
    public func capacity(in isolation: Isolation) -> Int {
        pool(isolation)?.connections.all.reduce(0) { $0 + $1.freeStreams } ?? 0
    }

    /// Submits a notification on the least busy connection, but never on one on which it has exceeded its deadline. If
    /// only such connections have free streams, it completes with ``RequestFailure/noOtherConnection``.
    /// - Parameter tag: returned with the result.
    /// - Returns: `false` if no stream is free; the notification was then not accepted.
    public func submit(_ notification: consuming Notification, tag: UInt64, in isolation: Isolation) -> Bool {
        guard isolation == .shared else {
            return pool(isolation)?.submit(consume notification, tag: tag, in: .shared) ?? false
        }
        if answers.hasUnanswered, let id = notification.apnsID {
            return submitElsewhere(consume notification, id, tag: tag)
        }
        var best: HTTP2Connection?
        var most = 0
        for connection in connections.all {
            let free = connection.preference
            if free > most { (best, most) = (connection, free) }
        }
        guard let best else { return false }
        return submit(consume notification, tag: tag, on: best)
    }

    func submit(_ notification: consuming Notification, tag: UInt64, on connection: HTTP2Connection) -> Bool {
        connection.submit(
            consume notification, tag: tag, deadline: eventLoop.now + configuration.requestTimeout,
            authorization: connection.record.authorization(current: authorization))
    }

    /// Opens another connection if allowed. Call this when notifications wait and no stream is free.
    public func requestCapacity(in isolation: Isolation) {
        if isolation != .shared { isolate() }
        pool(isolation)?.connections.openAnother(now: eventLoop.now)
    }

    /// Enforces deadlines, retires connections that are superfluous or too old, and opens others. Call this several
    /// times per second.
    public func check(now: NIODeadline) {
        let keepsUniqueIDs = delegate?.keepsUniqueIDs ?? false
        for connection in connections.all {
            connection.session.streams.headers.keepsUniqueIDs = keepsUniqueIDs
            answers.record(connection, now: now)
            answers.recordWindow(of: connection, configuration, now: now)
            recordAge(of: connection, now: now)
            connection.check(now: now)
        }
        if answers.check(connections.all, inFlight: inFlight, now: now) { connections.state.wantConnection() }
        giveUpConnections(now: now)
        connections.open(now: now)
        for pool in isolated { pool.check(now: now) }
    }

    /// See ``Transport/stoodStill(for:now:)``.
    public func stoodStill(for time: TimeAmount, now: NIODeadline) {
        answers.stoodStill(for: time, now: now)
        for connection in connections.all {
            connection.record.responsiveness.stoodStill(for: time, now: now)
            connection.stoodStill(for: time, latestDeadline: now + configuration.requestTimeout, now: now)
        }
        for pool in isolated { pool.stoodStill(for: time, now: now) }
    }
}

// MARK: Connections

extension ConnectionPool {
    public func makeConnection() -> HTTP2Connection {
        var limits = configuration.limits
        limits.lifetime = configuration.connections.age(jitter: .random(in: 0..<1))
        let connection = HTTP2Connection(
            id: ids.next(), endpoint: endpoint, firstStream: configuration.firstStream, limits: limits, owner: self)
        connection.session.streams.headers.keepsUniqueIDs = delegate?.keepsUniqueIDs ?? false
        return connection
    }

    public func tune(_ bootstrap: ClientBootstrap) -> ClientBootstrap {
        // A connection writes this much at a time. If twice that is unsent, the server is not reading.
        bootstrap.channelOption(
            .writeBufferWaterMark,
            value: .init(low: HTTP2Connection.writeSize / 2, high: HTTP2Connection.writeSize * 2))
    }

    public func connected(_ connection: HTTP2Connection, isOutdated: Bool) {
        guard isOutdated else { return }
        replace([connection], reason: "it was made before", keeping: .current, now: eventLoop.now)
    }

    public func connectionsChanged() { delegate?.transportChanged(self) }

    public func closed() {
        giveBack()
        delegate = nil
    }
}

extension ConnectionPool: HTTP2ConnectionOwner {
    func connectionChanged(_ connection: HTTP2Connection) {
        connections.changed(connection)
        if !connection.record.hasAnswered, connection.state.answers > connection.record.staleAnswers {
            connection.record.hasAnswered = true
            AddressMemory.shared.worked(connection.membership.address)
            connections.worked()
        }
        if connection.state.serverErrorsInARow >= HTTP2ConnectionState.serverErrorLimit { recycle(connection) }
        connections.retireOutgoing()
        delegate?.transportChanged(self)
    }

    func connectionWearsOut(_ connection: HTTP2Connection) {
        giveUpIfOld(connection, now: eventLoop.now)
        connections.open(now: eventLoop.now)
    }

    func connection(
        _ connection: HTTP2Connection, didNotAnswer apnsID: APNSID?, deadline: NIODeadline, isRefusal: Bool
    ) {
        answers.recordMissing(
            apnsID, on: connection, deadline: deadline, timeout: configuration.requestTimeout, isRefusal: isRefusal)
    }

    func connectionIsStale(_ connection: HTTP2Connection) {
        // Whatever forgot it has forgotten the others, too, which have been idle as long.
        let now = eventLoop.now
        for other in connections.all where other !== connection && other.state.isIdle(now: now) {
            other.retire(reason: "another idle one was stale")
        }
        connections.open(now: now)
    }

    var newestConnection: Int { ids.newest }

    func connectionIsRefused(_ connection: HTTP2Connection, reason: String) {
        guard connection.isUsable else { return }
        logger.info(
            "retiring an APNs connection: \(reason)",
            metadata: ["endpoint": "\(endpoint)", "event": "connection_retired"])
        connection.retire(reason: reason)
    }

    func connection(_ connection: HTTP2Connection, completed tag: UInt64, with result: RequestResult) {
        delegate?.transport(self, completed: tag, with: result)
    }

    func connectionClosed(_ connection: HTTP2Connection, error: any Error) {
        answers.recordEnd(of: connection, now: eventLoop.now)
        connections.closed(connection, error)
    }
}

// MARK: Isolation

extension ConnectionPool {
    public func makePool(of isolation: Isolation) -> ConnectionPool {
        var own = configuration
        own.connections = connections.configuration
        // Its connections are expected to be lost; the sender logs which notifications are the cause.
        var quiet = logger
        quiet.logLevel = .critical
        let pool = ConnectionPool(own.isolated(isolation), ids: ids, eventLoop: eventLoop, logger: quiet)
        pool.delegate = delegate
        pool.authorization = authorization
        return pool
    }
}

/// The identifiers of connections, which a pool shares with its pools of isolated notifications.
private final class ConnectionIDs {
    /// The identifier of the newest connection; -1 before the first.
    private(set) var newest = -1

    func next() -> Int {
        newest += 1
        return newest
    }
}
