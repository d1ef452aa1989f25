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
