import Logging
import NIOCore
import NIOPosix
import Sockets
import TLS

/// The connections of one certificate to one binary gateway, on one event loop.
///
/// They are filled one after the other. A connection whose window is full, or that is to end, is sent a bad item, whose error
/// packet tells at once what would else take ``Configuration/confirmAfter``; what comes meanwhile goes to the next. So what
/// is submitted stays nearly in order, and exactly where there may be one connection only: then what comes meanwhile waits.
public final class GatewayPool: Transport {
    /// Where the pool's connections go.
    public var endpoint: APNSEndpoint { configuration.endpoint }
    /// The receiver of completions. Held strongly until ``close()`` is done.
    public var delegate: (any TransportDelegate)?
    /// Why the last connection could not be made or was given up; `nil` once one has worked since.
    public var lastFailure: (any Error)? { failures.last }
    /// See ``Transport/failureCounts``.
    public var failureCounts: [String: Int] { failures.counts }

    private var configuration: Configuration
    private let eventLoop: any EventLoop
    private let logger: Logger
    private var state: ConnectionPoolState
    private var adaptiveWindow = AdaptiveWindow()
    /// The connections on which TCP is set up.
    private var members: [Member] = []
    private var connections: LazyMapSequence<[Member], GatewayConnection> { members.lazy.map(\.connection) }
    /// Connections in a row that were accepted, and dropped with the first notification.
    private var hangUps = 0
    private var generation = 0
    private var failures: ConnectionFailures
    private var closed: EventLoopPromise<Void>?

    /// The longest time after which notifications are confirmed, unless the configuration's is longer.
    private static let longestConfirmation = TimeAmount.minutes(10)
    /// See ``Transport/droppedAfterConfirmation``.
    public private(set) var droppedAfterConfirmation = 0
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
    public var capacity: Int {
        guard !keepsOrder || !connections.contains(where: { $0.state.phase == .draining && $0.state.window.count > 0 })
        else { return 0 }
        var capacity = 0
        for connection in connections { capacity += connection.state.capacity(limit: adaptiveWindow.limit) }
        // A connection is opened for the first that comes.
        if isDormant { capacity = configuration.windowCount }
        guard hangUps > 0 else { return capacity }
        // One at a time, until one is taken: whatever is sent may be lost.
        return min(capacity, connections.contains { $0.state.window.count > 0 } ? 0 : 1)
    }

    /// Connections that take notifications.
    public var usableConnections: Int { state.usable }

    /// True if no connection is kept as long as there is nothing to send, and none is needed.
    public var isDormant: Bool {
        configuration.minimumConnections == 0 && state.usable == 0 && state.failures == 0 && closed == nil
    }

    /// Never unanswered: the gateway answers nothing that it accepts.
    public var answerState: AnswerState { .answered }

    /// The number of connections that were made since the start.
    public var connectionsMade: Int { state.made }

