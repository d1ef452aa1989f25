import ArgumentParser
import FoundationEssentials
import Glibc
import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import PushWorker
import Redis

/// The options of the commands that change jobs.
struct JobChangeOptions: ParsableArguments {
    @Flag(help: "All jobs.") var all = false

    @Flag(help: "All configured queues.") var allQueues = false

    @Option(help: "Maximum number per queue.") var limit: Int?

    @Flag(help: "Show how many would be changed, and change nothing.") var dryRun = false

    @Flag(help: "Do not ask for confirmation.") var yes = false

    @Flag(help: "Print the result as JSON, an object per queue.") var json = false

    func check(_ filter: JobFilter) throws {
        try DeadLetterOptions.check(limit: limit)
        if filter.matchesAll, filter.states.isEmpty, !all {
            throw ValidationError("choose jobs with --state, --id, --campaign or another filter, or pass --all")
        }
        if !(filter.matchesAll && filter.states.isEmpty), all {
            throw ValidationError("--all cannot be combined with filters")
        }
        try Confirmation.check(isGiven: dryRun || yes)
    }
}

/// A command that changes matching jobs: counts them, asks for confirmation, changes them, and reports the result.
struct JobChange {
    /// The verb in the imperative and the past participle, such as `Cancel` and `cancelled`.
    let verbs: (command: String, past: String)
    /// The action recorded in the audit log.
    let audit: AuditEntry.Action
    let options: JobChangeOptions
    var filter: JobFilter
    var rate: Int?
    /// A step before the change, which also affects claimed jobs.
    var prepare: ((QueueJobs) async throws -> Void)?

    private struct Object: Encodable {
        let queue, action: String
        let count, notifications, claimed: Int
        let byState: [String: Int]
        let dryRun, interrupted: Bool
        let error: String?
    }

    /// Changes the jobs of the queues, one queue after another.
    /// - Parameter action: calls its closure with the action for a queue, and with the push that must precede a
    ///   removal.
    func run(
        _ queues: QueueOptions,
        _ action: (QueueJobs, Settings, (QueueJobs.Action, (([StoredJob]) async throws -> Void)?) async throws -> Void)
            async throws -> Void
    ) async throws {
        var (matched, looked, count, status) = (0, 0, 0, Int32(0))
        try await QueueJobs.withEach(queues, areAllMeant: options.allQueues) { jobs, _, settings in
            count += 1
            var states: [StoredJob.State: Int] = [:]
            looked += try await jobs.sweep(filter, decodes: false) { _, page, _ in
                for job in page { states[job.state, default: 0] += 1 }
                return true
            }
            let claimed = filter.includes(.claimed) ? states[.claimed] ?? 0 : 0
            states[.claimed] = nil
            let changeable = min(states.values.reduce(0, +), options.limit ?? .max)
            matched += changeable + claimed
            guard changeable > 0 || prepare != nil, !options.dryRun else {
                var tally = JobChanges.Tally()
                (tally.changed, tally.claimed) = (changeable, claimed)
                if changeable + claimed > 0 || options.json { try report(tally, states, jobs.keys.queue) }
                return
            }
            let found = changeable > 0 ? " (\(Self.text(states)))" : ""
            try Confirmation.demand(
                "\(verbs.command) \(Self.jobs(changeable)) of queue \(jobs.keys.queue)\(found)?", isGiven: options.yes)
            Interruption.watch()
            if let prepare {
                try await prepare(jobs)
                await settings.record(audit, "queue \(jobs.keys.queue), \(filter.words)", count: changeable)
            }
            try await action(jobs, settings) { action, push in
                let (ended, changed) = try await change(jobs, action, push, states, expected: changeable)
                status = max(status, ended)
                if changed > 0, prepare == nil {
                    await settings.record(audit, "queue \(jobs.keys.queue), \(filter.words)", count: changed)
                }
            }
        }
        if status != 0 { throw ExitCode(status) }
        guard matched == 0 else { return }
        try QueueJobs.reportNothing(filter, looked: looked, queues: count)
    }

