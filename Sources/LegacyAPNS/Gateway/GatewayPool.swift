import APNS
import Logging
import NIOCore
import NIOPosix
import Sockets
import TLS

public protocol GatewayDelegate: TransportDelegate {
    /// Called when notifications that had completed as confirmed turn out to have been dropped.
    /// - Parameters:
    ///   - count: the number of these notifications.
    ///   - token: the device token that the gateway refused, in hexadecimal digits; `nil` if it is no longer known.
    func gateway(dropped count: Int, refusing token: ByteBuffer?, with status: GatewayStatus)
}

extension RequestResult {
    /// The gateway named the notification in an error packet.
    public static func refused(_ status: GatewayStatus) -> RequestResult { .refused(status: status.code) }
}

/// The connections of one certificate to one binary gateway, on one event loop.
///
/// Connections are filled one after the other. If a connection's window is full, or the connection is closing, it is sent a barrier. The
/// barrier's error packet reveals at once which notifications were accepted; without it, that takes ``GatewayOptions/confirmAfter``. In the
/// meantime, further notifications use the next connection, so they are sent nearly in order. If the maximum is one connection, they wait,
/// and are sent exactly in order.
public final class GatewayPool: PooledTransport {
    /// Receives further events if it is a ``GatewayDelegate``.
    public var delegate: (any TransportDelegate)? { didSet { for pool in isolated { pool.delegate = delegate } } }
    public var confirmationTime: TimeAmount { confirmAfter }

    private let configuration: Configuration
    private let eventLoop: any EventLoop
    private let logger: Logger
    public let connections: PoolConnections<GatewayPool>
    private var adaptiveWindow = AdaptiveWindow()
    /// ``GatewayOptions/confirmAfter``, raised after each late error packet.
    private var confirmAfter: TimeAmount
    /// The number of consecutive connections, of this pool and its isolated pools, that were closed at their first notifications.
    private var hangUps = 0
    public var isolated: [GatewayPool] = []
    /// The pool whose isolated pools include this one.
    private weak var parent: GatewayPool?

    /// The maximum to which ``GatewayOptions/confirmAfter`` is raised, unless it is configured to be longer.
    private static let longestConfirmation = TimeAmount.minutes(10)
    /// From this number of ``hangUps`` on, the certificate is the likely cause.
    private static let patience = 3
    /// The maximum number of notifications on a connection of ``Isolation/withFew``. If one ends the connection, each is resent alone.
    private static let few = 16

    public init(_ configuration: Configuration, eventLoop: any EventLoop, logger: Logger) {
        self.configuration = configuration
        confirmAfter = .milliseconds(Int64(configuration.options.confirmAfter))
        self.eventLoop = eventLoop
        self.logger = logger
        connections = PoolConnections(
            configuration.connections, of: "the gateway", eventLoop: eventLoop, logger: logger)
        connections.belong(to: self)
    }

    public func capacity(in isolation: Isolation) -> Int {
        guard isolation == .shared else { return pool(isolation)?.capacity ?? 0 }
        guard
            !keepsOrder
                || !connections.all.contains(where: { $0.state.phase == .draining && $0.state.window.count > 0 })
        else { return 0 }
        var capacity = 0
        for connection in connections.all { capacity += connection.state.capacity(limit: adaptiveWindow.limit) }
        guard hangUps > 0 else { return capacity }
        // Until a notification is accepted, only one is sent at a time, because anything sent may be lost. Isolated pools send few anyway.
        return min(capacity, connections.all.contains { $0.state.window.count > 0 } ? 0 : 1)
    }

    /// The number of streams is the number of unconfirmed notifications.
    public var statistics: PoolStatistics { connections.statistics }

    /// Sends a notification on the first connection that has capacity.
    public func submit(_ notification: consuming Notification, tag: UInt64, in isolation: Isolation) -> Bool {
        guard isolation == .shared else {
            return pool(isolation)?.submit(consume notification, tag: tag, in: .shared) ?? false
        }
        guard hangUps == 0 && !keepsOrder || capacity > 0,
            let connection = connections.all.first(where: { $0.state.capacity(limit: adaptiveWindow.limit) > 0 })
        else { return false }
        connection.submit(notification, tag: tag)
        if connection.state.isFull, connection.state.options.hasBarriers {
            connection.drain()
        } else if connection.state.isFilling, connections.state.usable == 1, adaptiveWindow.limit == .max {
            // Another connection is opened early, so that it is ready when this one is full.
            connections.openAnother(now: eventLoop.now)
        }
        return true
    }

