import NIOCore
import Sockets

/// Finds a client's server: asks one seed after the other, until one names a server that accepts the login.
///
/// Seeds are the Sentinels, or the nodes of a Cluster; a single server is known without asking. One search at a time:
/// each step is answered before the next.
struct ServerDiscoveryState {
    typealias Location = RedisEndpoint.Location

    enum Step: Equatable {
        /// Ask this seed for the server.
        case ask(Location)
        /// Connect to this server.
        case connect(Location)
        /// No seed named a server that accepted the login; begin again later.
        case failed(RedisError)
    }

    /// A seed's answer.
    struct Answer: Equatable {
        /// The server, if it knows one.
        var server: Location?
        /// Other seeds.
        var seeds: [Location]
        /// The reason why there is no server.
        var reason = "it knows no server"
    }

    /// The maximum number of seeds, so that answers from the network cannot fill the memory.
    static let maximumSeeds = 1000

    /// The seeds in the order of asking; the last one that worked is first.
    private(set) var seeds: [Location]
    private let configuredSeeds: [Location]
    private let fixed: Location?
    /// The name of the whole deployment, for errors that concern no single server.
    private let name: String

    /// The server that was announced since the last search began, if any.
    var announced: Location?
    private var hint: Location?
    private var unasked: [Location] = []
    private var asked: Location?
    private var discovered: Set<Location> = []
    private var tried: Set<Location> = []
    private var failures: [RedisError] = []

    /// Creates a search for a single server.
    init(server: Location) {
        fixed = server
        configuredSeeds = []
        seeds = []
        name = server.address
    }

    /// Creates a search that asks seeds for the server.
    init(seeds: [Location], name: String) {
        fixed = nil
        configuredSeeds = seeds
        self.seeds = seeds
        self.name = name
    }

    /// Begins a search.
    mutating func begin() -> Step {
        announced = nil
        unasked = seeds
        asked = nil
        discovered = Set(seeds)
        tried = []
        failures = []
        if let known = fixed ?? hint {
            hint = nil
            tried.insert(known)
            return .connect(known)
        }
        return next()
    }

    /// Records a seed's answer.
    mutating func answered(_ answer: Answer) -> Step {
        guard let asked else { return next() }
        var known = [asked]
        for other in configuredSeeds + answer.seeds where known.count < Self.maximumSeeds && !known.contains(other) {
            known.append(other)
        }
        // Newly discovered seeds are asked in this search too, but only once.
        for seed in known where discovered.count < Self.maximumSeeds && discovered.insert(seed).inserted {
            unasked.append(seed)
        }
        seeds = known
        guard let server = answer.server else {
            return seedFailed(.connect(address: asked.address, reason: answer.reason))
        }
        // A server that has just refused the login is not tried again because another seed names it too.
        guard tried.insert(server).inserted else { return next() }
        return .connect(server)
    }

    /// Records that the seed could not be reached.
    mutating func seedFailed(_ error: RedisError) -> Step {
        if let asked { askLast(asked) }
        failures.append(error)
        return next()
    }

    /// Records that the server refused the login, or does not have the announced role.
    mutating func serverFailed(_ error: RedisError) -> Step {
        if let asked { askLast(asked) }
        failures.append(error)
        return next()
    }

    /// Records that an authority has announced the server: the next search begins there.
    mutating func moved(to server: Location) {
        hint = server
    }

    /// Records that a server is not the right one, or no longer: it is asked last.
    mutating func demote(_ server: Location) {
        askLast(server)
        if hint == server { hint = nil }
    }

    /// Records that a seed knows the server: it is asked first.
    mutating func prefer(_ seed: Location) {
        guard let index = seeds.firstIndex(of: seed) else { return }
        seeds.insert(seeds.remove(at: index), at: 0)
    }

    private mutating func askLast(_ seed: Location) {
        guard let index = seeds.firstIndex(of: seed) else { return }
        seeds.append(seeds.remove(at: index))
    }

    private mutating func next() -> Step {
        guard unasked.isEmpty else {
            let seed = unasked.removeFirst()
            asked = seed
            return .ask(seed)
        }
        asked = nil
        return .failed(summary)
    }

    /// The error of the search: a refused login if there was one, because waiting rarely helps; otherwise all failures.
    private var summary: RedisError {
        let refused = failures.first { if case .authentication = $0 { true } else { false } }
        if let refused { return refused }
        guard let first = failures.first else { return .connect(address: name, reason: "no server is known") }
        guard failures.count > 1 else { return first }
        let shown = failures.prefix(5).map(\.shortText).joined(separator: "; ")
        let rest = failures.count > 5 ? "; and \(failures.count - 5) more" : ""
        return .connect(address: name, reason: shown + rest)
    }
}

extension ServerDiscoveryState.Answer {
    /// Reads the answers to `SENTINEL GET-MASTER-ADDR-BY-NAME` and `SENTINEL SENTINELS`.
    ///
    /// - Parameter sentinels: `nil` if that command was refused; then no seeds are learned.
    init(master: RESPReply, sentinels: RESPReply?, name: String, sender: ServerDiscoveryState.Location) {
        server = ServerDiscoveryState.Location(
            announced: master.root.count == 2 ? master.root[0].string : "?",
            port: master.root.count == 2 ? master.root[1].string.flatMap { Int($0) } : nil, by: sender)
        reason = "the Sentinel knows no master named \"\(name)\"; check ?master= in the Redis URL"
        seeds = sentinels?.root.children.compactMap { Self.location(ofInstance: $0, sender: sender) } ?? []
    }

    /// Reads alternating names and values. Redis 6.2 and later call the address `ip` even if it is a host name.
    private static func location(
        ofInstance instance: RESPReply.Element, sender: ServerDiscoveryState.Location
    ) -> ServerDiscoveryState.Location? {
        var host: String?
        var port: Int?
        var fields = instance.children
        while let name = fields.next()?.string, let value = fields.next()?.string {
            if name == "ip" { host = value }
            if name == "port" { port = Int(value) }
        }
        return host.flatMap { ServerDiscoveryState.Location(announced: $0, port: port, by: sender) }
    }

    /// Reads the answer to `CLUSTER SLOTS`: first slot, last slot, then the nodes, beginning with the master.
    init(slots: RESPReply, slot: Int, sender: ServerDiscoveryState.Location) {
        server = nil
        seeds = []
        reason = "no server has slot \(slot) of the Redis Cluster; check its state (CLUSTER INFO)"
        var known: Set<ServerDiscoveryState.Location> = []
        for range in slots.root.children {
            var parts = range.children
            guard let first = parts.next()?.integer, let last = parts.next()?.integer else { continue }
            var isMaster = true
            while let node = parts.next() {
                defer { isMaster = false }
                guard node.count >= 2,
                    let location = ServerDiscoveryState.Location(
                        announced: node[0].string, port: node[1].integer, by: sender)
                else { continue }
                if isMaster, first <= slot, slot <= last { server = location }
                if known.insert(location).inserted { seeds.append(location) }
            }
        }
    }
}
