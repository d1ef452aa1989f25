import Logging
import NIOCore
import Sockets

/// The reason why a pool has no connection, for the log, metrics and callers.
public struct ConnectionFailures {
    /// The error of the last connection that could not be made or was retired unanswered; `nil` once a connection has
    /// worked.
    public private(set) var last: (any Error)?
    /// True if ``last`` is about a connection that was made, and retired because its requests got no answer.
    private(set) var isOfAnswers = false
    /// See ``Transport/failureCounts``.
    public private(set) var counts: [String: Int] = [:]

    private let service: StaticString
    private let endpoint: APNSEndpoint
    private let logger: Logger
    private var lastLogged = NIODeadline.distantPast
    /// True if a failure has been logged since a connection last worked.
    private(set) var isLogged = false

    /// - Parameter service: the server's name in log messages.
    public init(_ service: StaticString, _ endpoint: APNSEndpoint, _ logger: Logger) {
        self.service = service
        self.endpoint = endpoint
        self.logger = logger
    }

    /// Records that a connection could not be made, or closed without ever having worked. Logs the first failure of an
    /// incident, and then at most one reminder per minute.
    /// - Parameter address: the address that accepted a connection of TCP, if one did; it is avoided for some minutes.
    public mutating func failed(
        _ error: any Error, at address: SocketAddress? = nil, wasConnecting: Bool, _ state: inout ConnectionPoolState,
        now: NIODeadline
    ) {
        AddressMemory.shared.failed(address)
        let pause = state.failed(wasConnecting: wasConnecting, now: now, jitter: .random(in: 0..<1))
        let shown = AddressedError(error: error, place: ConnectFailure.place(address, of: endpoint.host))
        (last, isOfAnswers) = (shown, false)
        counts[APNSConnectionError.code(for: error), default: 0] += 1
        guard !isLogged || now - lastLogged > .seconds(60) else { return }
        lastLogged = now
        isLogged = true
        logger.error(
            "no connection to \(service): \(shown)",
            metadata: [
                "event": "apns_connection_failed", "endpoint": "\(endpoint)", "failures": "\(state.failures)",
                "retry_in_ms": "\(pause.nanoseconds / 1_000_000)",
            ])
    }

    /// Records that a connection was retired because its requests got no answer. Lanes log this once for all
    /// connections.
    /// - Parameter pauses: true if the next connection should wait, because no other connection is answered either.
    mutating func unanswered(
        _ error: any Error, pauses: Bool, _ state: inout ConnectionPoolState, now: NIODeadline
    ) {
        counts[APNSConnectionError.code(for: error), default: 0] += 1
        guard pauses else { return }
        (last, isOfAnswers) = (error, true)
        state.failed(wasConnecting: false, now: now, jitter: .random(in: 0..<1))
    }

    /// Records that a connection has worked.
    mutating func worked(_ state: inout ConnectionPoolState) {
        if isLogged {
            logger.notice(
                "connected to \(service) again",
                metadata: ["event": "apns_connection_restored", "endpoint": "\(endpoint)"])
        }
        isLogged = false
        state.worked()
        (last, isOfAnswers) = (nil, false)
    }
}

/// An error of a connection, and the address of the host to which it was made.
private struct AddressedError: Error, CustomStringConvertible {
    let error: any Error
    let place: String

    var description: String { "\(error)\(place)" }
}
