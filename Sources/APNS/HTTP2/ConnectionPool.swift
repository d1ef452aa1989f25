import Logging
import NIOCore
import Sockets
import TLS

/// The connections of one credential to one endpoint, on one event loop.
///
/// Not thread-safe: call everything on the event loop, on which the pool calls back. Call ``check(now:)`` several times
/// per second: it enforces deadlines, pings silent servers, and opens connections when they are due.
public final class ConnectionPool: Transport {
    /// The server.
    public var endpoint: APNSEndpoint { configuration.endpoint }
    /// The receiver of completions. Held strongly until ``close()`` has completed.
    public var delegate: (any TransportDelegate)? { didSet { for pool in isolated { pool.delegate = delegate } } }
    /// The error of the last connection that failed; `nil` once a connection has worked.
    public var lastFailure: (any Error)? { failures.last }
    /// See ``Transport/failureCounts``.
    public var failureCounts: [String: Int] {
        isolated.reduce(failures.counts) { $0.merging($1.failures.counts, uniquingKeysWith: +) }
    }
    /// See ``Transport/answerState``.
    public var answerState: AnswerState {
        // A server that can no longer be reached is another problem.
        drought.state == .unanswered && state.usable == 0 && !failures.isOfAnswers ? .unansweredLately : drought.state
    }

    /// See ``Transport/keepsUniqueIDs``.
    public var keepsUniqueIDs = false {
        didSet {
            for connection in connections { connection.http2.session.keepsUniqueIDs = keepsUniqueIDs }
            for pool in isolated { pool.keepsUniqueIDs = keepsUniqueIDs }
        }
    }

    var configuration: Configuration
    let eventLoop: any EventLoop
    let logger: Logger
    var state: ConnectionPoolState
    /// The connections whose TCP connection is established.
    var connections: [PooledConnection] = []
    let ids: ConnectionIDs
    /// The pools of isolated notifications, ``Isolation/withFew`` and ``Isolation/alone``; empty until there are some.
    var isolated: [ConnectionPool] = []
    var failures: ConnectionFailures
    var generation = 0
    var drought = AnswerDrought()
    var unanswered = UnansweredRequests()
    /// The tags of requests that were accepted, and are returned because there was no connection to send them on.
    var toGiveBack: [UInt64] = []
    private(set) var closed: EventLoopPromise<Void>?
    var authorization: HeaderText?

    /// Creates a pool. ``check(now:)`` opens its connections.
    public convenience init(_ configuration: Configuration, eventLoop: any EventLoop, logger: Logger) {
        self.init(configuration, ids: ConnectionIDs(), eventLoop: eventLoop, logger: logger)
    }

    init(_ configuration: Configuration, ids: ConnectionIDs, eventLoop: any EventLoop, logger: Logger) {
        self.ids = ids
        self.configuration = configuration
        self.eventLoop = eventLoop
        self.logger = logger
        state = ConnectionPoolState(configuration.poolLimits)
        failures = ConnectionFailures("APNs", configuration.endpoint, logger)
    }

    /// The number of notifications that can be submitted now.
    public var capacity: Int { connections.reduce(0) { $0 + $1.http2.freeStreams } }

    /// The number of requests in flight.
    public var inFlight: Int { connections.reduce(0) { $0 + $1.http2.state.inFlight } }

    /// Connections that accept requests.
    public var usableConnections: Int { state.usable }

    /// See ``Transport/isDormant``.
    public var isDormant: Bool { state.isDormant }

    /// The number of connections made since the start.
    public var connectionsMade: Int { state.made }

    /// The state of the connections.
    public var statistics: PoolStatistics {
        var statistics = PoolStatistics()
        statistics.connecting = state.connecting
        statistics.usable = state.usable
        statistics.failures = state.failures
        for connection in connections {
            statistics.streamsInUse += connection.http2.state.inFlight
            if connection.http2.state.isUsable { statistics.streamLimit += connection.http2.state.streamLimit }
            if case .draining = connection.http2.state.phase { statistics.draining += 1 }
        }
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
        configuration.tls = tls
        for pool in isolated { pool.configuration.tls = tls }
    }

    /// Replaces all connections. Each works until its replacement is ready, with the provider token that was set when
    /// this was called. Connections that have not been used recently and are not needed for the minimum are closed at
    /// once.
    /// - Parameter reason: for the log.
    public func replaceConnections(reason: String) { replaceConnections(reason: reason, now: eventLoop.now) }

    func replaceConnections(reason: String, now: NIODeadline) {
        for pool in isolated { pool.replaceConnections(reason: reason, now: now) }
        generation += 1
        replace(
            connections.filter { !$0.isBeingReplaced }, reason: reason, keeping: .kept(authorization), now: now)
    }

