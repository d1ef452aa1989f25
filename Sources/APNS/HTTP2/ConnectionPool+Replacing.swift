import Logging
import NIOCore
import Sockets

/// How a pool gives connections up that still work.
extension ConnectionPool {
    /// Closes a connection that is one too many, and replaces those that are too old or answer nothing but 500.
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
        // One at a time: what it did is then left to fewer, which may be too few already for another to go.
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

    /// Has other connections take the place of these.
    /// - Parameter authorization: the authorization of further requests on the old ones.
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

    /// Ends outgoing connections for which there are others now.
    func retireOutgoing() {
        // Each changes what is left to do, and may come back here.
        while state.outgoingToRetire(ready: readyConnections) > 0,
            let next = connections.first(where: { $0.isBeingReplaced && $0.isUsable })
        {
            next.http2.retire(reason: "another one replaces it")
        }
    }

    /// Those that stay and have the server's SETTINGS: before them, a connection takes one request only.
    private var readyConnections: Int {
        connections.count { $0.isUsable && !$0.isBeingReplaced && $0.http2.state.phase == .open }
    }

    /// Ends a connection whose answers say that its other end is ill, if none was ended for that a moment ago.
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
