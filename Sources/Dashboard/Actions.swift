import FoundationEssentials
import HTTPTypes
import Hummingbird
import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import Redis
import WebPages

/// The actions of operators, which share their code with the commands. Pages send forms to `/actions/NAME`, programs
/// send JSON objects with the same members to `/api/v1/actions/NAME`.
struct Actions: Sendable {
    /// The result of an action.
    struct Result: Sendable {
        /// A sentence for the user.
        var message: String
        /// The page to show next.
        var path: String
        /// The bulk run that was started, if any.
        var run: BulkRun?
    }

    /// An action: reads the fields and carries it out.
    typealias Action = @Sendable (Form, Visitor, Site) async throws -> Result

    let site: Site

    static let all: [String: Action] = [
        "pause-queue": pauseQueue, "resume-queue": resumeQueue, "pause-app": pauseApp, "resume-app": resumeApp,
        "quiet-worker": { try await command(.quiet, $0, $1, $2) },
        "work-worker": { try await command(.work, $0, $1, $2) },
        "stop-worker": { try await command(.stop, $0, $1, $2) }, "cancel-id": cancelID,
        "pause-campaign": { try await campaign(.pause, $0, $1, $2) },
        "resume-campaign": { try await campaign(.resume, $0, $1, $2) },
        "cancel-campaign": { try await campaign(.cancel(discard: $0["discard"] != nil), $0, $1, $2) },
        "limit-campaign": limitCampaign, "requeue-campaign": requeueCampaign,
        "change-jobs": BulkActions.jobs, "change-dead-letters": BulkActions.deadLetters,
        "edit-and-requeue": editAndRequeue, "remove-invalid-tokens": BulkActions.invalidTokens,
        "add-invalid-tokens": addInvalidTokens, "enqueue": enqueue, "confirm-run": confirmRun, "stop-run": stopRun,
    ]

    func add(to routes: RouterGroup<WebContext>) {
        routes.post("/actions/{name}") { [site] _, context in
            let result = try await Self.perform(
                context.parameters.get("name") ?? "", context.form, context.visitor, site)
            return Response.seeOther(result.path)
        }
    }

    /// Carries out an action.
    /// - Throws: ``WebError`` for a viewer, an unknown action, or invalid fields.
    static func perform(_ name: String, _ form: Form, _ visitor: Visitor, _ site: Site) async throws -> Result {
        guard let action = all[name] else { throw WebError(.notFound, "there is no action \(name)") }
        guard visitor.role == .operator else {
            throw WebError(
                .forbidden, site.configuration.isReadOnly ? "this dashboard is read-only" : "only operators can do this"
            )
        }
        let result = try await action(form, visitor, site)
        await site.data.changed()
        return result
    }

    // MARK: Queues and apps

    private static func required(_ form: Form, _ name: String) throws -> String {
        guard let value = form[name] else { throw WebError(.badRequest, "\(name) is missing") }
        return value
    }

    private static func reason(_ form: Form, _ visitor: Visitor) throws -> String {
        try givenReason(form) ?? "by \(visitor.by)"
    }

    /// Returns the operator's own reason; nil without one.
    private static func givenReason(_ form: Form) throws -> String? {
        guard let reason = form["reason"] else { return nil }
        if let problem = OperatorText.problem(ofReason: reason) { throw WebError(.badRequest, "reason \(problem)") }
        return reason.printable
    }

    private static let pauseQueue: Action = { form, visitor, site in
        let queue = try await site.data.queue(required(form, "queue"))
        let reason = try reason(form, visitor)
        let client = try await site.source.fleet.client(for: queue.keys.paused)
        let change = try await PauseChange.pause(
            queue.keys, reason: reason, by: visitor.by, handsBack: form["now"] != nil, client)
        await site.record(.pause, change.subject, by: visitor, detail: reason)
        return Result(message: "\(change.subject) is paused", path: site.links.path(["queues", queue.keys.queue]))
    }

    private static let resumeQueue: Action = { form, visitor, site in
        let queue = try await site.data.queue(required(form, "queue"))
        let client = try await site.source.fleet.client(for: queue.keys.paused)
        let wasPaused = try await QueuePause.clear(client, queue.keys)
        if wasPaused { await site.record(.resume, "queue \(queue.keys.queue)", by: visitor) }
        return Result(
            message: "queue \(queue.keys.queue) \(wasPaused ? "is resumed" : "was not paused")",
            path: site.links.path(["queues", queue.keys.queue]))
    }

