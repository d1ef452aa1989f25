import ArgumentParser
import PushQueue
import Redis

struct DeadDelete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete", abstract: "Delete dead letters, and the jobs with them, for good.",
        discussion: """
            It says what it would delete, and asks. Where there is no terminal to ask at, it needs --yes.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Which letters") var options: DeadLetterOptions

    @Flag(help: "All letters of the queue.") var all = false

    @Option(help: "How many at the most; the oldest.") var limit: Int?

    @Flag(help: "Only say what would be deleted.") var dryRun = false

    @Flag(help: "Do not ask.") var yes = false

    @Flag(help: "Print what was done as a JSON object.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        let isEmpty = try options.filter().isEmpty
        if isEmpty, !all {
            throw ValidationError("say which letters, with --reason, --app, --id or others; or --all")
        }
        if !isEmpty, all { throw ValidationError("--all is all letters: leave it out, or the others") }
        guard dryRun || yes || Confirmation.isPossible else {
            throw ValidationError("there is no terminal to ask at: add --yes, or --dry-run to see what it would do")
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
                    "Delete \(expected.chosen) dead letters of queue \(keys.queue) for good (\(expected.byReason))?",
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
