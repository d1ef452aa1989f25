import ArgumentParser
import PushQueue

struct DeadDelete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete", abstract: "Delete dead letters and their jobs permanently.",
        discussion: """
            Shows the number of dead letters and asks for confirmation. Without a terminal it needs --yes.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @Flag(help: "All dead letters of the queue.") var all = false

    @Flag(help: "All queues that are configured, or else all in Redis.") var allQueues = false

    @Flag(help: "Continue if no queue has the name.") var force = false

    @Option(help: ArgumentHelp("Maximum number; the oldest are deleted first.", valueName: "number")) var limit: Int?

    @Flag(help: "Show what would be deleted, and delete nothing.") var dryRun = false

    @Flag(help: "Do not ask for confirmation. Required without a terminal.") var yes = false

    @Flag(help: "Print the result as a JSON object.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        let isEmpty = try options.filter().isEmpty
        if isEmpty, !all {
            throw ValidationError("choose dead letters with --reason, --app, --id or another filter, or pass --all")
        }
        if !isEmpty, all { throw ValidationError("--all cannot be combined with filters") }
        try Confirmation.check(isGiven: dryRun || yes)
    }

    func run() async throws {
        let filter = try options.filter()
        try await QueueChoice.withChanged(queue, all: allQueues, force: force) { fleet, queues in
            let change = try await DeadLetterChange(
                fleet, queues, filter, .delete, verb: "deleted", limit: limit, json: json)
            let expected = try await change.count()
            let sum = DeadLetterChange.sum(expected)
            if dryRun || sum.chosen == 0 { return try await change.report(dryRun: expected, isDryRun: dryRun) }
            try Confirmation.demand(
                "Delete \(sum.chosen) dead letters of queue \(change.queues) permanently (\(sum.byReason))?",
                isGiven: yes)
            try await change.run(expecting: expected)
        }
    }
}
