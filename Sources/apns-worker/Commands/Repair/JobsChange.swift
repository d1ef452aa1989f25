import ArgumentParser
import Operations
import PushQueue

struct JobsCancel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel", abstract: "Cancel jobs: they are kept apart, and not sent.",
        discussion: """
            Cancelled jobs are kept like dead letters, but apart from them: `apns-worker dead list --reason Cancelled` shows them, \
            and `apns-worker requeue --reason Cancelled` returns them. --discard deletes them instead. Their notifications are counted as `cancelled`.

            With --id alone, jobs with that ID are cancelled for seven days: workers also drop those that they have claimed and \
            not sent, and those that are enqueued later. --undo ends that. With other filters, claimed jobs are not cancelled; \
            `apns-worker campaign cancel` cancels all jobs of a campaign at once.

            The command can be interrupted and repeated. A list can be changed only at its ends, so while the command works, \
            waiting jobs go through the queue's inbox, from which workers take first; their order stays.
            """)

    @OptionGroup(title: "Queues") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: JobOptions

    @OptionGroup var change: QueueChangeOptions

    @Flag(help: "Delete the jobs instead of keeping them as cancelled jobs.") var discard = false

    @Flag(help: "End the cancellation of the jobs with these IDs.") var undo = false

    private var fields: Fields { options.fields(limit: change.limit, all: change.all) }

    private var kind: JobsChange.Kind { discard ? .discard : .cancel }

    func validate() throws {
        guard undo else { return try change.check(kind, fields) }
        let filter = try options.filter()
        guard filter.isOfIDs, !discard, !change.all, change.limit == nil else {
            throw ValidationError("--undo needs --id, and no other filter")
        }
    }

    func run() async throws {
        guard undo else { return try await change.run(kind, fields, queue) }
        let settings = try queue.settings()
        let undoing = try readingFlags { () throws(FieldMistake) in try UncancelJobs(fields) }
        try await QueueChoice.withChanged(queue, all: change.allQueues, force: true) { fleet, queues in
            _ = try await ChangeCommand(isJSON: change.json).run(undoing, Desk(fleet, queues, settings))
        }
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

    @OptionGroup var change: QueueChangeOptions

    @Option(help: "Maximum number per second. (default: unlimited)") var rate: Int?

    private var fields: Fields {
        var fields = options.fields(limit: change.limit, all: change.all)
        fields.append("rate", rate.map { "\($0)" })
        return fields
    }

    func validate() throws { try change.check(.run, fields) }

    func run() async throws { try await change.run(.run, fields, queue) }
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

    @OptionGroup var change: QueueChangeOptions

    @Option(help: "The target queue, which must exist.") var toQueue: String

    private var fields: Fields {
        var fields = options.fields(limit: change.limit, all: change.all)
        fields.append("to_queue", toQueue)
        return fields
    }

    func validate() throws { try change.check(.move, fields) }

    func run() async throws { try await change.run(.move, fields, queue) }
}
