import NIOCore
import Sockets

/// Decides when a pool opens and closes connections, without any I/O.
public struct ConnectionPoolState {
    /// A connection that had a request within this time counts as in use: it gets a replacement.
    static let inUse = TimeAmount.seconds(10)
    /// The minimum time between two recyclings. A recycling retires a connection because of its answers. Without this time, a server that
    /// answers everything with 500 would cost one handshake per five requests.
    static let recyclingPauses = Backoff(first: .seconds(1), longest: .minutes(1), least: 1)

    var configuration: PoolConfiguration
    public private(set) var connecting = 0
    public private(set) var usable = 0
    public private(set) var made = 0
    /// Consecutive failures since a connection last worked.
    public private(set) var failures = 0
    private(set) var notBefore = NIODeadline.distantPast
    private(set) var pause = TimeAmount.zero
    /// Usable connections that are being replaced. They work until their replacements are ready.
    private(set) var outgoing = 0
    /// The number of connections wanted once the outgoing ones have closed.
    private var wanted = 0
    private var recyclings = 0
    private var lastRecycling = NIODeadline.distantPast
    private var isClosing = false
    private var isWanted = false

    init(_ configuration: PoolConfiguration) {
        self.configuration = configuration
        self.configuration.maximumConnections = max(configuration.maximumConnections, configuration.minimumConnections)
    }

    /// True if there is no connection and none is needed or being made: the minimum is 0, and nothing waits to be sent.
    public var isDormant: Bool {
        configuration.minimumConnections == 0 && usable == 0 && connecting == 0 && failures == 0 && !isClosing
    }

    /// Connections that exist or are being made, except those that are being replaced.
    private var existing: Int { connecting + usable - outgoing }

    var canGrow: Bool { existing < configuration.maximumConnections }

    /// Records that notifications are waiting and no stream is free.
    public mutating func wantConnection() { isWanted = true }

    /// Returns the number of connections to open now, and clears the request made by ``wantConnection()``.
    public mutating func connectionsToOpen(now: NIODeadline) -> Int {
        defer { isWanted = false }
        guard !isClosing, now >= notBefore else { return 0 }
        // After a failure, one connection is made even if the minimum is 0. A lane without a connection claims no jobs, so no job would
        // request one.
        let minimum = outgoing > 0 ? wanted : max(configuration.minimumConnections, failures > 0 ? 1 : 0)
        var count = max(0, minimum - existing)
        // Beyond the minimum, connections are opened one at a time: a burst should not open all before the first has shown its capacity.
        if isWanted, count == 0, connecting == 0, canGrow { count = 1 }
        // While the server cannot be reached, one attempt is enough to find out whether it is back.
        if failures > 0 { count = min(count, connecting > 0 ? 0 : 1) }
        connecting += count
        return count
    }

    public mutating func connected() {
        connecting -= 1
        usable += 1
        made += 1
    }

    mutating func worked() {
        failures = 0
        notBefore = .distantPast
    }

    /// Records that a usable connection accepts no more requests.
    public mutating func retired(wasOutgoing: Bool = false) {
        usable -= 1
        if wasOutgoing { outgoing -= 1 }
    }

    /// Records that usable connections should be replaced.
    /// - Parameters:
    ///   - count: the number of connections to replace, in addition to those that are already being replaced.
    ///   - inUse: the number of usable connections that were in use recently.
    mutating func replace(_ count: Int, inUse: Int) {
        let wanted = min(max(configuration.minimumConnections, inUse), configuration.maximumConnections)
        self.wanted = outgoing > 0 ? max(self.wanted, wanted) : wanted
        outgoing += count
    }

    /// Returns the number of outgoing connections that are no longer needed: one for each replacement that is ready, and those that need no
    /// replacement. At most `maximumConnections` stay outgoing, even if all are replaced repeatedly.
    /// - Parameter ready: the number of usable connections that are not outgoing.
    func outgoingToRetire(ready: Int) -> Int {
        max(0, outgoing - configuration.maximumConnections, min(outgoing, ready + outgoing - wanted))
    }

    public func isSuperfluous(lastUsed: NIODeadline, now: NIODeadline) -> Bool {
        outgoing == 0 && usable > configuration.minimumConnections && now - lastUsed >= configuration.idleTimeout
    }

    /// Returns true, and records a recycling, if a connection may be retired now because of its answers.
    mutating func recycle(now: NIODeadline) -> Bool {
        let (pauses, since) = (Self.recyclingPauses, now - lastRecycling)
        if recyclings > 0, since < pauses.limit(failures: recyclings) { return false }
        // A recycling that was long ago belongs to another incident.
        recyclings = recyclings > 0 && since < pauses.longest + pauses.longest ? recyclings + 1 : 1
        lastRecycling = now
        return true
    }

    /// Records that a connection could not be made, or closed without ever having got an answer.
    /// - Parameters:
    ///   - wasConnecting: true if it had not become usable.
    ///   - jitter: from 0 to 1, evenly distributed.
    /// - Returns: the pause before the next attempt.
    @discardableResult
    public mutating func failed(wasConnecting: Bool, now: NIODeadline, jitter: Double) -> TimeAmount {
        if wasConnecting { connecting -= 1 }
        failures += 1
        pause = configuration.reconnect.pause(failures: failures, random: jitter)
        notBefore = now + pause
        return pause
    }

    public mutating func close() { isClosing = true }
}
