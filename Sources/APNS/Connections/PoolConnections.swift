import Logging
import NIOCore
import NIOPosix
import Sockets
import TLS

/// A connection of a pool, whatever its protocol.
public protocol PooledConnection: AnyObject {
    var membership: PoolMembership { get set }
    /// True until TLS is set up.
    var isConnecting: Bool { get }
    /// True if the connection accepts notifications.
    var isUsable: Bool { get }
    /// True if the connection accepts no more notifications, and closes when the notifications in flight are finished.
    var isDraining: Bool { get }
    /// The number of notifications in flight, and their maximum.
    var load: (inFlight: Int, limit: Int) { get }
    /// The last time when a notification was in flight.
    var lastUsed: NIODeadline { get }
    /// True if the end of the connection is expected, because this side wanted it or the server gave a reason.
    var endsAsExpected: Bool { get }

    /// Returns true if the connection has worked, so the next one will probably work.
    /// - Parameter lasted: true if the connection was usable for some time. This is enough if nothing was sent, because servers may close
    ///   unused connections.
    func hasWorked(lasted: Bool) -> Bool
    /// Adds the connection's handlers to a channel whose TCP connection is established.
    /// - Parameter secure: adds TLS, below the handlers that the channel has by then.
    func install(on channel: any Channel, secure: () throws -> Void) throws
    /// Finishes the notifications in flight, and closes the connection.
    /// - Parameter reason: for the log.
    func retire(reason: String)
    func close(_ error: any Error)
    /// Records that the connection could not be made.
    func failed(_ error: any Error)
}

/// A pool's record of a connection.
public struct PoolMembership {
    /// The pool's generation when the connection's TLS context was chosen.
    fileprivate var generation = 0
    /// The server's address, or the proxy's, once TCP is established.
    public fileprivate(set) var address: SocketAddress?
    /// True while ``ConnectionPoolState`` counts the connection as usable.
    fileprivate var isCounted = false
    /// The time at which the connection became usable; `nil` until then.
    fileprivate(set) var usableSince: NIODeadline?
    /// True while another connection is being made to replace this one.
    fileprivate(set) var isBeingReplaced = false
    /// Closes the connection if the TLS handshake takes too long.
    fileprivate var handshakeTimer: TimeLimit?

    public init() {}
}

/// A transport with a pool of connections. Each type implements the parts that differ between protocols. Isolated notifications have pools
/// of their own.
public protocol PooledTransport: Transport {
    associatedtype Connection: PooledConnection

    var connections: PoolConnections<Self> { get }
    /// The pools of isolated notifications, ``Isolation/withFew`` and ``Isolation/alone``; empty before the first isolated notification.
    var isolated: [Self] { get set }

    /// Makes the pool of an isolation.
    /// - Parameters:
    ///   - connections: the settings of its connections.
    ///   - logger: a logger that logs nothing: these connections are expected to be lost, and the sender logs the notifications that are
    ///     the cause.
    func makePool(of isolation: Isolation, _ connections: PoolConfiguration, logger: Logger) -> Self
    func makeConnection() -> Connection
    func tune(_ bootstrap: ClientBootstrap) -> ClientBootstrap
    /// Called when a connection has become usable.
    /// - Parameter isOutdated: true if all connections were replaced while it was being made.
    func connected(_ connection: Connection, isOutdated: Bool)
    /// Called when all connections have closed after ``PoolConnections/close()``.
    func closed()
}

extension PooledTransport {
    public var endpoint: APNSEndpoint { connections.configuration.endpoint }
    public var usableConnections: Int { connections.state.usable }
    public var isDormant: Bool { connections.state.isDormant }
    public var lastFailure: (any Error)? { connections.lastFailure }
    public var failureCounts: [String: Int] {
        isolated.reduce(connections.failureCounts) { $0.merging($1.connections.failureCounts, uniquingKeysWith: +) }
    }

    /// Sets the TLS context of new connections; see ``Transport/replaceConnections(reason:)`` for existing ones.
    public func setTLS(_ tls: TLSContext) {
        connections.configuration.tls = tls
        for pool in isolated { pool.connections.configuration.tls = tls }
    }

