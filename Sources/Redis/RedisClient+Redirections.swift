import Logging
import NIOCore

/// What becomes of a command that was sent to the wrong server.
extension RedisClient {
    /// How long a server that is left may take to answer what it was sent. Commands that block there are not waited for.
    private static let leavingTime: TimeAmount = .seconds(1)

    func transmit(_ command: RedisCommand, _ request: RedisRequest, over reached: ServerFinder.Reached) {
        reached.connection.send(command, timeout: request.timeout) { result in
            if case .failure(.server(let error)) = result {
                self.refused(request, by: reached, because: error)
            } else {
                request.completion(result)
            }
            if reached.connection === self.leaving { self.finishLeaving() }
        }
    }

    private func refused(
        _ request: RedisRequest, by reached: ServerFinder.Reached, because error: RedisServerError
    ) {
        let refusal = RedisRefusal(error, topology: topology, slot: finder.slot, sender: reached.location)
        switch refusal {
        case .none:
            if error.prefix == "MOVED", case .single = topology { tellOfCluster() }
            request.completion(.failure(.server(error)))
        case .wrongServer:
            finder.mistrust(reached.location)
            leave(reached, because: .server(error))
            request.completion(.failure(.server(error)))
        case .moved(let owner):
            finder.moved(to: owner)
            if current?.connection === reached.connection { handover.open() }
            leave(reached, because: .server(error))
            if !handover.takeBack(request, because: error) { request.completion(.failure(.server(error))) }
        case .ask(let owner):
            guard let command = request.command else { return request.completion(.failure(.server(error))) }
            let node = askedNodes[owner] ?? AskedNode(location: owner, finder: finder, eventLoop: eventLoop)
            askedNodes[owner] = node
            node.send(
                AskedNode.Request(command: command, timeout: request.timeout, redirection: error) { result in
                    self.answered(result, to: request)
                })
        }
    }

    private func tellOfCluster() {
        guard !hasToldOfCluster else { return }
        hasToldOfCluster = true
        logger.error(
            "the Redis server is a node of a Cluster: begin the Redis URL with redis+cluster://",
            metadata: ["redis": "\(topology)"])
    }

    /// An asked node has answered, or was lost.
    private func answered(_ result: Result<RESPReply, RedisError>, to request: RedisRequest) {
        switch result {
        case .success, .failure(.server), .failure(.commandTooLarge):
            request.completion(result)
        case .failure(let error):
            // Callers repeat what has no answer when the client is ready again: so it has to become so again.
            if let current { leave(current, because: error) }
            request.completion(result)
        }
        takeOver()
    }

    /// Sends nothing more to a server and looks for another one. What it was sent it may still answer.
    func leave(_ reached: ServerFinder.Reached, because error: RedisError) {
        guard current?.connection === reached.connection else { return }
        let connection = reached.connection
        leaving = connection
        connection.onClose = { _ in
            // What is lost with it is told first.
            self.eventLoop.execute { self.left(connection) }
        }
        leavingLimit = eventLoop.scheduleTask(in: Self.leavingTime) {
            connection.close(reason: "another server has to be used, and the last answers did not come in time")
        }
        tryAgain(because: error)
        finishLeaving()
    }

    private func finishLeaving() {
        guard let connection = leaving, connection.pendingCount == 0 else { return }
        connection.close()
    }

    private func left(_ connection: RedisConnection) {
        guard leaving === connection else { return }
        leavingLimit?.cancel()
        leaving = nil
        takeOver()
    }
}
