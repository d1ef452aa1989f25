import APNS
import Logging
import NIOCore
import NIOPosix
import Sockets
import TLS

/// The receiver of a gateway's events.
public protocol GatewayDelegate: TransportDelegate {
    /// Called when notifications that had completed as confirmed turn out to have been dropped.
    /// - Parameters:
    ///   - count: their number.
    ///   - token: the device token that the gateway refused, as hexadecimal digits; `nil` if it is not known any more.
    func gateway(dropped count: Int, refusing token: ByteBuffer?, with status: GatewayStatus)
}

extension RequestResult {
    /// The gateway named it in an error packet.
    public static func refused(_ status: GatewayStatus) -> RequestResult { .refused(status: status.code) }
}

/// The connections of one certificate to one binary gateway, on one event loop.
///
/// Connections are filled one after the other. A connection whose window is full, or that is closing, is sent a bad
/// item. Its error packet reveals at once what would otherwise take ``Configuration/confirmAfter``; further
/// notifications use the next connection. So notifications are sent nearly in order, and exactly in order if the
/// maximum is one connection, because they then wait.
public final class GatewayPool: Transport {
    /// The gateway.
    public var endpoint: APNSEndpoint { configuration.endpoint }
    /// The receiver of completions, and of further events if it is a ``GatewayDelegate``. Held strongly until ``close()``
    /// has completed.
    public var delegate: (any TransportDelegate)?
    /// The error of the last connection that failed; `nil` once a connection has worked.
    public var lastFailure: (any Error)? { failures.last }
    /// See ``Transport/failureCounts``.
    public var failureCounts: [String: Int] { failures.counts }

    private var configuration: Configuration
    private let eventLoop: any EventLoop
    private let logger: Logger
    private var state: ConnectionPoolState
    private var adaptiveWindow = AdaptiveWindow()
    /// The connections whose TCP connection is established.
    private var members: [Member] = []
    private var connections: LazyMapSequence<[Member], GatewayConnection> { members.lazy.map(\.connection) }
    /// Consecutive connections that were accepted, and closed at the first notification.
    private var hangUps = 0
    private var generation = 0
    private var failures: ConnectionFailures
    private var closed: EventLoopPromise<Void>?

    /// The maximum to which ``Configuration/confirmAfter`` is raised, unless it is configured to be longer.
    private static let longestConfirmation = TimeAmount.minutes(10)
    /// The number of ``hangUps`` from which the certificate is the likely cause.
    private static let patience = 3

    /// Creates a pool. ``check(now:)`` opens its connections.
    public init(_ configuration: Configuration, eventLoop: any EventLoop, logger: Logger) {
        self.configuration = configuration
        self.eventLoop = eventLoop
        self.logger = logger
        state = ConnectionPoolState(configuration.poolLimits)
        failures = ConnectionFailures("the gateway", configuration.endpoint, logger)
    }

    /// The number of notifications that can be submitted now.
    public var capacity: Int {
        guard !keepsOrder || !connections.contains(where: { $0.state.phase == .draining && $0.state.window.count > 0 })
        else { return 0 }
        var capacity = 0
        for connection in connections { capacity += connection.state.capacity(limit: adaptiveWindow.limit) }
        guard hangUps > 0 else { return capacity }
        // One at a time until one is accepted, because anything sent may be lost.
        return min(capacity, connections.contains { $0.state.window.count > 0 } ? 0 : 1)
    }

    /// Connections that accept notifications.
    public var usableConnections: Int { state.usable }

    /// See ``Transport/isDormant``.
    public var isDormant: Bool { state.isDormant }

    /// Always answered: the gateway does not answer what it accepts.
    public var answerState: AnswerState { .answered }

    /// The number of connections made since the start.
    public var connectionsMade: Int { state.made }

    /// The state of the connections. Its streams are the windows of unconfirmed notifications.
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

    /// Sends a notification on the first connection that has capacity.
    public func submit(_ notification: consuming Notification, tag: UInt64) -> Bool {
        guard hangUps == 0 && !keepsOrder || capacity > 0,
            let connection = connections.first(where: { $0.state.capacity(limit: adaptiveWindow.limit) > 0 })
        else { return false }
        connection.submit(notification, tag: tag)
        if connection.state.isFull, connection.state.sendsBarriers {
            connection.drain()
        } else if connection.state.isFilling, state.usable == 1, adaptiveWindow.limit == .max {
            // It is ready when this one is full.
            openAnother()
        }
        return true
    }

    /// Opens another connection if allowed. If the maximum is one, drains that connection if it is nearly full: what is
    /// left is too little to be worth a claim, so it would never fill.
    public func requestCapacity() {
        if keepsOrder, let full = connections.first(where: { $0.state.isNearlyFull && $0.state.sendsBarriers }) {
            return full.drain()
        }
        // A narrowed window applies to all connections; opening another would defeat it.
        guard state.usable == 0 || (adaptiveWindow.limit == .max && hangUps == 0 && capacity == 0) else { return }
        openAnother()
    }

    /// True if nothing may be sent before the outcomes on other connections are known.
    private var keepsOrder: Bool { configuration.maximumConnections == 1 }

    private func openAnother() {
        state.wantConnection()
        openConnections(now: eventLoop.now)
    }

    /// Sends a bad item on each connection, to learn the outcomes of what was sent.
    public func flushConfirmations() {
        for connection in connections where connection.state.window.count > 0 { connection.drain() }
    }

    /// Confirms notifications by age, closes connections that are silent, worn out or superfluous, and opens others.
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

