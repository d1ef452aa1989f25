import Logging
import NIOCore
import TLS

/// The connections of one certificate to one binary gateway, on one event loop.
///
/// They are filled one after the other. A connection whose window is full, or that is to end, is sent a bad item, whose error
/// packet tells at once what would else take ``Configuration/confirmAfter``; what comes meanwhile goes to the next. So what
/// is submitted stays nearly in order, and exactly where there may be one connection only: then what comes meanwhile waits.
public final class GatewayPool: Transport {
    /// Where the pool's connections go.
    public var endpoint: APNSEndpoint { configuration.endpoint }
    /// Who hears of completions. Held strongly until ``close()`` is done.
    public var delegate: (any TransportDelegate)?
    /// Why the last connection could not be made or was given up; `nil` once one has worked since.
    public var lastFailure: (any Error)? { failures.last }
    /// See ``Transport/failureCounts``.
    public var failureCounts: [String: Int] { failures.counts }

    private var configuration: Configuration
    private let eventLoop: any EventLoop
    private let logger: Logger
    private var state: ConnectionPoolState
    private var ahead = SendAhead()
    /// All on which TCP is set up.
    private var connections: [GatewayConnection] = []
    private var isWanted = false
    /// Connections in a row that were accepted, and dropped with the first notification.
    private var hangUps = 0
    private var generation = 0
    private var failures: ConnectionFailures
    private var closed: EventLoopPromise<Void>?

    /// After so many connections that took a notification and were dropped without a word, it is the certificate.
    private static let patience = 3

    /// Makes a pool; connections are opened by ``check(now:)``.
    public init(_ configuration: Configuration, eventLoop: any EventLoop, logger: Logger) {
        self.configuration = configuration
        self.eventLoop = eventLoop
        self.logger = logger
        state = ConnectionPoolState(configuration.poolLimits)
        failures = ConnectionFailures("the gateway", configuration.endpoint, logger)
    }

    /// How many notifications can be submitted now.
    public var room: Int {
        guard !keepsOrder || !connections.contains(where: { $0.state.phase == .draining && $0.state.window.count > 0 })
        else { return 0 }
        var room = 0
        for connection in connections { room += connection.state.room(ahead: ahead.limit) }
        // A connection is opened for the first that comes.
        if isDormant { room = configuration.windowCount }
        guard hangUps > 0 else { return room }
        // One at a time, until one is taken: whatever is sent may be lost.
        return min(room, connections.contains { $0.state.window.count > 0 } ? 0 : 1)
    }

    /// Connections that take notifications.
    public var usableConnections: Int { state.usable }

    /// Whether no connection is kept as long as there is nothing to send, and none is needed.
    public var isDormant: Bool {
        configuration.minimumConnections == 0 && state.usable == 0 && state.failures == 0 && closed == nil
    }

    /// Never unanswered: the gateway answers nothing that it accepts.
    public var answerState: AnswerState { .answered }

    /// What the connections are doing; of streams, the windows of what is not confirmed.
    public var statistics: PoolStatistics {
        var statistics = PoolStatistics()
        statistics.connecting = state.connecting
        statistics.usable = state.usable
        statistics.failures = state.failures
        for connection in connections {
            statistics.streamsInUse += connection.state.window.count
            if connection.state.isUsable { statistics.streamLimit += configuration.windowCount }
            if connection.state.phase == .draining { statistics.draining += 1 }
        }
        return statistics
    }

    /// Sends a notification on the first connection that has room.
    public func submit(_ notification: consuming Notification, tag: UInt64) -> Bool {
        guard hangUps == 0 && !keepsOrder || room > 0,
            let connection = connections.first(where: { $0.state.room(ahead: ahead.limit) > 0 })
        else {
            wantRoom()
            return false
        }
        connection.submit(notification, tag: tag)
        if connection.state.isFull, connection.state.sendsBarriers {
            connection.drain()
        } else if connection.state.isFilling, state.usable == 1, ahead.limit == .max {
            // Ready when this one is full.
            openAnother()
        }
        return true
    }

