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
    }

    let configuration: Configuration
    private(set) var connecting = 0
    private(set) var usable = 0
    /// Failures in a row since a connection last worked.
    private(set) var failures = 0
    private(set) var notBefore = NIODeadline.distantPast
    private var isClosing = false

    init(_ configuration: Configuration) {
        self.configuration = configuration
    }

    /// How many connections to open now.
    /// - Parameter isWanted: whether notifications wait and no stream is free.
    mutating func connectionsToOpen(isWanted: Bool, now: NIODeadline) -> Int {
        guard !isClosing, now >= notBefore else { return 0 }
        let existing = connecting + usable
        var count = max(0, configuration.minimumConnections - existing)
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
    }

    /// A connection got its first answer.
    mutating func worked() {
        failures = 0
        notBefore = .distantPast
    }

    /// A usable connection takes no more requests.
    mutating func retired() { usable -= 1 }

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
        let pause = TimeAmount.nanoseconds(ceiling / 10 + Int64(Double(ceiling) * 0.9 * jitter))
        notBefore = now + pause
        return pause
    }

    mutating func close() { isClosing = true }
}
