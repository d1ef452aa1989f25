import Logging
import NIOCore
import TLS

/// The connections of one credential to one endpoint, on one event loop.
///
/// Not thread-safe: everything is called on, and calls back on, the event loop. ``check(now:)`` has to be called a few
/// times a second: it keeps the deadlines, asks silent servers for life, and opens connections when their time has come.
public final class ConnectionPool: Transport {
    /// Where the pool's connections go.
    public var endpoint: APNSEndpoint { configuration.endpoint }
    /// The receiver of completions. Held strongly until ``close()`` is done.
    public var delegate: (any TransportDelegate)?
    /// Why the last connection could not be made or was given up; `nil` once one has worked since.
    public var lastFailure: (any Error)? { failures.last }
    /// See ``Transport/failureCounts``.
    public var failureCounts: [String: Int] { failures.counts }
    /// See ``Transport/answerState``.
    public var answerState: AnswerState {
        // A server that cannot be reached any more is another trouble.
        drought.state == .unanswered && state.usable == 0 && !failures.isOfAnswers ? .unansweredLately : drought.state
    }

    /// See ``Transport/keepsUniqueIDs``.
    public var keepsUniqueIDs = false {
        didSet { for connection in connections { connection.http2.session.keepsUniqueIDs = keepsUniqueIDs } }
    }

    var configuration: Configuration
    let eventLoop: any EventLoop
    let logger: Logger
    var state: ConnectionPoolState
    /// The connections on which TCP is set up.
    var connections: [PooledConnection] = []
    var nextID = 0
    var failures: ConnectionFailures
    var generation = 0
    var drought = AnswerDrought()
    var unanswered = UnansweredRequests()
    /// The tags of requests that were taken and are given back, because there was no connection to send them on.
    var toGiveBack: [UInt64] = []
    private(set) var closed: EventLoopPromise<Void>?
    private var authorization: HeaderText?

    /// Makes a pool; connections are opened by ``check(now:)``.
    public init(_ configuration: Configuration, eventLoop: any EventLoop, logger: Logger) {
        self.configuration = configuration
        self.eventLoop = eventLoop
        self.logger = logger
        state = ConnectionPoolState(configuration.poolLimits)
        failures = ConnectionFailures("APNs", configuration.endpoint, logger)
    }

    /// How many notifications can be submitted now.
    public var capacity: Int {
        var count = 0
        for connection in connections { count += connection.http2.freeStreams }
        // A connection is opened for the first that comes.
        return count == 0 && isDormant ? 1 : count
    }

    /// Requests that have been submitted and not completed.
    public var inFlight: Int { connections.reduce(0) { $0 + $1.http2.state.inFlight } }

    /// Connections that take requests.
    public var usableConnections: Int { state.usable }

    /// True if no connection is kept as long as there is nothing to send, and none is needed.
    public var isDormant: Bool {
        configuration.minimumConnections == 0 && state.usable == 0 && state.failures == 0 && closed == nil
    }

    /// The number of connections that were made since the start.
    public var connectionsMade: Int { state.made }

