import ArgumentParser
import Operations
import PushQueue

struct Requeue: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Return dead letters to the queue.",
        discussion: """
            Count by reason:     apns-worker dead list --count
            Dry run:             apns-worker requeue --reason UnknownApp --dry-run
            Requeue:             apns-worker requeue --reason UnknownApp --rate 500

            The oldest are requeued first, with the producer's bytes. If only some tokens of a job had failed, only those get \
            it again. A relative expiration counts from the time the job was first seen, so jobs that are too old expire. A job \
            with unique_for keeps its reservation.

            The command can be interrupted (Ctrl-C), killed and repeated: no job is lost or doubled, and jobs that were not \
            moved are still dead letters. --rate slows down the command itself, so jobs that it has not moved can still be held \
            back. Jobs that become dead letters while it runs stay dead letters.
            """)

    /// The number up to which jobs are moved without confirmation.
    private static let questionAbove = 100

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @Flag(help: "All dead letters of the queue.") var all = false

    @Flag(help: "All queues that are configured, or else all in Redis.") var allQueues = false

    @Flag(help: "Continue if no queue has the name.") var force = false

    @Option(help: ArgumentHelp("Maximum number; the oldest are requeued first.", valueName: "number")) var limit: Int?

    @Option(help: ArgumentHelp("Maximum number per second. (default: unlimited)", valueName: "number")) var rate: Int?

    @Flag(help: "Put the jobs at the head of the queue instead of its end.") var first = false

    @Flag(help: "Keep the number of attempts; a job that had used all gets one more. (default: start at zero)")
    var keepAttempts = false

    @Flag(help: "Show what would be requeued, and move nothing.") var dryRun = false

    @Flag(help: "Do not ask for confirmation. Required for --all and --all-queues without a terminal.") var yes = false

    @Flag(help: "Print the result as a JSON object.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        try DeadLetterOptions.check(rate: rate)
        let isEmpty = try options.filter().isEmpty
        if isEmpty, !all {
            throw ValidationError("choose dead letters with --reason, --app, --id or another filter, or pass --all")
        }
        if !isEmpty, all { throw ValidationError("--all cannot be combined with filters") }
        if all || allQueues { try Confirmation.check(isGiven: dryRun || yes) }
    }

    func run() async throws {
        let filter = try options.filter()
        try await QueueChoice.withChanged(queue, all: allQueues, force: force) { fleet, queues in
            let change = try await DeadLetterChange(
                fleet, queues, filter, .requeue(first: first, keepsAttempts: keepAttempts), verb: "requeued",
                limit: limit, json: json)
            if dryRun { return try await change.report(dryRun: change.count(), isDryRun: true) }
            var expected: [DeadLetterSweep.Tally]?
            if Confirmation.isPossible, !yes {
                let counted = try await change.count()
                let sum = DeadLetterChange.sum(counted)
                if sum.chosen > Self.questionAbove {
                    try Confirmation.demand(
                        "Requeue \(sum.chosen) jobs to \(change.queues) (\(sum.byReason))?", isGiven: false)
                }
                expected = counted
            }
            try await change.run(expecting: expected, pace: RequeuePace(perSecond: rate))
        }
    }
}