    /// The connections' state; as streams it counts the windows of unconfirmed notifications.
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
        guard hangUps == 0 && !keepsOrder || capacity > 0,
            let connection = connections.first(where: { $0.state.capacity(limit: adaptiveWindow.limit) > 0 })
        else {
            requestCapacity()
            return false
        }
        connection.submit(notification, tag: tag)
        if connection.state.isFull, connection.state.sendsBarriers {
            connection.drain()
        } else if connection.state.isFilling, state.usable == 1, adaptiveWindow.limit == .max {
            // Ready when this one is full.
            openAnother()
        }
        return true
    }

    /// Opens another connection if there may be one. If not, asks what has been taken on the only one where that has little
    /// room: too little to be worth a claim, so that it would never be full.
    public func requestCapacity() {
        if keepsOrder, let full = connections.first(where: { $0.state.isNearlyFull && $0.state.sendsBarriers }) {
            return full.drain()
        }
        // A narrowed window is narrowed on all connections; another would only undo it.
        guard state.usable == 0 || (adaptiveWindow.limit == .max && hangUps == 0 && capacity == 0) else { return }
        openAnother()
    }

    /// True if nothing may be sent before the ends of what was sent on another connection are known.
    private var keepsOrder: Bool { configuration.maximumConnections == 1 }

    private func openAnother() {
        state.wantConnection()
        openConnections(now: eventLoop.now)
    }

    /// Asks the gateway, by a bad item, for the ends of what was sent.
    public func flushConfirmations() {
        for connection in connections where connection.state.window.count > 0 { connection.drain() }
    }

    /// Confirms what is old enough, gives connections up that are silent, worn out or not needed, and opens others.
    public func check(now: NIODeadline) {
        adaptiveWindow.check(window: configuration.windowCount, now: now)
        for connection in connections { connection.check(now: now) }
        for connection in connections where connection.state.isWornOut(now: now) {
            logger.info(
                "replacing a connection to the gateway: it is too old",
                metadata: ["event": "apns_connections_replaced", "endpoint": "\(endpoint)", "connections": "1"])
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
        logger.info(
            "replacing connections to the gateway: \(reason)",
            metadata: [
                "event": "apns_connections_replaced", "endpoint": "\(endpoint)", "connections": "\(connections.count)",
            ])
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
        for _ in 0..<state.connectionsToOpen(now: now) { open() }
    }

    private func open() {
        let connection = GatewayConnection(
            endpoint: endpoint, batching: configuration.batching,
            limits: configuration.connectionLimits(jitter: .random(in: 0..<1)), owner: self)
        let member = Member(connection, generation: generation)
        let dialer = configuration.dialer
        let bound = NIOLoopBound((self, member), eventLoop: eventLoop)
        dialer.connect(on: eventLoop) {
            // Nothing but TCP itself ever asks an idle gateway whether it is there.
            $0.channelOption(.socketOption(.so_keepalive), value: 1)
        }
        .assumeIsolated()
        .whenComplete { result in
            let (pool, member) = bound.value
            switch result {
            case .success(let channel): pool.adopt(member, on: channel, dialer)
            case .failure(let error):
                pool.connectionFailed(dialer.cannotConnect(error), wasConnecting: true)
                pool.finishClosing()
            }
        }
    }

    private func adopt(_ member: Member, on channel: any Channel, _ dialer: Dialer) {
        let connection = member.connection
        members.append(member)
        do {
            try connection.install(on: channel)
            try dialer.secure(
                channel,
                onTLS: { [self] in
                    member.handshakeTimer = configuration.limitHandshake(of: connection, on: eventLoop)
                })
            try connection.installMeter(on: channel)
        } catch {
            // The channel has closed already.
            channel.close(promise: nil)
            return connection.failed(dialer.cannotConnect(error))
        }
        if closed != nil { connection.close(APNSConnectionError.shutdown(endpoint)) }
    }

    private func connectionFailed(_ error: any Error, wasConnecting: Bool) {
        failures.failed(error, wasConnecting: wasConnecting, &state, now: eventLoop.now)
        delegate?.transportChanged(self)
    }

    private func worked() {
        hangUps = 0
        failures.worked(&state, news: "the gateway accepts notifications again")
    }
}

extension GatewayPool {
    /// A connection and what the pool knows about it.
    private final class Member {
        let connection: GatewayConnection
        /// The number of calls to replace all connections before its TLS context was chosen.
        let generation: Int
        /// True while ``ConnectionPoolState`` counts it as usable.
        var isUsable = false
        /// Closes the connection if the TLS handshake takes too long.
        var handshakeTimer: Scheduled<Void>?

        init(_ connection: GatewayConnection, generation: Int) {
            self.connection = connection
            self.generation = generation
        }
    }
}

