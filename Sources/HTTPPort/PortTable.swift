import Logging
import NIOCore

/// All connections of a port. Used only on its event loop.
final class PortTable {
    private let limits: PortLimits
    private let maximum: Int
    private let name: String
    private let eventLoop: any EventLoop
    private let logger: Logger?
    private var guards: [ObjectIdentifier: ConnectionGuard] = [:]
    private var sweep: Scheduled<Void>?
    private var reportedAt: NIODeadline?
    /// The time between two checks of the deadlines.
    private static let interval = TimeAmount.milliseconds(500)
    /// The minimum time between two log lines about a full port.
    private static let reportInterval = TimeAmount.minutes(1)

    /// - Parameters:
    ///   - maximum: the maximum number of concurrent connections.
    ///   - logger: logs a warning when the port is full, at most once per minute.
    init(_ name: String, _ limits: PortLimits, maximum: Int, on eventLoop: any EventLoop, logger: Logger?) {
        self.name = name
        self.limits = limits
        self.maximum = maximum
        self.eventLoop = eventLoop
        self.logger = logger
    }

    /// Guards a new connection. If there are too many, closes the connection that has waited longest for its client. This is the new
    /// connection if the port is answering all others.
    func add(_ channel: any Channel) throws {
        let now = eventLoop.now
        let connection = ConnectionGuard(PortConnection(limits, now: now), channel)
        try channel.pipeline.syncOperations.addHandler(connection, position: .first)
        guards[ObjectIdentifier(connection)] = connection
        connection.onEnd = { [weak self] in self?.guards[$0] = nil }
        if guards.count > maximum {
            reportFull(now: now)
            longestWaiting(now: now)?.close()
        }
        keepSweeping()
    }

    private func longestWaiting(now: NIODeadline) -> ConnectionGuard? {
        var found: (connection: ConnectionGuard, since: NIODeadline)?
        for connection in guards.values {
            connection.measure(now: now)
            guard let since = connection.state.waitingSince, found.map({ since < $0.since }) ?? true else { continue }
            found = (connection, since)
        }
        return found?.connection
    }

    private func reportFull(now: NIODeadline) {
        if let reportedAt, now - reportedAt < Self.reportInterval { return }
        reportedAt = now
        logger?.warning(
            "the \(name) is full: each new connection replaces the one that has waited longest for its client",
            metadata: ["event": "port_full", "connections": "\(maximum)"])
    }

    private func keepSweeping() {
        guard sweep == nil, !guards.isEmpty else { return }
        sweep = eventLoop.assumeIsolated().scheduleTask(in: Self.interval) { [weak self] in
            guard let self else { return }
            let now = eventLoop.now
            for connection in Array(guards.values) {
                connection.measure(now: now)
                if connection.state.isOverdue(now: now) { connection.close() }
            }
            sweep = nil
            keepSweeping()
        }
    }
}