    /// Retires all connections and opens others, after APNs has refused their credential. Requests in flight are
    /// finished.
    /// - Parameter reason: for the log.
    public func retireConnections(reason: String) {
        for pool in isolated { pool.retireConnections(reason: reason) }
        for connection in connections where connection.isUsable { connection.http2.retire(reason: reason) }
        openConnections(now: eventLoop.now)
    }

    /// Retires one connection, and opens another. Its requests in flight are finished.
    public func retireConnection(_ connection: Int, reason: String) -> Int {
        for pooled in connections where pooled.http2.id == connection && pooled.isUsable {
            logger.info(
                "retiring an APNs connection: \(reason)",
                metadata: ["endpoint": "\(endpoint)", "event": "connection_retired"])
            pooled.http2.retire(reason: reason)
        }
        for pool in isolated { _ = pool.retireConnection(connection, reason: reason) }
        let newest = ids.newest
        openConnections(now: eventLoop.now)
        return newest
    }

    /// Submits a notification on the least busy connection, but never on one on which it has exceeded its deadline. If
    /// only such connections have free streams, it completes with ``RequestFailure/noOtherConnection``.
    /// - Parameter tag: returned with the result.
    /// - Returns: `false` if no stream is free; the notification was then not accepted.
    public func submit(_ notification: consuming Notification, tag: UInt64) -> Bool {
        if !unanswered.isEmpty, let id = notification.apnsID {
            return submitElsewhere(consume notification, id, tag: tag)
        }
        var best: PooledConnection?
        var most = 0
        for connection in connections {
            let free = connection.preference
            if free > most { (best, most) = (connection, free) }
        }
        guard let best else { return false }
        return submit(consume notification, tag: tag, on: best)
    }

    func submit(_ notification: consuming Notification, tag: UInt64, on connection: PooledConnection) -> Bool {
        connection.http2.submit(
            consume notification, tag: tag, deadline: eventLoop.now + configuration.requestTimeout,
            authorization: connection.authorization(current: authorization))
    }

    /// Opens another connection if allowed. Call this when notifications wait and no stream is free.
    public func requestCapacity() {
        state.wantConnection()
        openConnections(now: eventLoop.now)
    }

    /// Does nothing: each request has its own answer.
    public func flushConfirmations() {}

    /// Enforces deadlines, retires connections that are superfluous or too old, and opens others. Call this several
    /// times per second.
    public func check(now: NIODeadline) {
        for connection in connections {
            noteAnswers(connection, now: now)
            noteWindow(connection, now: now)
            noteAge(connection, now: now)
            connection.http2.check(now: now)
        }
        let before = drought.state
        drought.look(inFlight: inFlight, now: now)
        if before == .answered, drought.state == .unanswered { suspectConnections() }
        giveUpConnections(now: now)
        openConnections(now: now)
        for pool in isolated { pool.check(now: now) }
    }

    /// See ``Transport/stoodStill(for:now:)``.
    public func stoodStill(for time: TimeAmount, now: NIODeadline) {
        drought.stoodStill(for: time, now: now)
        for connection in connections {
            connection.responsiveness.stoodStill(for: time, now: now)
            connection.http2.stoodStill(for: time, latestDeadline: now + configuration.requestTimeout, now: now)
        }
        for pool in isolated { pool.stoodStill(for: time, now: now) }
    }

    /// Finishes the requests in flight and closes all connections.
    public func close() -> EventLoopFuture<Void> {
        if let closed { return closed.futureResult }
        let promise = eventLoop.makePromise(of: Void.self)
        closed = promise
        state.close()
        for connection in connections { connection.http2.retire(reason: "shutdown") }
        for pool in isolated {
            pool.close().assumeIsolated().whenComplete { [self] _ in
                isolated.removeAll { $0 === pool }
                finishClosing()
            }
        }
        finishClosing()
        return promise.futureResult
    }

    /// Closes all connections at once; requests in flight complete as lost.
    public func closeNow() {
        _ = close()
        for pool in isolated { pool.closeNow() }
        for connection in connections { connection.http2.close(APNSConnectionError.shutdown(endpoint)) }
    }

    func finishClosing() {
        guard let closed, connections.isEmpty, state.connecting == 0, isolated.isEmpty else { return }
        giveBack()
        delegate = nil
        closed.succeed(())
    }

    func openConnections(now: NIODeadline) {
        for _ in 0..<state.connectionsToOpen(now: now) { open() }
    }
}

extension ConnectionPool: HTTP2ConnectionOwner {
    /// Returns the pool's record of a connection. Not called per request, and a pool has few connections.
    private func pooled(_ connection: HTTP2Connection) -> PooledConnection? {
        connections.first { $0.http2 === connection }
    }

