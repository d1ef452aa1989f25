import NIOCore
import Sockets

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
        /// True if the failure should be logged: the first failure, then at most one per `reportInterval`, even across outages.
        let isReported: Bool
        /// The number of failed attempts since the last connection.
        let failures: Int
    }

    /// An outage that was reported and has ended.
    struct Recovery: Equatable {
        let after: TimeAmount
        let failures: Int
    }

    static let reportInterval: TimeAmount = .seconds(30)
    /// The maximum wait after an answer from a server that is not the right one, such as a replica.
    static let afterAnswer: TimeAmount = .seconds(1)

    private(set) var phase: Phase = .idle
    /// The reason why there is no connection; `nil` while there is one, and before the first attempt has failed.
    private(set) var lastError: RedisError?
    private let backoff: Backoff
    private var failures = 0
    private var outageBegan: NIODeadline?
    private var failuresOfOutage = 0
    private var isOutageReported = false
    /// The time of the last report. It is kept across outages, because a server that accepts and closes connections must not fill the log.
    private var lastReport: NIODeadline?

    init(backoff: Backoff) {
        self.backoff = backoff
    }

    /// Returns the error of a command that cannot be sent.
    /// - Parameter address: the server's address, for the error.
    func notConnected(address: String) -> RedisError {
        let reason =
            switch lastError {
            case nil: "no connection has been made yet"
            case .notConnected(_, let reason): reason
            case let error?: error.description
            }
        return .notConnected(address: address, reason: reason)
    }

    /// - Returns: true if the caller should connect.
    mutating func start() -> Bool {
        guard phase == .idle else { return false }
        phase = .connecting
        return true
    }

    /// - Returns: the reported outage that the connection ends, if any.
    mutating func connected(at now: NIODeadline) -> Recovery? {
        guard phase == .connecting else { return nil }
        phase = .ready(since: now)
        lastError = nil
        defer {
            outageBegan = nil
            isOutageReported = false
            failuresOfOutage = 0
        }
        guard isOutageReported, let began = outageBegan else { return nil }
        return Recovery(after: now - began, failures: failuresOfOutage)
    }

    /// Records a failed attempt or a lost connection.
    ///
    /// - Returns: the next attempt; `nil` if no connection is wanted.
    mutating func failed(because error: RedisError, at now: NIODeadline, random: Double) -> Retry? {
        var longest = backoff.longest
        switch phase {
        case .idle, .waiting, .closed:
            return nil
        case .connecting:
            failuresOfOutage += 1
        case .ready(let since):
            // A server that accepts and closes connections must not reset the wait each time.
            if now - since >= backoff.limit(failures: failures) { failures = 0 }
            // A server that answers, such as a replica, may be the right one soon.
            if case .server = error { longest = min(longest, Self.afterAnswer) }
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
            delay: min(longest, backoff.pause(failures: failures, random: random)), isReported: isReported,
            failures: failuresOfOutage)
    }

    /// - Returns: true if the caller should connect.
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