    private func change(
        _ jobs: QueueJobs, _ action: QueueJobs.Action, _ push: (([StoredJob]) async throws -> Void)?,
        _ states: [StoredJob.State: Int], expected: Int
    ) async throws -> (status: Int32, changed: Int) {
        var changes = JobChanges(jobs, action, filter, limit: options.limit, push: push)
        let progress = DeadLetterProgress(verbs.past, of: expected, isShown: !options.json)
        var error: String?
        do {
            try await changes.run(perSecond: rate, isInterrupted: { Interruption.isRequested }) { tally in
                progress.draw(tally.changed)
            }
        } catch let failure as RedisError {
            error = "\(failure)"
        }
        progress.end()
        try report(changes.tally, states, jobs.keys.queue, error)
        return (error != nil ? 1 : Interruption.isRequested ? 130 : 0, changes.tally.changed)
    }

    private static func jobs(_ count: Int) -> String { count == 1 ? "1 job" : "\(Words.number(count)) jobs" }

    private static func text(_ states: [StoredJob.State: Int]) -> String {
        states.sorted { $0.key < $1.key }.map { "\(Words.number($0.value)) \($0.key.rawValue)" }.joined(separator: ", ")
    }

    private func report(
        _ tally: JobChanges.Tally, _ states: [StoredJob.State: Int], _ queue: String, _ error: String? = nil
    ) throws {
        if options.json {
            let byState = Dictionary(uniqueKeysWithValues: states.map { ($0.key.rawValue, $0.value) })
            let object = Object(
                queue: queue, action: verbs.past, count: tally.changed, notifications: tally.notifications,
                claimed: tally.claimed, byState: byState, dryRun: options.dryRun,
                interrupted: Interruption.isRequested, error: error)
            Terminal.print(try JSONLine.text(object, keys: .convertToSnakeCase) + "\n")
        } else {
            let found = states.isEmpty ? "" : " (\(Self.text(states)))"
            let notifications =
                tally.notifications > tally.changed ? ", \(Words.number(tally.notifications)) notifications" : ""
            Terminal.print(
                (options.dryRun ? "would have \(verbs.past) " : "\(verbs.past) ") + Self.jobs(tally.changed)
                    + notifications
                    + " of queue \(queue)" + found + "\n")
        }
        let claimed = Self.jobs(tally.claimed) + (tally.claimed == 1 ? " is" : " are")
        let tooLarge = Self.jobs(tally.tooLarge) + (tally.tooLarge == 1 ? " is" : " are")
        let notes = [
            tally.claimed > 0
                ? "\(claimed) claimed by workers, "
                    + (prepare == nil ? "and not \(verbs.past)" : "which drop what they have not sent")
                : nil,
            tally.tooLarge > 0 ? "\(tooLarge) larger than 16 MiB, and not \(verbs.past)" : nil,
            tally.doubled > 0
                ? "\(Self.jobs(tally.doubled)) may be sent twice: workers claimed them after they were copied" : nil,
            tally.evicted > 0
                ? "\(Words.number(tally.evicted)) older dead letters were evicted to keep within the limits" : nil,
            error.map { "stopped by an error: \($0)\nrepeat the command to continue" },
        ]
        for case let note? in notes { Terminal.note(note + "\n") }
    }
}

