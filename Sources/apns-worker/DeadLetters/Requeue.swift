import ArgumentParser
import Glibc
import PushQueue
import Redis

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

    /// Fewer are moved without a question.
    private static let questionAbove = 100

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @Flag(help: "All dead letters of the queue.") var all = false

    @Option(help: "Maximum number; the oldest are requeued first.") var limit: Int?

    @Option(help: "Maximum number per second. (default: unlimited)") var rate: Int?

    @Flag(help: "Put the jobs at the head of the queue instead of its end.") var first = false

    @Flag(help: "Keep the number of attempts; a job that had used all gets one more. (default: start at zero)")
    var keepAttempts = false

    @Flag(help: "Show what would be requeued, and move nothing.") var dryRun = false

    @Flag(help: "Do not ask for confirmation. Without a terminal the command never asks.") var yes = false

    @Flag(help: "Print the result as a JSON object.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        if let rate, !(1...1_000_000).contains(rate) { throw ValidationError("--rate must be 1 to 1000000") }
        let isEmpty = try options.filter().isEmpty
        if isEmpty, !all {
            throw ValidationError("choose dead letters with --reason, --app, --id or another filter, or give --all")
        }
        if !isEmpty, all { throw ValidationError("--all cannot be combined with filters") }
    }

    func run() async throws {
        let filter = try options.filter()
        try await queue.withClient { client, keys in
            let letters = DeadLetters(client, keys)
            var summary = DeadLetterSummary(queue: keys.queue, verb: "requeued", isDryRun: dryRun)
            if dryRun {
                summary.tally = try await DeadLetterSweep.count(letters, filter, limit: limit, onlyReadable: true)
                return try await end(summary, letters, filter, keys)
            }
            var expected: Int?
            if Confirmation.isPossible, !yes {
                let tally = try await DeadLetterSweep.count(letters, filter, limit: limit, onlyReadable: true)
                if tally.chosen > Self.questionAbove {
                    let question = "Requeue \(tally.chosen) jobs to \(keys.queue) (\(tally.byReason))?"
                    try Confirmation.demand(question, isGiven: false)
                }
                expected = tally.chosen
            }
            Interruption.watch()
            var sweep = DeadLetterSweep(
                letters, .requeue(first: first, keepsAttempts: keepAttempts), filter)
            sweep.lower(limit)
            sweep.pace = RequeuePace(perSecond: rate)
            try await sweep.run(into: &summary, DeadLetterProgress("requeued", of: expected, isShown: !json))
            try await end(summary, letters, filter, keys)
        }
    }

    private func end(
        _ summary: DeadLetterSummary, _ letters: DeadLetters, _ filter: DeadLetterFilter, _ keys: QueueKeys
    ) async throws {
        try summary.tell(json: json)
        if let status = summary.status { throw ExitCode(status) }
        guard summary.tally.chosen == 0 else { return }
        let status = try await DeadLetterSweep.tellOfNothing(letters, filter, keys)
        if status != 0 { throw ExitCode(status) }
    }
}