    /// Opens another connection if there may be one. If not, asks what has been taken on the only one where that has little
    /// room: too little to be worth a claim, so that it would never be full.
    public func wantRoom() {
        if keepsOrder, let full = connections.first(where: { $0.state.isNearlyFull && $0.state.sendsBarriers }) {
            return full.drain()
        }
        // What runs ahead less does so on all connections; another would only undo it.
        guard state.usable == 0 || (ahead.limit == .max && hangUps == 0 && room == 0) else { return }
        openAnother()
    }

    /// Whether nothing may be sent before it is known what has become of what was sent on another connection.
    private var keepsOrder: Bool { configuration.maximumConnections == 1 }

    private func openAnother() {
        isWanted = true
        openConnections(now: eventLoop.now)
    }

    /// Asks the gateway, by a bad item, for the ends of what was sent.
    public func wantResults() {
        for connection in connections where connection.state.window.count > 0 { connection.drain() }
    }

    /// Confirms what is old enough, gives connections up that are silent, worn out or not needed, and opens others.
    public func check(now: NIODeadline) {
        ahead.check(window: configuration.windowCount, now: now)
        for connection in connections { connection.check(now: now) }
        for connection in connections where connection.state.isWornOut(now: now) {
            logger.info(
                "replacing a connection to the gateway: it is too old", metadata: ["endpoint": "\(endpoint)"])
            connection.drain()
        }
        let idle = connections.first {
            $0.state.isUsable && $0.state.window.count == 0
                && state.isSuperfluous(lastUsed: $0.state.lastUsed, now: now)
        }
        idle?.drain()
        openConnections(now: now)
    }

    /// The gateway knows no provider tokens.
    public func setProviderToken(_: String?) {}

    /// Sets what the connections that are made from now on trust and present.
    public func setTLS(_ tls: TLSContext) { configuration.tls = tls }

    /// Sends nothing more on the connections that there are, and opens others.
    public func replaceConnections(reason: String) {
        guard closed == nil, !connections.isEmpty else { return }
        logger.info("replacing connections to the gateway: \(reason)", metadata: ["endpoint": "\(endpoint)"])
        // With another certificate it may be another story.
        hangUps = 0
        generation += 1
        for connection in connections { connection.drain() }
        openConnections(now: eventLoop.now)
    }

    /// The same: a connection to the gateway is either used or at its end.
    public func retireConnections(reason: String) { replaceConnections(reason: reason) }

    /// Finds out what has become of what was sent, and closes all connections.
    public func close() -> EventLoopFuture<Void> {
        if let closed { return closed.futureResult }
        let promise = eventLoop.makePromise(of: Void.self)
        closed = promise
        state.close()
        for connection in connections {
            if connection.state.phase == .connecting {
                connection.close(APNSConnectionError.shutdown(endpoint))
            } else {
                connection.drain()
            }
        }
        finishClosing()
        return promise.futureResult
    }

    /// Closes all connections at once; what is not confirmed completes as uncertain.
    public func closeNow() {
        _ = close()
        for connection in connections { connection.close(APNSConnectionError.shutdown(endpoint)) }
    }

    private func finishClosing() {
        guard let closed, connections.isEmpty, state.connecting == 0 else { return }
        delegate = nil
        closed.succeed(())
    }

    // MARK: Connecting

    private func openConnections(now: NIODeadline) {
        for _ in 0..<state.connectionsToOpen(isWanted: isWanted, now: now) { open() }
        isWanted = false
    }

    private func open() {
        let connection = GatewayConnection(
            endpoint: endpoint, batching: configuration.batching,
            limits: configuration.connectionLimits(jitter: .random(in: 0..<1)), generation: generation, owner: self)
        let dialer = configuration.dialer
        let bound = NIOLoopBound((self, connection), eventLoop: eventLoop)
        dialer.connect(on: eventLoop) {
            // Nothing but TCP itself ever asks an idle gateway whether it is there.
            $0.channelOption(.socketOption(.so_keepalive), value: 1)
        }
        .assumeIsolated()
        .whenComplete { result in
            let (pool, connection) = bound.value
            switch result {
            case .success(let channel): pool.adopt(connection, on: channel, dialer)
            case .failure(let error):
                pool.connectionFailed(dialer.cannotConnect(error), wasConnecting: true)
                pool.finishClosing()
            }
        }
    }

