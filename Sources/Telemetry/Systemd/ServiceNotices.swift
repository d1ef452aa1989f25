/// What systemd is to be told of the worker: that it is ready, loads its configuration anew or stops, how it does, and that it
/// is alive. See sd_notify(3).
///
/// Nothing is taken for told until ``wasSent()`` says so: a `READY=1` that got lost would have systemd end the process.
package struct ServiceNotices: Sendable {
    /// How the worker does.
    package struct View: Sendable {
        /// Whether the event loops run. A Redis that is away does not count: it would have systemd end what only waits.
        package var hasStarted = false
        /// What is stuck.
        package var stuck: [String] = []
        /// What keeps it from its work.
        package var problems: [String] = []
        /// Notifications that APNs has taken since the start.
        package var delivered = 0
        /// Dead letters since the start.
        package var dead = 0

        package init() {}
    }

    private enum Phase { case starting, working, reloading, stopping }

    /// A line of `systemctl status` has no use for more.
    private static let longestStatus = 500

    private let isWatched: Bool
    private var phase = Phase.starting
    /// What has to be told once, in order.
    private var changes: [String] = []
    private var refusal: String?
    private var status: String?
    private var sentStatus: String?

    /// - Parameter isWatched: whether systemd ends the service when it does not hear of it.
    package init(isWatched: Bool) { self.isWatched = isWatched }

    /// The configuration is being loaded anew.
    /// - Parameter microseconds: of the monotonic clock, by which systemd tells this reload from one before.
    package mutating func reloadBegan(at microseconds: UInt64) {
        guard phase == .working else { return }
        phase = .reloading
        changes.append("RELOADING=1\nMONOTONIC_USEC=\(microseconds)")
    }

    /// - Parameter refused: why the configuration before stays in force, if it does.
    package mutating func reloadEnded(refused: String?) {
        refusal = refused
        guard phase == .reloading else { return }
        phase = .working
        changes.append("READY=1")
    }

    /// The worker drains, and then ends.
    package mutating func stopping() {
        guard phase != .stopping else { return }
        phase = .stopping
        changes.append("STOPPING=1")
    }

    /// What is to be sent now, a datagram each.
    package mutating func messages(_ view: View) -> [String] {
        if phase == .starting, view.hasStarted {
            phase = .working
            changes.append("READY=1")
        }
        let text = statusText(view)
        status = text
        var last: [String] = []
        if text != sentStatus { last.append("STATUS=\(text)") }
        if isWatched, view.stuck.isEmpty { last.append("WATCHDOG=1") }
        return changes + (last.isEmpty ? [] : [last.joined(separator: "\n")])
    }

    /// All of it has been taken.
    package mutating func wasSent() {
        changes = []
        sentStatus = status
    }

    private func statusText(_ view: View) -> String {
        var text: String
        if !view.stuck.isEmpty {
            text = "stuck: " + view.stuck.joined(separator: "; ")
        } else {
            switch phase {
            case .starting: text = "starting"
            case .stopping: text = "draining: what is under way is finished, the rest goes back to the queue"
            case .reloading: text = "loading the configuration anew"
            case .working where view.problems.isEmpty:
                text = "ready; since the start \(view.delivered) delivered, \(view.dead) dead letters"
            case .working: text = "not ready: " + view.problems.joined(separator: "; ")
            }
        }
        if phase == .working, let refusal {
            text += "; the changed configuration was refused, and the one before stays: \(refusal)"
        }
        // A line feed would begin another assignment.
        return String(
            String.UnicodeScalarView(text.unicodeScalars.map { $0.value < 32 ? " " : $0 }).prefix(Self.longestStatus))
    }
}
