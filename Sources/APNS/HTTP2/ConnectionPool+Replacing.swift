import Logging
import NIOCore
import Sockets

/// Retiring and replacing connections that still work.
extension ConnectionPool {
    /// Closes a superfluous connection, and replaces those that are too old, do not respond, or answer nothing but 500.
    func giveUpConnections(now: NIODeadline) {
        var idlest: PooledConnection?
        for connection in connections where connection.isUsable {
            giveUpIfOld(connection, now: now)
            if let fault = connection.responsiveness.fault {
                retireUnresponsive(connection, because: fault, now: now)
                continue
            }
            if connection.http2.state.serverErrorsInARow >= HTTP2ConnectionState.serverErrorLimit {
                recycle(connection)
            }
            guard connection.http2.state.isUsable, connection.http2.state.inFlight == 0 else { continue }
            if idlest.map({ connection.http2.state.lastUsed < $0.http2.state.lastUsed }) ?? true { idlest = connection }
        }
        // One at a time: the remaining connections take over its work, and may then all be needed.
        if let idlest, state.isSuperfluous(lastUsed: idlest.http2.state.lastUsed, now: now) {
            idlest.http2.retire(reason: "nothing was sent on it for \(configuration.idleTimeout.formatted)")
        }
    }

    func giveUpIfOld(_ connection: PooledConnection, now: NIODeadline) {
        guard !connection.isBeingReplaced, let reason = connection.http2.state.replacementReason(now: now) else {
            return
        }
        replace([connection], reason: reason, keeping: .current, now: now)
    }

    /// Replaces connections with new ones.
    /// - Parameter authorization: the authorization of further requests on the old connections.
    func replace(
        _ old: [PooledConnection], reason: String, keeping authorization: PooledConnection.Authorization,
        now: NIODeadline
    ) {
        let old = old.filter(\.isUsable)
        guard closed == nil, !old.isEmpty else { return }
        let inUse = connections.count {
            $0.isUsable
                && ($0.http2.state.inFlight > 0 || now - $0.http2.state.lastUsed < ConnectionPoolState.inUse)
        }
        for connection in old {
            connection.isBeingReplaced = true
            connection.authorization = authorization
        }
        state.replace(old.count, inUse: inUse)
        logger.info(
            "replacing APNs connections: \(reason)",
            metadata: [
                "event": "apns_connections_replaced", "endpoint": "\(endpoint)", "connections": "\(old.count)",
            ])
        retireOutgoing()
        openConnections(now: now)
    }

    /// Retires the outgoing connections that have been replaced.
    func retireOutgoing() {
        // Each retirement changes the count, and may call this function again.
        while state.outgoingToRetire(ready: readyConnections) > 0,
            let next = connections.first(where: { $0.isBeingReplaced && $0.isUsable })
        {
            next.http2.retire(reason: "another one replaces it")
        }
    }

    /// Connections that stay and have received the server's SETTINGS: before that they cannot take over requests.
    private var readyConnections: Int {
        connections.count { $0.isUsable && !$0.isBeingReplaced && $0.http2.state.phase == .open }
    }

    /// Retires a connection whose answers indicate a broken server, unless one was retired for that a moment ago.
    func recycle(_ connection: PooledConnection) {
        guard closed == nil, connection.isUsable, state.recycle(now: eventLoop.now) else { return }
        let count = connection.http2.state.serverErrorsInARow
        logger.warning(
            "an APNs connection gave \(count) answers with status 500 in a row; it is replaced",
            metadata: ["event": "apns_connection_recycled", "endpoint": "\(endpoint)"])
        connection.http2.retire(reason: "it gave \(count) answers with status 500 in a row")
        openConnections(now: eventLoop.now)
    }
}
