import Logging
import NIOCore
import NIOPosix
import Sockets

/// A connection of a pool, whatever its protocol.
public protocol PooledConnection: AnyObject {
    var membership: PoolMembership { get set }
    /// True until TLS is set up.
    var isConnecting: Bool { get }
    /// True if it accepts notifications.
    var isUsable: Bool { get }
    /// True if it finishes what is in flight and closes.
    var isDraining: Bool { get }
    /// The number of notifications in flight, and their maximum.
    var load: (inFlight: Int, limit: Int) { get }
    /// The last time at which a notification was in flight.
    var lastUsed: NIODeadline { get }
    /// True if its end is expected: this side wanted it, or the server gave the reason.
    var endsAsExpected: Bool { get }

    /// Returns true if the connection has worked, so that the next one probably will.
    /// - Parameter lasted: true if it was usable for some time. A server may close a connection that is not used.
    func hasWorked(lasted: Bool) -> Bool
    /// Adds its handlers to a channel whose TCP connection is established.
    /// - Parameter secure: adds TLS, below the handlers that the channel has by then.
    func install(on channel: any Channel, secure: () throws -> Void) throws
    /// Finishes what is in flight, and closes.
    /// - Parameter reason: for the log.
    func retire(reason: String)
    func close(_ error: any Error)
    /// Records that the connection could not be made.
    func failed(_ error: any Error)
}

/// A pool's record of one of its connections.
public struct PoolMembership {
    /// The pool's generation when the connection's TLS context was chosen.
    fileprivate var generation = 0
    /// The server's address, or the proxy's, once TCP is established.
    public fileprivate(set) var address: SocketAddress?
    /// True while ``ConnectionPoolState`` counts it as usable.
    fileprivate var isCounted = false
    /// The time at which it became usable; `nil` until then.
    fileprivate(set) var usableSince: NIODeadline?
    /// True while another connection is taking its place.
    fileprivate(set) var isBeingReplaced = false
    /// Closes it if the TLS handshake takes too long.
    fileprivate var handshakeTimer: TimeLimit?

    public init() {}
}

/// A pool, which decides what is special to its protocol.
public protocol PoolOwner: AnyObject {
    associatedtype Connection: PooledConnection

    /// True if nothing but the connections keeps the pool from being closed.
    var canClose: Bool { get }

    func makeConnection() -> Connection
    func tune(_ bootstrap: ClientBootstrap) -> ClientBootstrap
    /// Called when a connection has become usable.
    /// - Parameter isOutdated: true if all connections were replaced while it was being made.
    func connected(_ connection: Connection, isOutdated: Bool)
    /// Called when a connection has failed or ended.
    func connectionsChanged()
    /// Called when all connections have closed after ``PoolConnections/close()``.
    func closed()
}

/// The connections of a pool: opens, adopts, counts and closes them, whatever their protocol.
///
/// Belongs to the pool's event loop.
public final class PoolConnections<Owner: PoolOwner> {
    public typealias Connection = Owner.Connection

    public var state: ConnectionPoolState
    public var failures: ConnectionFailures
    /// The connections whose TCP connection is established.
    public private(set) var all: [Connection] = []

    private let eventLoop: any EventLoop
    private let logger: Logger
    /// The server's name in log messages.
    private let service: StaticString
    /// The pool, which has these connections, until it is closed. A weak reference would make each of its uses by a
    /// request slower.
    private var owner: Owner?
    private var generation = 0
    private var closing: EventLoopPromise<Void>?

    /// - Parameter service: the server's name in log messages.
    public init(
        _ configuration: PoolConfiguration, of service: StaticString, eventLoop: any EventLoop, logger: Logger
    ) {
        state = ConnectionPoolState(configuration)
        failures = ConnectionFailures(service, configuration.endpoint, logger)
        self.eventLoop = eventLoop
        self.logger = logger
        self.service = service
    }

    /// Sets the pool. Call this before anything else.
    public func belong(to owner: Owner) { self.owner = owner }

    public var configuration: PoolConfiguration {
        get { state.configuration }
        set { state.configuration = newValue }
    }

    public var isClosing: Bool { closing != nil }

