import NIOCore

/// Performs the steps of a `ServerDiscoveryState`: asks, connects, and verifies that a master is one.
///
/// Allows one search at a time. Only on the event loop.
final class ServerDiscovery {
    /// The slot that the client serves.
    let slot: Int
    private let nodes: NodeConnections
    var search: ServerDiscoveryState
    /// Called when another deployment has replaced the known one.
    var onReplacement: (() -> Void)?

    /// The next question to the seeds about the deployment.
    private var nextCheck: Scheduled<Void>?

    init(_ nodes: NodeConnections, slot: Int) {
        self.nodes = nodes
        self.slot = slot
        switch nodes.topology {
        case .single(let endpoint):
            search = ServerDiscoveryState(server: endpoint.location)
        case .sentinel(let sentinel):
            search = ServerDiscoveryState(
                seeds: sentinel.sentinels,
                name: "\(sentinel.master) (by the Sentinels \(nodes.topology.address))")
        case .cluster(let cluster):
            search = ServerDiscoveryState(seeds: cluster.nodes, name: "\(nodes.topology.address) (Cluster)")
        }
    }

    /// Finds the server and connects to it.
    func find(completion: @escaping NodeConnections.Completion) {
        follow(search.begin(), completion)
    }

    private var askTimeout: TimeAmount { nodes.configuration.askTimeout }

    /// Connects to the seed that would be asked first.
    func connectToSeed(completion: @escaping (Result<RedisConnection, RedisError>, RedisLocation) -> Void) {
        guard let seed = search.seeds.first else { return }
        nodes.connectToSeed(at: seed) { completion($0, seed) }
    }

    /// Asks the seeds for the current server, and learns which seeds there are now.
    ///
    /// - Parameter completion: called with the current server; `nil` if no seed could be asked.
    func check(completion: @escaping (RedisLocation?) -> Void) {
        var inquiry = search
        func end(_ location: RedisLocation?) {
            search.learn(from: inquiry)
            if search.takeReplacement() { onReplacement?() }
            completion(location)
        }
        func follow(_ step: ServerDiscoveryState.Step) {
            switch step {
            case .connect(let location): end(location)
            case .failed: end(nil)
            case .ask(let seed):
                ask(seed) { [self] result in
                    switch result {
                    case .success(let answer): follow(inquiry.answered(answer, at: nodes.eventLoop.now))
                    case .failure(let error): follow(inquiry.seedFailed(error))
                    }
                }
            }
        }
        follow(inquiry.beginInquiry())
    }

    /// Asks the seeds at intervals while there is a connection. During a long connection all seeds may be replaced. Without these
    /// questions, the new seeds would seem to be another deployment.
    /// - Parameter isConnected: true while there is a connection.
    func keepChecking(while isConnected: @escaping () -> Bool) {
        if case .single = nodes.topology { return }
        let delay = Double(nodes.configuration.seedInterval.nanoseconds) * Double.random(in: 0.8...1.2)
        nextCheck = nodes.eventLoop.assumeIsolated().scheduleTask(in: .nanoseconds(Int64(delay))) { [weak self] in
            guard let self else { return }
            if isConnected() { check { _ in } }
            keepChecking(while: isConnected)
        }
    }

    /// Ends ``keepChecking(while:)``.
    func stop() { nextCheck?.cancel() }

    private func follow(_ step: ServerDiscoveryState.Step, _ completion: @escaping NodeConnections.Completion) {
        switch step {
        case .failed(let error):
            completion(.failure(error))
        case .ask(let seed):
            ask(seed) { [self] result in
                switch result {
                case .success(let answer):
                    let step = search.answered(answer, at: nodes.eventLoop.now)
                    if search.takeReplacement() { onReplacement?() }
                    follow(step, completion)
                case .failure(let error): follow(search.seedFailed(error), completion)
                }
            }
        case .connect(let location):
            nodes.use(location) { [self] result in
                switch result {
                case .success(let link): verify(link, completion)
                case .failure(let error): follow(search.serverFailed(error), completion)
                }
            }
        }
    }

