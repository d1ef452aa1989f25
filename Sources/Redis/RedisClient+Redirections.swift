import NIOCore

/// Redirection of commands that were sent to the wrong server.
extension RedisClient {
    /// The time that a server has to answer what it was sent after the client has left it. Blocking commands there are
    /// not waited for.
    private static let retirementTime: TimeAmount = .seconds(1)

    func transmit(_ command: RedisCommand, _ request: RedisRequest, over link: ServerLink) {
        link.pendingCount += 1
        link.connection.send(command, timeout: request.timeout) { result in
            link.pendingCount -= 1
            if case .failure(.server(let error)) = result {
                self.refused(request, by: link, because: error)
            } else {
                request.completion(result)
            }
            self.endRetirement(link)
        }
    }

    private func refused(_ request: RedisRequest, by link: ServerLink, because error: RedisServerError) {
        let refusal = RedisRefusal(error, topology: topology, slot: discovery.slot, sender: link.location)
        switch refusal {
        case .none:
            request.completion(.failure(.server(error)))
        case .wrongServer:
            discovery.search.demote(link.location)
            retire(link, because: .server(error))
            request.completion(.failure(.server(error)))
        case .moved(let owner):
            discovery.search.moved(to: owner)
            retire(link, because: .server(error), keepsCommands: true)
            if !route.sentAway(request, because: error) { request.completion(.failure(.server(error))) }
        case .ask(let owner):
            ask(owner, for: request, because: error)
        }
    }

    // MARK: Asking another node

    /// Sends a command to the node to which its key has already moved, ahead of its slot.
    private func ask(_ node: RedisLocation, for request: RedisRequest, because error: RedisServerError) {
        guard let command = request.command else { return request.completion(.failure(.server(error))) }
        route.asks()
        nodes.ask(node, command, timeout: request.timeout) { result in
            // If it was not executed, the caller can repeat it, as after any refusal.
            self.asked(result ?? .failure(.server(error)), for: request)
        }
    }

    private func asked(_ result: Result<RESPReply, RedisError>, for request: RedisRequest) {
        route.asked()
        switch result {
        case .success, .failure(.server), .failure(.commandTooLarge):
            request.completion(result)
        case .failure(let error):
            // Callers repeat unanswered commands when the client becomes ready, so it must become ready again.
            if let link = route.server { retire(link, because: error) }
            request.completion(result)
        }
        switchServer()
    }

    // MARK: Retiring a server

    /// Sends nothing more to a server, and looks for another one. It can still answer the commands in flight.
    /// - Parameter keepsCommands: true if new commands wait for the other server; otherwise they fail.
    func retire(_ link: ServerLink, because error: RedisError, keepsCommands: Bool = false) {
        guard route.retire(link, keepsCommands: keepsCommands) else { return }
        link.retire(
            within: Self.retirementTime,
            reason: "switching to another server, and the last answers did not arrive in time")
        tryAgain(because: error)
        endRetirement(link)
    }

    /// Releases a retired server that has answered everything.
    private func endRetirement(_ link: ServerLink) {
        guard link.pendingCount == 0, route.retired === link else { return }
        link.release()
        eventLoop.execute { self.dropRetired(link) }
    }

    func dropRetired(_ link: ServerLink) {
        if route.lost(link) == .ofPreviousServer { switchServer() }
    }
}
