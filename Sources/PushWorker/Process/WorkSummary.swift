import Logging
import PushQueue

/// A worker's progress during an interval, as one log line.
struct WorkSummary {
    /// The load of one lane or of all lanes.
    struct Load: Sendable {
        /// The number of requests without an answer.
        var inFlight = 0
        /// The number of claimed notifications that have not been sent.
        var waiting = 0
        /// The number of connections to APNs that accept requests.
        var connections = 0
        /// The number of connections to APNs made since the start.
        var connectionsMade = 0
    }

    /// Returns the counts of every summary, and the counts that a summary includes only if they are not zero.
    private static func counts(_ counters: LaneCounters) -> (always: [(String, Int)], sometimes: [(String, Int)]) {
        func count(_ outcome: Outcome) -> (String, Int) { (outcome.rawValue, counters[outcome]) }
        return (
            [count(.delivered), count(.invalidToken), count(.dead), count(.expired), ("retried", counters.retried)],
            [count(.suppressed), count(.dropped), ("deferred", counters.deferred)]
        )
    }

    private var last = LaneCounters()
    private var lastLoad = Load()

    /// Returns the next summary.
    /// - Parameter seconds: the time since the last one.
    /// - Returns: `nil` if nothing has happened since.
    mutating func next(_ counters: LaneCounters, _ load: Load, seconds: Double) -> Logger.Metadata? {
        guard counters != last else { return nil }
        defer { (last, lastLoad) = (counters, load) }
        var metadata: Logger.Metadata = [
            "in_flight": "\(load.inFlight)", "waiting": "\(load.waiting)", "connections": "\(load.connections)",
        ]
        // A reload restarts an app's count.
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
        // Whole numbers suffice, except for a rate so small that it would be shown as zero.
        metadata["delivered_per_second"] = rate >= 10 ? "\(Int(rate))" : "\(Double(Int(rate * 10)) / 10)"
        metadata["seconds"] = "\(Int(seconds.rounded()))"
        return metadata
    }
}