    /// See ``Transport/stoodStill(for:now:)``.
    public func stoodStill(for time: TimeAmount, now: NIODeadline) {
        for connection in connections { connection.stoodStill(for: time, now: now) }
    }

    /// Does nothing: the gateway has no provider tokens.
    public func setProviderToken(_: String?) {}

    /// Sets the trust and the certificate of connections made from now on.
    public func setTLS(_ tls: TLSContext) { configuration.tls = tls }

    /// Drains all connections, and opens others.
    public func replaceConnections(reason: String) {
        guard closed == nil, !connections.isEmpty else { return }
        logger.info(
            "replacing connections to the gateway: \(reason)",
            metadata: [
                "event": "apns_connections_replaced", "endpoint": "\(endpoint)", "connections": "\(connections.count)",
            ])
        // Another certificate may be accepted.
        hangUps = 0
        generation += 1
        for connection in connections { connection.drain() }
        openConnections(now: eventLoop.now)
    }

    /// Same as ``replaceConnections(reason:)``, which already stops sending on the old connections.
    public func retireConnections(reason: String) { replaceConnections(reason: reason) }

    /// Finds out the outcomes of what was sent, and closes all connections.
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

    /// Closes all connections at once; unconfirmed notifications complete as uncertain.
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
            // The protocol has no PING: only TCP's keep-alive detects that an idle gateway is unreachable.
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
        member.address = channel.remoteAddress
        do {
            try connection.install(on: channel)
            try dialer.secure(
                channel,
                onTLS: { [self] in
                    member.handshakeTimer = configuration.limitHandshake(of: connection, on: eventLoop)
                })
            try connection.installMeter(on: channel)
        } catch {
            // The channel has already closed.
            channel.close(promise: nil)
            return connection.failed(dialer.cannotConnect(error))
        }
        if closed != nil { connection.close(APNSConnectionError.shutdown(endpoint)) }
    }

    /// - Parameter address: the address that accepted a connection of TCP, if one did.
    private func connectionFailed(_ error: any Error, at address: SocketAddress? = nil, wasConnecting: Bool) {
        failures.failed(error, at: address, wasConnecting: wasConnecting, &state, now: eventLoop.now)
        delegate?.transportChanged(self)
    }

    private func worked() {
        hangUps = 0
        failures.worked(&state, news: "the gateway accepts notifications again")
    }
}

extension GatewayPool {
    /// A connection, and the pool's record of it.
    private final class Member {
        let connection: GatewayConnection
        /// The pool's ``generation`` when its TLS context was chosen.
        let generation: Int
        /// The server's address, or the proxy's, once TCP is established.
        var address: SocketAddress?
        /// True while ``ConnectionPoolState`` counts it as usable.
        var isUsable = false
        /// Closes the connection if the TLS handshake takes too long.
        var handshakeTimer: TimeLimit?

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
                AddressMemory.shared.worked(member.address)
                state.connected()
                logger.debug(
                    "connected to the gateway",
                    metadata: ["event": "apns_connected", "endpoint": "\(endpoint)", "connections": "\(state.usable)"])
                // All connections were replaced while this one was being made.
                if member.generation < generation { return connection.drain() }
            } else {
                state.retired()
                // Another connection must exist before notifications for it are claimed.
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
        (delegate as? any GatewayDelegate)?
            .gateway(dropped: findings.lost, refusing: findings.lateToken, with: packet.status)
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
            connectionFailed(error, at: member.address, wasConnecting: wasConnecting)
        }
        openConnections(now: eventLoop.now)
        finishClosing()
    }
}

extension GatewayPool {
    /// Settings for connecting, batching and waiting.
    public struct Configuration: Sendable, PoolConfiguration {
        /// The gateway.
        public var endpoint: APNSEndpoint
        /// Trust, and the client certificate.
        public var tls: TLSContext
        /// The proxy to connect through; it also resolves the endpoint's name.
        public var proxy: HTTPProxy?
        /// Minimum connections, kept open even while nothing is sent.
        public var minimumConnections = 1
        /// Maximum connections, not counting draining ones.
        public var maximumConnections = 4
        /// The protocol's command to use.
        public var frame = GatewayFrame.items
        /// Maximum bytes per write, unless a single frame is larger.
        public var batchBytes = 16_384
        /// The time for which a write waits for more notifications.
        public var batchTime = TimeAmount.milliseconds(2)
        /// The time after its arrival from which a notification without an error packet counts as accepted.
        public var confirmAfter = TimeAmount.seconds(2)
        /// True if a draining connection is sent a deliberately bad item, to learn the outcomes at once.
        public var sendsBarriers = true
        /// Maximum unconfirmed notifications per connection.
        public var windowCount = 5000
        /// Maximum bytes of their frames.
        public var windowBytes = 32 << 20
        /// The timeout of each step: TCP, the proxy's answer, and TLS.
        public var connectTimeout = TimeAmount.seconds(10)
        /// The maximum time for which written data may be unacknowledged.
        public var stallTimeout = TimeAmount.seconds(20)
        /// The idle time after which a connection beyond the minimum is closed.
        public var idleTimeout = TimeAmount.minutes(5)
        /// The age at which a connection is replaced, less up to a tenth; `nil` for never.
        public var maximumAge: TimeAmount?
        /// The first pause after a failed attempt; see ``ConnectionPool/Configuration/reconnectPause``.
        public var reconnectPause = TimeAmount.milliseconds(250)
        /// The longest pause between attempts.
        public var longestReconnectPause = TimeAmount.seconds(30)
        /// Resolves host names, for each connection again; `nil` uses the system's resolver.
        package var resolver: (any Resolver & Sendable)?

        /// Creates a configuration with default values for everything else.
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
