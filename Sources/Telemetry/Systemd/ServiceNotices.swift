/// The notices to systemd about the worker's state: ready, reloading, stopping, and alive. See sd_notify(3).
///
/// A notice counts as sent only after ``wasSent()``, because systemd would end a process whose `READY=1` was lost.
public struct ServiceNotices: Sendable {
    private enum Phase { case starting, working, reloading, stopping }

    private let isWatched: Bool
    private var phase = Phase.starting
    /// Notices to send once, in order.
    private var changes: [String] = []
    private var status = ""

    /// - Parameter isWatched: true if systemd's watchdog monitors the service.
    public init(isWatched: Bool) { self.isWatched = isWatched }

    /// Records that the configuration is being reloaded.
    /// - Parameter microseconds: the monotonic clock. It lets systemd distinguish this reload from an earlier one.
    public mutating func reloadBegan(at microseconds: UInt64) {
        guard phase == .working else { return }
        phase = .reloading
        changes.append("RELOADING=1\nMONOTONIC_USEC=\(microseconds)")
    }

    /// Records the end of a reload, whether or not the new configuration is used.
    public mutating func reloadEnded() {
        guard phase == .reloading else { return }
        phase = .working
        changes.append("READY=1")
    }

    /// Records the worker's state for `systemctl status`.
    /// - Parameter text: one line.
    /// - Returns: true if the text has changed.
    public mutating func has(status text: String) -> Bool {
        guard text != status else { return false }
        status = text
        changes.append("STATUS=\(text)")
        return true
    }

    /// Records that the worker drains and then ends.
    public mutating func stopping() {
        guard phase != .stopping else { return }
        phase = .stopping
        changes.append("STOPPING=1")
    }

    /// Returns the notices to send now, one per datagram.
    /// - Parameters:
    ///   - hasStarted: true when the event loops run, even if Redis is unavailable, because systemd would end a worker that only waits.
    ///   - isStuck: true while an event loop does not respond; the watchdog is then not notified.
    public mutating func messages(hasStarted: Bool, isStuck: Bool) -> [String] {
        if phase == .starting, hasStarted {
            phase = .working
            changes.append("READY=1")
        }
        return changes + (isWatched && !isStuck ? ["WATCHDOG=1"] : [])
    }

    /// Records that all messages were sent.
    public mutating func wasSent() { changes = [] }
}
