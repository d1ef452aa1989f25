import NIOCore

/// Carries out a `ServerSearch`: asks, connects, and makes sure that a master is one.
///
/// One search at a time. Everything on the event loop.
final class ServerFinder {
    typealias Location = RedisEndpoint.Location

    /// A server that let us in.
    struct Reached {
        let connection: RedisConnection
        let location: Location
    }

    let topology: RedisTopology
    /// The slot that the client serves.
    let slot: Int
    private let eventLoop: any EventLoop
    private let configuration: RedisClientConfiguration
    private var search: ServerSearch
    private var connector: RedisConnector?

    init(topology: RedisTopology, slot: Int, eventLoop: any EventLoop, configuration: RedisClientConfiguration) {
        self.topology = topology
        self.slot = slot
        self.eventLoop = eventLoop
        self.configuration = configuration
        switch topology {
        case .single(let endpoint):
            search = ServerSearch(server: endpoint.location)
        case .sentinel(let sentinel):
            search = ServerSearch(
                advisers: sentinel.sentinels, name: "\(sentinel.master) (by the Sentinels \(topology.address))")
        case .cluster(let cluster):
            search = ServerSearch(advisers: cluster.nodes, name: "\(topology.address) (Cluster)")
        }
    }

    /// Finds the server and connects to it.
    func find(completion: @escaping (Result<Reached, RedisError>) -> Void) {
        follow(search.begin(), completion)
    }

    /// Connects to a server without asking whether it is the one.
    func connect(to location: Location, completion: @escaping (Result<Reached, RedisError>) -> Void) {
        connect(to: endpoint(at: location), timeout: configuration.connectTimeout) { result in
            completion(result.map { Reached(connection: $0, location: location) })
        }
    }

    /// See `RedisClientConfiguration.askTimeout`.
    var askTimeout: TimeAmount { configuration.askTimeout }

    /// Connects to the one that would be asked first.
    func connectToAdviser(completion: @escaping (Result<RedisConnection, RedisError>, Location) -> Void) {
        guard let adviser = search.advisers.first else { return }
        connect(to: adviserEndpoint(at: adviser), timeout: askTimeout) { completion($0, adviser) }
    }

    /// See `ServerSearch.prefer`.
    func prefer(_ adviser: Location) {
        search.prefer(adviser)
    }

    /// See `ServerSearch.moved`.
    func moved(to location: Location) {
        search.moved(to: location)
    }

    /// See `ServerSearch.mistrust`.
    func mistrust(_ location: Location) {
        search.mistrust(location)
    }

    /// Asks whether the server is still the same one; with what is known of others it leaves the next search alone.
    ///
    /// - Parameter completion: gets the server as it is known now; `nil` when nobody could be asked.
    func check(completion: @escaping (Location?) -> Void) {
        var inquiry = search
        func follow(_ step: ServerSearch.Step) {
            switch step {
            case .connect(let location): completion(location)
            case .failed: completion(nil)
            case .ask(let adviser):
                ask(adviser) { result in
                    switch result {
                    case .success(let advice): follow(inquiry.advised(advice))
                    case .failure(let error): follow(inquiry.adviserFailed(error))
                    }
                }
            }
        }
        follow(inquiry.begin())
    }

    private func follow(_ step: ServerSearch.Step, _ completion: @escaping (Result<Reached, RedisError>) -> Void) {
        switch step {
        case .failed(let error):
            completion(.failure(error))
        case .ask(let adviser):
            ask(adviser) { [self] result in
                switch result {
                case .success(let advice): follow(search.advised(advice), completion)
                case .failure(let error): follow(search.adviserFailed(error), completion)
                }
            }
        case .connect(let location):
            connect(to: location) { [self] result in
                switch result {
                case .success(let reached): verify(reached, completion)
                case .failure(let error): follow(search.serverFailed(error), completion)
                }
            }
        }
    }

