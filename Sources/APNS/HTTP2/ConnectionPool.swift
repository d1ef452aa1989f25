import Logging
import NIOCore
import NIOPosix
import Sockets
import TLS

/// The connections of one credential to one endpoint, on one event loop.
///
/// Not thread-safe: call everything on the event loop, on which the pool calls back. Call ``check(now:)`` several times
/// per second: it enforces deadlines, pings silent servers, and opens connections when they are due.
public final class ConnectionPool: PooledTransport {
    public var delegate: (any TransportDelegate)? { didSet { for pool in isolated { pool.delegate = delegate } } }
    /// The state of the answers to the pool's requests.
    var answerState: AnswerDrought.State {
        // `lastFailure` is about a newer problem: the server can no longer be reached.
        health.state == .unanswered && connections.state.usable == 0 && !connections.isFailureOfAnswers
            ? .unansweredLately : health.state
    }

    let configuration: Configuration
    let eventLoop: any EventLoop
    let logger: Logger
    public let connections: PoolConnections<ConnectionPool>
    private let ids: ConnectionIDs
    public var isolated: [ConnectionPool] = []
    var health = PathHealth()
    /// The tags of accepted requests that ``giveBack()`` will complete, because no connection could send them.
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

    /// The number of requests in flight, without isolated ones.
    public var inFlight: Int { connections.all.reduce(0) { $0 + $1.state.inFlight } }

    public var statistics: PoolStatistics {
        var statistics = connections.statistics
        statistics.isUnanswered = answerState == .unanswered
        return statistics
    }

    /// Sets the `authorization` of further requests. APNs accepts tokens of only one team's key per connection. So call
    /// ``replaceConnections(reason:)`` before you set another key's token: connections that are being replaced keep their authorization.
    /// - Parameter providerToken: a signed provider token, or `nil` for certificate credentials.
    public func setProviderToken(_ providerToken: String?) {
        authorization = providerToken.map { HeaderText("bearer \($0)") }
        for pool in isolated { pool.authorization = authorization }
    }

    /// Replaces all connections. Each works until its replacement is ready, and keeps the provider token that was set when this was called.
    /// Connections that are neither used recently nor needed for the minimum are closed at once.
    /// - Parameter reason: for the log.
    public func replaceConnections(reason: String) { replaceConnections(reason: reason, now: eventLoop.now) }

    func replaceConnections(reason: String, now: NIODeadline) {
        for pool in isolated { pool.replaceConnections(reason: reason, now: now) }
        connections.outdate()
        replace(
            connections.all.filter { !$0.membership.isBeingReplaced }, reason: reason, keeping: .kept(authorization),
            now: now)
    }

    /// Retires all connections and opens others, because APNs has refused their credential. Requests in flight are finished.
    /// - Parameter reason: for the log.
    public func retireConnections(reason: String) {
        for pool in isolated { pool.retireConnections(reason: reason) }
        for connection in connections.all where connection.isUsable { connection.retire(reason: reason) }
    }

    public func capacity(in isolation: Isolation) -> Int {
        pool(isolation)?.connections.all.reduce(0) { $0 + $1.state.freeStreams } ?? 0
    }

    /// Submits a notification on the least busy connection on which it has not exceeded its deadline before. If only other connections have
    /// free streams, it completes with ``RequestFailure/noOtherConnection``.
    /// - Parameter tag: returned with the result.
    /// - Returns: `false` if no stream is free; the notification was then not accepted.
    public func submit(_ notification: consuming Notification, tag: UInt64, in isolation: Isolation) -> Bool {
        guard isolation == .shared else {
            return pool(isolation)?.submit(consume notification, tag: tag, in: .shared) ?? false
        }
        if health.hasUnanswered, let id = notification.apnsID {
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
            health.record(connection, now: now)
            health.recordWindow(
                of: connection, patience: configuration.windowTimeout, requestTimeout: configuration.requestTimeout,
                now: now)
            recordAge(of: connection, now: now)
            connection.check(now: now)
        }
        if health.check(connections.all, inFlight: inFlight, now: now) { connections.state.wantConnection() }
        giveUpConnections(now: now)
        connections.open(now: now)
        for pool in isolated { pool.check(now: now) }
    }

    public func stoodStill(for time: TimeAmount, now: NIODeadline) {
        health.stoodStill(for: time, now: now)
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
        health.recordMissing(
            apnsID, on: connection, deadline: deadline, timeout: configuration.requestTimeout, isRefusal: isRefusal)
    }

    func connectionIsStale(_ connection: HTTP2Connection) {
        // The router or firewall that forgot this connection has also forgotten the connections that were idle for as long.
        let now = eventLoop.now
        for other in connections.all where other !== connection && other.state.isIdle(now: now) {
            other.retire(reason: "another idle connection was stale")
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
        health.recordEnd(of: connection, now: eventLoop.now)
        connections.closed(connection, error)
    }
}

extension ConnectionPool {
    /// The settings of the connections, and their timeouts.
    @dynamicMemberLookup
    public struct Configuration: Sendable {
        public var connections: PoolConfiguration
        public var limits = HTTP2Limits()
        /// An unanswered request is cancelled after this time.
        public var requestTimeout = TimeAmount.seconds(20)
        /// A flow-control window may block a request for this time.
        public var windowTimeout = TimeAmount.seconds(5)
        /// The stream identifier of the first request; odd.
        var firstStream: Int32 = 1

        public init(_ connections: PoolConfiguration) { self.connections = connections }

        public subscript<Value>(dynamicMember path: WritableKeyPath<PoolConfiguration, Value>) -> Value {
            get { connections[keyPath: path] }
            set { connections[keyPath: path] = newValue }
        }

