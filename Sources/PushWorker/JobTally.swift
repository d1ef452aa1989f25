import NIOCore

/// How the notifications of one job have ended, until all have and the job can be settled.
struct JobTally {
    var delivered = 0
    var invalid = 0
    var dropped = 0
    /// Those to be sent again, and why.
    var retry: Retry?
    /// Those that will never be delivered, and why.
    var dead: Dead?

    struct Retry {
        /// Tokens as text.
        var tokens: [ByteBuffer]
        var reason: String
        var status: Int?
        var delay: Int64
        /// Whether any of them spends an attempt.
        var spendsAttempt: Bool
    }

    struct Dead {
        var tokens: [ByteBuffer]
        var reason: String
        var status: Int?
    }
}