    private static let pauseApp: Action = { form, visitor, site in
        let app = try required(form, "app")
        if form["force"] == nil, let known = try await site.data.fleetStatus().others(than: app) {
            throw WebError(.notFound, "there is no app \(app.printable); there are: \(known.joined(separator: ", "))")
        }
        let keys = site.source.fleet.sharedKeys
        let client = try await site.source.fleet.client(for: keys.appPaused(app))
        let reason = try reason(form, visitor)
        let change = try await PauseChange.pause(app: app, reason: reason, by: visitor.by, client, keys)
        await site.record(.pause, change.subject, by: visitor, detail: reason)
        return Result(message: "\(change.subject) is paused", path: site.links.path(["apps"]))
    }

    private static let resumeApp: Action = { form, visitor, site in
        let app = try required(form, "app")
        let keys = site.source.fleet.sharedKeys
        let wasPaused = try await AppPauses.end(app, site.source.fleet.client(for: keys.appPaused(app)), keys)
        if wasPaused { await site.record(.resume, "app \(app)", by: visitor) }
        return Result(
            message: "app \(app) \(wasPaused ? "is resumed" : "was not paused")", path: site.links.path(["apps"]))
    }

    // MARK: Workers

    private static func command(
        _ kind: WorkerCommand.Kind, _ form: Form, _ visitor: Visitor, _ site: Site
    ) async throws -> Result {
        let name = try required(form, "worker")
        let status = try await site.data.fleetStatus()
        guard let worker = status.living.first(where: { $0.name == name }) else {
            throw WebError(.notFound, "there is no worker \(name), or its lease has expired")
        }
        try await worker.send(kind, at: status.at, try await site.data.queues(), site.source.fleet)
        await site.record(.init(kind), "worker \(name)", by: visitor)
        return Result(message: "asked worker \(name): \(kind.rawValue)", path: site.links.path(["workers"]))
    }

    // MARK: Jobs

    private static func cancelID(_ form: Form, _ visitor: Visitor, _ site: Site) async throws -> Result {
        let queue = try await site.data.queue(required(form, "queue"))
        let id = try required(form, "id")
        let undo = form["undo"] != nil
        let jobs = try await site.data.jobs(of: queue)
        _ = try await jobs.command(undo ? .uncancel : .cancel(discard: false), ids: [id], by: visitor.by)
        await site.record(.cancelJobs, "id \(id)", by: visitor, detail: undo ? "undone" : nil)
        return Result(
            message: undo ? "job \(id) is no longer cancelled" : "job \(id) is cancelled in every state",
            path: site.links.path(["jobs"], [("queue", queue.keys.queue), ("id", id)]))
    }

    // MARK: Campaigns

    private static func campaign(
        _ change: JobCommands.Change, _ form: Form, _ visitor: Visitor, _ site: Site
    ) async throws -> Result {
        let name = try required(form, "campaign")
        let fleet = site.source.fleet
        let reason = try givenReason(form) ?? ""
        let (queues, _) = try await CampaignStatus.queues(knowing: name, of: site.data.queues(), fleet)
        let changes = try await CampaignChange.apply(
            change, to: name, by: visitor.by, reason: reason, in: queues, fleet)
        try await CampaignChange.makeDue(after: change, changes, of: name, in: queues, fleet)
        await site.record(.init(change), "campaign \(name)", by: visitor, detail: reason.isEmpty ? nil : reason)
        return Result(message: "campaign \(name) is changed", path: site.links.path(["campaigns", name]))
    }

    private static let limitCampaign: Action = { form, visitor, site in
        let rate = try FilterFields.number(form, "per_second", 1...1_000_000)
        return try await campaign(.limit(perSecond: rate), form, visitor, site)
    }

    private static let requeueCampaign: Action = { form, visitor, site in
        let name = try required(form, "campaign")
        _ = try await campaign(.uncancel, form, visitor, site)
        // Waiting jobs are sent again from now on; a bulk run requeues the dead letters.
        var fields = [("campaign", name), ("reason", QueueJobs.cancelledReason), ("action", "requeue")]
        if let rate = form["rate"] { fields.append(("rate", rate)) }
        return try await BulkActions.deadLetters(Form(fields: fields), visitor, site)
    }

    // MARK: Dead letters

