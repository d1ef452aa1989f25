import Logging
import NIOCore

/// Why a pool has no connection: for the log, for metrics, and for whoever asks.
struct ConnectionFailures {
    /// Why the last connection could not be made or was given up; `nil` once one has worked since.
    private(set) var last: (any Error)?
    /// True if that is a connection that was made and given up because its requests got no answer.
    private(set) var isOfAnswers = false
    /// See ``Transport/failureCounts``.
    private(set) var counts: [String: Int] = [:]

    private let service: StaticString
    private let endpoint: APNSEndpoint
    private let logger: Logger
    private var lastLogged = NIODeadline.distantPast
    /// True if the log has a line of the failures since a connection last worked.
    private(set) var isLogged = false

    /// - Parameter service: what the connections lead to, in words.
    init(_ service: StaticString, _ endpoint: APNSEndpoint, _ logger: Logger) {
        self.service = service
        self.endpoint = endpoint
        self.logger = logger
    }

    /// A connection could not be made, or went away without ever having worked. The log has one line an incident: the first
    /// failure, and then a reminder now and again.
    mutating func failed(
        _ error: any Error, wasConnecting: Bool, _ state: inout ConnectionPoolState, now: NIODeadline
    ) {
        let pause = state.failed(wasConnecting: wasConnecting, now: now, jitter: .random(in: 0..<1))
        (last, isOfAnswers) = (error, false)
        counts[APNSConnectionError.code(for: error), default: 0] += 1
        guard !isLogged || now - lastLogged > .seconds(60) else { return }
        lastLogged = now
        isLogged = true
        logger.error(
            "no connection to \(service): \(error)",
            metadata: [
                "event": "apns_connection_failed", "endpoint": "\(endpoint)", "failures": "\(state.failures)",
                "retry_in_ms": "\(pause.nanoseconds / 1_000_000)",
            ])
    }

    /// A connection was given up because its requests got no answer. The lanes log that, once for all connections.
    /// - Parameter pauses: whether the next connection should wait for a moment, because no other is answered either.
    mutating func unanswered(
        _ error: any Error, pauses: Bool, _ state: inout ConnectionPoolState, now: NIODeadline
    ) {
        counts[APNSConnectionError.code(for: error), default: 0] += 1
        guard pauses else { return }
        (last, isOfAnswers) = (error, true)
        state.failed(wasConnecting: false, now: now, jitter: .random(in: 0..<1))
    }

    /// A connection has worked.
    /// - Parameter news: what the log says of it, if there have been failures.
    mutating func worked(_ state: inout ConnectionPoolState, news: StaticString) {
        if isLogged {
            logger.notice("\(news)", metadata: ["event": "apns_connection_restored", "endpoint": "\(endpoint)"])
        }
        isLogged = false
        state.worked()
        (last, isOfAnswers) = (nil, false)
    }
}
