import NIOCore

/// Limits on the clients of a port.
package struct PortLimits: Sendable {
    /// Maximum concurrent connections; never more than an eighth of the process' limit of file descriptors.
    package var connections = 64
    /// The maximum time until a request has arrived, from the start of the connection, or from the first byte of a later request.
    package var request = TimeAmount.seconds(10)
    /// The maximum time from an answer to the next request.
    package var idle = TimeAmount.minutes(2)
    /// The maximum time in which a client receives nothing of an answer.
    package var stall = TimeAmount.seconds(10)
    /// The maximum time that a client has to close the connection after the last answer.
    package var linger = TimeAmount.seconds(2)
    /// The maximum size of a request's head in bytes.
    package var headBytes = 16 * 1024

    package init() {}

    /// Returns the maximum number of connections.
    /// - Parameter descriptors: the process' limit of file descriptors; `nil` if that is unknown.
    func connections(descriptors: Int?) -> Int {
        max(2, min(connections, (descriptors ?? .max) / 8))
    }
}

/// The state of one connection of a port, without I/O.
///
/// A connection waits either for its client or for the port's answer. While it waits for its client, it has a deadline and can be closed in
/// favor of a new connection.
struct PortConnection {
    private let limits: PortLimits
    /// The end of the last answer, or the beginning of the connection.
    private var idleSince: NIODeadline
    private var hasAnswered = false
    /// The arrival of the first byte of an incomplete request.
    private var arrivingSince: NIODeadline?
    /// The number of requests whose head has arrived and whose answer has not ended.
    private var unanswered = 0
    /// The bytes of answers that the client has not received, and the time since which it has received none of them.
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

    mutating func bytesReceived(now: NIODeadline) { arrivingSince = arrivingSince ?? now }

    /// Records that the head of a request has arrived.
    mutating func requestBegan() { unanswered += 1 }

    /// Records that a request has arrived completely.
    mutating func requestEnded() { arrivingSince = nil }

    /// Records that an answer has been written completely.
    mutating func answerEnded(now: NIODeadline) {
        // The answer to malformed input has no request to subtract.
        unanswered = max(0, unanswered - 1)
        idleSince = now
        hasAnswered = true
    }

    /// Records that nothing more will be written.
    mutating func outputClosed(now: NIODeadline) { closingSince = closingSince ?? now }

    /// Records the number of bytes of answers that the client has not received yet.
    mutating func holds(_ bytes: Int, now: NIODeadline) {
        if bytes == 0 {
            stalledSince = nil
        } else if stalledSince == nil || bytes < unsent {
            stalledSince = now
        }
        unsent = bytes
    }

    // MARK: Decisions

    /// The current wait for the client; `nil` while the port works on an answer.
    private var wait: (since: NIODeadline, limit: TimeAmount)? {
        if let closingSince { return (closingSince, limits.linger) }
        if let stalledSince { return (stalledSince, limits.stall) }
        if let arrivingSince { return (arrivingSince, limits.request) }
        guard unanswered == 0 else { return nil }
        return (idleSince, hasAnswered ? limits.idle : limits.request)
    }

    /// The beginning of the wait for the client; `nil` while the port works on an answer.
    var waitingSince: NIODeadline? { wait?.since }

    /// Returns true if the client has exceeded its time limit.
    func isOverdue(now: NIODeadline) -> Bool { wait.map { now - $0.since >= $0.limit } ?? false }
}
