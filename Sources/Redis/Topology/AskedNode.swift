import NIOCore

/// The node that a slot is on its way to: takes the commands whose keys have gone ahead.
///
/// Its connection is made for the first of them and goes when there was none for a while.
///
/// `@unchecked Sendable`: everything happens on `eventLoop`, that of the client it belongs to.
final class AskedNode: @unchecked Sendable {
    private enum State {
        case idle
        case connecting
        case connected(RedisConnection)
    }

    /// A command that was sent here.
    struct Request {
        let command: RedisCommand
        let timeout: TimeAmount?
        /// The answer that sent it here.
        let redirection: RedisServerError
        /// Gets this node's answer; when the node cannot be reached, the redirection, for the command was not executed
        /// then and the caller can repeat it as after any refusal.
        let completion: RedisConnection.Completion
    }

    private static let idleTime: TimeAmount = .seconds(10)

    private let location: RedisEndpoint.Location
    private let finder: ServerFinder
    private let eventLoop: any EventLoop
    private var state = State.idle
    private var waiting: [Request] = []
    private var sent = 0
    /// Commands that have no answer yet.
    private(set) var pendingCount = 0

    init(location: RedisEndpoint.Location, finder: ServerFinder, eventLoop: any EventLoop) {
        self.location = location
        self.finder = finder
        self.eventLoop = eventLoop
    }

    /// Sends a command, with `ASKING` before it.
    func send(_ request: Request) {
        pendingCount += 1
        switch state {
        case .connected(let connection) where connection.isOpen:
            transmit(request, over: connection)
        case .connecting:
            waiting.append(request)
        case .idle, .connected:
            waiting.append(request)
            connect()
        }
    }

    func close() {
        if case .connected(let connection) = state { connection.close() }
        state = .idle
        failWaiting()
    }

    private func connect() {
        state = .connecting
        finder.connect(to: location) { [self] result in
            guard case .connecting = state else {
                if case .success(let reached) = result { reached.connection.close() }
                return
            }
            switch result {
            case .success(let reached):
                state = .connected(reached.connection)
                closeWhenIdle(reached.connection)
                let ready = waiting
                waiting = []
                for request in ready { transmit(request, over: reached.connection) }
            case .failure:
                state = .idle
                failWaiting()
            }
        }
    }

    private func transmit(_ request: Request, over connection: RedisConnection) {
        sent += 1
        // It only fails together with the command behind it.
        connection.send(RedisCommand("ASKING", expecting: 0), timeout: request.timeout) { _ in }
        connection.send(request.command, timeout: request.timeout) { [self] result in
            switch result {
            case .failure(.notConnected), .failure(.connectionLost(_, sent: false, _)):
                finish(request, .failure(.server(request.redirection)))
            case .success, .failure:
                finish(request, result)
            }
        }
    }

    private func finish(_ request: Request, _ result: Result<RESPReply, RedisError>) {
        pendingCount -= 1
        request.completion(result)
    }

    private func failWaiting() {
        let failed = waiting
        waiting = []
        for request in failed { finish(request, .failure(.server(request.redirection))) }
    }

    private func closeWhenIdle(_ connection: RedisConnection) {
        let before = sent
        eventLoop.scheduleTask(in: Self.idleTime) { [weak self] in
            guard let self, connection.isOpen else { return }
            if sent == before, pendingCount == 0 {
                connection.close()
            } else {
                closeWhenIdle(connection)
            }
        }
    }
}