struct JobsCancel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel", abstract: "Cancel jobs: they become dead letters.",
        discussion: """
            Cancelled jobs are dead letters with the reason Cancelled, so `apns-worker requeue --reason Cancelled` returns them. \
            --discard deletes them instead. Their notifications are counted as `cancelled`.

            With --id alone, jobs with that ID are cancelled for seven days: workers also drop those that they have claimed and \
            not sent, and those that are enqueued later. --undo ends that. With other filters, claimed jobs are not cancelled; \
            `apns-worker campaign cancel` cancels all jobs of a campaign at once.

            The command can be interrupted and repeated. A list can be changed only at its ends, so while the command works, \
            waiting jobs go through the queue's inbox, from which workers take first; their order stays.
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: JobOptions

    @OptionGroup var change: JobChangeOptions

    @Flag(help: "Delete the jobs instead of keeping them as dead letters.") var discard = false

    @Flag(help: "End the cancellation of the jobs with these IDs.") var undo = false

    func validate() throws {
        let filter = try options.filter()
        guard undo else { return try change.check(filter) }
        guard filter.isOfIDs, !discard, !change.all, change.limit == nil else {
            throw ValidationError("--undo needs --id, and no other filter")
        }
    }

    func run() async throws {
        let filter = try options.filter()
        if undo { return try await end(filter.ids) }
        let verbs = discard ? ("Delete", "deleted") : ("Cancel", "cancelled")
        var change = JobChange(verbs: verbs, audit: .cancelJobs, options: change, filter: filter)
        if filter.isOfIDs {
            change.prepare = { jobs in
                try await jobs.command(.cancel(discard: discard), ids: filter.ids, by: Person.name)
            }
        }
        try await change.run(queue) { _, _, perform in
            try await perform(discard ? .discard : .cancel(detail: "cancelled by \(Person.name)"), nil)
        }
    }

    private func end(_ ids: Set<String>) async throws {
        var ended = 0
        try await QueueJobs.withEach(queue, areAllMeant: change.allQueues) { jobs, _, _ in
            ended += try await jobs.command(.uncancel, ids: ids, by: Person.name)
        }
        guard ended > 0 else {
            Terminal.note("no job with \(ids.count == 1 ? "this ID" : "these IDs") is cancelled\n")
            throw ExitCode(1)
        }
        Terminal.print(
            "ended the cancellation of \(ended == 1 ? "1 ID" : "\(ended) IDs"); for the dead letters: apns-worker requeue "
                + "--reason \(QueueJobs.cancelledReason)\n")
    }
}

struct JobsRun: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Make retrying, scheduled and deferred jobs due now.",
        discussion: """
            A scheduled job is sent before its `send_at`. Deferred jobs are deferred again while their reason persists.

              apns-worker jobs run --state retrying --reason ServiceUnavailable --rate 500
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: JobOptions

    @OptionGroup var change: JobChangeOptions

    @Option(help: "Maximum number per second. (default: unlimited)") var rate: Int?

    private func filter() throws -> JobFilter {
        var filter = try options.filter()
        let states = StoredJob.State.postponed
        guard filter.states.isSubset(of: states) else {
            throw ValidationError("only retrying, scheduled and deferred jobs can be made due")
        }
        if filter.states.isEmpty { filter.states = states }
        return filter
    }

    func validate() throws {
        try DeadLetterOptions.check(rate: rate)
        _ = try filter()
        try change.check(try options.filter())
    }

    func run() async throws {
        let change = JobChange(
            verbs: ("Run", "made due"), audit: .runJobs, options: change, filter: try filter(), rate: rate)
        try await change.run(queue) { _, _, perform in try await perform(.run, nil) }
    }
}

struct JobsMove: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "move", abstract: "Move jobs to another queue.",
        discussion: """
            Waiting jobs go to the end of the other queue; the others keep the time of their next attempt. Jobs that a worker \
            has claimed are not moved. In a Redis Cluster the queues are on different servers, so jobs are copied first and then \
            removed: if the command is interrupted, or a worker claims one in between, it may be sent twice.

              apns-worker jobs move --campaign spring-sale --to-queue bulk
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: JobOptions

    @OptionGroup var change: JobChangeOptions

    @Option(help: "The target queue.") var toQueue: String

    func validate() throws { try change.check(try options.filter()) }

    func run() async throws {
        let settings = try queue.settings([.queueNames: toQueue])
        guard let target = try settings.queues().first, try settings.queues().count == 1 else {
            throw ValidationError("--to-queue must name one queue")
        }
        let change = JobChange(
            verbs: ("Move", "moved"), audit: .moveJobs, options: change, filter: try options.filter())
        for queue in try queue.settings().queues() {
            if queue.keys.queue == target.keys.queue {
                throw ValidationError("--to-queue is one of the queues that jobs are moved from: \(toQueue)")
            }
            guard queue.format.withoutClasses == target.format.withoutClasses else {
                throw ValidationError(
                    "the queues \(queue.keys.queue) and \(toQueue) have jobs of different formats; export and enqueue them"
                )
            }
        }
        try await change.run(queue) { jobs, settings, perform in
            guard case .cluster = try settings.redisTopology() else {
                return try await perform(.move(to: target.keys), nil)
            }
            try await settings.withClient(for: target.keys.jobs) { client in
                try await perform(.remove) { try await JobChanges.push($0, to: target.keys, client) }
            }
        }
    }
}
