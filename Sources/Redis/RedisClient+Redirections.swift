import Logging
import NIOCore

/// What becomes of a command that was sent to the wrong server.
extension RedisClient {
    /// How long a server that is left may take to answer what it was sent. Commands that block there are not waited for.
    private static let leavingTime: TimeAmount = .seconds(1)

    func transmit(_ command: RedisCommand, _ request: RedisRequest, over link: ServerLink) {
        link.pendingCount += 1
        link.connection.send(command, timeout: request.timeout) { result in
            link.pendingCount -= 1
            if case .failure(.server(let error)) = result {
                self.refused(request, by: link, because: error)
            } else {
                request.completion(result)
            }
            self.endLeaving(link)
        }
    }

    private func refused(_ request: RedisRequest, by link: ServerLink, because error: RedisServerError) {
        let refusal = RedisRefusal(error, topology: topology, slot: finder.slot, sender: link.location)
        switch refusal {
        case .none:
            if error.prefix == "MOVED", case .single = topology { tellOfCluster() }
            request.completion(.failure(.server(error)))
        case .wrongServer:
            finder.mistrust(link.location)
            leave(link, because: .server(error))
            request.completion(.failure(.server(error)))
        case .moved(let owner):
            finder.moved(to: owner)
            leave(link, because: .server(error), keepsCommands: true)
            if !route.sentAway(request, because: error) { request.completion(.failure(.server(error))) }
        case .ask(let owner):
            ask(owner, for: request, because: error)
        }
    }

    private func tellOfCluster() {
        guard !hasToldOfCluster else { return }
        hasToldOfCluster = true
        logger.error(
            "the Redis server is a node of a Cluster: begin the Redis URL with redis+cluster://",
            metadata: ["redis": "\(topology)"])
    }

    // MARK: Asking another node

    /// Sends a command to the node that its key has moved to ahead of its slot.
    private func ask(_ node: RedisEndpoint.Location, for request: RedisRequest, because error: RedisServerError) {
        guard let command = request.command else { return request.completion(.failure(.server(error))) }
        route.asks()
        nodes.use(node) { result in
            guard case .success(let link) = result else { return self.asked(.failure(.server(error)), for: request) }
            // It fails only together with the command behind it.
            link.connection.send(RedisCommand("ASKING", expecting: 0), timeout: request.timeout) { _ in }
            link.connection.send(command, timeout: request.timeout) { result in
                link.release()
                switch result {
                // Not executed: the caller can repeat it as after any refusal.
                case .failure(.notConnected), .failure(.connectionLost(_, sent: false, _)):
                    self.asked(.failure(.server(error)), for: request)
                case .success, .failure:
                    self.asked(result, for: request)
                }
            }
        }
    }

    private func asked(_ result: Result<RESPReply, RedisError>, for request: RedisRequest) {
        route.asked()
        switch result {
        case .success, .failure(.server), .failure(.commandTooLarge):
            request.completion(result)
        case .failure(let error):
            // Callers repeat what has no answer when the client is ready again: so it has to become so again.
            if let link = route.server { leave(link, because: error) }
            request.completion(result)
        }
        takeOver()
    }

    // MARK: Leaving

    /// Sends nothing more to a server and looks for another one. What it was sent it may still answer.
    /// - Parameter keepsCommands: true if new commands wait for the other server; else they fail.
    func leave(_ link: ServerLink, because error: RedisError, keepsCommands: Bool = false) {
        guard route.leave(link, keepsCommands: keepsCommands) else { return }
        leavingLimit = eventLoop.scheduleTask(in: Self.leavingTime) {
            link.closeUnlessShared(reason: "another server has to be used, and the last answers did not come in time")
        }
        tryAgain(because: error)
        endLeaving(link)
    }

    /// Lets go of a server that was left and has answered everything.
    private func endLeaving(_ link: ServerLink) {
        guard link.pendingCount == 0, route.left === link else { return }
        link.release()
        eventLoop.execute { self.forgetLeft(link) }
    }

    func forgetLeft(_ link: ServerLink) {
        guard route.lost(link) == .ofPreviousServer else { return }
        leavingLimit?.cancel()
        takeOver()
    }
}
