import NIOCore

/// Limits on the clients of a port.
package struct PortLimits: Sendable {
    /// Concurrent connections; never more than an eighth of the file descriptors that the process may have.
    package var connections = 64
    /// The time from the first byte of a request, or from the start of the connection, to the request's last byte.
    package var request = TimeAmount.seconds(10)
    /// The time from an answer to the next request.
    package var idle = TimeAmount.minutes(2)
    /// The time within which a client must receive some part of an answer.
    package var stall = TimeAmount.seconds(10)
    /// The time from the last answer on a connection to its end, if the client does not close it before.
    package var linger = TimeAmount.seconds(2)
    /// The bytes of a request's head.
    package var headBytes = 16 * 1024

    package init() {}

    /// Returns the maximum number of connections.
    /// - Parameter descriptors: file descriptors that the process may have; `nil` if that is unknown.
    func connections(descriptors: Int?) -> Int {
        max(2, min(connections, (descriptors ?? .max) / 8))
    }
}

/// The state of one connection of a port, without any I/O: which side it waits for, since when, and for how long it may.
///
/// A connection waits either for its client or for the port's answer. Only the first kind has a deadline, and only that kind
/// is closed in favor of a new connection.
struct PortConnection {
    private let limits: PortLimits
    /// The time at which it was accepted, or at which the last answer ended.
    private var idleSince: NIODeadline
    private var hasAnswered = false
    /// The time at which the first byte of an incomplete request came.
    private var arrivingSince: NIODeadline?
    /// Requests whose head has come and whose answer has not ended.
    private var unanswered = 0
    /// Bytes of answers that the client has not received, and the time at which it last received some.
    private var unsent = 0
    private var stalledSince: NIODeadline?
    private var closingSince: NIODeadline?

    init(_ limits: PortLimits, now: NIODeadline) {
        self.limits = limits
        idleSince = now
    }

    /// True after the last answer: further input is discarded.
    var isClosing: Bool { closingSince != nil }

    // MARK: Events

    /// Bytes came.
    mutating func bytesReceived(now: NIODeadline) { arrivingSince = arrivingSince ?? now }

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

    /// Notes how many bytes of answers the client has not received yet.
    mutating func holds(_ bytes: Int, now: NIODeadline) {
        if bytes == 0 {
            stalledSince = nil
        } else if stalledSince == nil || bytes < unsent {
            stalledSince = now
        }
        unsent = bytes
    }

    // MARK: Decisions

    /// The wait for the client; `nil` while the port works on an answer.
    private var wait: (since: NIODeadline, limit: TimeAmount)? {
        if let closingSince { return (closingSince, limits.linger) }
        if let stalledSince { return (stalledSince, limits.stall) }
        if let arrivingSince { return (arrivingSince, limits.request) }
        guard unanswered == 0 else { return nil }
        return (idleSince, hasAnswered ? limits.idle : limits.request)
    }

    /// The time at which the connection began to wait for its client; `nil` while the port works on an answer.
    var waitingSince: NIODeadline? { wait?.since }

    /// True if the client has exceeded its time.
    func isOverdue(now: NIODeadline) -> Bool { wait.map { now - $0.since >= $0.limit } ?? false }
}
