import NIOCore

/// A ``ConnectionPool``'s record of a connection, in addition to its ``PoolMembership``.
struct ConnectionRecord {
    /// The authorization of a connection's requests.
    enum Authorization {
        /// The pool's current authorization.
        case current
        /// The authorization that was current when the connection's replacement was decided.
        case kept(HeaderText?)
    }

    /// True if it has answered since it was made, and since the pool last recorded that requests went unanswered.
    var hasAnswered = false
    /// The number of answers before that record, which prove nothing.
    var staleAnswers = 0
    /// True from an answer drought until it answers again: it gets requests only if no other connection can accept
    /// them.
    var isSuspect = false
    /// Decides whether the connection is useful.
    var responsiveness = Responsiveness()
    var authorization = Authorization.current

    func authorization(current: HeaderText?) -> HeaderText? {
        switch authorization {
        case .current: current
        case .kept(let authorization): authorization
        }
    }
}

extension HTTP2Connection: PooledConnection {
    package var isConnecting: Bool { state.phase == .connecting }
    package var isUsable: Bool { state.isUsable }
    package var isDraining: Bool { if case .draining = state.phase { true } else { false } }
    package var load: (inFlight: Int, limit: Int) { (state.inFlight, state.streamLimit) }
    package var endsAsExpected: Bool { state.isRetired }

    /// The preference over other connections; 0 if it has no free stream.
    var preference: Int { record.isSuspect ? min(freeStreams, 1) : freeStreams }

    package func hasWorked(lasted: Bool) -> Bool { state.hasAnswered || lasted || isStale }

    package func install(on channel: any Channel, secure: () throws -> Void) throws {
        try channel.pipeline.syncOperations.addHandler(self)
        try secure()
    }

    package func finish() { retire(reason: "shutdown") }
}