    public var statistics: PoolStatistics {
        var statistics = PoolStatistics()
        statistics.connecting = state.connecting
        statistics.usable = state.usable
        statistics.made = state.made
        statistics.failures = state.failures
        for connection in all {
            let load = connection.load
            statistics.streamsInUse += load.inFlight
            if connection.isUsable { statistics.streamLimit += load.limit }
            if connection.isDraining { statistics.draining += 1 }
        }
        return statistics
    }

    // MARK: Opening

    /// Opens the connections that are wanted and allowed now.
    public func open(now: NIODeadline) {
        for _ in 0..<state.connectionsToOpen(now: now) { open() }
    }

    /// Opens another connection, if that is allowed now.
    public func openAnother(now: NIODeadline) {
        state.wantConnection()
        open(now: now)
    }

    private func open() {
        guard let owner else { return }
        let connection = owner.makeConnection()
        // A change of the credential while it connects makes it a connection of the old one.
        connection.membership.generation = generation
        let dialer = configuration.dialer
        let bound = NIOLoopBound((self, connection), eventLoop: eventLoop)
        dialer.connect(on: eventLoop, owner.tune).assumeIsolated().whenComplete { result in
            let (pool, connection) = bound.value
            switch result {
            case .success(let channel): pool.adopt(connection, on: channel, dialer)
            case .failure(let error):
                pool.failed(dialer.cannotConnect(error), wasConnecting: true)
                pool.finishClosing()
            }
        }
    }

    /// Starts the protocol on a channel whose TCP connection is established. Not earlier, because several addresses of
    /// a host may be tried, each on its own channel, and the connection belongs to the one that succeeds.
    private func adopt(_ connection: Connection, on channel: any Channel, _ dialer: Dialer) {
        connection.membership.address = channel.remoteAddress
        all.append(connection)
        do {
            try connection.install(on: channel) {
                try dialer.secure(channel, onTLS: { [self] in limitHandshake(of: connection) })
            }
        } catch {
            // The channel has closed already.
            channel.close(promise: nil)
            return connection.failed(dialer.cannotConnect(error))
        }
        if isClosing { connection.close(APNSConnectionError.shutdown(configuration.endpoint)) }
    }

    /// Closes a connection if its TLS handshake exceeds the timeout. The proxy's answer has its own timeout.
    private func limitHandshake(of connection: Connection) {
        let (endpoint, timeout) = (configuration.endpoint, configuration.connectTimeout)
        connection.membership.handshakeTimer = TimeLimit(in: timeout, on: eventLoop) {
            guard connection.isConnecting else { return }
            connection.close(
                APNSConnectionError.unresponsive(endpoint, "TLS was not set up within \(timeout.formatted)"))
        }
    }

    // MARK: Replacing

    /// Replaces connections with new ones. Each works until its replacement is ready.
    /// - Parameter reason: for the log.
    func replace(_ old: [Connection], reason: String, now: NIODeadline) {
        let old = old.filter(\.isUsable)
        guard !isClosing, !old.isEmpty else { return }
        let inUse = all.count {
            $0.isUsable && ($0.load.inFlight > 0 || now - $0.lastUsed < ConnectionPoolState.inUse)
        }
        for connection in old { connection.membership.isBeingReplaced = true }
        state.replace(old.count, inUse: inUse)
        logger.info(
            "replacing connections to \(service): \(reason)",
            metadata: [
                "event": "apns_connections_replaced", "endpoint": "\(configuration.endpoint)",
                "connections": "\(old.count)",
            ])
        retireOutgoing()
        open(now: now)
    }

    /// Retires the outgoing connections that have been replaced.
    func retireOutgoing() {
        // Each retirement changes the count, and may call this function again.
        while state.outgoing > 0, state.outgoingToRetire(ready: readyConnections) > 0,
            let next = all.first(where: { $0.membership.isBeingReplaced && $0.isUsable })
        {
            next.retire(reason: "another one replaces it")
        }
    }

    /// Connections that stay and have received the server's SETTINGS: before that they cannot take over requests.
    private var readyConnections: Int { all.count { $0.isUsable && !$0.membership.isBeingReplaced } }

