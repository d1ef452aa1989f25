import NIOCore

/// When a pool opens and gives up connections, without any I/O.
struct ConnectionPoolState {
    /// How many connections, and how patiently they are made.
    struct Configuration: Sendable {
        /// Connections that are kept open even while nothing is sent.
        var minimumConnections = 1
        var maximumConnections = 4
        /// The first pause after a failure; it doubles with each further one.
        var backoffBase = TimeAmount.milliseconds(250)
        var backoffCap = TimeAmount.seconds(30)
        /// After how long without a request a connection beyond the minimum is given up.
        var idleTimeout = TimeAmount.minutes(5)
    }

    /// A connection that had a request so recently is taken to be in use when its replacement is considered.
    static let inUse = TimeAmount.seconds(10)
    /// How long after one connection was given up for its answers another is not: from the first pause, which doubles,
    /// to the longest. A server that answers nothing but 500 would otherwise be met with a handshake for every five.
    static let recyclingPauses = (first: TimeAmount.seconds(1), longest: TimeAmount.minutes(1))

    let configuration: Configuration
    private(set) var connecting = 0
    private(set) var usable = 0
    /// Connections that were made since the start.
    private(set) var made = 0
    /// Failures in a row since a connection last worked.
    private(set) var failures = 0
    private(set) var notBefore = NIODeadline.distantPast
    /// The pause after the last failure.
    private(set) var pause = TimeAmount.zero
    /// How many of the usable ones are to be replaced. They work until that has happened.
    private(set) var outgoing = 0
    /// How many connections there are to be when they are gone.
    private var wanted = 0
    private var recyclings = 0
    private var lastRecycling = NIODeadline.distantPast
    private var isClosing = false
    /// True if notifications wait and no stream is free.
    private var isWanted = false

    init(_ configuration: Configuration) {
        self.configuration = configuration
    }

    /// Notes that notifications wait and no stream is free.
    mutating func wantConnection() { isWanted = true }

    /// Returns the number of connections to open now. A wish for one counts once.
    mutating func connectionsToOpen(now: NIODeadline) -> Int {
        defer { isWanted = false }
        guard !isClosing, now >= notBefore else { return 0 }
        let existing = connecting + usable - outgoing
        // After a failure one is made whatever the minimum: nothing is claimed, and so nothing wanted, until there is one.
        let minimum = outgoing > 0 ? wanted : max(configuration.minimumConnections, failures > 0 ? 1 : 0)
        var count = max(0, minimum - existing)
        // One at a time beyond the minimum: a burst should not open them all before the first has shown what it takes.
        if isWanted, count == 0, connecting == 0, existing < configuration.maximumConnections { count = 1 }
        // While the server cannot be reached, one attempt is enough to find out whether it is back.
        if failures > 0 { count = min(count, connecting > 0 ? 0 : 1) }
        connecting += count
        return count
    }

    mutating func connected() {
        connecting -= 1
        usable += 1
        made += 1
    }

    /// A connection got its first answer.
    mutating func worked() {
        failures = 0
        notBefore = .distantPast
    }

    /// A usable connection takes no more requests.
    mutating func retired(wasOutgoing: Bool = false) {
        usable -= 1
        if wasOutgoing { outgoing -= 1 }
    }

    /// Usable connections are to be replaced.
    /// - Parameters:
    ///   - count: how many more.
    ///   - inUse: how many of all usable connections had something to do lately.
    mutating func replace(_ count: Int, inUse: Int) {
        let wanted = min(max(configuration.minimumConnections, inUse), configuration.maximumConnections)
        self.wanted = outgoing > 0 ? max(self.wanted, wanted) : wanted
        outgoing += count
    }

    /// How many of the outgoing connections are no longer needed: one for each replacement, and those without need of one.
    /// However often and soon all are to be replaced, there are no more of them than the maximum.
    /// - Parameter ready: how many usable connections, the outgoing ones apart, have the server's SETTINGS.
    func outgoingToRetire(ready: Int) -> Int {
        max(0, outgoing - configuration.maximumConnections, min(outgoing, ready + outgoing - wanted))
    }

    /// Returns true if a connection that was last used then is one too many.
    func isSuperfluous(lastUsed: NIODeadline, now: NIODeadline) -> Bool {
        outgoing == 0 && usable > configuration.minimumConnections && now - lastUsed >= configuration.idleTimeout
    }

    /// Returns true if a connection may be given up now because of what it answers. If so, that counts as done.
    mutating func recycle(now: NIODeadline) -> Bool {
        let (first, longest) = Self.recyclingPauses
        let pause = min(first.nanoseconds << Int64(min(max(recyclings - 1, 0), 10)), longest.nanoseconds)
        if recyclings > 0, now - lastRecycling < .nanoseconds(pause) { return false }
        // What happened long ago was another incident.
        recyclings = recyclings > 0 && now - lastRecycling < .nanoseconds(longest.nanoseconds * 2) ? recyclings + 1 : 1
        lastRecycling = now
        return true
    }

    /// A connection could not be made, or went away without ever having got an answer.
    /// - Parameters:
    ///   - wasConnecting: whether it had not been usable yet.
    ///   - jitter: from 0 to 1, evenly distributed.
    /// - Returns: how long nothing is tried.
    @discardableResult
    mutating func failed(wasConnecting: Bool, now: NIODeadline, jitter: Double) -> TimeAmount {
        if wasConnecting { connecting -= 1 }
        failures += 1
        let exponent = min(failures - 1, 20)
        let ceiling = min(
            configuration.backoffCap.nanoseconds, configuration.backoffBase.nanoseconds << Int64(exponent))
        // Full jitter, but never at once: a server that accepts and closes would otherwise now and then be hammered.
        pause = .nanoseconds(ceiling / 10 + Int64(Double(ceiling) * 0.9 * jitter))
        notBefore = now + pause
        return pause
    }

    mutating func close() { isClosing = true }
}
