import Logging
import NIOCore

/// Unanswered requests, and connections that do not answer, are no longer needed or must be replaced.
extension ConnectionPool {
    /// The age from which a request is expected to have been written.
    private static let roundTrip = TimeAmount.milliseconds(500)

    /// Records the requests and answers of a connection since the last call.
    func noteAnswers(_ connection: HTTP2Connection, now: NIODeadline) {
        let (submitted, answered) = connection.record.responsiveness.look(
            requests: connection.state.requests, answers: connection.state.answers, now: now)
        drought.add(submitted: submitted, answered: answered)
        if answered { connection.record.isSuspect = false }
    }

    /// Records that a connection without requests has lasted: the problem that prevented connections is over.
    func noteAge(_ connection: HTTP2Connection, now: NIODeadline) {
        guard connections.failures.isLogged, connection.isUsable, connection.state.requests == 0,
            connection.membership.usableSince.map({ now - $0 > .seconds(10) }) ?? false
        else { return }
        connections.worked()
    }

    /// Prefers new connections to the present ones, and opens one, so that further requests need not wait for the
    /// deadlines of earlier ones.
    func suspectConnections() {
        for connection in connections.all { connection.record.isSuspect = true }
        connections.state.wantConnection()
    }

    /// Records whether a flow-control window blocks a connection's requests.
    func noteWindow(_ connection: HTTP2Connection, now: NIODeadline) {
        guard connection.isUsable else { return }
        let limit = now + configuration.requestTimeout - Self.roundTrip
        connection.record.responsiveness.look(
            connection.session.blockage(dueBefore: limit), patience: configuration.windowTimeout, now: now)
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
        // If other connections are answered, the next one probably will be.
        let pauses = drought.isPending
        connections.failures.unanswered(error, pauses: pauses, &connections.state, now: now)
        if pauses {
            for other in connections.all {
                (other.record.hasAnswered, other.record.staleAnswers) = (false, other.state.answers)
            }
        }
        drought.foundUnresponsive()
        connection.retire(reason: "unresponsive: \(fault)")
        connection.takeBackUnwritten()
    }

    /// Submits a notification while there are unanswered requests, and avoids the connections that did not answer this
    /// one.
    /// - Returns: `false` if no stream is free; the notification was then not accepted.
    func submitElsewhere(_ notification: consuming Notification, _ id: APNSID, tag: UInt64) -> Bool {
        var best: HTTP2Connection?
        var bestPast = UnansweredRequests.Past.timedOut
        var excluded: HTTP2Connection?
        for connection in connections.all where connection.freeStreams > 0 {
            let past = unanswered.past(of: id, on: connection.id)
            if past == .timedOut {
                excluded = connection
            } else if past < bestPast || past == bestPast && connection.preference > best?.preference ?? 0 {
                (best, bestPast) = (connection, past)
            }
        }
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
        var idlest: HTTP2Connection?
        for connection in connections.all where connection.isUsable {
            giveUpIfOld(connection, now: now)
            if let fault = connection.record.responsiveness.fault {
                retireUnresponsive(connection, because: fault, now: now)
                continue
            }
            if connection.state.serverErrorsInARow >= HTTP2ConnectionState.serverErrorLimit {
                recycle(connection)
            }
            guard connection.isUsable, connection.state.inFlight == 0 else { continue }
            if idlest.map({ connection.state.lastUsed < $0.state.lastUsed }) ?? true { idlest = connection }
        }
        // One at a time: the remaining connections take over its work, and may then all be needed.
        if let idlest, connections.state.isSuperfluous(lastUsed: idlest.state.lastUsed, now: now) {
            idlest.retire(reason: "nothing was sent on it for \(configuration.idleTimeout.formatted)")
        }
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
        let old = old.filter(\.isUsable)
        guard !connections.isClosing, !old.isEmpty else { return }
        let inUse = connections.all.count {
            $0.isUsable
                && ($0.state.inFlight > 0 || now - $0.state.lastUsed < ConnectionPoolState.inUse)
        }
        for connection in old {
            connection.membership.isBeingReplaced = true
            connection.record.authorization = authorization
        }
        connections.state.replace(old.count, inUse: inUse)
        logger.info(
            "replacing APNs connections: \(reason)",
            metadata: [
                "event": "apns_connections_replaced", "endpoint": "\(endpoint)", "connections": "\(old.count)",
            ])
        retireOutgoing()
        connections.open(now: now)
    }

    /// Retires the outgoing connections that have been replaced.
    func retireOutgoing() {
        // Each retirement changes the count, and may call this function again.
        while connections.state.outgoingToRetire(ready: readyConnections) > 0,
            let next = connections.all.first(where: { $0.membership.isBeingReplaced && $0.isUsable })
        {
            next.retire(reason: "another one replaces it")
        }
    }

    /// Connections that stay and have received the server's SETTINGS: before that they cannot take over requests.
    private var readyConnections: Int {
        connections.all.count { $0.isUsable && !$0.membership.isBeingReplaced }
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
