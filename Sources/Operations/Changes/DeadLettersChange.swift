import NIOCore
import PrintableText
import PushQueue
import Redis

/// Requeues or deletes the dead letters that match a filter. Dead letters that are added after the count stay.
package struct DeadLettersChange: Change {
    package enum Kind: String, CaseIterable, Sendable { case requeue, delete }

    package let kind: Kind
    package let filter: DeadLetterFilter
    private let words: String
    private let pace: RequeuePace
    /// The maximum number of dead letters of all queues together.
    private let limit: Int?
    private let requeue: DeadLetters.Action

    package static let fields =
        DeadLetterFilter.fields + [
            .all, Field("rate", .number), Field("limit", .number), Field("first", .flag), Field("keep_attempts", .flag),
        ]

    /// - Parameter now: durations count back from this time, in milliseconds since 1970.
    package init(_ kind: Kind, _ fields: Fields, now: Int64) throws(FieldMistake) {
        self.kind = kind
        try fields.check(
            kind == .requeue ? Self.fields : Self.fields.filter { !["first", "keep_attempts"].contains($0.name) })
        filter = try DeadLetterFilter(fields, now: now)
        try fields.checkChoice("dead letters", isEmpty: filter.isEmpty, ["reason", "app", "id"])
        words = fields.words(DeadLetterFilter.fieldNames)
        limit = try fields.limit()
        pace = RequeuePace(perSecond: try fields.rate())
        requeue = .requeue(first: try fields.isSet("first"), keepsAttempts: try fields.isSet("keep_attempts"))
    }

    package var campaigns: [String] { filter.campaigns }
    package var apps: [String] { filter.apps }

    package var action: AuditEntry.Action { kind == .requeue ? .requeue : .deleteDeadLetters }

    private var noun: String { kind == .requeue ? "job" : "dead letter" }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let queues = desk.queues.inWords
        var plan = ChangePlan("\(queues), \(words)")
        plan.verb = kind == .requeue ? "requeued" : "deleted"
        plan.rest = "the others are still dead letters"
        plan.at = try await desk.fleet.now(of: desk.queues)
        for keys in desk.queues {
            var part = ChangePart(keys.queue)
            let left = limit.map { $0 - plan.count }
            if left ?? 1 > 0 {
                var sweep = DeadLetterSweep(
                    try await desk.fleet.deadLetters(of: keys), .count(onlyReadable: kind == .requeue),
                    filter.bounded(by: plan.at))
                sweep.lower(left)
                let before = plan.count
                try await sweep.run { progress(before + $1.chosen) }
                (part.count, part.groups, part.looked) = (sweep.tally.chosen, sweep.tally.reasons, sweep.tally.looked)
            }
            part.sentence = sentence(of: part)
            plan.parts.append(part)
        }
        let reasons = Words.groups(plan.groups)
        plan.command = "\(kind == .requeue ? "Requeue" : "Delete") \(Words.count(plan.count, noun))"
        plan.question =
            kind == .requeue
            ? "Requeue \(Words.count(plan.count, noun)) to \(desk.queues.names) (\(reasons))?"
            : "Delete \(Words.count(plan.count, noun)) of \(queues) permanently (\(reasons))?"
        if plan.count == 0 {
            let all = try await desk.queues.concurrentMap { try await desk.fleet.deadLetters(of: $0) }
            plan.notes.append(try await DeadLetterSweep.nothingFound(in: all))
        }
        return plan
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        var result = ChangeResult([])
        for (keys, planned) in zip(desk.queues, plan.parts)
        where planned.count > 0 && result.error == nil && !control.isStopped() {
            var part = ChangePart(keys.queue)
            do {
                var sweep = DeadLetterSweep(
                    try await desk.fleet.deadLetters(of: keys), kind == .requeue ? requeue : .delete,
                    filter.bounded(by: plan.at))
                sweep.lower(planned.count)
                sweep.pace = pace
                sweep.isInterrupted = control.isStopped
                let before = result.count
                defer {
                    let tally = sweep.tally
                    (part.count, part.groups, part.looked) = (tally.chosen, tally.reasons, tally.looked)
                }
                try await sweep.run { control.progress(before + $1.chosen) }
                let missing = planned.count - sweep.tally.chosen
                if missing > 0, !sweep.tally.isInterrupted {
                    part.notes.append(
                        "\(Words.count(missing, noun)) of queue \(keys.queue) "
                            + "\(missing == 1 ? "was" : "were") no longer among the dead letters")
                }
            } catch let error as any RedisFailure {
                if result.count + part.count == 0 { throw error }
                part.error = "\(error)"
            }
            let isUncertain = part.error != nil
            part.sentence = "\(plan.verb) " + (isUncertain ? "at least " : "") + sentence(of: part)
            result.parts.append(part)
        }
        result.hasNoEffect = result.count == 0
        return result
    }

    private func sentence(of part: ChangePart) -> String {
        "\(Words.count(part.count, noun)) of queue \(part.queue?.printable ?? "")"
            + (part.count > 0 ? ": \(Words.groups(part.groups))" : "")
    }
}