    private func adopt(_ connection: GatewayConnection, on channel: any Channel, _ dialer: Dialer) {
        connections.append(connection)
        do {
            try connection.install(on: channel)
            try dialer.secure(channel, onTLS: { [self] in limitHandshake(connection) })
            try connection.installMeter(on: channel)
        } catch {
            // The channel has closed already.
            channel.close(promise: nil)
            return connection.failed(dialer.cannotConnect(error))
        }
        if closed != nil { connection.close(APNSConnectionError.shutdown(endpoint)) }
    }

    private func limitHandshake(_ connection: GatewayConnection) {
        connection.handshakeTimer = connection.limitHandshake(
            to: configuration.connectTimeout, endpoint, on: eventLoop)
    }

    private func connectionFailed(_ error: any Error, wasConnecting: Bool) {
        failures.failed(error, wasConnecting: wasConnecting, &state, now: eventLoop.now)
        delegate?.transportChanged(self)
    }

    private func worked() {
        hangUps = 0
        failures.worked(&state, news: "the gateway takes notifications again")
    }
}

extension GatewayPool: GatewayConnectionOwner {
    func connectionChanged(_ connection: GatewayConnection) {
        if connection.isCounted != connection.state.isUsable {
            connection.isCounted.toggle()
            if connection.isCounted {
                connection.handshakeTimer?.cancel()
                state.connected()
                // It was being made when all were to be replaced.
                if connection.generation < generation { return connection.drain() }
            } else {
                state.retired()
                // There must be another before what goes on it is claimed.
                openConnections(now: eventLoop.now)
            }
        }
        if connection.state.isProven { worked() }
        delegate?.transportChanged(self)
    }

    func connection(_ connection: GatewayConnection, completed tag: UInt64, with result: RequestResult) {
        delegate?.transport(self, completed: tag, with: result)
    }

    func connection(_ connection: GatewayConnection, answered packet: GatewayPacket, progress: Int, lost: Int) {
        if connection.state.isProven { worked() }
        if packet.identifier != connection.state.window.barrier, packet.status != .shutdown {
            ahead.refused(progress: progress, now: eventLoop.now)
        }
        guard lost > 0 else { return }
        logger.error(
            """
            the gateway dropped \(lost) notifications that had been taken for delivered, because its error packet came \
            later than \(configuration.confirmAfter.inWords) after they were sent: raise the time after which they are \
            confirmed
            """,
            metadata: ["endpoint": "\(endpoint)", "status": "\(packet.status)"])
    }

    func uncertainResult(of connection: GatewayConnection) -> RequestResult {
        let isHangUp =
            connection.state.phase == .open && !connection.state.isProven && !connection.isGivenUp && closed == nil
        guard isHangUp else {
            return .uncertain(.connectionLost("it was closed without an error packet"))
        }
        hangUps += 1
        return .uncertain(
            hangUps >= Self.patience ? .hungUp : .connectionLost("it was closed without an error packet"))
    }

    func connectionClosed(_ connection: GatewayConnection, error: any Error) {
        connections.removeAll { $0 === connection }
        let wasConnecting = connection.state.openedAt == .distantPast
        let lasted = !wasConnecting && eventLoop.now - connection.state.openedAt > .seconds(10)
        if connection.isCounted {
            connection.isCounted = false
            state.retired()
        }
        if closed != nil {
            if wasConnecting { state.failed(wasConnecting: true, now: eventLoop.now, jitter: 0) }
        } else if (!wasConnecting && connection.state.isRetired) || (connection.state.isProven && connection.hasAnswer)
        {
            logger.debug("\(error)", metadata: ["endpoint": "\(endpoint)"])
            delegate?.transportChanged(self)
        } else if connection.state.isProven || (lasted && !connection.state.hasSent) {
            logger.info("a connection to the gateway ended: \(error)", metadata: ["endpoint": "\(endpoint)"])
            delegate?.transportChanged(self)
        } else {
            connectionFailed(error, wasConnecting: wasConnecting)
        }
        openConnections(now: eventLoop.now)
        finishClosing()
    }
}
