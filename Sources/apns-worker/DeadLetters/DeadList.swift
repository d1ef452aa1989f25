import ArgumentParser
import PushQueue

struct Dead: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List, show or delete dead letters.",
        discussion: """
            A dead letter is a job that cannot be delivered, kept as the producer wrote it, with the reason. \
            `apns-worker requeue` returns dead letters to the queue.
            """,
        subcommands: [DeadList.self, DeadShow.self, DeadDelete.self])
}

struct DeadList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List dead letters, newest first.")

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @Option(help: "Maximum number. (default: 50; with --json all)") var limit: Int?

    @Flag(help: "Count them by reason.") var count = false

    @Flag(help: "Print one JSON object per line.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        _ = try options.filter()
    }

    func run() async throws {
        let filter = try options.filter()
        try await queue.withClient { client, keys in
            let letters = DeadLetters(client, keys)
            let found = count ? try await tellCounts(letters, filter) : try await tellLetters(letters, filter)
            guard found == 0 else { return }
            let status = try await DeadLetterSweep.tellOfNothing(letters, filter, keys)
            if status != 0 { throw ExitCode(status) }
        }
    }

    private struct Count: Encodable {
        let reason: String
        let count: Int
    }

    private func tellCounts(_ letters: DeadLetters, _ filter: DeadLetterFilter) async throws -> Int {
        let tally = try await DeadLetterSweep.count(letters, filter, limit: limit, onlyReadable: false)
        for (reason, count) in tally.reasons.sorted(by: { ($1.value, $0.key) < ($0.value, $1.key) }) {
            print(json ? try JSONLine.text(Count(reason: reason, count: count)) : "\(count)\t\(reason)")
        }
        return tally.chosen
    }

    private func tellLetters(_ letters: DeadLetters, _ filter: DeadLetterFilter) async throws -> Int {
        let shown = limit ?? (json ? nil : 50)
        var sweep = DeadLetterSweep(letters, .list, filter)
        sweep.newestFirst = true
        // One more, to know whether there are more.
        sweep.lower(json ? shown : shown.map { $0 + 1 })
        let output = ByteOutput.standard
        var (table, written) = (Table?.none, 0)
        let now = Moment.now
        try await sweep.run { page, _ in
            let rows = page.letters.map(DeadLetterRow.init)
            if json {
                for row in rows { try output.write(try row.json(isWhole: false) + "\n") }
                return
            }
            let cells = rows.prefix((shown ?? .max) - written).map { $0.cells(now: now) }
            guard !cells.isEmpty else { return }
            if table == nil {
                table = Table(DeadLetterRow.titles, cells)
                try output.write((table?.line(DeadLetterRow.titles) ?? "") + "\n")
            }
            for line in cells { try output.write((table?.line(line) ?? "") + "\n") }
            written += cells.count
        }
        try output.flush()
        if let shown, !json, sweep.tally.chosen > shown {
            Terminal.tell("there are more: use --limit, --count, or a filter such as --reason\n")
        }
        return sweep.tally.chosen
    }
}