    /// Opens another connection if allowed. If the maximum is one connection, drains it when it is nearly full: a lane claims no jobs for
    /// the few free places, so the window would never become full.
    public func requestCapacity(in isolation: Isolation) {
        guard isolation == .shared else {
            isolate()
            pool(isolation)?.requestCapacity(in: .shared)
            return
        }
        if keepsOrder,
            let full = connections.all.first(where: { $0.state.isNearlyFull && $0.state.options.hasBarriers })
        {
            return full.drain()
        }
        // A narrowed window applies to all connections; opening another would defeat it.
        guard connections.state.usable == 0 || (adaptiveWindow.limit == .max && hangUps == 0 && capacity == 0) else {
            return
        }
        connections.openAnother(now: eventLoop.now)
    }

    /// True if nothing may be sent before the outcomes on other connections are known. Notifications are then sent in order.
    private var keepsOrder: Bool { configuration.maximumConnections == 1 }

    /// Sends a barrier on each connection, to learn the outcomes of what was sent.
    public func flushConfirmations() {
        for connection in connections.all where connection.state.window.count > 0 { connection.drain() }
        for pool in isolated { pool.flushConfirmations() }
    }

    /// Confirms notifications by age, closes connections that are silent, worn out or superfluous, and opens others.
    public func check(now: NIODeadline) {
        adaptiveWindow.check(window: configuration.options.windowCount, now: now)
        for connection in connections.all { connection.check(now: now) }
        for connection in connections.all where connection.state.isWornOut(now: now) {
            connections.logReplacement(of: 1, reason: "it is too old")
            connection.drain()
        }
        connections.superfluous(now: now)?.drain()
        connections.open(now: now)
        for pool in isolated { pool.check(now: now) }
    }

    public func stoodStill(for time: TimeAmount, now: NIODeadline) {
        for connection in connections.all { connection.stoodStill(for: time, now: now) }
        for pool in isolated { pool.stoodStill(for: time, now: now) }
    }

    /// Does nothing: the gateway has no provider tokens.
    public func setProviderToken(_: String?) {}

    /// Drains all connections, and opens others.
    public func replaceConnections(reason: String) {
        for pool in isolated { pool.replaceConnections(reason: reason) }
        guard !connections.isClosing, !connections.all.isEmpty else { return }
        connections.logReplacement(of: connections.all.count, reason: reason)
        // The new certificate may be accepted.
        hangUps = 0
        connections.outdate()
        for connection in connections.all { connection.drain() }
    }

    /// Does the same as ``replaceConnections(reason:)``, which stops sending on the old connections at once.
    public func retireConnections(reason: String) { replaceConnections(reason: reason) }
}

// MARK: Isolation

extension GatewayPool {
    public func makePool(
        of isolation: Isolation, _ connections: PoolConfiguration, logger: Logger
    ) -> GatewayPool {
        var own = configuration
        own.connections = connections
        own.options.windowCount = isolation == .alone ? 1 : min(own.options.windowCount, Self.few)
        let pool = GatewayPool(own, eventLoop: eventLoop, logger: logger)
        (pool.delegate, pool.parent, pool.confirmAfter) = (delegate, self, confirmAfter)
        return pool
    }
}

extension GatewayPool {
    public func makeConnection() -> GatewayConnection {
        var state = GatewayConnectionState(
            configuration.options, stallTimeout: configuration.stallTimeout,
            maximumAge: configuration.connections.age(jitter: .random(in: 0..<1)))
        state.confirm(after: confirmAfter)
        return GatewayConnection(state, owner: self)
    }

    public func tune(_ bootstrap: ClientBootstrap) -> ClientBootstrap {
        // The protocol has no PING: only TCP's keep-alive detects that an idle gateway is unreachable.
        bootstrap.channelOption(.socketOption(.so_keepalive), value: 1)
    }