    /// The connections' state.
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
        return statistics
    }

    /// Sets the `authorization` of the requests to come. When the token is another key's, call
    /// ``replaceConnections(reason:)`` first: APNs takes the tokens of one team's key on a connection, and those that are
    /// being replaced go on with what they had.
    /// - Parameter providerToken: a signed provider token, or `nil` for certificate credentials.
    public func setProviderToken(_ providerToken: String?) {
        authorization = providerToken.map { HeaderText("bearer \($0)") }
    }

    /// Sets what the connections that are made from now on trust and present. Those that work stay; see
    /// ``replaceConnections(reason:)``.
    public func setTLS(_ tls: TLSContext) { configuration.tls = tls }

    /// Replaces all connections. Each works until another has taken its place, with the provider token that was set when
    /// this was called; those that had nothing to do lately and are not needed for the minimum are closed at once.
    /// - Parameter reason: for the log.
    public func replaceConnections(reason: String) { replaceConnections(reason: reason, now: eventLoop.now) }

    func replaceConnections(reason: String, now: NIODeadline) {
        generation += 1
        replace(
            connections.filter { !$0.isBeingReplaced }, reason: reason, keeping: .kept(authorization), now: now)
    }

    /// Sends nothing more on the connections that there are, and opens others: for a credential that APNs has refused, so
    /// that those would be of no use. What is under way is finished.
    /// - Parameter reason: for the log.
    public func retireConnections(reason: String) {
        for connection in connections where connection.isUsable { connection.http2.retire(reason: reason) }
        openConnections(now: eventLoop.now)
    }

    /// Sends nothing more on one connection, and opens another. What is under way on it is finished.
    public func retireConnection(_ connection: Int, reason: String) -> Int {
        for pooled in connections where pooled.http2.id == connection && pooled.isUsable {
            logger.info(
                "retiring an APNs connection: \(reason)",
                metadata: ["endpoint": "\(endpoint)", "event": "connection_retired"])
            pooled.http2.retire(reason: reason)
        }
        let newest = nextID - 1
        openConnections(now: eventLoop.now)
        return newest
    }

    /// Sends a notification on the least busy connection, but never on one on which it already ran into its deadline. If
    /// only such connections have free streams, it is given back as ``RequestFailure/noOtherConnection``.
    /// - Parameter tag: comes back with the result.
    /// - Returns: `false` where no stream is free; the notification has then not been taken.
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
        guard let best else {
            if isDormant { requestCapacity() }
            return false
        }
        return submit(consume notification, tag: tag, on: best)
    }

    func submit(_ notification: consuming Notification, tag: UInt64, on connection: PooledConnection) -> Bool {
        connection.http2.submit(
            consume notification, tag: tag, deadline: eventLoop.now + configuration.requestTimeout,
            authorization: connection.authorization(current: authorization))
    }

    /// Says that notifications wait while no stream is free: another connection is opened if there may be one.
    public func requestCapacity() {
        state.wantConnection()
        openConnections(now: eventLoop.now)
    }

    /// Nothing to do: each request has an answer of its own.
    public func flushConfirmations() {}

    /// Keeps deadlines, gives up connections that are not needed or too old, and opens others; see the type.
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
    }

    /// Finishes what is under way and closes all connections.
    public func close() -> EventLoopFuture<Void> {
        if let closed { return closed.futureResult }
        let promise = eventLoop.makePromise(of: Void.self)
        closed = promise
        state.close()
        for connection in connections { connection.http2.retire(reason: "shutdown") }
        finishClosing()
        return promise.futureResult
    }

    /// Closes all connections at once; what is under way completes as lost.
    public func closeNow() {
        _ = close()
        for connection in connections { connection.http2.close(APNSConnectionError.shutdown(endpoint)) }
    }

    func finishClosing() {
        guard let closed, connections.isEmpty, state.connecting == 0 else { return }
        giveBack()
        delegate = nil
        closed.succeed(())
    }

    func openConnections(now: NIODeadline) {
        for _ in 0..<state.connectionsToOpen(now: now) { open() }
    }
}

extension ConnectionPool: HTTP2ConnectionOwner {
    /// The pool's record of a connection. Not called for each request, and a pool has few connections.
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
        // What takes no more requests need not be avoided.
        guard let connection = pooled(connection), connection.isUsable else { return }
        if let apnsID { unanswered.insert(apnsID, connection: connection.http2.id, isRefusal: isRefusal) }
        guard !isRefusal else { return }
        let timeout = configuration.requestTimeout
        connection.responsiveness.missedDeadline(submitted: deadline - timeout, timeout: timeout)
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
        // A server may close a connection on which nothing was sent for long; that is no failure.
        let lasted = connection.usableSince.map { eventLoop.now - $0 > .seconds(10) } ?? false
        if connection.isUsable { uncount(connection) }
        if closed != nil {
            if wasConnecting { state.failed(wasConnecting: true, now: eventLoop.now, jitter: 0) }
        } else if (error as? APNSConnectionError)?.isBreach ?? false {
            // However well it worked before: at once again would be to be played with.
            connectionFailed(error, wasConnecting: wasConnecting)
        } else if connection.http2.state.isRetired, !wasConnecting {
            logger.debug("\(error)", metadata: ["event": "apns_connection_closed", "endpoint": "\(endpoint)"])
            delegate?.transportChanged(self)
        } else if connection.http2.state.hasAnswered || lasted {
            logger.info(
                "an APNs connection ended: \(error)",
                metadata: ["event": "apns_connection_ended", "endpoint": "\(endpoint)"])
            delegate?.transportChanged(self)
        } else {
            connectionFailed(error, wasConnecting: wasConnecting)
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
        // It was being made when all were to be replaced.
        replace([connection], reason: "it was made before", keeping: .current, now: eventLoop.now)
    }

    private func uncount(_ connection: PooledConnection) {
        connection.isUsable = false
        state.retired(wasOutgoing: connection.isBeingReplaced)
        connection.isBeingReplaced = false
    }
}