    /// Returns the connection that has been idle for the longest time, if it is not needed.
    public func superfluous(now: NIODeadline) -> Connection? {
        let idle = all.lazy.filter { $0.isUsable && $0.load.inFlight == 0 }
        guard let idlest = idle.min(by: { $0.lastUsed < $1.lastUsed }),
            state.isSuperfluous(lastUsed: idlest.lastUsed, now: now)
        else { return nil }
        return idlest
    }

    /// Marks all present connections, and those being made, as outdated.
    public func outdate() { generation += 1 }

    // MARK: Events

    /// Counts a connection whose usability may have changed, and replaces one that is no longer usable.
    public func changed(_ connection: Connection) {
        guard connection.membership.isCounted != connection.isUsable else { return }
        guard connection.isUsable else {
            uncount(connection)
            // Another connection must exist before notifications for it are claimed. If this one was refused before it
            // worked, its end decides when.
            if connection.endsAsExpected || connection.hasWorked(lasted: false) { open(now: eventLoop.now) }
            return
        }
        connection.membership.isCounted = true
        connection.membership.usableSince = eventLoop.now
        endHandshake(of: connection)
        state.connected()
        logger.debug(
            "connected to \(service)",
            metadata: [
                "event": "apns_connected", "endpoint": "\(configuration.endpoint)", "connections": "\(state.usable)",
            ])
        owner?.connected(connection, isOutdated: connection.membership.generation < generation)
    }

    /// Judges and removes a connection that has closed, and replaces it.
    public func closed(_ connection: Connection, _ error: any Error) {
        guard let index = all.firstIndex(where: { $0 === connection }) else { return }
        all.remove(at: index)
        endHandshake(of: connection)
        let now = eventLoop.now
        let usableSince = connection.membership.usableSince
        uncount(connection)
        if isClosing {
            if usableSince == nil { state.failed(wasConnecting: true, now: now, jitter: 0) }
            return finishClosing()
        }
        let isBreach = (error as? APNSConnectionError)?.isBreach ?? false
        if !isBreach, usableSince != nil, connection.endsAsExpected {
            logger.debug(
                "\(error)", metadata: ["event": "apns_connection_closed", "endpoint": "\(configuration.endpoint)"])
            owner?.connectionsChanged()
        } else if !isBreach, connection.hasWorked(lasted: usableSince.map { now - $0 > .seconds(10) } ?? false) {
            logger.info(
                "a connection to \(service) ended: \(error)",
                metadata: ["event": "apns_connection_ended", "endpoint": "\(configuration.endpoint)"])
            owner?.connectionsChanged()
        } else {
            // After a breach, however well it worked before: reconnecting at once would invite the next one.
            failed(error, at: connection.membership.address, wasConnecting: usableSince == nil)
        }
        open(now: now)
    }

    /// Records that a connection has got its first answer, or has lasted.
    public func worked() { failures.worked(&state) }

    /// - Parameter address: the address that accepted a connection of TCP, if one did.
    private func failed(_ error: any Error, at address: SocketAddress? = nil, wasConnecting: Bool) {
        failures.failed(error, at: address, wasConnecting: wasConnecting, &state, now: eventLoop.now)
        owner?.connectionsChanged()
    }

    private func endHandshake(of connection: Connection) {
        connection.membership.handshakeTimer?.cancel()
        connection.membership.handshakeTimer = nil
    }

    private func uncount(_ connection: Connection) {
        guard connection.membership.isCounted else { return }
        connection.membership.isCounted = false
        state.retired(wasOutgoing: connection.membership.isBeingReplaced)
        connection.membership.isBeingReplaced = false
    }

    // MARK: Closing

    /// Finishes what is in flight, and closes all connections.
    public func close() -> EventLoopFuture<Void> {
        if let closing { return closing.futureResult }
        let promise = eventLoop.makePromise(of: Void.self)
        closing = promise
        state.close()
        for connection in all { connection.retire(reason: "shutdown") }
        finishClosing()
        return promise.futureResult
    }

    public func closeNow() {
        _ = close()
        for connection in all { connection.close(APNSConnectionError.shutdown(configuration.endpoint)) }
    }

    /// Reports the end of the pool if everything has closed.
    public func finishClosing() {
        guard let closing, all.isEmpty, state.connecting == 0, let owner, owner.canClose else { return }
        owner.closed()
        self.owner = nil
        closing.succeed(())
    }
}
