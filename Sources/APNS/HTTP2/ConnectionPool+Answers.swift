import Logging
import NIOCore

/// Unanswered requests, and connections that do not answer.
extension ConnectionPool {
    /// The age from which a request is expected to have been written.
    private static let roundTrip = TimeAmount.milliseconds(500)

    /// Records the requests and answers of a connection since the last call.
    func noteAnswers(_ connection: PooledConnection, now: NIODeadline) {
        let (submitted, answered) = connection.responsiveness.look(
            requests: connection.http2.state.requests, answers: connection.http2.state.answers, now: now)
        drought.add(submitted: submitted, answered: answered)
        if answered { connection.isSuspect = false }
    }

    /// Records that a connection without requests has lasted: the problem that prevented connections is over.
    func noteAge(_ connection: PooledConnection, now: NIODeadline) {
        guard failures.isLogged, connection.isUsable, connection.http2.state.requests == 0,
            connection.usableSince.map({ now - $0 > .seconds(10) }) ?? false
        else { return }
        failures.worked(&state, news: "connected to APNs again")
    }

    /// Prefers new connections to the present ones, and opens one, so that further requests need not wait for the
    /// deadlines of earlier ones.
    func suspectConnections() {
        for connection in connections { connection.isSuspect = true }
        state.wantConnection()
    }

    /// Records whether a flow-control window blocks a connection's requests.
    func noteWindow(_ connection: PooledConnection, now: NIODeadline) {
        guard connection.isUsable else { return }
        let limit = now + configuration.requestTimeout - Self.roundTrip
        connection.responsiveness.look(
            connection.http2.session.blockage(dueBefore: limit), patience: configuration.windowTimeout, now: now)
    }

    /// Retires a connection that is alive but useless. Requests that could not be written are returned, to be sent on
    /// another connection; written ones may still be answered.
    func retireUnresponsive(_ connection: PooledConnection, because fault: String, now: NIODeadline) {
        guard closed == nil, connection.isUsable else { return }
        let error = APNSConnectionError.unresponsive(endpoint, fault)
        logger.info(
            "retiring an unresponsive APNs connection: \(fault)",
            metadata: [
                "event": "apns_connection_unresponsive", "endpoint": "\(endpoint)",
                "in_flight": "\(connection.http2.state.inFlight)",
            ])
        // If other connections are answered, the next one probably will be.
        let pauses = drought.isPending
        failures.unanswered(error, pauses: pauses, &state, now: now)
        if pauses {
            for other in connections { (other.hasAnswered, other.staleAnswers) = (false, other.http2.state.answers) }
        }
        drought.foundUnresponsive()
        connection.http2.retire(reason: "unresponsive: \(fault)")
        connection.http2.takeBackUnwritten()
        openConnections(now: now)
    }

    /// Submits a notification while there are unanswered requests, and avoids the connections that did not answer this
    /// one.
    /// - Returns: `false` if no stream is free; the notification was then not accepted.
    func submitElsewhere(_ notification: consuming Notification, _ id: APNSID, tag: UInt64) -> Bool {
        var best: PooledConnection?
        var bestPast = UnansweredRequests.Past.timedOut
        var excluded: PooledConnection?
        for connection in connections where connection.http2.freeStreams > 0 {
            let past = unanswered.past(of: id, on: connection.http2.id)
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
    private func openAnother(than connection: PooledConnection) {
        let now = eventLoop.now
        if state.connecting + state.usable - state.outgoing < state.configuration.maximumConnections {
            state.wantConnection()
            openConnections(now: now)
        } else if state.connecting == 0, !connection.isBeingReplaced, state.recycle(now: now) {
            replace([connection], reason: "a request got no answer on it", keeping: .current, now: now)
        }
    }
}
