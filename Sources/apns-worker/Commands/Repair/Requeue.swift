import ArgumentParser
import Operations
import PushQueue

struct Requeue: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "requeue",
        abstract: "Return dead letters to the queue.",
        discussion: """
            Count by reason:     apns-worker dead list --by reason
            Dry run:             apns-worker requeue --reason UnknownApp --dry-run
            Requeue:             apns-worker requeue --reason UnknownApp --rate 500

            The oldest are requeued first, with the producer's bytes. If only some tokens of a job had failed, only those get \
            it again. A relative expiration counts from the time the job was first seen, so jobs that are too old expire. A job \
            with unique_for is dropped if another with its id was sent in the meantime.

            The command can be interrupted (Ctrl-C), killed and repeated: no job is lost or doubled, and jobs that were not \
            moved are still dead letters. --rate slows down the command itself, so jobs that it has not moved can still be held \
            back. Jobs that become dead letters while it runs stay dead letters.
            """)

    /// The maximum number of jobs that are moved without confirmation.
    private static let questionAbove = 100

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @OptionGroup var change: QueueChangeOptions

    @Option(help: ArgumentHelp("Maximum number per second. (default: unlimited)", valueName: "number")) var rate: Int?

    @Flag(help: "Put the jobs at the head of the queue instead of its end.") var first = false

    @Flag(help: "Keep the number of attempts; a job that has used all attempts gets one more. (default: start at zero)")
    var keepAttempts = false

    private var fields: Fields {
        var fields = options.fields(limit: change.limit, all: change.all)
        fields.append("rate", rate.map { "\($0)" })
        fields.append("first", first ? "1" : nil)
        fields.append("keep_attempts", keepAttempts ? "1" : nil)
        return fields
    }

    func validate() throws {
        try change.check(.requeue, fields)
        if change.all || change.allQueues { try Confirmation.check(isGiven: change.dryRun || change.yes) }
    }

    func run() async throws {
        try await change.run(.requeue, fields, queue) { plan in
            plan.count > Self.questionAbove && Confirmation.isPossible
        }
    }
}

struct DeadDelete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete", abstract: "Delete dead letters and their jobs permanently.",
        discussion: """
            Shows the number of dead letters and asks for confirmation; without a terminal it needs --yes. Those that are added \
            after the count are not deleted.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @OptionGroup var change: QueueChangeOptions

    private var fields: Fields { options.fields(limit: change.limit, all: change.all) }

    func validate() throws {
        try change.check(.delete, fields)
        try Confirmation.check(isGiven: change.dryRun || change.yes)
    }

    func run() async throws { try await change.run(.delete, fields, queue) { _ in true } }
}