extension GatewayPool: GatewayConnectionOwner {
    func connectionChanged(_ connection: GatewayConnection) {
        guard let member = members.first(where: { $0.connection === connection }) else { return }
        if member.isUsable != connection.state.isUsable {
            member.isUsable.toggle()
            if member.isUsable {
                member.handshakeTimer?.cancel()
                state.connected()
                logger.debug(
                    "connected to the gateway",
                    metadata: ["event": "apns_connected", "endpoint": "\(endpoint)", "connections": "\(state.usable)"])
                // It was being made when all were to be replaced.
                if member.generation < generation { return connection.drain() }
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

    func connection(
        _ connection: GatewayConnection, answered packet: GatewayPacket, progress: Int,
        findings: UnconfirmedWindow.Findings
    ) {
        if connection.state.isProven { worked() }
        if packet.identifier != connection.state.window.barrier, packet.status != .shutdown {
            adaptiveWindow.refused(progress: progress, now: eventLoop.now)
        }
        guard findings.lost > 0 else { return }
        droppedAfterConfirmation += findings.lost
        let before = configuration.confirmAfter
        configuration.confirmAfter = max(before, min(max(before + before, .seconds(1)), Self.longestConfirmation))
        for connection in connections { connection.confirm(after: configuration.confirmAfter) }
        logger.error(
            """
            the gateway dropped notifications that counted as delivered, because its error packet came later than \
            \(before.formatted) after they were sent; they are confirmed after \(configuration.confirmAfter.formatted) from \
            now on, until a restart. Raise gateway.confirm_after
            """,
            metadata: [
                "event": "gateway_packet_late", "endpoint": "\(endpoint)", "status": "\(packet.status)",
                "count": "\(findings.lost)",
            ])
        if let token = findings.lateToken { delegate?.transport(self, refusedLate: token, with: packet.status) }
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
        guard let index = members.firstIndex(where: { $0.connection === connection }) else { return }
        let member = members.remove(at: index)
        member.handshakeTimer?.cancel()
        let wasConnecting = connection.state.openedAt == .distantPast
        let lasted = !wasConnecting && eventLoop.now - connection.state.openedAt > .seconds(10)
        if member.isUsable { state.retired() }
        if closed != nil {
            if wasConnecting { state.failed(wasConnecting: true, now: eventLoop.now, jitter: 0) }
        } else if (!wasConnecting && connection.state.isRetired) || (connection.state.isProven && connection.hasAnswer)
        {
            logger.debug("\(error)", metadata: ["event": "apns_connection_closed", "endpoint": "\(endpoint)"])
            delegate?.transportChanged(self)
        } else if connection.state.isProven || (lasted && !connection.state.hasSent) {
            logger.info(
                "a connection to the gateway ended: \(error)",
                metadata: ["event": "apns_connection_ended", "endpoint": "\(endpoint)"])
            delegate?.transportChanged(self)
        } else {
            connectionFailed(error, wasConnecting: wasConnecting)
        }
        openConnections(now: eventLoop.now)
        finishClosing()
    }
}

extension GatewayPool {
    /// How a pool connects, batches and waits.
    public struct Configuration: Sendable, PoolConfiguration {
        /// Where to.
        public var endpoint: APNSEndpoint
        /// Trust, and the client certificate.
        public var tls: TLSContext
        /// The proxy to connect through; the endpoint's name is then looked up by the proxy.
        public var proxy: HTTPProxy?
        /// Connections that are kept open while nothing is sent.
        public var minimumConnections = 1
        /// Connections at the most, those apart on which nothing more is sent.
        public var maximumConnections = 4
        /// Which of the protocol's commands to use.
        public var frame = GatewayFrame.items
        /// Bytes of a write at the most; see ``GatewayFrame``.
        public var batchBytes = 16_384
        /// How long a write waits for more.
        public var batchTime = TimeAmount.milliseconds(2)
        /// How long the gateway must have had a notification without a word about it, to count as taken.
        public var confirmAfter = TimeAmount.seconds(2)
        /// True if a deliberately bad item is sent where certainty is wanted at once: when no more is sent on a
        /// connection.
        public var sendsBarriers = true
        /// Notifications without confirmation on a connection at the most.
        public var windowCount = 5000
        /// Bytes of their frames at the most.
        public var windowBytes = 32 << 20
        /// How long TCP, the proxy's answer and TLS may each take.
        public var connectTimeout = TimeAmount.seconds(10)
        /// How long the other side may leave what was written unacknowledged.
        public var stallTimeout = TimeAmount.seconds(20)
        /// After how long without a notification a connection beyond the minimum is closed.
        public var idleTimeout = TimeAmount.minutes(5)
        /// After how long a connection is replaced, less up to a tenth; `nil` is never.
        public var maximumAge: TimeAmount?
        /// The first pause after a connection could not be made; see ``ConnectionPool/Configuration/reconnectPause``.
        public var reconnectPause = TimeAmount.milliseconds(250)
        /// The longest pause between attempts.
        public var longestReconnectPause = TimeAmount.seconds(30)
        /// Looks up host names; `nil` asks the system. Asked anew for each connection.
        var resolver: (any Resolver & Sendable)?

        /// Takes the endpoint and the TLS context; the rest has defaults.
        public init(endpoint: APNSEndpoint, tls: TLSContext) {
            self.endpoint = endpoint
            self.tls = tls
        }

        /// - Parameter jitter: from 0 to 1, evenly distributed.
        func connectionLimits(jitter: Double) -> GatewayConnectionState.Limits {
            var limits = GatewayConnectionState.Limits()
            limits.windowCount = windowCount
            limits.windowBytes = windowBytes
            limits.confirmAfter = confirmAfter
            limits.sendsBarriers = sendsBarriers && frame.hasIdentifier
            limits.stallTimeout = stallTimeout
            limits.maximumAge = age(jitter: jitter)
            return limits
        }

        var batching: GatewayConnection.Batching {
            GatewayConnection.Batching(frame: frame, bytes: batchBytes, time: batchTime)
        }
    }
}
