import Logging

/// What a worker has done in some time, as one line of the log.
struct WorkSummary {
    /// What is under way in a lane, or in all.
    struct Load: Sendable {
        /// Requests without an answer.
        var inFlight = 0
        /// Notifications that are claimed and not sent.
        var waiting = 0
    }

    /// What is said in each summary, and then what is said only where there was some of it.
    private static let always: [(String, KeyPath<LaneCounters, Int> & Sendable)] = [
        ("delivered", \.delivered), ("invalid", \.invalid), ("retried", \.retried), ("dead", \.dead),
        ("expired", \.expired),
    ]
    private static let sometimes: [(String, KeyPath<LaneCounters, Int> & Sendable)] = [
        ("suppressed", \.suppressed), ("dropped", \.dropped), ("parked", \.parked),
    ]

    private var last = LaneCounters()

    /// The next summary.
    /// - Parameter seconds: since the last.
    /// - Returns: `nil` if nothing has happened since.
    mutating func next(_ counters: LaneCounters, _ load: Load, seconds: Double) -> Logger.Metadata? {
        guard counters != last else { return nil }
        defer { last = counters }
        var metadata: Logger.Metadata = ["in_flight": "\(load.inFlight)", "waiting": "\(load.waiting)"]
        for (name, counter) in Self.always { metadata[name] = "\(counters[keyPath: counter] - last[keyPath: counter])" }
        for (name, counter) in Self.sometimes where counters[keyPath: counter] > last[keyPath: counter] {
            metadata[name] = "\(counters[keyPath: counter] - last[keyPath: counter])"
        }
        let rate = Double(counters.delivered - last.delivered) / max(seconds, 0.001)
        // Whole numbers are enough, but for a rate so small that it would be none.
        metadata["per_second"] = rate >= 10 ? "\(Int(rate))" : "\(Double(Int(rate * 10)) / 10)"
        metadata["seconds"] = "\(Int(seconds.rounded()))"
        return metadata
    }
}

extension Lane {
    /// What is under way. From anywhere; after the end, nothing.
    func load() async throws -> WorkSummary.Load {
        try await eventLoop.submit {
            WorkSummary.Load(inFlight: self.flights.count, waiting: self.apps.reduce(0) { $0 + $1.waiting })
        }.get()
    }
}

extension Worker {
    /// Tells what was done every so often, if anything was, until the task is cancelled.
    func summarize(every interval: Int) async {
        var summary = WorkSummary()
        let clock = ContinuousClock()
        var began = clock.now
        while true {
            do { try await clock.sleep(for: .milliseconds(interval)) } catch { return }
            let now = clock.now
            let seconds =
                Double((now - began).components.seconds)
                + Double((now - began).components.attoseconds) / 1e18
            if let metadata = summary.next(await counters(), await load(), seconds: seconds) {
                logger.info("working", metadata: metadata)
            }
            began = now
        }
    }
}
