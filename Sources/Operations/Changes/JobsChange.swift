import PrintableText
import PushQueue
import Redis

/// Cancels, deletes, moves or makes due the jobs that match a filter.
package struct JobsChange: Change {
    package enum Kind: String, CaseIterable, Sendable {
        /// The jobs become dead letters with the reason `Cancelled`.
        case cancel
        /// The jobs are deleted, and do not become dead letters.
        case discard
        /// They become due.
        case run
        case move

        var verbs: (command: String, past: String) {
            switch self {
            case .cancel: ("Cancel", "cancelled")
            case .discard: ("Delete", "deleted")
            case .run: ("Run", "made due")
            case .move: ("Move", "moved")
            }
        }
    }

    package let kind: Kind
    package private(set) var filter: JobFilter
    private let words: String
    private let rate: Int?
    /// The maximum number of jobs of all queues together.
    private let limit: Int?
    private let target: String?

    package static let fields =
        JobFilter.fields + [.all, Field("rate", .number), Field("limit", .number), Field("to_queue")]

    /// - Parameter now: durations count back from this time, in milliseconds since 1970.
    package init(_ kind: Kind, _ fields: Fields, now: Int64) throws(FieldMistake) {
        self.kind = kind
        try fields.check(kind == .move ? Self.fields : Self.fields.filter { $0.name != "to_queue" })
        filter = try JobFilter(fields, now: now)
        try fields.checkChoice("jobs", isEmpty: filter == JobFilter(), ["state", "id", "campaign"])
        words = fields.words(JobFilter.fieldNames)
        (rate, limit) = (try fields.rate(), try fields.limit())
        target = kind == .move ? try fields.required("to_queue") : nil
        if kind == .run {
            let postponed = StoredJob.State.postponed
            guard filter.states.isSubset(of: postponed) else {
                throw FieldMistake { _ in "only retrying, scheduled and deferred jobs can be made due" }
            }
            if filter.states.isEmpty { filter.states = postponed }
        }
    }

    package var campaigns: [String] { filter.campaigns.map(\.text) }
    package var apps: [String] { filter.apps.map(\.text) }

    package var action: AuditEntry.Action {
        switch kind {
        case .cancel, .discard: .cancelJobs
        case .run: .runJobs
        case .move: .moveJobs
        }
    }

    /// True if the change is also a command to workers. Then jobs with these IDs are cancelled even while they are claimed, or if they are
    /// enqueued later.
    private var isCommand: Bool { filter.isOfIDs && (kind == .cancel || kind == .discard) }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let subject = "\(desk.queues.inWords), \(words)"
        if let target { try await checkTarget(target, desk, subject) }
        var plan = ChangePlan(subject)
        plan.verb = kind.verbs.past
        plan.actsOnNothing = isCommand
        plan.at = try await desk.fleet.now(of: desk.queues)
        for keys in desk.queues {
            var part = ChangePart(keys.queue)
            let jobs = try await desk.fleet.jobs(of: keys)
            let before = plan.count
            do {
                part.looked = try await jobs.sweep(filter, decodes: false) { _, page, _ in
                    for job in page {
                        if job.state == .claimed {
                            part.claimed += 1
                        } else {
                            part.groups[job.state.rawValue, default: 0] += 1
                        }
                    }
                    part.count = min(part.groups.values.reduce(0, +), (limit ?? .max) - before)
                    progress(before + part.count)
                    return true
                }
            } catch let error as any RedisFailure where isCommand {
                // Workers get the command even if the jobs can't be counted.
                plan.notes.append("the jobs of queue \(keys.queue) are not counted: \(error)")
            }
            if !filter.includes(.claimed) { part.claimed = 0 }
            part.sentence = sentence(of: part)
            plan.parts.append(part)
        }
        if plan.isEmpty {
            let looked = plan.parts.reduce(0) { $0 + $1.looked }
            plan.notes.append(filter.nothingFound(looked: looked, queues: desk.queues.count))
        }
        let claimed = plan.parts.reduce(0) { $0 + $1.claimed }
        if claimed > 0 { plan.notes.append(note(onClaimed: claimed)) }
        let counted = plan.parts.filter { $0.count > 0 }
        let what =
            counted.count == 1
            ? counted[0].sentence
            : Words.count(plan.count, "job")
                + (counted.isEmpty ? "" : ": " + counted.map(\.sentence).joined(separator: ", "))
        plan.command = "\(kind.verbs.command) \(Words.count(plan.count, "job"))"
        plan.question =
            "\(kind.verbs.command) \(what)" + (isCommand && plan.count == 0 ? " with \(words)" : "") + "?"
            + (kind == .discard ? " This cannot be undone." : "")
        return plan
    }

    private func checkTarget(_ name: String, _ desk: Desk, _ subject: String) async throws {
        let keys: QueueKeys
        do {
            keys = try QueueKeys(prefix: desk.fleet.prefix, queue: name)
        } catch {
            throw ChangeRefusal(.invalid, subject, error.description)
        }
        if desk.queues.contains(where: { $0.queue == name }) {
            throw ChangeRefusal(
                .invalid, subject, "the queue \(name) is one of the queues that jobs are moved from")
        }
        try await desk.checkExistence(of: [keys], subject)
        let target = try await desk.fleet.queue(keys)
        for keys in desk.queues {
            let source = try await desk.fleet.queue(keys)
            guard source.format.withoutClasses == target.format.withoutClasses else {
                throw ChangeRefusal(
                    .invalid, subject,
                    "the queues \(keys.queue) and \(name) have jobs of different formats; export and enqueue them")
            }
        }
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        var result = ChangeResult([])
        if isCommand { result.parts += try await giveCommands(desk) }
        for (keys, planned) in zip(desk.queues, plan.parts) where !control.isStopped() {
            if result.parts.contains(where: { $0.error != nil && (!isCommand || $0.queue == keys.queue) }) { continue }
            var part = ChangePart(keys.queue)
            part.groups = planned.groups
            let before = result.count
            do {
                try await change(keys, planned, &part, desk, control) { control.progress(before + $0) }
            } catch let error as any RedisFailure {
                if result.count + part.count == 0, !isCommand { throw error }
                part.error = "\(error)"
            }
            if part.count > 0 || part.error != nil || isCommand { part.sentence = "\(plan.verb) " + sentence(of: part) }
            result.parts.append(part)
        }
        result.hasNoEffect = result.count == 0 && !isCommand
        return result
    }

    /// Cancels the IDs in all queues, before any job is read.
    /// - Returns: the parts of the queues that can't be written.
    private func giveCommands(_ desk: Desk) async throws -> [ChangePart] {
        try await desk.inEachQueue { keys in
            try await JobCommands.change(
                .cancel(discard: kind == .discard), ofJobs: filter.ids, by: desk.person,
                desk.fleet.client(for: keys.jobCommands), keys)
        }.compactMap { keys, result in
            if case .failure(let error) = result { .unwritten(keys, keys.jobCommands, error) } else { nil }
        }
    }

    private func change(
        _ keys: QueueKeys, _ planned: ChangePart, _ part: inout ChangePart, _ desk: Desk, _ control: ChangeControl,
        _ progress: (Int) -> Void
    ) async throws {
        let jobs = try await desk.fleet.jobs(of: keys)
        part.claimed = planned.claimed
        if planned.claimed > 0 { part.notes.append(note(onClaimed: planned.claimed)) }
        guard planned.count > 0 else { return }
        var changes: JobChanges
        switch kind {
        case .cancel:
            changes = JobChanges(jobs, .cancel(detail: "cancelled by \(desk.person)"), filter, limit: planned.count)
        case .discard: changes = JobChanges(jobs, .discard, filter, limit: planned.count)
        case .run: changes = JobChanges(jobs, .run, filter, limit: planned.count)
        case .move:
            let target = try await desk.fleet.queue(QueueKeys(prefix: desk.fleet.prefix, queue: target ?? ""))
            changes = .move(
                jobs, to: target.keys, filter, try await desk.fleet.client(for: target.keys.jobs),
                isCluster: desk.fleet.isCluster, limit: planned.count)
        }
        defer {
            let tally = changes.tally
            (part.count, part.notifications, part.claimed) = (tally.changed, tally.notifications, tally.claimed)
            part.notes = notes(tally)
        }
        try await changes.run(perSecond: rate, isInterrupted: control.isStopped) { progress($0.changed) }
        if !changes.tally.unclosed.isEmpty {
            part.error = "not all campaigns of the jobs were closed in the other queue"
        }
    }

    private func sentence(of part: ChangePart) -> String {
        let notifications =
            part.notifications > part.count ? ", \(Words.count(part.notifications, "notification"))" : ""
        let groups = part.count > 0 && !part.groups.isEmpty ? " (\(Words.groups(part.groups)))" : ""
        return "\(Words.count(part.count, "job"))\(notifications) of queue \(part.queue?.printable ?? "")\(groups)"
    }

    private func note(onClaimed count: Int) -> String {
        "\(Words.count(count, "job")) \(count == 1 ? "is" : "are") claimed by workers, "
            + (isCommand ? "which drop the unsent notifications" : "and not \(kind.verbs.past)")
    }

    private func notes(_ tally: JobChanges.Tally) -> [String] {
        let large = tally.tooLarge
        return [
            tally.claimed > 0 ? note(onClaimed: tally.claimed) : nil,
            large > 0
                ? "\(Words.count(large, "job")) \(large == 1 ? "is" : "are") larger than 16 MiB, and not \(kind.verbs.past)"
                : nil,
            tally.doubled > 0
                ? "\(Words.count(tally.doubled, "job")) may be sent twice: workers claimed them after they were copied"
                : nil,
            tally.evicted > 0
                ? "\(Words.number(tally.evicted)) older dead letters were evicted to keep within the limits" : nil,
        ].compactMap(\.self) + tally.unclosed
    }
}

