import PrintableText
import PushQueue

/// Asks workers to stop claiming jobs, to claim them again, or to drain and exit.
package struct WorkersChange: Change {
    package let kind: WorkerCommand.Kind
    /// Names or their beginnings; empty for all workers.
    private let names: [String]

    package var action: AuditEntry.Action {
        switch kind {
        case .quiet: .quiet
        case .work: .work
        case .stop: .stop
        }
    }

    package static let fields = [Field("worker", .texts), Field.all]

    package init(_ kind: WorkerCommand.Kind, _ fields: Fields) throws(FieldMistake) {
        self.kind = kind
        try fields.check(Self.fields)
        let names = try fields.texts("worker")
        self.names = names
        guard names.isEmpty == (try fields.isSet("all")) else {
            throw FieldMistake {
                names.isEmpty
                    ? "name a worker, or pass \($0("all")); `apns-worker status` shows them"
                    : "name workers or pass \($0("all")), not both"
            }
        }
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let status = try await StatusReader(desk.fleet).read(desk.queues)
        let subject = names.isEmpty ? "all workers" : "worker \(names.joined(separator: ", "))"
        let chosen = try choose(status.workers, subject)
        var plan = ChangePlan("worker \(chosen.map(\.name).joined(separator: ", "))")
        plan.at = status.at
        plan.isCounted = false
        plan.parts = chosen.map { worker in
            var part = ChangePart(count: 1)
            part.subject = worker.name
            return part
        }
        let workers = Words.count(chosen.count, "worker")
        if kind == .stop || names.isEmpty {
            let effect =
                switch kind {
                case .quiet:
                    "This makes workers quiet: no jobs of their queues are sent unless other workers claim them"
                case .work: "This lets workers claim jobs again"
                case .stop: "This stops workers: their jobs are finished or returned to the queue"
                }
            plan.command =
                kind == .stop ? "Stop \(workers)" : kind == .quiet ? "Quiet \(workers)" : "Let \(workers) work"
            plan.question = "\(Self.list(chosen))\n\(effect) (\(workers)). Continue?"
        }
        plan.notes = Self.consequences(of: kind, on: chosen, status, serving: desk.servingWorker)
        return plan
    }

    /// Returns the consequences of a command, as facts to know before it is given.
    /// - Parameter serving: the name of the worker whose process serves the operator's interface.
    package static func consequences(
        of kind: WorkerCommand.Kind, on chosen: [WorkerStatus], _ status: FleetStatus, serving: String?
    ) -> [String] {
        guard kind != .work else { return [] }
        func claims(_ worker: WorkerStatus) -> Bool {
            !worker.isSilent && (worker.state == .running || worker.state == .unknown)
        }
        let names = Set(chosen.map(\.name))
        let others = Set(status.living.filter { claims($0) && !names.contains($0.name) }.flatMap(\.queues))
        let left = Set(chosen.filter(claims).flatMap(\.queues)).subtracting(others)
        var notes = left.sorted().map { queue in
            let these = chosen.count(where: { claims($0) && $0.queues.contains(queue) })
            let waiting = status.queues.first { $0.name == queue }.map { $0.waiting + $0.due } ?? 0
            let jobs =
                waiting == 0 ? "its jobs wait" : "its \(Words.count(waiting, "waiting job")), and later ones, wait"
            return (these == 1 ? "this is the last worker" : "these are the last workers")
                + " of queue \(queue.printable): \(jobs) until another \(kind == .stop ? "starts" : "claims them")"
        }
        guard kind == .stop else { return notes }
        let flying = chosen.reduce(0) { $0 + $1.inFlight }
        if flying > 0 {
            notes.append(
                "\(Words.count(flying, "notification")) \(flying == 1 ? "is" : "are") in flight, and "
                    + "\(flying == 1 ? "its answer is" : "their answers are") waited for")
        }
        if let serving, names.contains(serving) {
            notes.append("worker \(serving) serves this dashboard, which ends with it")
        }
        return notes
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        let status = try await StatusReader(desk.fleet).read(desk.queues)
        let wanted = Set(plan.parts.compactMap(\.subject))
        let chosen = status.living.filter { wanted.contains($0.name) }
        guard !chosen.isEmpty else {
            throw ChangeRefusal(.conflict, plan.subject, "\(plan.subject) has ended, or its lease has expired")
        }
        for worker in chosen { try await worker.send(kind, at: status.at, desk.queues, desk.fleet) }
        let effect =
            switch kind {
            case .quiet: "it will claim no more jobs within a few seconds"
            case .work: "it will claim jobs again within a few seconds"
            case .stop: "it will drain, then exit"
            }
        return ChangeResult(
            chosen.map { worker in
                var part = ChangePart(count: 1)
                part.subject = worker.name
                let flying = kind == .stop && worker.inFlight > 0 ? " (\(Words.number(worker.inFlight)) in flight)" : ""
                part.sentence = "asked \(worker.name): \(effect)\(flying)"
                return part
            })
    }

    // MARK: The choice of workers

    private func choose(_ workers: [WorkerStatus], _ subject: String) throws -> [WorkerStatus] {
        let living = workers.filter { $0.state != .gone }
        guard !names.isEmpty else {
            guard !living.isEmpty else {
                throw ChangeRefusal(.conflict, subject, "no worker is running, because none has a lease")
            }
            return living
        }
        var chosen: [WorkerStatus] = []
        for name in names {
            let worker = try choose(name, living, workers, subject)
            if !chosen.contains(where: { $0.name == worker.name }) { chosen.append(worker) }
        }
        return chosen
    }

    /// Finds a worker by its name, or by the beginning of it: `host`, `host.pid`.
    private func choose(
        _ name: String, _ living: [WorkerStatus], _ workers: [WorkerStatus], _ subject: String
    ) throws -> WorkerStatus {
        if let exact = living.first(where: { $0.name == name }) { return exact }
        let parts = living.filter { $0.name.hasPrefix(name + ".") || $0.host == name || "\($0.pid)" == name }
        let found = parts.isEmpty ? living.filter { $0.name.hasPrefix(name) } : parts
        if let only = found.first, found.count == 1 { return only }
        if found.count > 1 {
            throw ChangeRefusal(
                .invalid, subject, "\(name) matches several workers; use a longer name:\n" + Self.list(found))
        }
        if workers.contains(where: { $0.name.hasPrefix(name) }) {
            throw ChangeRefusal(.conflict, subject, "the lease of worker \(name) has expired")
        }
        throw ChangeRefusal(
            .unknown, subject,
            "unknown worker \(name); "
                + (living.isEmpty ? "no worker has a lease" : "running workers:\n" + Self.list(living)))
    }

    private static func list(_ workers: [WorkerStatus]) -> String {
        workers.map { worker in
            "  \(worker.name)  \(worker.state.rawValue), queues \(worker.queues.joined(separator: ", "))"
        }.joined(separator: "\n")
    }
}
