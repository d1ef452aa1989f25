import ArgumentParser
import PushQueue
import Redis

struct DeadDelete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete", abstract: "Delete dead letters and their jobs permanently.",
        discussion: """
            Shows the number of dead letters and asks for confirmation. Without a terminal it needs --yes.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @Flag(help: "All dead letters of the queue.") var all = false

    @Option(help: "Maximum number; the oldest are deleted first.") var limit: Int?

    @Flag(help: "Show what would be deleted, and delete nothing.") var dryRun = false

    @Flag(help: "Do not ask for confirmation.") var yes = false

    @Flag(help: "Print the result as a JSON object.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        let isEmpty = try options.filter().isEmpty
        if isEmpty, !all {
            throw ValidationError("choose dead letters with --reason, --app, --id or another filter, or give --all")
        }
        if !isEmpty, all { throw ValidationError("--all cannot be combined with filters") }
        guard dryRun || yes || Confirmation.isPossible else {
            throw ValidationError(
                "refusing to continue without confirmation; pass --yes, or --dry-run to see what would be deleted")
        }
    }

    func run() async throws {
        let filter = try options.filter()
        try await queue.withClient { client, keys in
            let letters = DeadLetters(client, keys)
            var summary = DeadLetterSummary(queue: keys.queue, verb: "deleted", isDryRun: dryRun)
            let expected = try await DeadLetterSweep.count(letters, filter, limit: limit, onlyReadable: false)
            if dryRun || expected.chosen == 0 {
                summary.tally = expected
            } else {
                try Confirmation.demand(
                    "Delete \(expected.chosen) dead letters of queue \(keys.queue) permanently (\(expected.byReason))?",
                    isGiven: yes)
                Interruption.watch()
                var sweep = DeadLetterSweep(letters, .delete, filter)
                // What came since the question was asked, nobody has agreed to.
                sweep.lower(expected.chosen)
                try await sweep.run(
                    into: &summary, DeadLetterProgress("deleted", of: expected.chosen, isShown: !json))
            }
            try summary.tell(json: json)
            if let status = summary.status { throw ExitCode(status) }
            guard summary.tally.chosen == 0 else { return }
            let status = try await DeadLetterSweep.tellOfNothing(letters, filter, keys)
            if status != 0 { throw ExitCode(status) }
        }
    }
}