/// Enqueues an edited job in place of its dead letter, in one step.
package struct EditAndRequeue: Change {
    package let action = AuditEntry.Action.editAndRequeue
    private let key: String
    private let job: ByteBuffer

    package static let fields = [Field("key", isRequired: true), Field("job", isRequired: true)]

    package init(_ fields: Fields) throws(FieldMistake) {
        try fields.check(Self.fields)
        let keys = try fields.keys()
        guard let key = keys.first, keys.count == 1 else { throw FieldMistake { "\($0("key")) is missing" } }
        self.key = key
        job = try fields.job()
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let keys = try desk.onlyQueue()
        let subject = "queue \(keys.queue), dead letter \(key)"
        if !desk.isForced, let failure = try await desk.check(job, desk.fleet.queue(keys)) {
            throw ChangeRefusal(.invalid, subject, "the job would fail again: \(failure)")
        }
        return ChangePlan(subject, parts: [ChangePart(keys.queue, count: 1)])
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        var filter = DeadLetterFilter()
        filter.keys = [key]
        var sweep = DeadLetterSweep(
            try await desk.fleet.deadLetters(of: desk.onlyQueue()), .replace(with: job), filter)
        try await sweep.run()
        guard sweep.tally.chosen > 0 else {
            throw ChangeRefusal(
                .conflict, plan.subject,
                "the dead letter no longer exists, because it was requeued or deleted in the meantime; nothing was enqueued"
            )
        }
        var part = ChangePart(plan.parts.first?.queue, count: 1)
        part.sentence = "the edited job is enqueued"
        return ChangeResult([part])
    }
}

/// Enqueues one job, to try it.
package struct EnqueueJob: Change {
    package let action = AuditEntry.Action.testSend
    package let job: ByteBuffer

    package static let fields = [Field("job", isRequired: true)]

    package init(_ fields: Fields) throws(FieldMistake) {
        try fields.check(Self.fields)
        job = try fields.job()
    }

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        let keys = try desk.onlyQueue()
        if let failure = try await desk.check(job, desk.fleet.queue(keys)) {
            throw ChangeRefusal(.invalid, "queue \(keys.queue)", "the job would fail: \(failure)")
        }
        return ChangePlan("queue \(keys.queue)", parts: [ChangePart(keys.queue, count: 1)])
    }

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        let source = try await desk.fleet.queue(desk.onlyQueue())
        let client = try await desk.fleet.client(for: source.keys.jobs)
        _ = try await JobPush.push([job], client, source.keys, areNew: false)
        var part = ChangePart(source.keys.queue, count: 1)
        part.sentence = "the job is enqueued"
        do {
            try await CampaignCounts.addTotals(of: [job], client, source.keys)
        } catch let error as any RedisFailure {
            // The job is in the queue already. If the change failed, the operator would send it again.
            part.notes = ["the total of its campaign was not counted: \(error)"]
        }
        return ChangeResult([part])
    }
}
