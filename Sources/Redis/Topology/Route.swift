import NIOCore

/// The server for a client's commands, and the answers still expected from other servers, without any I/O.
///
///     between servers ──► serving ──► between servers …
///            └──────────────┴───────► closed
///
/// A slot moves at one moment: the old node executes the first part of a pipeline and redirects the rest. To keep the order, the redirected
/// commands are sent before newer ones, and only after the old node has answered all commands in flight.
struct Route<Link: AnyObject> {
    private enum State {
        case serving(Link)
        case between(Between)
        case closed
    }

    private struct Between {
        /// The previous server, until it has answered all commands in flight.
        var retired: Link?
        /// The next server, which becomes current when no other server has commands in flight.
        var found: Link?
        /// The commands that wait for the next server; `nil` if commands fail without one.
        var kept: Kept?
    }

    private struct Kept {
        /// The commands that the old node has redirected.
        var sentAway: [RedisRequest] = []
        /// The new commands, which arrived while there was no server.
        var arrived: [RedisRequest] = []
    }

    /// The destination of a new command.
    enum Destination {
        case server(Link)
        /// The command is sent when the next server becomes current.
        case kept
        /// There is no server.
        case none
    }

    /// The role of a connection that was lost.
    enum Loss {
        case ofServer
        case ofNextServer
        case ofPreviousServer
        case ofNothing
    }

    private var state = State.between(Between())
    /// The number of unanswered commands that were sent to other nodes after `ASK`.
    private var askedCount = 0

    /// The server for new commands.
    var server: Link? {
        if case .serving(let link) = state { link } else { nil }
    }

    /// The previous server, while it has commands in flight.
    var retired: Link? {
        if case .between(let between) = state { between.retired } else { nil }
    }

    /// Returns the destination of a new command, and keeps the command if it must wait.
    mutating func send(_ request: RedisRequest) -> Destination {
        switch state {
        case .serving(let link):
            return .server(link)
        case .between(var between):
            guard between.kept != nil, request.command != nil else { return .none }
            between.kept?.arrived.append(request)
            state = .between(between)
            return .kept
        case .closed:
            return .none
        }
    }

    /// Records that the server has redirected a command because its slot has moved.
    /// - Returns: true if the command is kept for the next server; otherwise the caller must answer it.
    mutating func sentAway(_ request: RedisRequest, because error: RedisServerError) -> Bool {
        guard case .between(var between) = state, between.kept != nil, request.command != nil,
            request.redirections < RedisRequest.maximumRedirections
        else { return false }
        var request = request
        request.redirections += 1
        request.redirectedBy = error
        between.kept?.sentAway.append(request)
        state = .between(between)
        return true
    }

    /// Stops sending to the server.
    /// - Parameter keepsCommands: true if commands wait for the next server; otherwise they fail.
    /// - Returns: false if this is not the current server.
    mutating func retire(_ link: Link, keepsCommands: Bool) -> Bool {
        guard server === link else { return false }
        state = .between(Between(retired: link, kept: keepsCommands ? Kept() : nil))
        return true
    }

    /// Records that the next server was found.
    /// - Returns: false if no server is wanted.
    mutating func found(_ link: Link) -> Bool {
        guard case .between(var between) = state, between.found == nil else { return false }
        between.found = link
        state = .between(between)
        return true
    }

    /// Makes the next server current, if there is one and no other server has commands in flight.
    /// - Returns: the server, and the commands to send before all others.
    mutating func switchServer() -> (server: Link, kept: [RedisRequest])? {
        guard case .between(let between) = state, let link = between.found, between.retired == nil, askedCount == 0
        else {
            return nil
        }
        state = .serving(link)
        return (link, (between.kept?.sentAway ?? []) + (between.kept?.arrived ?? []))
    }

    /// Records that a connection has no more commands in flight: it was lost, or a previous server has given its last answer.
    mutating func lost(_ link: Link) -> Loss {
        if server === link {
            state = .between(Between())
            return .ofServer
        }
        guard case .between(var between) = state else { return .ofNothing }
        defer { state = .between(between) }
        if between.found === link {
            between.found = nil
            return .ofNextServer
        }
        if between.retired === link {
            between.retired = nil
            return .ofPreviousServer
        }
        return .ofNothing
    }

    /// Stops keeping commands, because no server was found.
    /// - Returns: the commands that were kept.
    mutating func giveUpKept() -> [RedisRequest] {
        guard case .between(var between) = state, let kept = between.kept else { return [] }
        between.kept = nil
        state = .between(between)
        return kept.sentAway + kept.arrived
    }

    /// Records that a command is sent to another node.
    mutating func asks() { askedCount += 1 }

    /// Records that another node has answered, or that its answer was lost.
    mutating func asked() { askedCount -= 1 }

    /// - Returns: the links, and the commands that were kept.
    mutating func close() -> (links: [Link], kept: [RedisRequest]) {
        let kept = giveUpKept()
        defer { state = .closed }
        switch state {
        case .serving(let link): return ([link], [])
        case .between(let between): return ([between.retired, between.found].compactMap { $0 }, kept)
        case .closed: return ([], [])
        }
    }
}

/// A command that is not answered yet. Another server than the first may answer it.
struct RedisRequest {
    /// The maximum number of redirections that a command follows before its caller gets the redirection. Otherwise two nodes that name each
    /// other would keep the command forever.
    static let maximumRedirections = 5

    /// Kept only if the command might be sent again, which happens in a Cluster.
    let command: RedisCommand?
    let timeout: TimeAmount?
    let completion: RedisCommand.Completion
    var redirections = 0
    /// The redirection that the command follows.
    var redirectedBy: RedisServerError?
}