    public func connected(_ connection: GatewayConnection, isOutdated: Bool) {
        AddressMemory.shared.worked(connection.membership.address)
        if isOutdated { connection.drain() }
    }

    public func closed() { delegate = nil }
}

/// Events of connections.
extension GatewayPool {
    private func worked() {
        main.hangUps = 0
        connections.worked()
    }

    /// Called when the connection's capacity has changed.
    func connectionChanged(_ connection: GatewayConnection) {
        connections.changed(connection)
        if connection.state.isProven { worked() }
        delegate?.transportChanged(self)
    }

    func connection(_ connection: GatewayConnection, completed tag: UInt64, with result: RequestResult) {
        delegate?.transport(self, completed: tag, with: result)
    }

    /// Called when an error packet has arrived.
    /// - Parameter progress: the number of notifications accepted on this connection before the named one.
    func connection(
        _ connection: GatewayConnection, answered packet: GatewayPacket, progress: Int,
        findings: UnconfirmedWindow.Findings
    ) {
        if connection.state.isProven { worked() }
        if packet.identifier != connection.state.window.barrier, packet.status != .shutdown {
            adaptiveWindow.refused(progress: progress, now: eventLoop.now)
        }
        guard findings.lost > 0 else { return }
        let before = confirmAfter
        confirmAfter = max(before, min(max(before + before, .seconds(1)), Self.longestConfirmation))
        for connection in connections.all { connection.confirm(after: confirmAfter) }
        for pool in isolated { pool.confirmAfter = confirmAfter }
        logger.error(
            """
            the gateway dropped notifications that counted as delivered, because its error packet came later than \
            \(before.formatted) after they were sent; they are confirmed after \(confirmAfter.formatted) from \
            now on, until a restart. Raise gateway.confirm_after
            """,
            metadata: [
                "event": "gateway_packet_late", "endpoint": "\(endpoint)", "status": "\(packet.status)",
                "count": "\(findings.lost)",
            ])
        (delegate as? any GatewayDelegate)?
            .gateway(dropped: findings.lost, refusing: findings.lateToken, with: packet.status)
    }

    private var main: GatewayPool { parent ?? self }

    /// True if another connection has sent notifications that may still be accepted.
    private func hasUnconfirmed(besides connection: GatewayConnection) -> Bool {
        connections.all.contains { $0 !== connection && $0.state.window.count > 0 }
            || isolated.contains { $0.hasUnconfirmed(besides: connection) }
    }

    /// Returns the result of the notifications in a lost connection's window. A notification that was not alone need not be the cause. The
    /// certificate need not be the cause either, if other connections may still be accepted.
    func uncertainResult(of connection: GatewayConnection) -> RequestResult {
        let why = "it was closed without an error packet"
        let window = connection.state.window
        if window.count > 1 { adaptiveWindow.refused(progress: Int(window.first) - 1, now: eventLoop.now) }
        let isHangUp =
            connection.state.phase == .open && !connection.state.isProven && !connection.isGivenUp
            && !connections.isClosing
        if isHangUp { main.hangUps += 1 }
        if isHangUp, main.hangUps >= Self.patience, !main.hasUnconfirmed(besides: connection) {
            return .uncertain(.hungUp)
        }
        return .uncertain(window.count > 1 ? .lostWithOthers(why) : .connectionLost(why))
    }

    /// Called when the connection has closed, after all its notifications have completed.
    func connectionClosed(_ connection: GatewayConnection, error: any Error) { connections.closed(connection, error) }
}

extension GatewayPool {
    @dynamicMemberLookup
    public struct Configuration: Sendable {
        /// The maximum number of connections does not include draining ones.
        public var connections: PoolConfiguration
        public var options: GatewayOptions
        /// The maximum time for which written data may be unacknowledged.
        public var stallTimeout = TimeAmount.seconds(20)

        public init(_ connections: PoolConfiguration, _ options: GatewayOptions = GatewayOptions()) {
            self.connections = connections
            self.options = options
        }

        public subscript<Value>(dynamicMember path: WritableKeyPath<PoolConfiguration, Value>) -> Value {
            get { connections[keyPath: path] }
            set { connections[keyPath: path] = newValue }
        }
    }
}
