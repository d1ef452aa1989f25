import ArgumentParser
import PushQueue

struct DeadShow: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show dead letters with their jobs.",
        discussion: """
            Shows the job as the producer wrote it, with its tokens and its payload. Control characters are removed; --raw \
            prints the unchanged bytes.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @Argument(help: "Keys of dead letters, as `dead list` shows them.") var keys: [String] = []

    @Option(help: "Dead letters of the job with this ID. Repeatable.") var id: [String] = []

    @Flag(help: "Print only the job's bytes, of one dead letter.") var raw = false

    @Flag(help: "Print one JSON object per line.") var json = false

    func validate() throws {
        guard keys.isEmpty != id.isEmpty else {
            throw ValidationError("name dead letters by their keys, as `apns-worker dead list` shows them, or by --id")
        }
        _ = try filter()
        if raw, json { throw ValidationError("--raw and --json cannot be combined") }
    }

    private func filter() throws -> DeadLetterFilter {
        var filter = DeadLetterFilter()
        filter.keys = try keys.map(DeadLetterOptions.key)
        filter.ids = id
        return filter
    }

    func run() async throws {
        let filter = try filter()
        try await queue.withClient { client, keys in
            let letters = DeadLetters(client, keys)
            var sweep = DeadLetterSweep(letters, .show, filter)
            sweep.newestFirst = true
            let output = ByteOutput.standard
            if raw { return try await showBytes(sweep, output, letters, keys) }
            let now = Moment.now
            try await sweep.run { page, tally in
                for (index, letter) in page.letters.enumerated() {
                    let row = DeadLetterRow(letter)
                    let isFirst = tally.chosen == page.letters.count && index == 0
                    try output.write(
                        json ? try row.json(isWhole: true) + "\n" : (isFirst ? "" : "\n") + row.page(now: now))
                }
            }
            try output.flush()
            try await check(sweep, letters, keys)
        }
    }

    private func showBytes(
        _ sweep: DeadLetterSweep, _ output: ByteOutput, _ letters: DeadLetters, _ keys: QueueKeys
    ) async throws {
        var (sweep, found) = (sweep, [DeadLetters.Listed]())
        sweep.lower(2)
        try await sweep.run { page, _ in found += page.letters }
        guard found.count < 2 else {
            let keys = found.map(\.key).joined(separator: " and ")
            throw ValidationError(
                "--raw prints one dead letter, and several match, such as \(keys); give the key of one")
        }
        for letter in found { try output.write(letter.letter.original) }
        try output.flush()
        try await check(sweep, letters, keys)
    }

    private func check(_ sweep: DeadLetterSweep, _ letters: DeadLetters, _ keys: QueueKeys) async throws {
        guard sweep.tally.chosen == 0 else { return }
        throw ExitCode(try await DeadLetterSweep.tellOfNothing(letters, sweep.filter, keys))
    }
}