    public func pool(_ isolation: Isolation) -> Self? {
        switch isolation {
        case .shared: self
        case .withFew: isolated.first
        case .alone: isolated.last
        }
    }

    /// Makes the pools of isolated notifications, unless they exist or the pool is closing.
    public func isolate() {
        guard isolated.isEmpty, !connections.isClosing else { return }
        var quiet = connections.logger
        quiet.logLevel = .critical
        isolated = [Isolation.withFew, .alone].map {
            makePool(of: $0, connections.configuration.isolated, logger: quiet)
        }
    }

    public func close() -> EventLoopFuture<Void> {
        for pool in isolated where !connections.isClosing {
            pool.close().assumeIsolated().whenComplete { [self] _ in
                isolated.removeAll { $0 === pool }
                connections.finishClosing()
            }
        }
        return connections.close()
    }

    public func closeNow() {
        _ = close()
        for pool in isolated { pool.closeNow() }
        connections.closeNow()
    }
}

/// The connections of a pool: opens, adopts, counts and closes them, whatever their protocol.
///
/// Belongs to the pool's event loop.
public final class PoolConnections<Owner: PooledTransport> {
    public typealias Connection = Owner.Connection

    public var state: ConnectionPoolState
    /// The connections whose TCP connection is established.
    public private(set) var all: [Connection] = []

    private let eventLoop: any EventLoop
    let logger: Logger
    /// The server's name in log messages.
    private let service: StaticString
    /// The pool that owns these connections; `nil` once it is closed. Not weak: a weak reference would make each request slower.
    private var owner: Owner?
    private var generation = 0
    private var closing: EventLoopPromise<Void>?
    /// The error of the last connection that could not be made or was retired unanswered; `nil` once a connection has
    /// worked.
    private(set) var lastFailure: (any Error)?
    /// True if ``lastFailure`` is about a connection that was made, and retired because its requests got no answer.
    private(set) var isFailureOfAnswers = false
    private(set) var failureCounts: [String: Int] = [:]
    private var failureLoggedAt = NIODeadline.distantPast
    /// True if a failure has been logged since a connection last worked.
    private(set) var isFailureLogged = false

    /// - Parameter service: the server's name in log messages.
    public init(
        _ configuration: PoolConfiguration, of service: StaticString, eventLoop: any EventLoop, logger: Logger
    ) {
        state = ConnectionPoolState(configuration)
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
        for pool in owner?.isolated ?? [] { statistics.streamsInUse += pool.connections.statistics.streamsInUse }
        return statistics
    }

    // MARK: Opening

    /// Opens the connections that are wanted and allowed now.
    public func open(now: NIODeadline) {
        for _ in 0..<state.connectionsToOpen(now: now) { open() }
    }

    public func openAnother(now: NIODeadline) {
        state.wantConnection()
        open(now: now)
    }

    private func open() {
        guard let owner else { return }
        let connection = owner.makeConnection()
        // If the credential changes while the connection is being made, the connection still has the old credential.
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

    /// Starts the protocol on a channel whose TCP connection is established. It cannot start earlier: several addresses of a host may be
    /// tried, each on its own channel, and only one succeeds.
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
        logReplacement(of: old.count, reason: reason)
        retireOutgoing()
        open(now: now)
    }