    /// Verifies the role. A Sentinel that does not know of a failover yet names the old master, which may be a replica by now. The URL of a
    /// single server may name a Sentinel.
    private func verify(_ link: ServerLink, _ completion: @escaping NodeConnections.Completion) {
        if case .cluster = nodes.topology { return completion(.success(link)) }
        let isSingle = if case .single = nodes.topology { true } else { false }
        link.connection.send(RedisCommand("ROLE"), timeout: nodes.configuration.connectTimeout) { [self] result in
            switch result {
            case .success(let reply) where reply.root.count > 0 && reply.root[0].string == "master":
                completion(.success(link))
            case .failure(.server(let error)) where error.prefix == "NOPERM":
                // Without permission to ask for the role, the Sentinel's answer counts; a replica will refuse the first write.
                completion(.success(link))
            case .success(let reply) where reply.root.count > 0 && reply.root[0].string == "sentinel":
                link.release()
                let reason =
                    "a Sentinel listens there: begin the Redis URL with redis+sentinel://, and end it with ?master=NAME"
                follow(search.serverFailed(.connect(address: link.location.address, reason: reason)), completion)
            // A single server that is a replica refuses writes, and that is reported.
            case .success where isSingle, .failure(.server) where isSingle:
                completion(.success(link))
            case .success:
                link.release()
                let reason = "the Sentinel names it as the master, but it is a replica; a failover may be in progress"
                follow(search.serverFailed(.connect(address: link.location.address, reason: reason)), completion)
            case .failure(let error):
                link.release()
                follow(search.serverFailed(error), completion)
            }
        }
    }

    // MARK: Asking

    private func ask(
        _ seed: RedisLocation, completion: @escaping (Result<ServerDiscoveryState.Answer, RedisError>) -> Void
    ) {
        switch nodes.topology {
        case .single:
            // A single server is known without asking.
            completion(.success(ServerDiscoveryState.Answer(server: seed, seeds: [])))
        case .sentinel(let sentinel):
            ask(seed, for: sentinel.master, completion)
        case .cluster:
            nodes.slots(by: seed) { [slot] result in
                completion(
                    result.mapError { refusal($0, of: seed) }.map { reply in
                        ServerDiscoveryState.Answer(slots: reply, slot: slot, sender: seed)
                    })
            }
        }
    }

    private func ask(
        _ sentinel: RedisLocation, for master: String,
        _ completion: @escaping (Result<ServerDiscoveryState.Answer, RedisError>) -> Void
    ) {
        nodes.connectToSeed(at: sentinel) { [timeout = askTimeout] result in
            let connection: RedisConnection
            switch result {
            case .failure(let error): return completion(.failure(error))
            case .success(let made): connection = made
            }
            var place: Result<RESPReply, RedisError>?
            let get = RedisCommand("SENTINEL", "GET-MASTER-ADDR-BY-NAME", master)
            var others: Result<RESPReply, RedisError>?
            connection.send(get, timeout: timeout) { place = $0 }
            connection.send(RedisCommand("SENTINEL", "SENTINELS", master), timeout: timeout) { others = $0 }
            connection.send(RedisCommand("SENTINEL", "MYID"), timeout: timeout) { identity in
                connection.close()
                // A connection answers in order, so the other answers have already arrived.
                completion(
                    (place ?? identity).mapError { refusal($0, of: sentinel) }.map { reply in
                        ServerDiscoveryState.Answer(
                            master: reply, sentinels: others?.value, identity: identity.value, name: master,
                            sender: sentinel)
                    })
            }
        }
    }
}

extension Result {
    fileprivate var value: Success? { if case .success(let value) = self { value } else { nil } }
}

/// Converts an error in a seed's answer to the reason why another seed is asked.
func refusal(_ error: RedisError, of seed: RedisLocation) -> RedisError {
    guard case .server(let answer) = error else { return error }
    var reason = "Redis answered: \(answer.message)"
    if answer.message.contains("cluster support disabled") {
        reason += "; this is not a Cluster node: use redis:// in the Redis URL"
    } else if answer.message.contains("unknown command") {
        reason += "; check that a Sentinel listens there (usually at port 26379)"
    }
    return .connect(address: seed.address, reason: reason)
}
