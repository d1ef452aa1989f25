import Logging
import NIOCore

/// Unanswered requests, and connections that do not answer, are no longer needed or must be replaced.
extension ConnectionPool {
    /// Records that a connection without requests has lasted: the problem that prevented connections is over.
    func recordAge(of connection: HTTP2Connection, now: NIODeadline) {
        guard connections.failures.isLogged, connection.isUsable, connection.state.requests == 0,
            connection.membership.usableSince.map({ now - $0 > .seconds(10) }) ?? false
        else { return }
        connections.worked()
    }

    /// Retires a connection that is alive but useless. Requests that could not be written are returned, to be sent on
    /// another connection; written ones may still be answered.
    func retireUnresponsive(_ connection: HTTP2Connection, because fault: String, now: NIODeadline) {
        guard !connections.isClosing, connection.isUsable else { return }
        let error = APNSConnectionError.unresponsive(endpoint, fault)
        logger.info(
            "retiring an unresponsive APNs connection: \(fault)",
            metadata: [
                "event": "apns_connection_unresponsive", "endpoint": "\(endpoint)",
                "in_flight": "\(connection.state.inFlight)",
            ])
        let pauses = answers.recordUnresponsive(among: connections.all)
        connections.failures.unanswered(error, pauses: pauses, &connections.state, now: now)
        connection.retire(reason: "unresponsive: \(fault)")
        connection.takeBackUnwritten()
    }

    /// Submits a notification while there are unanswered requests, and avoids the connections that did not answer this
    /// one.
    /// - Returns: `false` if no stream is free; the notification was then not accepted.
    func submitElsewhere(_ notification: consuming Notification, _ id: APNSID, tag: UInt64) -> Bool {
        let (best, excluded) = answers.choose(from: connections.all, for: id)
        if let best { return submit(notification, tag: tag, on: best) }
        guard let excluded else { return false }
        openAnother(than: excluded)
        // Not synchronously: the caller has not finished the submission.
        if toGiveBack.isEmpty { eventLoop.assumeIsolated().execute { self.giveBack() } }
        toGiveBack.append(tag)
        return true
    }

    /// Completes the notifications that could not be sent on another connection.
    func giveBack() {
        let tags = toGiveBack
        toGiveBack = []
        for tag in tags {
            delegate?.transport(self, completed: tag, with: .notProcessed(.noOtherConnection))
        }
    }

    /// Opens one more connection; if the maximum is reached, replaces the given one.
    private func openAnother(than connection: HTTP2Connection) {
        let now = eventLoop.now
        if connections.state.canGrow {
            connections.openAnother(now: now)
        } else if connections.state.connecting == 0, !connection.membership.isBeingReplaced,
            connections.state.recycle(now: now)
        {
            replace([connection], reason: "a request got no answer on it", keeping: .current, now: now)
        }
    }

    // MARK: Replacing

    /// Closes a superfluous connection, and replaces those that are too old, do not respond, or answer nothing but 500.
    func giveUpConnections(now: NIODeadline) {
        for connection in connections.all where connection.isUsable {
            giveUpIfOld(connection, now: now)
            if let fault = connection.record.responsiveness.fault {
                retireUnresponsive(connection, because: fault, now: now)
            } else if connection.state.serverErrorsInARow >= HTTP2ConnectionState.serverErrorLimit {
                recycle(connection)
            }
        }
        // One at a time: the remaining connections take over its work, and may then all be needed.
        connections.superfluous(now: now)?.retire(
            reason: "nothing was sent on it for \(configuration.idleTimeout.formatted)")
    }

    func giveUpIfOld(_ connection: HTTP2Connection, now: NIODeadline) {
        guard !connection.membership.isBeingReplaced, let reason = connection.state.replacementReason(now: now) else {
            return
        }
        replace([connection], reason: reason, keeping: .current, now: now)
    }

    /// Replaces connections with new ones.
    /// - Parameter authorization: the authorization of further requests on the old connections.
    func replace(
        _ old: [HTTP2Connection], reason: String, keeping authorization: ConnectionRecord.Authorization,
        now: NIODeadline
    ) {
        for connection in old where connection.isUsable { connection.record.authorization = authorization }
        connections.replace(old, reason: reason, now: now)
    }

    /// Retires a connection whose answers indicate a broken server, unless one was retired for that a moment ago.
    func recycle(_ connection: HTTP2Connection) {
        guard !connections.isClosing, connection.isUsable, connections.state.recycle(now: eventLoop.now) else {
            return
        }
        let count = connection.state.serverErrorsInARow
        logger.warning(
            "an APNs connection gave \(count) answers with status 500 in a row; it is replaced",
            metadata: ["event": "apns_connection_recycled", "endpoint": "\(endpoint)"])
        connection.retire(reason: "it gave \(count) answers with status 500 in a row")
    }
}