    public func logReplacement(of count: Int, reason: String) {
        logger.info(
            "replacing connections to \(service): \(reason)",
            metadata: [
                "event": "apns_connections_replaced", "endpoint": "\(configuration.endpoint)",
                "connections": "\(count)",
            ])
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

    /// The number of connections that are not being replaced and have the server's SETTINGS, without which they cannot take over requests.
    private var readyConnections: Int { all.count { $0.isUsable && !$0.membership.isBeingReplaced } }

    /// Returns the connection that has been idle for the longest time, if it is not needed.
    public func superfluous(now: NIODeadline) -> Connection? {
        let idle = all.lazy.filter { $0.isUsable && $0.load.inFlight == 0 }
        guard let idlest = idle.min(by: { $0.lastUsed < $1.lastUsed }),
            state.isSuperfluous(lastUsed: idlest.lastUsed, now: now)
        else { return nil }
        return idlest
    }

    /// Marks all present connections, and all that are being made, as outdated.
    public func outdate() { generation += 1 }

    // MARK: Events

    /// Counts a connection that has become usable, and replaces one that is no longer usable.
    public func changed(_ connection: Connection) {
        guard connection.membership.isCounted != connection.isUsable else { return }
        guard connection.isUsable else {
            uncount(connection)
            // A replacement must exist before the lane claims more notifications. If this connection never worked, ``closed(_:_:)`` opens
            // the next one after a pause.
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

    /// Removes a connection that has closed, records its failure, if any, and replaces it.
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
            connectionsChanged()
        } else if !isBreach, connection.hasWorked(lasted: usableSince.map { now - $0 > .seconds(10) } ?? false) {
            logger.info(
                "a connection to \(service) ended: \(error)",
                metadata: ["event": "apns_connection_ended", "endpoint": "\(configuration.endpoint)"])
            connectionsChanged()
        } else {
            // A breach counts as a failure even if the connection worked before: the server may break the protocol again at once.
            failed(error, at: connection.membership.address, wasConnecting: usableSince == nil)
        }
        open(now: now)
    }

    private func connectionsChanged() {
        if let owner { owner.delegate?.transportChanged(owner) }
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

    // MARK: Failures

    /// Records that a connection could not be made, or closed without ever having worked. Logs the first failure of an
    /// incident, and then at most one reminder per minute.
    /// - Parameter address: the address that accepted the TCP connection, if any. It is avoided for some minutes.
    private func failed(_ error: any Error, at address: SocketAddress? = nil, wasConnecting: Bool) {
        let now = eventLoop.now
        AddressMemory.shared.failed(address)
        let pause = state.failed(wasConnecting: wasConnecting, now: now, jitter: .random(in: 0..<1))
        let shown = AddressedError(error: error, place: ConnectFailure.place(address, of: configuration.endpoint.host))
        (lastFailure, isFailureOfAnswers) = (shown, false)
        failureCounts[APNSConnectionError.code(for: error), default: 0] += 1
        if !isFailureLogged || now - failureLoggedAt > .seconds(60) {
            (failureLoggedAt, isFailureLogged) = (now, true)
            logger.error(
                "no connection to \(service): \(shown)",
                metadata: [
                    "event": "apns_connection_failed", "endpoint": "\(configuration.endpoint)",
                    "failures": "\(state.failures)", "retry_in_ms": "\(pause.nanoseconds / 1_000_000)",
                ])
        }
        connectionsChanged()
    }

    /// Records that a connection was retired because its requests got no answer. Lanes log this once for all
    /// connections.
    /// - Parameter pauses: true if the next connection should wait, because no other connection is answered either.
    func unanswered(_ error: any Error, pauses: Bool, now: NIODeadline) {
        failureCounts[APNSConnectionError.code(for: error), default: 0] += 1
        guard pauses else { return }
        (lastFailure, isFailureOfAnswers) = (error, true)
        state.failed(wasConnecting: false, now: now, jitter: .random(in: 0..<1))
    }

    /// Records that a connection works: it has got its first answer, or was usable for some time.
    public func worked() {
        if isFailureLogged {
            logger.notice(
                "connected to \(service) again",
                metadata: ["event": "apns_connection_restored", "endpoint": "\(configuration.endpoint)"])
        }
        isFailureLogged = false
        state.worked()
        (lastFailure, isFailureOfAnswers) = (nil, false)
    }

    // MARK: Closing

    /// Finishes the requests in flight, and closes all connections.
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

    /// Completes ``close()`` if all connections have closed.
    public func finishClosing() {
        guard let closing, all.isEmpty, state.connecting == 0, let owner, owner.isolated.isEmpty else { return }
        owner.closed()
        self.owner = nil
        closing.succeed(())
    }
}

private struct AddressedError: Error, CustomStringConvertible {
    let error: any Error
    let place: String

    var description: String { "\(error)\(place)" }
}
