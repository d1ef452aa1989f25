import NIOCore

/// A connection of a ``ConnectionPool`` and what the pool knows about it.
final class PooledConnection {
    /// The authorization of a connection's requests.
    enum Authorization {
        /// The pool's current one.
        case current
        /// The one that was current when the connection's replacement was decided.
        case kept(HeaderText?)
    }

    let http2: HTTP2Connection
    /// The number of calls to replace all connections before its TLS context was chosen.
    let generation: Int
    /// True while ``ConnectionPoolState`` counts it as usable.
    var isUsable = false
    /// The time at which it became usable; `nil` until then.
    var usableSince: NIODeadline?
    /// Closes the connection if the TLS handshake takes too long.
    var handshakeTimer: Scheduled<Void>?
    /// True if it has answered since it was made, and since the pool last counted a failure of answers.
    var hasAnswered = false
    /// The number of answers that came before that failure and prove nothing.
    var staleAnswers = 0
    /// True from when nothing was answered for a while until it answers: it gets requests only if no other can take them.
    var isSuspect = false
    /// Decides whether it is of use.
    var responsiveness = Responsiveness()
    /// True while another connection is to take its place.
    var isBeingReplaced = false
    var authorization = Authorization.current

    init(_ http2: HTTP2Connection, generation: Int) {
        self.http2 = http2
        self.generation = generation
    }

    /// The preference for this connection over others; 0 if it has no free stream.
    var preference: Int { isSuspect ? min(http2.freeStreams, 1) : http2.freeStreams }

    func authorization(current: HeaderText?) -> HeaderText? {
        switch authorization {
        case .current: current
        case .kept(let authorization): authorization
        }
    }
}
