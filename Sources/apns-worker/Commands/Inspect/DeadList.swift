import ArgumentParser
import Operations
import PrintableText
import PushQueue

struct Dead: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dead",
        abstract: "List, show or delete dead letters.",
        discussion: """
            A dead letter is a job that cannot be delivered, kept as the producer wrote it, with the reason. \
            `apns-worker requeue` returns dead letters to the queue.
            """,
        subcommands: [DeadList.self, DeadShow.self, DeadDelete.self])
}

struct DeadList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List dead letters, newest first.",
        discussion: """
            Shows the queues of --queue, or those that variables or the file name, or else all queues in Redis.
            """)

    @OptionGroup(title: "Queue") var queue: QueueOptions

    @OptionGroup(title: "Filters") var options: DeadLetterOptions

    @Option(help: ArgumentHelp("Maximum number. (default: 50; with --json all)", valueName: "number")) var limit: Int?

    /// A member by which dead letters can be counted.
    enum Group: String, CaseIterable {
        case reason, app, campaign, queue
    }

    @Flag(help: "Print the number of dead letters.") var count = false

    @Option(
        help: "Count by reason, app, campaign or queue, or several, such as reason,app.",
        transform: { try Counts<Group>.groups($0, of: "dead letters") })
    var by: [Group]?

    @Flag(help: "Print one JSON object per line.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        if count || by != nil, limit != nil { throw ValidationError("--limit cannot be combined with --count") }
        _ = try options.filter()
    }

    func run() async throws {
        let filter = try options.filter()
        try await QueueChoice.withListed(queue) { fleet, queues in
            var letters: [DeadLetters] = []
            for keys in queues { letters.append(try await fleet.deadLetters(of: keys)) }
            let found =
                count || by != nil ? try await printCounts(letters, filter) : try await printLetters(letters, filter)
            guard found == 0 else { return }
            let status = try await DeadLetterSweep.reportNothing(letters, filter)
            if status != 0 { throw ExitCode(status) }
        }
    }

    private func printCounts(_ letters: [DeadLetters], _ filter: DeadLetterFilter) async throws -> Int {
        var counts = Counts(by: by ?? [])
        for letters in letters {
            if counts.groups.contains(where: { $0 == .app || $0 == .campaign }) {
                _ = try await sweep(letters, filter, limit: nil) { rows in
                    for row in rows { counts.add { Self.value($0, row.reason, row, letters.queue) } }
                }
                continue
            }
            let tally = try await DeadLetterSweep.count(letters, filter, limit: nil, onlyReadable: false)
            for (reason, count) in tally.reasons {
                counts.add(count) { Self.value($0, reason, nil, letters.queue) }
            }
        }
        try counts.print(isJSON: json)
        return counts.sum
    }

    private static func value(_ group: Group, _ reason: String, _ row: DeadLetterRow?, _ queue: String) -> String? {
        switch group {
        case .reason: reason
        case .app: row?.app
        case .campaign: row?.campaign
        case .queue: queue
        }
    }

    private func printLetters(_ letters: [DeadLetters], _ filter: DeadLetterFilter) async throws -> Int {
        let output = ByteOutput.standard
        guard let shown = limit ?? (json ? nil : 50) else {
            var found = 0
            for letters in letters {
                found += try await sweep(letters, filter, limit: nil) { rows in
                    for row in rows { try output.write(try row.json(isWhole: false) + "\n") }
                }
            }
            try output.flush()
            return found
        }
        var rows: [DeadLetterRow] = []
        for letters in letters {
            // One more, to find out whether there are more.
            _ = try await sweep(letters, filter, limit: json ? shown : Int(bounding: shown) + 1) { rows += $0 }
        }
        // Within one queue they are already in order.
        if letters.count > 1 { rows.sort { $0.at > $1.at } }
        let chosen = rows.prefix(shown)
        if json {
            for row in chosen { try output.write(try row.json(isWhole: false) + "\n") }
        } else if !chosen.isEmpty {
            let screen = StatusScreen()
            let now = Moment.now
            let first = letters.count > 1 ? 0 : 1
            let titles = Array(DeadLetterRow.titles[first...])
            let cells = chosen.map { Array($0.cells(now: now)[first...]) }
            let table = Table(titles, cells, width: screen.isTerminal ? screen.size.columns : nil)
            for line in [titles] + cells { try output.write(table.line(line) + "\n") }
        }
        try output.flush()
        if rows.count > shown, !json {
            Terminal.note("there are more: use --limit, --count, or a filter such as --reason\n")
        }
        return rows.count
    }

    private func sweep(
        _ letters: DeadLetters, _ filter: DeadLetterFilter, limit: Int?, _ body: ([DeadLetterRow]) throws -> Void
    ) async throws -> Int {
        var sweep = DeadLetterSweep(letters, .list, filter)
        sweep.newestFirst = true
        sweep.lower(limit)
        try await sweep.run { page, _ in
            try body(page.letters.map { DeadLetterRow($0, queue: letters.queue) })
        }
        return sweep.tally.chosen
    }
}
