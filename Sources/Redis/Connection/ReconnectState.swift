import NIOCore

/// Decides when to connect, and which events are logged.
struct ReconnectState {
    enum Phase: Equatable {
        case idle
        case connecting
        case ready(since: NIODeadline)
        case waiting
        case closed
    }

    /// The consequence of a failed attempt or a lost connection.
    struct Retry: Equatable {
        let delay: TimeAmount
        /// True to log it: the first, then one in `reportInterval`, also of several outages.
        let isReported: Bool
        /// The failed attempts since the last connection.
        let failures: Int
    }

    /// An outage that is over, and whose beginning was reported.
    struct Recovery: Equatable {
        let after: TimeAmount
        let failures: Int
    }

    static let reportInterval: TimeAmount = .seconds(30)

    private(set) var phase: Phase = .idle
    /// The reason why there is no connection; `nil` while there is one, and before the first attempt has failed.
    private(set) var lastError: RedisError?
    private let backoff: ReconnectBackoff
    private var failures = 0
    private var outageBegan: NIODeadline?
    private var failuresOfOutage = 0
    private var isOutageReported = false
    /// Kept beyond the outage: a server that accepts connections only to close them must not fill the log.
    private var lastReport: NIODeadline?

    init(backoff: ReconnectBackoff) {
        self.backoff = backoff
    }

    /// - Returns: true to connect.
    mutating func start() -> Bool {
        guard phase == .idle else { return false }
        phase = .connecting
        return true
    }

    /// - Returns: true if the connection is wanted; and the outage that it ends.
    mutating func connected(at now: NIODeadline) -> (isWanted: Bool, recovery: Recovery?) {
        guard phase == .connecting else { return (false, nil) }
        phase = .ready(since: now)
        lastError = nil
        defer {
            outageBegan = nil
            isOutageReported = false
            failuresOfOutage = 0
        }
        guard isOutageReported, let began = outageBegan else { return (true, nil) }
        return (true, Recovery(after: now - began, failures: failuresOfOutage))
    }

    /// An attempt failed, or the connection was lost.
    ///
    /// - Returns: the time of the next attempt; `nil` if no connection is wanted.
    mutating func failed(because error: RedisError, at now: NIODeadline, random: Double) -> Retry? {
        switch phase {
        case .idle, .waiting, .closed:
            return nil
        case .connecting:
            failuresOfOutage += 1
        case .ready(let since):
            // A server that accepts connections only to close them must not reset the wait each time.
            if now - since >= backoff.ceiling(failures: failures) { failures = 0 }
        }
        failures += 1
        phase = .waiting
        lastError = error
        if outageBegan == nil { outageBegan = now }
        let isReported = lastReport.map { now - $0 >= Self.reportInterval } ?? true
        if isReported {
            lastReport = now
            isOutageReported = true
        }
        return Retry(
            delay: backoff.delay(failures: failures, random: random), isReported: isReported,
            failures: failuresOfOutage)
    }

    /// - Returns: true to connect.
    mutating func waited() -> Bool {
        guard phase == .waiting else { return false }
        phase = .connecting
        return true
    }

    mutating func close(because error: RedisError) {
        phase = .closed
        lastError = error
    }
}

/// The wait before a new attempt to connect: exponential, with full jitter, so that a fleet does not reconnect in step.
public struct ReconnectBackoff: Sendable, Equatable {
    /// The maximum of the first wait.
    public var initial: TimeAmount
    /// The maximum of any wait.
    public var maximum: TimeAmount

    /// A backoff, by default of 50 ms to 5 s.
    public init(initial: TimeAmount = .milliseconds(50), maximum: TimeAmount = .seconds(5)) {
        self.initial = initial
        self.maximum = maximum
    }

    /// The maximum of the wait after a number of failures in a row: doubles with each.
    public func ceiling(failures: Int) -> TimeAmount {
        let doublings = max(0, failures - 1)
        // After 62 doublings, even of a nanosecond, the limit applies.
        guard doublings < 62, initial.nanoseconds <= maximum.nanoseconds >> doublings else { return maximum }
        return .nanoseconds(initial.nanoseconds << doublings)
    }

    /// The wait after a number of failures in a row.
    ///
    /// - Parameter random: from 0 to 1, evenly spread.
    public func delay(failures: Int, random: Double) -> TimeAmount {
        .nanoseconds(Int64(Double(ceiling(failures: failures).nanoseconds) * min(max(random, 0), 1)))
    }
}
