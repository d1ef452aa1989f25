import NIOCore

/// When to connect, and what of it is worth a line in the log.
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
        /// Attempts that failed since there was a connection.
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
    /// Kept beyond the outage: a server that lets us in only to throw us out again must not fill the log.
    private var lastReport: NIODeadline?

    init(backoff: ReconnectBackoff) {
        self.backoff = backoff
    }

    /// - Returns: whether to connect.
    mutating func start() -> Bool {
        guard phase == .idle else { return false }
        phase = .connecting
        return true
    }

    /// - Returns: whether the connection is wanted, and the outage it ends.
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

    /// An attempt failed, or the connection went.
    ///
    /// - Returns: when to try again; `nil` when nothing is wanted any more.
    mutating func failed(because error: RedisError, at now: NIODeadline, random: Double) -> Retry? {
        switch phase {
        case .idle, .waiting, .closed:
            return nil
        case .connecting:
            failuresOfOutage += 1
        case .ready(let since):
            // A server that lets us in only to throw us out again must not make us start from the shortest wait each time.
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

    /// - Returns: whether to connect.
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

/// How long to wait before connecting again: exponential, with full jitter, so that a fleet does not come back in step.
public struct ReconnectBackoff: Sendable, Equatable {
    /// The longest the first wait may be.
    public var initial: TimeAmount
    /// The longest any wait may be.
    public var maximum: TimeAmount

    /// A backoff; 50 ms to 5 s unless told.
    public init(initial: TimeAmount = .milliseconds(50), maximum: TimeAmount = .seconds(5)) {
        self.initial = initial
        self.maximum = maximum
    }

    /// The longest the wait may be after so many failures in a row: doubles with each.
    public func ceiling(failures: Int) -> TimeAmount {
        let doublings = max(0, failures - 1)
        // Past 62 doublings, even of a nanosecond, there is nothing left to compare.
        guard doublings < 62, initial.nanoseconds <= maximum.nanoseconds >> doublings else { return maximum }
        return .nanoseconds(initial.nanoseconds << doublings)
    }

    /// The wait after so many failures in a row.
    ///
    /// - Parameter random: from 0 to 1, evenly spread.
    public func delay(failures: Int, random: Double) -> TimeAmount {
        .nanoseconds(Int64(Double(ceiling(failures: failures).nanoseconds) * min(max(random, 0), 1)))
    }
}
