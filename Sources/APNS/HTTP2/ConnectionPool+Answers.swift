import Logging
import NIOCore

/// Requests without an answer, and connections that give none.
extension ConnectionPool {
    /// The age from which on a request is expected to have been written.
    private static let roundTrip = TimeAmount.milliseconds(500)

    /// Records the requests and answers of a connection since the last call.
    func noteAnswers(_ connection: HTTP2Connection, now: NIODeadline) {
        let (submitted, answered) = connection.notes.responsiveness.look(
            requests: connection.state.requests, answers: connection.state.answers, now: now)
        drought.add(submitted: submitted, answered: answered)
        if answered { connection.notes.isSuspect = false }
    }

    /// Opens another connection for what comes from now on, so that it need not wait for the deadlines of what was sent
    /// before.
    func suspectConnections() {
        for connection in connections { connection.notes.isSuspect = true }
        isWanted = true
    }

    /// Records whether a flow-control window holds a connection's requests up.
    func noteWindow(_ connection: HTTP2Connection, now: NIODeadline) {
        guard connection.notes.isCounted else { return }
        let limit = now + configuration.requestTimeout - Self.roundTrip
        connection.notes.responsiveness.look(
            connection.session.blockage(dueBefore: limit), patience: configuration.windowTimeout, now: now)
    }

    /// Sends nothing more on a connection that is alive and of no use. What could not be written is given back to be sent on
    /// another connection; what was written may still be answered.
    func retireUnresponsive(_ connection: HTTP2Connection, because fault: String, now: NIODeadline) {
        guard closed == nil, connection.notes.isCounted else { return }
        let error = APNSConnectionError.unresponsive(endpoint, fault)
        logger.info(
            "retiring an unresponsive APNs connection: \(fault)",
            metadata: ["endpoint": "\(endpoint)", "in_flight": "\(connection.state.inFlight)"])
        // Where other connections are answered, the next one probably will be.
        let pauses = drought.isPending
        failures.unanswered(error, pauses: pauses, &state, now: now)
        if pauses {
            for other in connections { (other.notes.isProven, other.notes.staleAnswers) = (false, other.state.answers) }
        }
        drought.foundUnresponsive()
        connection.retire(reason: "unresponsive: \(fault)")
        connection.takeBackUnwritten()
        openConnections(now: now)
    }

    /// Sends a notification while there are some that a connection did not answer.
    /// - Returns: `false` where no stream is free; the notification has then not been taken.
    func submitElsewhere(_ notification: consuming Notification, _ id: APNSID, tag: UInt64) -> Bool {
        var best: HTTP2Connection?
        var bestPast = UnansweredRequests.Past.timedOut
        var excluded: HTTP2Connection?
        for connection in connections where connection.freeStreams > 0 {
            let past = unanswered.past(of: id, on: connection.id)
            if past == .timedOut {
                excluded = connection
            } else if past < bestPast || past == bestPast && connection.preference > best?.preference ?? 0 {
                (best, bestPast) = (connection, past)
            }
        }
        if let best { return submit(notification, tag: tag, on: best) }
        guard let excluded else {
            if isDormant { wantRoom() }
            return false
        }
        openAnother(than: excluded)
        // Not here: the caller is not done with the submission.
        if toGiveBack.isEmpty { eventLoop.assumeIsolated().execute { self.giveBack() } }
        toGiveBack.append(tag)
        return true
    }

    /// Completes what could not be sent on another connection.
    func giveBack() {
        let tags = toGiveBack
        toGiveBack = []
        for tag in tags {
            delegate?.transport(self, completed: tag, with: .notProcessed(.noOtherConnection))
        }
    }

    /// Opens one connection more; where there are as many as there may be, it replaces one.
    private func openAnother(than connection: HTTP2Connection) {
        let now = eventLoop.now
        if state.connecting + state.usable - state.outgoing < state.configuration.maximumConnections {
            isWanted = true
            openConnections(now: now)
        } else if state.connecting == 0, !connection.notes.isOutgoing, state.recycle(now: now) {
            replace([connection], reason: "a request got no answer on it", keeping: nil, now: now)
        }
    }
}

extension HTTP2Connection {
    /// The preference for this connection over others; 0 if it has no free stream.
    var preference: Int { notes.isSuspect ? min(freeStreams, 1) : freeStreams }
}
