import NIOCore
import Sockets

/// Finds a client's server: asks one seed after the other, until one names a server that accepts the login.
///
/// Seeds are the Sentinels, or the nodes of a Cluster; a single server is known without asking. One search at a time:
/// each step is answered before the next.
struct ServerDiscoveryState {
    enum Step: Equatable {
        /// Ask this seed for the server.
        case ask(RedisLocation)
        case connect(RedisLocation)
        /// No seed named a server that accepted the login; begin again later.
        case failed(RedisError)
    }

    /// A seed's answer.
    struct Answer: Equatable {
        var server: RedisLocation?
        var seeds: [RedisLocation]
        /// The IDs of the deployment's servers, which no other deployment has; empty if unknown.
        var identity: Set<String> = []
        var reason = "it knows no server"
    }

    /// The maximum number of seeds, so that answers from the network cannot fill the memory.
    static let maximumSeeds = 1000
    /// The time until another deployment is accepted, if it answers at an address of the known one.
    static let patience: TimeAmount = .seconds(60)

    /// The seeds in the order of asking: the last one that worked, the seeds that it named, and the URL's seeds, which can be outdated.
    private(set) var seeds: [RedisLocation]
    private let configuredSeeds: [RedisLocation]
    private let fixed: RedisLocation?
    /// The name of the whole deployment, for errors that concern no single server.
    private let name: String

    /// The known deployment. Answers of other deployments are refused.
    private(set) var deployment = RedisDeployment()
    /// The time of the first answer of another deployment at an address of the known one.
    private var replacedSince: NIODeadline?
    /// True if an answer of another deployment was accepted since this was last read.
    private var isReplaced = false

    /// The server that was announced since the last search began, if any.
    var announced: RedisLocation?
    private var hint: RedisLocation?
    private var unasked: [RedisLocation] = []
    private var asked: RedisLocation?
    private var discovered: Set<RedisLocation> = []
    private var tried: Set<RedisLocation> = []
    private var failures: [RedisError] = []

    init(server: RedisLocation) {
        fixed = server
        configuredSeeds = []
        seeds = []
        name = server.address
    }

    init(seeds: [RedisLocation], name: String) {
        fixed = nil
        configuredSeeds = seeds
        self.seeds = seeds
        self.name = name
    }