    private static let editAndRequeue: Action = { form, visitor, site in
        let queue = try await site.data.queue(required(form, "queue"))
        let keys = try FilterFields.keys(form)
        guard let key = keys.first, keys.count == 1 else { throw WebError(.badRequest, "key is missing") }
        let job = ByteBuffer(string: form.raw("job"))
        guard job.readableBytes > 0 else { throw WebError(.badRequest, "job is missing") }
        if let failure = await site.source.check(job, queue).failure, form["force"] == nil {
            throw WebError(.badRequest, "the job would fail again: \(failure.sentence)")
        }
        // The new job is pushed before the old one is deleted, so the job can exist twice but is never lost.
        let client = try await site.source.fleet.client(for: queue.keys.jobs)
        try await client.push(job, to: queue.keys)
        var filter = DeadLetterFilter()
        filter.keys = [key]
        var sweep = DeadLetterSweep(try await site.data.deadLetters(of: queue.keys), .delete, filter)
        try await sweep.run()
        await site.record(.editAndRequeue, "queue \(queue.keys.queue), dead letter \(key)", by: visitor, count: 1)
        return Result(
            message: sweep.tally.chosen == 1
                ? "the edited job is enqueued" : "the edited job is enqueued; its dead letter no longer existed",
            path: site.links.path(["dead"], [("queue", queue.keys.queue)]))
    }

    // MARK: Invalid tokens

    private static let addInvalidTokens: Action = { form, visitor, site in
        let tokens = form.raw("tokens").split(whereSeparator: \.isWhitespace).map { TokenText.normalized(String($0)) }
        guard !tokens.isEmpty else { throw WebError(.badRequest, "tokens is missing") }
        for token in tokens where !TokenText.isToken(token) {
            throw WebError(.badRequest, "\(token.prefix(8))… is not a device token in hex or base64")
        }
        for name in ["reason", "topic", "environment"] {
            guard let problem = form[name].flatMap(OperatorText.problem(ofLabel:)) else { continue }
            throw WebError(.badRequest, "\(name) \(problem)")
        }
        let reason = form["reason"] ?? "Manual"
        let invalid = tokens.map {
            InvalidToken(
                token: ByteBuffer(string: $0), at: Moment.now, reason: reason,
                topic: form["topic"].map { ByteBuffer(string: $0) },
                environment: form["environment"].map(site.source.environment), source: .imported)
        }
        _ = try await site.source.invalidTokens.mark(invalid)
        await site.record(
            .addInvalidTokens, tokens.count == 1 ? "token \(tokens[0])" : "\(tokens.count) tokens", by: visitor,
            count: tokens.count, detail: reason)
        return Result(
            message: "\(tokens.count) tokens are in the set of invalid tokens", path: site.links.path(["invalid"]))
    }

    // MARK: Try it

    private static let enqueue: Action = { form, visitor, site in
        let queue = try await site.data.queue(required(form, "queue"))
        let job = ByteBuffer(string: form.raw("job"))
        guard job.readableBytes > 0 else { throw WebError(.badRequest, "job is missing") }
        if let failure = await site.source.check(job, queue).failure {
            throw WebError(.badRequest, "the job would fail: \(failure.sentence)")
        }
        try await site.source.fleet.client(for: queue.keys.jobs).push(job, to: queue.keys)
        await site.record(.testSend, "queue \(queue.keys.queue)", by: visitor, count: 1)
        return Result(
            message: "the job is enqueued",
            path: site.links.path(["try"], [("sent", JobKey.of(job)), ("queue", queue.keys.queue)]))
    }

    // MARK: Bulk runs

    private static func run(_ form: Form, _ site: Site) async throws -> BulkRun {
        guard let run = try await site.runs[required(form, "id")] else {
            throw WebError(.notFound, "unknown run")
        }
        return run
    }

    private static let confirmRun: Action = { form, visitor, site in
        let run = try await run(form, site)
        guard run.confirm(site) else {
            throw WebError(.conflict, "this run cannot be confirmed: it has already started or ended")
        }
        return Result(message: "confirmed", path: site.links.path(["runs", run.id]), run: run)
    }

    private static let stopRun: Action = { form, visitor, site in
        let run = try await run(form, site)
        run.stop()
        return Result(message: "stopping", path: site.links.path(["runs", run.id]), run: run)
    }
}

