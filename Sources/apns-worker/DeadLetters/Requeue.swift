import ArgumentParser
import Glibc
import PushQueue
import Redis

struct Requeue: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Put dead letters back into the queue, as the jobs that they were.",
        discussion: """
            See what there is:   apns-worker dead list --count
            Try it:              apns-worker requeue --reason UnknownApp --dry-run
            Do it:               apns-worker requeue --reason UnknownApp --rate 500

            The oldest letters go first, with the producer's own bytes. A job of which only some tokens had failed goes to \
            those only. What expires after a time expires after that time from when the job was first seen: what is too \
            old by now is not sent. A job with unique_for has its reservation.

            Interrupt it (Ctrl-C) or kill it when you like, and repeat it: no job is lost or doubled. What has not been \
            moved is still a dead letter. With --rate it is this command that waits, so that what has not been moved can \
            still be held back. What becomes a dead letter while it runs stays one.
            """)

    /// Fewer are moved without a question.
    private static let questionAbove = 100

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Which letters") var options: DeadLetterOptions

    @Flag(help: "All letters of the queue.") var all = false

    @Option(help: "How many at the most; the oldest.") var limit: Int?

    @Option(help: "How many a second; without it, as fast as it goes.") var rate: Int?

    @Flag(help: "To the head of the queue, to be sent next, and not to its end.") var first = false

    @Flag(help: "The attempts that were made count: a job that had used up all gets one more. Else they begin anew.")
    var keepAttempts = false

    @Flag(help: "Only say what would be requeued.") var dryRun = false

    @Flag(help: "Do not ask. Without a terminal it never asks.") var yes = false

    @Flag(help: "Print what was done as a JSON object.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        if let rate, !(1...1_000_000).contains(rate) { throw ValidationError("--rate is a number from 1 to 1000000") }
        let isEmpty = try options.filter().isEmpty
        if isEmpty, !all {
            throw ValidationError("say which letters, with --reason, --app, --id or others; or --all")
        }
        if !isEmpty, all { throw ValidationError("--all is all letters: leave it out, or the others") }
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