        public subscript<Value>(dynamicMember path: WritableKeyPath<HTTP2Limits, Value>) -> Value {
            get { limits[keyPath: path] }
            set { limits[keyPath: path] = newValue }
        }
    }
}

// MARK: Isolation

extension ConnectionPool {
    /// The maximum number of requests on a connection of ``Isolation/withFew``.
    private static let few = 32

    public func makePool(
        of isolation: Isolation, _ connections: PoolConfiguration, logger: Logger
    ) -> ConnectionPool {
        var own = configuration
        own.connections = connections
        own.maximumStreams = isolation == .alone ? 1 : min(own.maximumStreams, Self.few)
        let pool = ConnectionPool(own, ids: ids, eventLoop: eventLoop, logger: logger)
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

// MARK: Connections that do not answer, are no longer needed or must be replaced

extension ConnectionPool {
    /// Records that a connection without requests has lasted: the problem that prevented connections is over.
    func recordAge(of connection: HTTP2Connection, now: NIODeadline) {
        guard connections.isFailureLogged, connection.isUsable, connection.state.requests == 0,
            connection.membership.usableSince.map({ now - $0 > .seconds(10) }) ?? false
        else { return }
        connections.worked()
    }

    /// Retires a connection that is alive but useless. Requests that could not be written are returned, to be sent on another connection;
    /// written requests may still be answered.
    func retireUnresponsive(_ connection: HTTP2Connection, because fault: String, now: NIODeadline) {
        guard !connections.isClosing, connection.isUsable else { return }
        let error = APNSConnectionError.unresponsive(endpoint, fault)
        logger.info(
            "retiring an unresponsive APNs connection: \(fault)",
            metadata: [
                "event": "apns_connection_unresponsive", "endpoint": "\(endpoint)",
                "in_flight": "\(connection.state.inFlight)",
            ])
        let pauses = health.recordUnresponsive(among: connections.all)
        connections.unanswered(error, pauses: pauses, now: now)
        connection.retire(reason: "unresponsive: \(fault)")
        connection.takeBackUnwritten()
    }

    /// Submits a notification while there are unanswered requests. Avoids the connections that did not answer this notification.
    /// - Returns: `false` if no stream is free; the notification was then not accepted.
    func submitElsewhere(_ notification: consuming Notification, _ id: APNSID, tag: UInt64) -> Bool {
        let (best, excluded) = health.choose(from: connections.all, for: id)
        if let best { return submit(notification, tag: tag, on: best) }
        guard let excluded else { return false }
        openAnother(than: excluded)
        // Runs later, because the caller has not finished the submission.
        if toGiveBack.isEmpty { eventLoop.assumeIsolated().execute { self.giveBack() } }
        toGiveBack.append(tag)
        return true
    }

    /// Completes the notifications that could not be sent on another connection.
    func giveBack() {
        let tags = toGiveBack
        toGiveBack = []
        for tag in tags {
            delegate?.transport(self, completed: tag, with: .notProcessed(.noOtherConnection))
        }
    }

    /// Opens one more connection. At the maximum, replaces the given one instead.
    private func openAnother(than connection: HTTP2Connection) {
        let now = eventLoop.now
        if connections.state.canGrow {
            connections.openAnother(now: now)
        } else if connections.state.connecting == 0, !connection.membership.isBeingReplaced,
            connections.state.recycle(now: now)
        {
            replace([connection], reason: "a request got no answer on it", keeping: .current, now: now)
        }
    }

    // MARK: Replacing

    /// Closes a superfluous connection, and replaces connections that are too old, do not respond, or answer nothing but 500.
    func giveUpConnections(now: NIODeadline) {
        for connection in connections.all where connection.isUsable {
            giveUpIfOld(connection, now: now)
            if let fault = connection.record.responsiveness.fault {
                retireUnresponsive(connection, because: fault, now: now)
            } else if connection.state.serverErrorsInARow >= HTTP2ConnectionState.serverErrorLimit {
                recycle(connection)
            }
        }
        // One connection at a time: the remaining connections take over its work, and may then all be needed.
        connections.superfluous(now: now)?.retire(
            reason: "nothing was sent on it for \(configuration.idleTimeout.formatted)")
    }

    func giveUpIfOld(_ connection: HTTP2Connection, now: NIODeadline) {
        guard !connection.membership.isBeingReplaced, let reason = connection.state.replacementReason(now: now) else {
            return
        }
        replace([connection], reason: reason, keeping: .current, now: now)
    }

    /// Replaces connections with new ones.
    /// - Parameter authorization: the authorization of further requests on the old connections.
    func replace(
        _ old: [HTTP2Connection], reason: String, keeping authorization: ConnectionRecord.Authorization,
        now: NIODeadline
    ) {
        for connection in old where connection.isUsable { connection.record.authorization = authorization }
        connections.replace(old, reason: reason, now: now)
    }

    /// Retires a connection whose answers indicate a broken server. ``ConnectionPoolState/recycle(now:)`` limits how often.
    func recycle(_ connection: HTTP2Connection) {
        guard !connections.isClosing, connection.isUsable, connections.state.recycle(now: eventLoop.now) else {
            return
        }
        let count = connection.state.serverErrorsInARow
        logger.warning(
            "an APNs connection gave \(count) answers with status 500 in a row; it is replaced",
            metadata: ["event": "apns_connection_recycled", "endpoint": "\(endpoint)"])
        connection.retire(reason: "it gave \(count) answers with status 500 in a row")
    }
}