extension RedisClient {
    /// Pushes a job to the end of a queue, as producers do.
    fileprivate func push(_ job: ByteBuffer, to keys: QueueKeys) async throws {
        var command = RedisCommand(keys.pushCommand)
        command.append(keys.jobs)
        command.append(job)
        _ = try await call(command)
    }
}

/// Actions on a selection, or on everything that matches a filter.
enum BulkActions {
    /// Returns the fields of the filter, which a list page sends as `filter_NAME` along with the selected keys.
    private static func chosen(_ form: Form, _ names: [String]) throws -> Form {
        let isAll = form["scope"] != "selected"
        var fields: [(String, String)] = []
        for name in ["queue"] + names {
            let values = form.all("filter_\(name)")
            let own = form.all(name)
            if name == "key", !isAll, own.isEmpty { throw WebError(.badRequest, "nothing is selected") }
            // Selected keys replace the key of the page's filter.
            let all = name == "key" && !own.isEmpty ? own : values + own
            for value in all { fields.append((name, value)) }
        }
        return Form(fields: fields)
    }

    private static func start(
        _ work: BulkRun.Work, _ visitor: Visitor, _ site: Site
    ) async throws -> Actions.Result {
        let run = try await site.runs.start(work, by: visitor)
        return Actions.Result(message: "counting", path: site.links.path(["runs", run.id]), run: run)
    }

    static func jobs(_ form: Form, _ visitor: Visitor, _ site: Site) async throws -> Actions.Result {
        let chosen = try chosen(form, FilterFields.jobs)
        var filter = try JobFilter(chosen)
        let rate = try FilterFields.number(form, "rate", 1...1_000_000)
        let queues = try await site.data.queues(named: chosen.all("queue"))
        let (action, verbs, audit): (QueueJobs.Action, (String, String), AuditEntry.Action) =
            switch form["action"] {
            case "run": (.run, ("Run", "made due"), .runJobs)
            case "cancel": (.cancel(detail: "cancelled by \(visitor.by)"), ("Cancel", "cancelled"), .cancelJobs)
            case "discard": (.discard, ("Delete", "deleted"), .cancelJobs)
            case "move": (.remove, ("Move", "moved"), .moveJobs)
            default: throw WebError(.badRequest, "action must be run, cancel, discard or move")
            }
        let target = audit == .moveJobs ? try await target(form, queues, site) : nil
        if case .run = action {
            let states = StoredJob.State.postponed
            guard filter.states.isEmpty || !filter.states.isDisjoint(with: states) else {
                throw WebError(.badRequest, "only retrying, scheduled and deferred jobs can be made due")
            }
            filter.states = filter.states.isEmpty ? states : filter.states.intersection(states)
        }
        let work = BulkRun.Work(
            verbs: verbs, noun: "jobs", subject: FilterFields.words(chosen, FilterFields.jobs), action: audit,
            section: .jobs, isDangerous: audit == .cancelJobs,
            count: { [filter] progress in
                var count = BulkRun.Count()
                for queue in queues {
                    try await site.data.jobs(of: queue).sweep(filter, decodes: false) { _, jobs, _ in
                        for job in jobs { count.groups[job.state.rawValue, default: 0] += 1 }
                        count.total = count.groups.reduce(0) { $0 + ($1.key == "claimed" ? 0 : $1.value) }
                        progress(count.total)
                        return true
                    }
                }
                if let claimed = count.groups.removeValue(forKey: "claimed") {
                    count.notes.append("\(Words.number(claimed)) of them are claimed by workers, and do not change.")
                }
                return count
            },
            change: { [filter] _, progress, isStopped in
                var sum = 0
                for queue in queues where !isStopped() {
                    let jobs = try await site.data.jobs(of: queue)
                    var changes = JobChanges(jobs, action, filter)
                    if let target {
                        let fleet = site.source.fleet
                        changes = .move(
                            jobs, to: target.keys, filter, try await fleet.client(for: target.keys.jobs),
                            isCluster: fleet.isCluster)
                    }
                    try await changes.run(perSecond: rate, isInterrupted: isStopped) { progress(sum + $0.changed) }
                    sum += changes.tally.changed
                }
                return sum
            })
        return try await start(work, visitor, site)
    }