    mutating func begin() -> Step {
        hint = announced ?? hint
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

    /// Begins a search that asks the seeds, whatever is known about the server.
    mutating func beginInquiry() -> Step {
        announced = nil
        hint = nil
        return begin()
    }

    mutating func answered(_ answer: Answer, at now: NIODeadline) -> Step {
        guard let asked else { return next() }
        if let refusal = recognize(answer, of: asked, at: now) {
            // The refusal is listed first, because it explains why the search fails although this seed has answered.
            failures.insert(.connect(address: asked.address, reason: refusal), at: 0)
            askLast(asked)
            return next()
        }
        var known = [asked]
        for other in answer.seeds + configuredSeeds where known.count < Self.maximumSeeds && !known.contains(other) {
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
        // If the server has just refused the login, it is not tried again when another seed names it.
        guard tried.insert(server).inserted else { return next() }
        return .connect(server)
    }

    /// Compares an answer with the known deployment. An address of the URL may belong to another deployment by now, whose jobs must not be
    /// sent with these credentials. A deployment that was set up again at its old addresses is accepted after ``patience``.
    /// - Returns: the reason for refusing it; `nil` to accept it.
    private mutating func recognize(_ answer: Answer, of seed: RedisLocation, at now: NIODeadline) -> String? {
        let known = deployment.identity
        if !known.isEmpty, !answer.identity.isEmpty, known.isDisjoint(with: answer.identity) {
            let reason = "it belongs to another deployment of Redis than the one that was connected before"
            guard deployment.addresses.contains(seed) else {
                return reason + "; remove this address from the Redis URL, or restart the process"
            }
            let since = replacedSince ?? now
            replacedSince = since
            guard now - since >= Self.patience else {
                return "\(reason); waiting \(Self.patience.nanoseconds / 1_000_000_000) s for the previous one"
            }
            deployment.addresses = []
            isReplaced = true
        }
        replacedSince = nil
        if !answer.identity.isEmpty { deployment.identity = answer.identity }
        if deployment.addresses.count > Self.maximumSeeds { deployment.addresses = [] }
        deployment.addresses.insert(seed)
        deployment.addresses.formUnion(answer.seeds.prefix(Self.maximumSeeds))
        return nil
    }

    /// Returns true, once, after another deployment has replaced the known one.
    mutating func takeReplacement() -> Bool {
        defer { isReplaced = false }
        return isReplaced
    }

    /// Adopts the seeds and the deployment that a copy of this search has found.
    mutating func learn(from other: ServerDiscoveryState) {
        // Keeps the order of this search, which may have changed since the copy was made.
        let kept = seeds.filter(other.seeds.contains)
        seeds = kept + other.seeds.filter { !kept.contains($0) }
        deployment = other.deployment
        (replacedSince, isReplaced) = (other.replacedSince, isReplaced || other.isReplaced)
    }

    /// Adopts the deployment of another search, if none is known yet.
    mutating func learn(_ other: RedisDeployment) {
        if deployment.identity.isEmpty { deployment = other }
    }

    /// Records that the seed could not be reached.
    mutating func seedFailed(_ error: RedisError) -> Step {
        if let asked { askLast(asked) }
        failures.append(error)
        return next()
    }

    /// Records that the server refused the login, or does not have the announced role.
    mutating func serverFailed(_ error: RedisError) -> Step {
        var error = error
        if let asked {
            askLast(asked)
            // The error names an address that the URL does not contain.
            if case .connect(let address, let reason) = error,
                !configuredSeeds.contains(where: { $0.address == address })
            {
                error = .connect(address: address, reason: "\(reason) (\(asked.address) names this address)")
            }
        }
        failures.append(error)
        return next()
    }

    /// Records that a Sentinel or a node has announced the server. The next search begins with it.
    mutating func moved(to server: RedisLocation) {
        hint = server
    }

    /// Records that a server is not the right one, or is no longer the right one. It is asked last.
    mutating func demote(_ server: RedisLocation) {
        askLast(server)
        if hint == server { hint = nil }
        if announced == server { announced = nil }
    }

    /// Records that a seed knows the server: it is asked first.
    mutating func prefer(_ seed: RedisLocation) {
        guard let index = seeds.firstIndex(of: seed) else { return }
        seeds.insert(seeds.remove(at: index), at: 0)
    }

    private mutating func askLast(_ seed: RedisLocation) {
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
        var texts: [String] = []
        for text in failures.map(\.shortText) where !texts.contains(text) { texts.append(text) }
        guard texts.count > 1 else { return first }
        let shown = texts.prefix(5).joined(separator: "; ")
        let rest = texts.count > 5 ? "; and \(texts.count - 5) more" : ""
        return .connect(address: name, reason: shown + rest)
    }
}

/// The identity of a Cluster, or of the Sentinels of a master.
struct RedisDeployment: Sendable, Equatable {
    /// The IDs of its servers; empty if unknown.
    var identity: Set<String> = []
    /// The seeds that have answered, and the addresses that their answers named.
    var addresses: Set<RedisLocation> = []
}

extension ServerDiscoveryState.Answer {
    /// Reads the answers to `SENTINEL GET-MASTER-ADDR-BY-NAME` and `SENTINEL SENTINELS`.
    ///
    /// - Parameters:
    ///   - sentinels: `nil` if that command was refused; then no seeds are learned.
    ///   - identity: the answer to `SENTINEL MYID`; `nil` if that command was refused, as before Redis 6.2.
    init(
        master: RESPReply, sentinels: RESPReply?, identity: RESPReply?, name: String, sender: RedisLocation
    ) {
        server = RedisLocation(
            announced: master.root.count == 2 ? master.root[0].string : "?",
            port: master.root.count == 2 ? master.root[1].string.flatMap { Int($0) } : nil, by: sender)
        reason = "the Sentinel knows no master named \"\(name)\"; check ?master= in the Redis URL"
        seeds = []
        if let own = identity?.root.string { self.identity.insert(own) }
        if let sentinels {
            for instance in sentinels.root.children { read(instance, sender: sender) }
        }
    }

    /// Reads another Sentinel: alternating names and values. Redis 6.2 and later call the address `ip` even if it is a host name.
    private mutating func read(_ instance: RESPReply.Element, sender: RedisLocation) {
        var host: String?
        var port: Int?
        var fields = instance.children
        while let name = fields.next()?.string, let value = fields.next()?.string {
            if name == "ip" { host = value }
            if name == "port" { port = Int(value) }
            if name == "runid", !value.isEmpty { identity.insert(value) }
        }
        if let location = host.flatMap({ RedisLocation(announced: $0, port: port, by: sender) }) {
            seeds.append(location)
        }
    }

    /// Reads the answer to `CLUSTER SLOTS`: first slot, last slot, then the nodes, beginning with the master.
    init(slots: RESPReply, slot: Int, sender: RedisLocation) {
        server = nil
        seeds = []
        reason = "no server has slot \(slot) of the Redis Cluster; check its state (CLUSTER INFO)"
        var known: Set<RedisLocation> = []
        for range in slots.root.children {
            var parts = range.children
            guard let first = parts.next()?.integer, let last = parts.next()?.integer else { continue }
            var isMaster = true
            while let node = parts.next() {
                defer { isMaster = false }
                guard node.count >= 2 else { continue }
                if isMaster, first <= slot, slot <= last, node[0].string == "?" {
                    reason = """
                        the node with slot \(slot) announces no host name: set its cluster-announce-hostname, or \
                        cluster-preferred-endpoint-type to ip
                        """
                }
                guard
                    let location = RedisLocation(
                        announced: node[0].string, port: node[1].integer, by: sender)
                else { continue }
                if isMaster, first <= slot, slot <= last { server = location }
                if known.insert(location).inserted { seeds.append(location) }
                if node.count >= 3, let name = node[2].string { identity.insert(name) }
            }
        }
    }
}
