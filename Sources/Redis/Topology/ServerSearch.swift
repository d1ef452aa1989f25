/// How a client finds its server: by asking those who know, one after the other, until one names a server that lets us in.
///
/// Those are the Sentinels, or the nodes of a Cluster; a single server is known without asking. One search at a time: each
/// step that is taken is answered before the next.
struct ServerSearch {
    typealias Location = RedisEndpoint.Location

    enum Step: Equatable {
        /// Ask this adviser where the server is.
        case ask(Location)
        /// Connect to this server.
        case connect(Location)
        /// Nobody knew a server that let us in; begin again later.
        case failed(RedisError)
    }

    /// What an adviser said.
    struct Advice: Equatable {
        /// The server, if it knows one.
        var server: Location?
        /// Others who know.
        var advisers: [Location]
        /// Why there is no server.
        var reason = "it knows no server"
    }

    /// More are not remembered: what a network says must not fill our memory.
    static let maximumAdvisers = 1000

    /// Those who know, in the order in which they are asked: the last good one first.
    private(set) var advisers: [Location]
    private let seeds: [Location]
    private let fixed: Location?
    /// What the whole is called in errors that are nobody's in particular.
    private let name: String

    private var hint: Location?
    private var unasked: [Location] = []
    private var asked: Location?
    private var heardOf: Set<Location> = []
    private var tried: Set<Location> = []
    private var failures: [RedisError] = []

    /// A single server.
    init(server: Location) {
        fixed = server
        seeds = []
        advisers = []
        name = server.address
    }

    /// A server that has to be asked for.
    init(advisers: [Location], name: String) {
        fixed = nil
        seeds = advisers
        self.advisers = advisers
        self.name = name
    }

    /// Begins a search.
    mutating func begin() -> Step {
        unasked = advisers
        asked = nil
        heardOf = Set(advisers)
        tried = []
        failures = []
        if let known = fixed ?? hint {
            hint = nil
            tried.insert(known)
            return .connect(known)
        }
        return next()
    }

    /// The adviser that was asked has answered.
    mutating func advised(_ advice: Advice) -> Step {
        guard let asked else { return next() }
        var known = [asked]
        for other in seeds + advice.advisers where known.count < Self.maximumAdvisers && !known.contains(other) {
            known.append(other)
        }
        // Those that this round has not heard of yet are asked in this round too, but nobody twice.
        for adviser in known where heardOf.count < Self.maximumAdvisers && heardOf.insert(adviser).inserted {
            unasked.append(adviser)
        }
        advisers = known
        guard let server = advice.server else {
            return adviserFailed(.connect(address: asked.address, reason: advice.reason))
        }
        // Who did not let us in a moment ago is not asked again because somebody else names it too.
        guard tried.insert(server).inserted else { return next() }
        return .connect(server)
    }

    /// The adviser could not be asked.
    mutating func adviserFailed(_ error: RedisError) -> Step {
        if let asked { askLast(asked) }
        failures.append(error)
        return next()
    }

    /// The server did not let us in, or is not what it was said to be.
    mutating func serverFailed(_ error: RedisError) -> Step {
        if let asked { askLast(asked) }
        failures.append(error)
        return next()
    }

    /// Somebody who must know says where the server is: the next search begins there.
    mutating func moved(to server: Location) {
        hint = server
    }

    /// This server is not, or no longer, the one: what it says about others is to be heard last.
    mutating func mistrust(_ server: Location) {
        askLast(server)
        if hint == server { hint = nil }
    }

    /// This one is known to know: it is asked first.
    mutating func prefer(_ adviser: Location) {
        guard let index = advisers.firstIndex(of: adviser) else { return }
        advisers.insert(advisers.remove(at: index), at: 0)
    }

    private mutating func askLast(_ adviser: Location) {
        guard let index = advisers.firstIndex(of: adviser) else { return }
        advisers.append(advisers.remove(at: index))
    }

    private mutating func next() -> Step {
        guard unasked.isEmpty else {
            let adviser = unasked.removeFirst()
            asked = adviser
            return .ask(adviser)
        }
        asked = nil
        return .failed(summary)
    }

    /// A refused login is told as such: waiting rarely cures it. Else one failure stands for itself, and of more each is told.
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

extension RedisError {
    /// Address and reason, for a list of several.
    fileprivate var shortText: String {
        switch self {
        case .connect(let address, let reason), .connectionLost(let address, _, let reason),
            .notConnected(let address, let reason), .protocolViolation(let address, let reason):
            "\(address): \(reason)"
        case .timeout(let address, let after): "\(address): no answer within \(after.inWords)"
        case .authentication, .server, .commandTooLarge: description
        }
    }
}
