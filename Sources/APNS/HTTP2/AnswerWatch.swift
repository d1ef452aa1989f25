import NIOCore

/// The knowledge of a pool about answers: which connections answer, and which to avoid.
struct AnswerWatch {
    /// The age from which a request is expected to have been written.
    private static let roundTrip = TimeAmount.milliseconds(500)

    private var drought = AnswerDrought()
    private var unanswered = UnansweredRequests()

    var state: AnswerDrought.State { drought.state }

    /// True if there are requests that must avoid a connection.
    var hasUnanswered: Bool { !unanswered.isEmpty }

    /// Records the requests and answers of a connection since the last call.
    mutating func record(_ connection: HTTP2Connection, now: NIODeadline) {
        let (submitted, answered) = connection.record.responsiveness.look(
            requests: connection.state.requests, answers: connection.state.answers, now: now)
        drought.add(submitted: submitted, answered: answered)
        if answered { connection.record.isSuspect = false }
    }

    /// Records whether a flow-control window blocks a connection's requests.
    func recordWindow(of connection: HTTP2Connection, _ configuration: HTTP2PoolConfiguration, now: NIODeadline) {
        guard connection.isUsable else { return }
        let limit = now + configuration.requestTimeout - Self.roundTrip
        connection.record.responsiveness.look(
            connection.session.blockage(dueBefore: limit), patience: configuration.windowTimeout, now: now)
    }

    /// Records a request that a connection refused, or did not answer by its deadline.
    mutating func recordMissing(
        _ id: APNSID?, on connection: HTTP2Connection, deadline: NIODeadline, timeout: TimeAmount, isRefusal: Bool
    ) {
        // A connection that accepts no more requests need not be avoided.
        guard connection.isUsable else { return }
        if let id { unanswered.insert(id, connection: connection.id, isRefusal: isRefusal) }
        guard !isRefusal else { return }
        connection.record.responsiveness.missedDeadline(submitted: deadline - timeout, timeout: timeout)
    }

    /// Records that a connection is retired as unresponsive.
    /// - Parameter all: all connections of the pool.
    /// - Returns: true if there must be a pause before the next one; if others are answered, it probably will be, too.
    mutating func recordUnresponsive(among all: [HTTP2Connection]) -> Bool {
        defer { drought.foundUnresponsive() }
        guard drought.isPending else { return false }
        for other in all { (other.record.hasAnswered, other.record.staleAnswers) = (false, other.state.answers) }
        return true
    }

    /// Records that a connection has closed.
    mutating func recordEnd(of connection: HTTP2Connection, now: NIODeadline) {
        record(connection, now: now)
        unanswered.forget(connection: connection.id)
    }

    /// Finds out whether requests are answered. From the beginning of a drought new connections are preferred to the
    /// present ones, so that further requests need not wait for the deadlines of earlier ones.
    /// - Returns: true if a drought has begun.
    mutating func check(_ connections: [HTTP2Connection], inFlight: Int, now: NIODeadline) -> Bool {
        let before = drought.state
        drought.look(inFlight: inFlight, now: now)
        guard before == .answered, drought.state == .unanswered else { return false }
        for connection in connections { connection.record.isSuspect = true }
        return true
    }

    /// Records that the process did not run for some time.
    mutating func stoodStill(for time: TimeAmount, now: NIODeadline) { drought.stoodStill(for: time, now: now) }

    /// Chooses the connection for a request that may have gone unanswered.
    /// - Returns: the least busy connection of those that have not refused it, else of those that have; and, if there is
    ///   none, one that did not answer it.
    func choose(
        from connections: [HTTP2Connection], for id: APNSID
    ) -> (best: HTTP2Connection?, excluded: HTTP2Connection?) {
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
        return (best, excluded)
    }
}
