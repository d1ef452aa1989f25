import NIOCore

/// The commands of one connection that have not been answered, in the order of their answers.
struct PendingCommands {
    struct Entry {
        /// The time limit of the command; `nil` for none.
        let timeout: TimeAmount?
        let deadline: NIODeadline
        let completion: RedisClient.Completion
    }

    private var entries = CircularBuffer<Entry>()
    /// The number of entries at the end of `entries` that are encoded but not yet written.
    private var unsent = 0

    var count: Int { entries.count }

    /// - Returns: the deadline of the answer.
    mutating func append(
        timeout: TimeAmount?, now: NIODeadline, completion: @escaping RedisClient.Completion
    ) -> NIODeadline {
        let deadline = timeout.map { now + $0 } ?? .distantFuture
        entries.append(Entry(timeout: timeout, deadline: deadline, completion: completion))
        unsent += 1
        return deadline
    }

    /// Records that all commands appended so far have been written to the socket.
    mutating func markSent() {
        unsent = 0
    }

    /// Removes and returns the command that the answer just read belongs to; `nil` if no sent command waits for an
    /// answer.
    mutating func answered() -> Entry? {
        guard entries.count > unsent else { return nil }
        return entries.popFirst()
    }

    /// Returns the command that is the longest overdue, if any.
    func overdue(at now: NIODeadline) -> Entry? {
        entries.lazy.filter { $0.deadline <= now }.min { $0.deadline < $1.deadline }
    }

    var nextDeadline: NIODeadline? {
        entries.lazy.map(\.deadline).filter { $0 < .distantFuture }.min()
    }

    /// Removes all commands, oldest first.
    mutating func removeAll() -> [(entry: Entry, sent: Bool)] {
        let sent = entries.count - unsent
        defer {
            entries.removeAll()
            unsent = 0
        }
        return entries.enumerated().map { (entry: $0.element, sent: $0.offset < sent) }
    }
}
