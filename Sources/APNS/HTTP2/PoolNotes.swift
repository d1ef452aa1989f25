import NIOCore

/// What a pool remembers of a connection.
struct PoolNotes {
    /// Whether it counts as usable.
    var isCounted = false
    var usableSince: NIODeadline?
    /// Gives the connection up when TLS takes too long.
    var handshakeTimer: Scheduled<Void>?
    /// True if it has answered since it was made, and since the pool last counted a failure of answers.
    var isProven = false
    /// The number of answers that prove nothing, because they came before that.
    var staleAnswers = 0
    /// True from when nothing was answered for a while until it answers: it gets requests only if no other can take them.
    var isSuspect = false
    /// Decides whether it is of use.
    var responsiveness = Responsiveness()
    /// Of how many calls to replace all connections it knew when its TLS was chosen.
    var generation = 0
    /// Whether another is to take its place.
    var isOutgoing = false
    /// The authorization to go on with, for a connection that is to be replaced because of another.
    var keptAuthorization: HeaderText??
}
