import NIOCore

/// What a pool remembers of a connection.
struct PoolNotes {
    /// Whether it counts as usable.
    var isCounted = false
    var usableSince: NIODeadline?
    /// Gives the connection up when TLS takes too long.
    var handshakeTimer: Scheduled<Void>?
    /// Whether it has ever answered.
    var isProven = false
    /// Of how many calls to replace all connections it knew when its TLS was chosen.
    var generation = 0
    /// Whether another is to take its place.
    var isOutgoing = false
    /// The authorization to go on with, for a connection that is to be replaced because of another.
    var keptAuthorization: HeaderText??
}
