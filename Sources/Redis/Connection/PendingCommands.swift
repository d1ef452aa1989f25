import NIOCore

/// The commands of one connection that have no answer yet, in the order of their answers.
struct PendingCommands {
    typealias Completion = (Result<RESPReply, RedisError>) -> Void

    struct Entry {
        /// The time limit of the command; `nil` for none.
        let timeout: TimeAmount?
        let deadline: NIODeadline
        let completion: Completion
    }

    private var entries = CircularBuffer<Entry>()
    /// The number of entries at the end of `entries` that are encoded but not yet written.
    private var unsent = 0

    var count: Int { entries.count }

    /// - Returns: the deadline of the answer.
    mutating func append(timeout: TimeAmount?, now: NIODeadline, completion: @escaping Completion) -> NIODeadline {
        let deadline = timeout.map { now + $0 } ?? .distantFuture
        entries.append(Entry(timeout: timeout, deadline: deadline, completion: completion))
        unsent += 1
        return deadline
    }

    /// All commands appended so far were given to the socket.
    mutating func markSent() {
        unsent = 0
    }

    /// The command that the answer just read belongs to; `nil` when nothing that was sent waits for an answer.
    mutating func answered() -> Entry? {
        guard entries.count > unsent else { return nil }
        return entries.popFirst()
    }

    /// The command that is the longest overdue, if any.
    func overdue(at now: NIODeadline) -> Entry? {
        entries.lazy.filter { $0.deadline <= now }.min { $0.deadline < $1.deadline }
    }

    /// The deadline of the next answer.
    var nextDeadline: NIODeadline? {
        entries.lazy.map(\.deadline).filter { $0 < .distantFuture }.min()
    }

    /// Gives up on all, oldest first.
    mutating func removeAll() -> [(entry: Entry, sent: Bool)] {
        let sent = entries.count - unsent
        defer {
            entries.removeAll()
            unsent = 0
        }
        return entries.enumerated().map { (entry: $0.element, sent: $0.offset < sent) }
    }
}
