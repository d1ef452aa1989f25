import Logging
import PushQueue

/// A worker's progress in an interval, as one log line.
struct WorkSummary {
    /// The load of a lane, or of all.
    struct Load: Sendable {
        /// Requests without an answer.
        var inFlight = 0
        /// Notifications that are claimed and not sent.
        var waiting = 0
        /// Connections to APNs that take requests.
        var connections = 0
        /// Connections to APNs that were made since the start.
        var connectionsMade = 0
    }

    /// The counts that each summary has, and those that it has only if there were some.
    private static func counts(_ counters: LaneCounters) -> (always: [(String, Int)], sometimes: [(String, Int)]) {
        func count(_ outcome: Outcome) -> (String, Int) { (outcome.rawValue, counters[outcome]) }
        return (
            [count(.delivered), count(.invalidToken), count(.dead), count(.expired), ("retried", counters.retried)],
            [count(.suppressed), count(.dropped), ("deferred", counters.deferred)]
        )
    }

    private var last = LaneCounters()
    private var lastLoad = Load()

    /// The next summary.
    /// - Parameter seconds: since the last.
    /// - Returns: `nil` if nothing has happened since.
    mutating func next(_ counters: LaneCounters, _ load: Load, seconds: Double) -> Logger.Metadata? {
        guard counters != last else { return nil }
        defer { (last, lastLoad) = (counters, load) }
        var metadata: Logger.Metadata = [
            "in_flight": "\(load.inFlight)", "waiting": "\(load.waiting)", "connections": "\(load.connections)",
        ]
        // A reload begins an app's count again.
        let made = max(0, load.connectionsMade - lastLoad.connectionsMade)
        let lost = max(0, made + lastLoad.connections - load.connections)
        if made > 0 { metadata["connections_made"] = "\(made)" }
        if lost > 0 { metadata["connections_lost"] = "\(lost)" }
        let (now, before) = (Self.counts(counters), Self.counts(last))
        for ((name, count), (_, old)) in zip(now.always, before.always) { metadata[name] = "\(count - old)" }
        for ((name, count), (_, old)) in zip(now.sometimes, before.sometimes) where count > old {
            metadata[name] = "\(count - old)"
        }
        let rate = Double(counters[.delivered] - last[.delivered]) / max(seconds, 0.001)
        // Whole numbers are enough, but for a rate so small that it would be none.
        metadata["per_second"] = rate >= 10 ? "\(Int(rate))" : "\(Double(Int(rate * 10)) / 10)"
        metadata["seconds"] = "\(Int(seconds.rounded()))"
        return metadata
    }
}
