/// One connection to a server, shared by all its users, without any I/O.
///
///     connecting ──► open ──► closed
///          └──────────────────►┘
///
/// The first user starts the attempt to connect.
struct NodeState<Connection, Waiter> {
    private enum State {
        /// The waiting users, in the order of their requests.
        case connecting([Waiter])
        case open(Connection, users: Int)
        case closed
    }

    /// The result for a new user.
    enum Use {
        case connection(Connection)
        /// The user gets the connection, or the reason for the failure, when the attempt has ended.
        case wait
        /// The connection was closed: the user needs another one.
        case closed
    }

    private var state: State
    /// Counts the users so far, to distinguish an idle connection from one that was used in the meantime.
    private(set) var useCount: Int

    init(first waiter: Waiter) {
        state = .connecting([waiter])
        useCount = 1
    }

    var connection: Connection? {
        if case .open(let connection, _) = state { connection } else { nil }
    }

    /// The number of users of the open connection.
    var users: Int {
        if case .open(_, let users) = state { users } else { 0 }
    }

    mutating func use(_ waiter: Waiter) -> Use {
        switch state {
        case .connecting(let waiting):
            state = .connecting(waiting + [waiter])
            useCount += 1
            return .wait
        case .open(let connection, let users):
            state = .open(connection, users: users + 1)
            useCount += 1
            return .connection(connection)
        case .closed:
            return .closed
        }
    }

    /// Records that the attempt has succeeded.
    /// - Returns: the waiters, each of which is a user from now on; empty if the connection is no longer wanted.
    mutating func connected(_ connection: Connection) -> [Waiter] {
        guard case .connecting(let waiting) = state else { return [] }
        state = .open(connection, users: waiting.count)
        return waiting
    }

    /// Records that the attempt has failed, or that the connection was lost or must be closed.
    /// - Returns: the waiters.
    mutating func close() -> [Waiter] {
        defer { state = .closed }
        if case .connecting(let waiting) = state { return waiting }
        return []
    }

    /// Records that a user has released the connection.
    /// - Returns: true if it has no users now.
    mutating func release() -> Bool {
        guard case .open(let connection, let users) = state else { return false }
        state = .open(connection, users: users - 1)
        return users == 1
    }

    /// Returns the connection, if it has had no new user since the given `useCount`.
    func idle(since useCount: Int) -> Connection? {
        guard case .open(let connection, users: 0) = state, self.useCount == useCount else { return nil }
        return connection
    }
}
