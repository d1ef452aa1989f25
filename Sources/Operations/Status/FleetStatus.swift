import PushQueue

package struct FleetStatus: Sendable {
    /// Redis' time, in milliseconds since 1970.
    package var at: Int64 = 0
    package var redis = "", prefix = ""
    package var problems: [Problem] = []
    package var notes: [String] = []
    package var servers: [ServerStatus] = []
    package var wrongKeys: [WrongKey] = []
    package var largeKeys: [LargeKey] = []
    package var sharedError, badRegistrations, searchError: String?
    package var resharding: TokenDivision?
    package var queues: [QueueStatus] = []
    package var workers: [WorkerStatus] = []
    package var apps: [AppStatus] = []
    package var scopes: [ScopeStatus] = []
    package var invalidTokens = 0
    package var rate = 0.0

    package init() {}

    package var living: [WorkerStatus] { workers.filter { $0.state != .gone } }

    /// The queues whose server refuses writes, so that no worker can renew its lease there.
    var unwritableQueues: Set<String> { Set(servers.filter(\.found.refusesWrites).flatMap(\.queues)) }

    var readableQueues: [QueueStatus] { queues.filter { $0.error == nil } }

    /// Returns the problems that the status shows, the worst first, otherwise in the order of their table. Has no I/O.
    /// - Parameter access: the fleet, for the commands that help.
    package func findProblems(
        _ limits: ProblemLimits = ProblemLimits(), _ access: FleetAccess = FleetAccess()
    ) -> [Problem] {
        let problems = Problem.table.filter(\.isInStatus).flatMap { kind in
            (kind.find?(self, limits) ?? []).map { Problem(kind, $0, access) }
        }
        return problems.filter(\.isCritical) + problems.filter { !$0.isCritical }
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

extension FleetStatus: Shown {
    package static let columns = Columns<Self>(
        "Status", "The state of the fleet.", commands: ["status"],
        [
            .init("at", "Redis' time.", as: .time, \.at),
            .init("redis", "Address of Redis.", \.redis),
            .init("prefix", "Prefix of the keys.", \.prefix),
            .init("rate", "Notifications that ended per second over the last minute.", as: .rate, \.rate),
            .init("invalid_tokens", "Number of tokens in the set of invalid tokens.", as: .count, \.invalidTokens),
            .init("problems", "Problems, the worst first.", \.problems),
            .init("notes", "Remarks about the status.", \.notes),
            .init("servers", "Redis servers.", \.servers),
            .init("queues", "Queues.", \.queues),
            .init("workers", "Workers.", \.workers),
            .init("apps", "Apps.", \.apps),
            .init("scopes", "Slow and suspected scopes.", \.scopes),
            .init("wrong_keys", "Keys that hold the wrong type.", \.wrongKeys),
            .init("large_keys", "Keys that are almost too large to be moved to another server.", \.largeKeys),
            .init("resharding", "Unfinished change of the number of shards of the invalid tokens.", \.resharding),
            .init("bad_registrations", "Fault in registrations that a program has written.", \.badRegistrations),
            .init("shared_error", "Error of the state that queues share, if it is unreadable.", \.sharedError),
            .init("search_error", "Error of a server that could not be searched for queues.", \.searchError),
        ])
}

extension TokenDivision: Shown {
    package static let columns = Columns<Self>(
        "Resharding", "A change of the number of shards.",
        [
            .init("shards", "Number of shards of the complete copy.", as: .count, \.shards),
            .init("incomplete", "Number of shards of the incomplete copy.", as: .count, \.incomplete),
            .init("since", "Time at which the change began.", as: .time, \.since),
        ])
}