/// Ends the cancellation of jobs with some ids.
package struct UncancelJobs: Change {
    package let action = AuditEntry.Action.uncancelJobs
    private let ids: Set<Name>

    package static let fields = [Field("id", .texts)]

    package init(_ fields: Fields) throws(FieldMistake) {
        try fields.check(Self.fields)
        ids = Set(try fields.names("id"))
        guard !ids.isEmpty else { throw FieldMistake { "\($0("id")) is missing" } }
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        var plan = ChangePlan("id \(ids.sorted().prefix(5).map(\.description).joined(separator: ", "))")
        (plan.isCounted, plan.actsOnNothing) = (ids.count > 1, true)
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        var part = ChangePart()
        for keys in desk.queues {
            part.count += try await JobCommands.change(
                .uncancel, ofJobs: ids, by: desk.person, desk.fleet.client(for: keys.jobCommands), keys)
        }
        guard part.count > 0 else {
            throw ChangeRefusal(
                .conflict, plan.subject, "no job with \(ids.count == 1 ? "this ID" : "these IDs") is cancelled")
        }
        part.sentence =
            "ended the cancellation of \(Words.count(part.count, "ID")); for the dead letters: "
            + desk.fleet.access.command(["requeue", "--reason", DeadLetter.cancelledReason])
        return ChangeResult([part])
    }
}