    /// A Sentinel that has not heard of a failover names the old master, which is a replica by now.
    private func verify(_ reached: Reached, _ completion: @escaping (Result<Reached, RedisError>) -> Void) {
        guard case .sentinel = topology else { return completion(.success(reached)) }
        reached.connection.send(RedisCommand("ROLE"), timeout: configuration.connectTimeout) { [self] result in
            switch result {
            case .success(let reply) where reply.root.count > 0 && reply.root[0].string == "master":
                completion(.success(reached))
            case .failure(.server(let error)) where error.prefix == "NOPERM":
                // Who may not ask takes the Sentinel's word; a replica will refuse the first write.
                completion(.success(reached))
            case .success:
                reached.connection.close()
                let reason = "the Sentinel names it the master, but it is a replica; a failover may be under way"
                follow(search.serverFailed(.connect(address: reached.location.address, reason: reason)), completion)
            case .failure(let error):
                reached.connection.close()
                follow(search.serverFailed(error), completion)
            }
        }
    }

    // MARK: Asking

    private func ask(_ adviser: Location, completion: @escaping (Result<ServerSearch.Advice, RedisError>) -> Void) {
        connect(to: adviserEndpoint(at: adviser), timeout: askTimeout) { [self] result in
            switch result {
            case .failure(let error): completion(.failure(error))
            case .success(let connection):
                inquire(adviser, over: connection) { result in
                    connection.close()
                    completion(result)
                }
            }
        }
    }

    private func inquire(
        _ adviser: Location, over connection: RedisConnection,
        completion: @escaping (Result<ServerSearch.Advice, RedisError>) -> Void
    ) {
        let timeout = askTimeout
        switch topology {
        case .single:
            // Nobody is asked for a single server.
            completion(.success(ServerSearch.Advice(server: adviser, advisers: [])))
        case .sentinel(let sentinel):
            var master: Result<RESPReply, RedisError>?
            let get = RedisCommand("SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinel.master)
            connection.send(get, timeout: timeout) { master = $0 }
            connection.send(RedisCommand("SENTINEL", "SENTINELS", sentinel.master), timeout: timeout) { others in
                // One connection answers in order: what is said of the master is there.
                completion(
                    (master ?? others).mapError { refusal($0, of: adviser) }.map { reply in
                        ServerSearch.Advice(
                            master: reply, sentinels: try? others.get(), name: sentinel.master, sender: adviser)
                    })
            }
        case .cluster:
            connection.send(RedisCommand("CLUSTER", "SLOTS"), timeout: timeout) { [slot] result in
                completion(
                    result.mapError { refusal($0, of: adviser) }.map { reply in
                        ServerSearch.Advice(slots: reply, slot: slot, sender: adviser)
                    })
            }
        }
    }

    private func endpoint(at location: Location) -> RedisEndpoint {
        switch topology {
        case .single(let endpoint): endpoint
        case .sentinel(let sentinel): RedisEndpoint(location: location, access: sentinel.access)
        case .cluster(let cluster): RedisEndpoint(location: location, access: cluster.access)
        }
    }

    private func adviserEndpoint(at location: Location) -> RedisEndpoint {
        guard case .sentinel(let sentinel) = topology else { return endpoint(at: location) }
        return RedisEndpoint(location: location, access: sentinel.sentinelAccess)
    }

    private func connect(
        to endpoint: RedisEndpoint, timeout: TimeAmount,
        completion: @escaping (Result<RedisConnection, RedisError>) -> Void
    ) {
        do throws(RedisError) {
            try existingOrNewConnector().connect(to: endpoint, timeout: timeout, completion: completion)
        } catch {
            completion(.failure(error))
        }
    }

    /// Made at the first attempt and kept: with TLS it holds the system's certificate authorities.
    private func existingOrNewConnector() throws(RedisError) -> RedisConnector {
        if let connector { return connector }
        let new = try RedisConnector(
            usesTLS: topology.usesTLS, address: topology.address, eventLoop: eventLoop, configuration: configuration)
        connector = new
        return new
    }
}

/// An error that answers a question, as a reason to ask somebody else.
private func refusal(_ error: RedisError, of adviser: RedisEndpoint.Location) -> RedisError {
    guard case .server(let answer) = error else { return error }
    var reason = "Redis answered: \(answer.message)"
    if answer.message.contains("cluster support disabled") {
        reason += "; this is no Cluster node: use redis:// in the Redis URL"
    } else if answer.message.contains("unknown command") {
        reason += "; check that a Sentinel listens there (usually at port 26379)"
    }
    return .connect(address: adviser.address, reason: reason)
}