    func connectionChanged(_ connection: HTTP2Connection) {
        guard let connection = pooled(connection) else { return }
        if connection.isUsable != connection.http2.state.isUsable {
            if connection.isUsable { uncount(connection) } else { count(connection) }
        }
        if !connection.hasAnswered, connection.http2.state.answers > connection.staleAnswers {
            connection.hasAnswered = true
            AddressMemory.shared.worked(connection.address)
            failures.worked(&state, news: "connected to APNs again")
        }
        if connection.http2.state.serverErrorsInARow >= HTTP2ConnectionState.serverErrorLimit { recycle(connection) }
        if state.outgoing > 0 { retireOutgoing() }
        delegate?.transportChanged(self)
    }

    func connectionWearsOut(_ connection: HTTP2Connection) {
        guard let connection = pooled(connection) else { return }
        giveUpIfOld(connection, now: eventLoop.now)
        openConnections(now: eventLoop.now)
    }

    func connection(
        _ connection: HTTP2Connection, didNotAnswer apnsID: APNSID?, deadline: NIODeadline, isRefusal: Bool
    ) {
        // A connection that accepts no more requests need not be avoided.
        guard let connection = pooled(connection), connection.isUsable else { return }
        if let apnsID { unanswered.insert(apnsID, connection: connection.http2.id, isRefusal: isRefusal) }
        guard !isRefusal else { return }
        let timeout = configuration.requestTimeout
        connection.responsiveness.missedDeadline(submitted: deadline - timeout, timeout: timeout)
    }

    func connectionIsStale(_ connection: HTTP2Connection) {
        pooled(connection)?.isStale = true
        // Whatever forgot it has forgotten the others, too, which have been idle as long.
        let now = eventLoop.now
        for other in connections where other.http2 !== connection && other.http2.state.isIdle(now: now) {
            other.http2.retire(reason: "another idle one was stale")
        }
        openConnections(now: now)
    }

    func connection(_ connection: HTTP2Connection, completed tag: UInt64, with result: RequestResult) {
        delegate?.transport(self, completed: tag, with: result)
    }

    func connectionClosed(_ connection: HTTP2Connection, error: any Error) {
        guard let index = connections.firstIndex(where: { $0.http2 === connection }) else { return }
        let connection = connections.remove(at: index)
        connection.handshakeTimer?.cancel()
        connection.handshakeTimer = nil
        noteAnswers(connection, now: eventLoop.now)
        unanswered.forget(connection: connection.http2.id)
        let wasConnecting = connection.usableSince == nil
        // A server may close a connection that was not used for long; that is not a failure.
        let lasted = connection.usableSince.map { eventLoop.now - $0 > .seconds(10) } ?? false
        if connection.isUsable { uncount(connection) }
        if closed != nil {
            if wasConnecting { state.failed(wasConnecting: true, now: eventLoop.now, jitter: 0) }
        } else if (error as? APNSConnectionError)?.isBreach ?? false {
            // However well it worked before: reconnecting at once would invite the next breach.
            connectionFailed(error, at: connection.address, wasConnecting: wasConnecting)
        } else if connection.http2.state.isRetired, !wasConnecting {
            logger.debug("\(error)", metadata: ["event": "apns_connection_closed", "endpoint": "\(endpoint)"])
            delegate?.transportChanged(self)
        } else if connection.http2.state.hasAnswered || lasted || connection.isStale {
            logger.info(
                "an APNs connection ended: \(error)",
                metadata: ["event": "apns_connection_ended", "endpoint": "\(endpoint)"])
            // It worked, so the next one probably does.
            openConnections(now: eventLoop.now)
            delegate?.transportChanged(self)
        } else {
            connectionFailed(error, at: connection.address, wasConnecting: wasConnecting)
        }
        finishClosing()
    }

    private func count(_ connection: PooledConnection) {
        connection.isUsable = true
        connection.usableSince = eventLoop.now
        connection.handshakeTimer?.cancel()
        connection.handshakeTimer = nil
        state.connected()
        logger.debug(
            "connected to APNs",
            metadata: ["event": "apns_connected", "endpoint": "\(endpoint)", "connections": "\(state.usable)"])
        guard connection.generation < generation else { return }
        // All connections were replaced while this one was being made.
        replace([connection], reason: "it was made before", keeping: .current, now: eventLoop.now)
    }

    private func uncount(_ connection: PooledConnection) {
        connection.isUsable = false
        state.retired(wasOutgoing: connection.isBeingReplaced)
        connection.isBeingReplaced = false
    }
}
