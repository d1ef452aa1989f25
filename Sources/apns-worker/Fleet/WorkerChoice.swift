import Operations

/// Finds the workers that an operator's arguments select. No I/O.
struct WorkerChoice {
    let workers: [FleetStatus.Worker]

    /// - Parameter workers: all known workers.
    init(_ workers: [FleetStatus.Worker]) { self.workers = workers }

    /// The workers that can receive commands.
    var living: [FleetStatus.Worker] { workers.filter { $0.state != .gone } }

    /// Finds each worker by its name, or by the beginning of it: `host`, `host.pid`.
    /// - Throws: ``CommandFailure`` that lists the existing workers.
    func named(_ names: [String]) throws -> [FleetStatus.Worker] {
        var chosen: [FleetStatus.Worker] = []
        for name in names {
            let worker = try self.named(name)
            if !chosen.contains(where: { $0.name == worker.name }) { chosen.append(worker) }
        }
        return chosen
    }

    private func named(_ name: String) throws -> FleetStatus.Worker {
        let living = living
        if let exact = living.first(where: { $0.name == name }) { return exact }
        let parts = living.filter { $0.name.hasPrefix(name + ".") || $0.host == name || "\($0.pid)" == name }
        let found = parts.isEmpty ? living.filter { !name.isEmpty && $0.name.hasPrefix(name) } : parts
        if let only = found.first, found.count == 1 { return only }
        if found.count > 1 {
            throw CommandFailure(
                .attention, "\(name) matches several workers; use a longer name:\n" + Self.list(found))
        }
        if workers.contains(where: { $0.name.hasPrefix(name) }) {
            throw CommandFailure(.attention, "the lease of worker \(name) has expired")
        }
        throw CommandFailure(
            .attention,
            "unknown worker \(name); "
                + (living.isEmpty ? "no worker has a lease" : "running workers:\n" + Self.list(living)))
    }

    static func list(_ workers: [FleetStatus.Worker]) -> String {
        workers.map { worker in
            "  \(worker.name)  \(worker.state.rawValue), queues \(worker.queues.joined(separator: ", "))"
        }.joined(separator: "\n")
    }
}
