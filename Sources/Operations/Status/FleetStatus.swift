import PushQueue

/// The status of a fleet, as `status --json` prints it. The names of the members are stable; members without a value
/// are omitted.
package struct FleetStatus: Encodable, Sendable {
    /// Redis' time, in milliseconds since 1970.
    package var at: Int64 = 0
    package var redis = ""
    package var prefix = ""
    package var problems: [Problem] = []
    /// Remarks about the status.
    package var notes: [String] = []
    package var servers: [ServerStatus] = []
    /// The keys that hold another type than they must.
    package var wrongKeys: [WrongKey] = []
    /// The keys that soon can't be moved to another server any more.
    package var largeKeys: [LargeKey] = []
    /// The error because of which the state that all queues share could not be read.
    package var sharedError: String?
    /// The unfinished change of the number of shards of the invalid tokens.
    package var resharding: TokenDivision?
    /// What is wrong with registrations of devices that a program has written.
    package var badRegistrations: String?
    /// The error of a server that could not be searched for queues.
    package var searchError: String?
    package var queues: [QueueStatus] = []
    package var workers: [WorkerStatus] = []
    package var apps: [AppStatus] = []
    /// The scopes that lanes have slowed down, or suspect.
    package var scopes: [ScopeStatus] = []
    /// The number of tokens in the set of invalid tokens.
    package var invalidTokens = 0
    /// Notifications that ended per second over the last minute, as the workers report it.
    package var rate = 0.0

    /// Makes an empty status.
    package init() {}

    /// Workers that are alive.
    package var living: [WorkerStatus] { workers.filter { $0.state != .gone } }

    /// The queues whose server refuses writes, so that no worker can renew its lease there.
    var unwritableQueues: Set<String> { Set(servers.filter(\.found.refusesWrites).flatMap(\.queues)) }

    /// Returns the names of all apps if a name is missing among them; `nil` if it is one of them, or if there are no apps.
    package func others(than app: String) -> [String]? {
        let known = Set(apps.map(\.name)).sorted()
        return known.isEmpty || known.contains(app) ? nil : known
    }

    /// Computes the rates, which need two readings.
    package mutating func compare(with before: FleetStatus) {
        let seconds = Double(at - before.at) / 1000
        guard seconds > 0 else { return }
        for (index, queue) in queues.enumerated() {
            guard let old = before.queues.first(where: { $0.name == queue.name }), old.error == nil else { continue }
            let delivered = (queue.today["delivered"] ?? 0) - (old.today["delivered"] ?? 0)
            // At midnight the counters restart at 0.
            queues[index].deliveredRate = Double(max(0, delivered)) / seconds
        }
    }
}
