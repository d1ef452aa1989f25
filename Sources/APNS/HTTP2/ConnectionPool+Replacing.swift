import Logging
import NIOCore

/// How a pool gives connections up that still work.
extension ConnectionPool {
    /// Closes a connection that is one too many, and replaces those that are too old or answer nothing but 500.
    func giveUpConnections(now: NIODeadline) {
        var idlest: HTTP2Connection?
        for connection in connections where connection.notes.isCounted {
            giveUpIfOld(connection, now: now)
            if let fault = connection.notes.responsiveness.fault {
                retireUnresponsive(connection, because: fault, now: now)
                continue
            }
            if connection.state.serverErrorsInARow >= HTTP2ConnectionState.serverErrorLimit { recycle(connection) }
            guard connection.state.isUsable, connection.state.inFlight == 0 else { continue }
            if idlest.map({ connection.state.lastUsed < $0.state.lastUsed }) ?? true { idlest = connection }
        }
        // One at a time: what it did is then left to fewer, which may be too few already for another to go.
        if let idlest, state.isSuperfluous(lastUsed: idlest.state.lastUsed, now: now) {
            idlest.retire(reason: "nothing was sent on it for \(configuration.idleTimeout.inWords)")
        }
    }

    func giveUpIfOld(_ connection: HTTP2Connection, now: NIODeadline) {
        guard !connection.notes.isOutgoing, let reason = connection.state.replacementReason(now: now) else { return }
        replace([connection], reason: reason, keeping: nil, now: now)
    }

    /// Has other connections take the place of these.
    /// - Parameter authorization: what the old ones go on with, where that is not what the new ones have.
    func replace(_ old: [HTTP2Connection], reason: String, keeping authorization: HeaderText??, now: NIODeadline) {
        let old = old.filter(\.notes.isCounted)
        guard closed == nil, !old.isEmpty else { return }
        let inUse = connections.count {
            $0.notes.isCounted
                && ($0.state.inFlight > 0 || now - $0.state.lastUsed < ConnectionPoolState.inUse)
        }
        for connection in old {
            connection.notes.isOutgoing = true
            connection.notes.keptAuthorization = authorization
        }
        state.replace(old.count, inUse: inUse)
        logger.info(
            "replacing APNs connections: \(reason)",
            metadata: ["endpoint": "\(endpoint)", "connections": "\(old.count)"])
        retireOutgoing()
        openConnections(now: now)
    }

    /// Ends outgoing connections for which there are others now.
    func retireOutgoing() {
        // Each changes what is left to do, and may come back here.
        while state.outgoingToRetire(ready: readyConnections) > 0,
            let next = connections.first(where: { $0.notes.isOutgoing && $0.notes.isCounted })
        {
            next.retire(reason: "another takes its place")
        }
    }

    /// Those that stay and have the server's SETTINGS: before them, a connection takes one request only.
    private var readyConnections: Int {
        connections.count { $0.notes.isCounted && !$0.notes.isOutgoing && $0.state.phase == .open }
    }

    /// Ends a connection whose answers say that its other end is ill, if none was ended for that a moment ago.
    func recycle(_ connection: HTTP2Connection) {
        guard closed == nil, connection.notes.isCounted, state.recycle(now: eventLoop.now) else { return }
        let count = connection.state.serverErrorsInARow
        logger.warning(
            "an APNs connection gave \(count) answers with status 500 in a row; it is replaced",
            metadata: ["endpoint": "\(endpoint)"])
        connection.retire(reason: "it gave \(count) answers with status 500 in a row")
        openConnections(now: eventLoop.now)
    }
}