    /// Returns the queue to which jobs of some queues are moved.
    private static func target(
        _ form: Form, _ queues: [DashboardSource.Queue], _ site: Site
    ) async throws -> DashboardSource.Queue {
        guard let name = form["to_queue"] else { throw WebError(.badRequest, "to_queue is missing") }
        let target = try await site.data.queue(name)
        for queue in queues {
            if queue.keys.queue == name {
                throw WebError(
                    .badRequest, "the jobs are already on the queue \(name); choose the queue to move them from")
            }
            guard queue.format.withoutClasses == target.format.withoutClasses else {
                throw WebError(
                    .badRequest, "the queues \(queue.keys.queue) and \(name) have jobs of different formats")
            }
        }
        return target
    }

    static func deadLetters(_ form: Form, _ visitor: Visitor, _ site: Site) async throws -> Actions.Result {
        let chosen = try chosen(form, FilterFields.deadLetters)
        let filter = try DeadLetterFilter(chosen)
        let rate = try FilterFields.number(form, "rate", 1...1_000_000)
        let queues = try await site.data.queues(named: chosen.all("queue")).map(\.keys)
        let (action, verbs, audit): (DeadLetters.Action, (String, String), AuditEntry.Action) =
            switch form["action"] {
            case "requeue":
                (
                    .requeue(first: form["first"] != nil, keepsAttempts: form["keep_attempts"] != nil),
                    ("Requeue", "requeued"), .requeue
                )
            case "delete": (.delete, ("Delete", "deleted"), .deleteDeadLetters)
            default: throw WebError(.badRequest, "action must be requeue or delete")
            }
        let work = BulkRun.Work(
            verbs: verbs, noun: "dead letters", subject: FilterFields.words(chosen, FilterFields.deadLetters),
            action: audit, section: .dead, isDangerous: audit == .deleteDeadLetters,
            count: { progress in
                var count = BulkRun.Count()
                for keys in queues {
                    var sweep = DeadLetterSweep(
                        try await site.data.deadLetters(of: keys), .count(onlyReadable: audit == .requeue), filter)
                    let before = count.total
                    try await sweep.run { _, tally in progress(before + tally.chosen) }
                    count.total += sweep.tally.chosen
                    count.groups.merge(sweep.tally.reasons) { $0 + $1 }
                }
                return count
            },
            change: { count, progress, isStopped in
                var sum = 0
                for keys in queues where !isStopped() {
                    var sweep = DeadLetterSweep(try await site.data.deadLetters(of: keys), action, filter)
                    // Dead letters that arrived after the count are kept.
                    sweep.lower(count.total - sum)
                    guard count.total > sum else { break }
                    sweep.pace = RequeuePace(perSecond: rate)
                    sweep.isInterrupted = isStopped
                    let before = sum
                    try await sweep.run { _, tally in progress(before + tally.chosen) }
                    sum += sweep.tally.chosen
                }
                return sum
            })
        return try await start(work, visitor, site)
    }

    static func invalidTokens(_ form: Form, _ visitor: Visitor, _ site: Site) async throws -> Actions.Result {
        let tokens = form.all("token").map(TokenText.normalized)
        let chosen = try chosen(form, FilterFields.invalidTokens)
        let filter = try InvalidTokenFilter(chosen)
        let client = site.source.invalidTokens
        let isSelection = form["scope"] == "selected" || !tokens.isEmpty
        if isSelection, tokens.isEmpty { throw WebError(.badRequest, "nothing is selected") }
        let named = tokens.map { ByteBuffer(string: $0) }
        let work = BulkRun.Work(
            verbs: ("Remove", "removed"), noun: "tokens",
            subject: isSelection
                ? "\(tokens.count == 1 ? "token \(tokens[0].prefix(8))…" : "\(tokens.count) tokens")"
                : FilterFields.words(chosen, FilterFields.invalidTokens), action: .removeInvalidTokens,
            section: .invalid,
            count: { progress in
                var count = BulkRun.Count()
                if isSelection {
                    count.total = try await client.countMembers(named)
                    return count
                }
                try await client.sweep(filter) { found in
                    for token in found {
                        count.groups[token.details.reason.map { String(buffer: $0) } ?? "unknown", default: 0] += 1
                    }
                    count.total += found.count
                    progress(count.total)
                    return true
                }
                return count
            },
            change: { _, progress, isStopped in
                if isSelection { return try await client.withdraw(named) }
                var sum = 0
                try await client.sweep(filter, withDetails: false) { found in
                    sum += try await client.withdraw(found.map(\.token))
                    progress(sum)
                    return !isStopped()
                }
                return sum
            })
        return try await start(work, visitor, site)
    }
}
