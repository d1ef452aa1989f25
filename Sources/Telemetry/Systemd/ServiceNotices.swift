/// The notices for systemd about the worker's state: ready, reloading, stopping, and alive. See sd_notify(3).
///
/// A notice counts as sent only after ``wasSent()``: systemd would end a process whose `READY=1` was lost.
package struct ServiceNotices: Sendable {
    private enum Phase { case starting, working, reloading, stopping }

    private let isWatched: Bool
    private var phase = Phase.starting
    /// Notices that must be sent once, in order.
    private var changes: [String] = []

    /// - Parameter isWatched: true if systemd ends the service when it stops feeding the watchdog.
    package init(isWatched: Bool) { self.isWatched = isWatched }

    /// Notes that the configuration is being reloaded.
    /// - Parameter microseconds: of the monotonic clock, by which systemd distinguishes this reload from an earlier one.
    package mutating func reloadBegan(at microseconds: UInt64) {
        guard phase == .working else { return }
        phase = .reloading
        changes.append("RELOADING=1\nMONOTONIC_USEC=\(microseconds)")
    }

    /// Notes the end of a reload, whether or not the new configuration is used.
    package mutating func reloadEnded() {
        guard phase == .reloading else { return }
        phase = .working
        changes.append("READY=1")
    }

    /// Notes that the worker drains and then ends.
    package mutating func stopping() {
        guard phase != .stopping else { return }
        phase = .stopping
        changes.append("STOPPING=1")
    }

    /// Returns the notices to send now, a datagram each.
    /// - Parameters:
    ///   - hasStarted: true when the event loops run. An unavailable Redis does not matter: systemd would end a worker
    ///     that only waits.
    ///   - isStuck: true while an event loop does not answer; the watchdog is not fed then.
    package mutating func messages(hasStarted: Bool, isStuck: Bool) -> [String] {
        if phase == .starting, hasStarted {
            phase = .working
            changes.append("READY=1")
        }
        return changes + (isWatched && !isStuck ? ["WATCHDOG=1"] : [])
    }

    /// Notes that all messages were sent.
    package mutating func wasSent() { changes = [] }
}
