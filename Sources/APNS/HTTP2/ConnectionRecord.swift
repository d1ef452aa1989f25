import NIOCore
import Sockets

/// A connection of a ``ConnectionPool``, and the pool's record of it.
final class PooledConnection {
    /// The authorization of a connection's requests.
    enum Authorization {
        /// The pool's current authorization.
        case current
        /// The authorization that was current when the connection's replacement was decided.
        case kept(HeaderText?)
    }

    let http2: HTTP2Connection
    /// The pool's ``ConnectionPool/generation`` when its TLS context was chosen.
    let generation: Int
    /// The server's address, or the proxy's.
    let address: SocketAddress?
    /// True while ``ConnectionPoolState`` counts it as usable.
    var isUsable = false
    /// The time at which it became usable; `nil` until then.
    var usableSince: NIODeadline?
    /// Closes the connection if the TLS handshake takes too long.
    var handshakeTimer: TimeLimit?
    /// True if it has answered since it was made, and since the pool last recorded that requests went unanswered.
    var hasAnswered = false
    /// The number of answers before that record, which prove nothing.
    var staleAnswers = 0
    /// True from an answer drought until it answers again: it gets requests only if no other connection can accept
    /// them.
    var isSuspect = false
    /// True if it closes because it was forgotten on the way while it was idle.
    var isStale = false
    /// Decides whether the connection is useful.
    var responsiveness = Responsiveness()
    /// True while another connection is taking its place.
    var isBeingReplaced = false
    var authorization = Authorization.current

    init(_ http2: HTTP2Connection, generation: Int, address: SocketAddress?) {
        self.http2 = http2
        self.generation = generation
        self.address = address
    }

    /// The preference over other connections; 0 if it has no free stream.
    var preference: Int { isSuspect ? min(http2.freeStreams, 1) : http2.freeStreams }

    func authorization(current: HeaderText?) -> HeaderText? {
        switch authorization {
        case .current: current
        case .kept(let authorization): authorization
        }
    }
}
