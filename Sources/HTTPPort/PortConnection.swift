import NIOCore

/// The state of one connection of a port: whose turn it is, since when, and for how long that may last. No I/O.
///
/// A connection waits for its peer or the port is at work for it. Only what waits for its peer has a deadline, and only
/// that is closed in favor of a new connection.
struct PortConnection {
    private let limits: HTTPPort.Limits
    /// When it was accepted, or when the last answer ended.
    private var idleSince: NIODeadline
    private var hasAnswered = false
    /// When the first byte of a request came that is not complete yet.
    private var arrivingSince: NIODeadline?
    /// Requests whose head has come and whose answer has not ended.
    private var unanswered = 0
    /// Bytes of answers that the peer has not taken, and when it last took some.
    private var untaken = 0
    private var stalledSince: NIODeadline?
    private var closingSince: NIODeadline?

    init(_ limits: HTTPPort.Limits, now: NIODeadline) {
        self.limits = limits
        idleSince = now
    }

    /// True after the last answer: what the peer still sends is discarded.
    var isClosing: Bool { closingSince != nil }

    // MARK: Events

    /// Bytes came.
    mutating func bytesCame(now: NIODeadline) { arrivingSince = arrivingSince ?? now }

    /// The head of a request has come.
    mutating func requestBegan() { unanswered += 1 }

    /// A request has come to its end.
    mutating func requestEnded() { arrivingSince = nil }

    /// An answer was written to its end.
    mutating func answerEnded(now: NIODeadline) {
        // An answer to what is not a request has none to subtract.
        unanswered = max(0, unanswered - 1)
        idleSince = now
        hasAnswered = true
    }

    /// Nothing more will be written.
    mutating func outputClosed(now: NIODeadline) { closingSince = closingSince ?? now }

    /// Notes how many bytes the peer has not taken yet.
    mutating func holds(_ bytes: Int, now: NIODeadline) {
        if bytes == 0 {
            stalledSince = nil
        } else if stalledSince == nil || bytes < untaken {
            stalledSince = now
        }
        untaken = bytes
    }

    // MARK: Decisions

    /// The wait for the peer; `nil` while it is the port's turn.
    private var wait: (since: NIODeadline, limit: TimeAmount)? {
        if let closingSince { return (closingSince, limits.linger) }
        if let stalledSince { return (stalledSince, limits.stall) }
        if let arrivingSince { return (arrivingSince, limits.request) }
        guard unanswered == 0 else { return nil }
        return (idleSince, hasAnswered ? limits.idle : limits.request)
    }

    /// When the connection began to wait for its peer; `nil` while the port is at work for it.
    var waitingSince: NIODeadline? { wait?.since }

    /// Whether the peer has let its time pass.
    func isOverdue(now: NIODeadline) -> Bool { wait.map { now - $0.since >= $0.limit } ?? false }
}
