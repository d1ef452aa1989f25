import ArgumentParser
import Operations
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
        try await QueueChoice.withListed(queue) { fleet, queues in
            var letters: [DeadLetters] = []
            for keys in queues { letters.append(try await fleet.deadLetters(of: keys)) }
            let output = ByteOutput.standard
            let found = raw ? try await showBytes(letters, filter, output) : try await show(letters, filter, output)
            try output.flush()
            guard found == 0 else { return }
            throw ExitCode(try await DeadLetterSweep.reportNothing(letters, filter))
        }
    }

    private func show(_ letters: [DeadLetters], _ filter: DeadLetterFilter, _ output: ByteOutput) async throws -> Int {
        let now = Moment.now
        var found = 0
        for letters in letters {
            var sweep = DeadLetterSweep(letters, .show, filter)
            sweep.newestFirst = true
            try await sweep.run { page, _ in
                for letter in page.letters {
                    let row = DeadLetterRow(letter, queue: letters.queue)
                    try output.write(
                        json ? try row.json(isWhole: true) + "\n" : (found == 0 ? "" : "\n") + row.page(now: now))
                    found += 1
                }
            }
        }
        return found
    }

    private func showBytes(
        _ letters: [DeadLetters], _ filter: DeadLetterFilter, _ output: ByteOutput
    ) async throws -> Int {
        var found: [DeadLetters.Listed] = []
        for letters in letters {
            var sweep = DeadLetterSweep(letters, .show, filter)
            sweep.newestFirst = true
            sweep.lower(2)
            try await sweep.run { page, _ in found += page.letters }
        }
        guard found.count < 2 else {
            let keys = found.map(\.key).joined(separator: " and ")
            throw CommandFailure(
                .attention,
                "--raw prints one dead letter, but several match, such as \(keys); pass the key of one")
        }
        for letter in found { try output.write(letter.letter.original) }
        return found.count
    }
}
