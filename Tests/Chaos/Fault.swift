/// A fault, its target, and its duration.
struct Fault: Equatable, Sendable {
    enum Action: Equatable, Sendable {
        /// `kill -9`. Another worker replaces the killed worker when the fault ends.
        case killWorker
        /// SIGSTOP, and SIGCONT when the fault ends.
        case stopWorker
        /// SIGTERM. Another worker replaces the draining worker at once.
        case endWorker
        /// The worker's credentials are replaced, and it gets SIGHUP.
        case rotateCredentials
        /// The worker's clock is set forward or back.
        case setClock(seconds: Int)
        /// The network between a worker and its Redis, or its APNs.
        case network(Network)
        /// The Redis that holds the queue.
        case redis(RedisFault)
    }

    enum Network: Equatable, Sendable {
        case cut, reset, blackHole, noAnswers, refusal
        case delay(milliseconds: Int)
    }

    /// The faults of Redis; the possible ones depend on the topology.
    enum RedisFault: String, CaseIterable, Sendable {
        case kill = "kill -9"
        case restart = "restart"
        case pause = "SIGSTOP"
        case killClients = "CLIENT KILL of all"
        case flushScripts = "SCRIPT FLUSH"
        case fill = "out of memory"
        case failOver = "failover by order"
        case killReplica = "kill -9 of a replica"
        case pauseWatcher = "SIGSTOP of a Sentinel"
        case reshard = "the queues and the shared keys moved"
        case moveShard = "a shard of the invalid tokens moved"
        case outage = "SIGSTOP of all"
        case powerCut = "power cut"
        case clockForward = "clock set forward"
        case clockBack = "clock set back"
    }

    /// The target of a fault. No two faults of one target overlap.
    enum Target: Hashable, Sendable {
        case worker(Int)
        /// The connections of a worker to Redis.
        case redisOf(Int)
        /// The connections of a worker to APNs.
        case apnsOf(Int)
        case redis
    }

    /// Clocks are set by this number of seconds, which is more than a lease.
    static let clockStep = 20

    var action: Action
    var target: Target
    /// ``begin`` and ``end`` are in milliseconds since the run began.
    var begin: Int
    var end: Int

    /// The fault's name, for the log and for counting.
    var name: String {
        switch action {
        case .killWorker: "kill -9"
        case .stopWorker: "SIGSTOP"
        case .endWorker: "SIGTERM"
        case .rotateCredentials: "credentials rotated"
        case .setClock(let seconds): "clock set \(seconds > 0 ? "forward" : "back")"
        case .network(let network): network.name
        case .redis(let fault): fault.rawValue
        }
    }

    /// The way to undo the fault, if it lasts.
    var undoing: String? {
        switch action {
        case .killWorker: "replaced"
        case .stopWorker: "SIGCONT"
        case .endWorker, .rotateCredentials, .setClock: nil
        case .network(.cut), .network(.reset): nil
        case .network: "healed"
        case .redis(.kill), .redis(.killReplica), .redis(.powerCut): "started again"
        case .redis(.pause), .redis(.pauseWatcher), .redis(.outage): "SIGCONT"
        case .redis(.fill): "has memory again"
        case .redis: nil
        }
    }
}

extension Fault.Network {
    var name: String {
        switch self {
        case .cut: "connections closed"
        case .reset: "connections reset"
        case .blackHole: "half open"
        case .noAnswers: "answers lost"
        case .refusal: "refuses connections"
        case .delay: "slow"
        }
    }
}

extension Fault.Target: CustomStringConvertible {
    var description: String {
        switch self {
        case .worker(let slot): "worker \(slot)"
        case .redisOf(let slot): "worker \(slot)'s way to Redis"
        case .apnsOf(let slot): "worker \(slot)'s way to APNs"
        case .redis: "Redis"
        }
    }
}
