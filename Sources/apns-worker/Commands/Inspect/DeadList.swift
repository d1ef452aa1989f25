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
            var unread = UnreadParts()
            var found = 0
            let letters: [DeadLetters]
            if count || by != nil {
                var counts = Counts(by: by ?? [])
                letters = try await unread.each(queues) { keys in
                    let letters = try await fleet.deadLetters(of: keys)
                    try await add(letters, filter, to: &counts)
                    return letters
                }
                try counts.print(isJSON: json)
                found = counts.sum
            } else {
                var listing = Listing(limit: limit ?? (json ? nil : 50), isJSON: json)
                letters = try await unread.each(queues) { keys in
                    let letters = try await fleet.deadLetters(of: keys)
                    try await listing.add(letters, filter)
                    return letters
                }
                found = try listing.end(namesQueue: queues.count > 1)
            }
            unread.report()
            let status = found == 0 ? try await DeadLetterSweep.reportNothing(letters, filter) : 0
            try unread.check()
            if status != 0 { throw ExitCode(status) }
        }
    }

    private func add(
        _ letters: DeadLetters, _ filter: DeadLetterFilter, to counts: inout Counts<Group>
    ) async throws {
        if counts.groups.contains(where: { $0 == .app || $0 == .campaign }) {
            try await Self.sweep(letters, filter, limit: nil) { rows in
                for row in rows { counts.add { Self.value($0, row.reason, row, letters.queue) } }
            }
            return
        }
        let tally = try await DeadLetterSweep.count(letters, filter, limit: nil, onlyReadable: false)
        for (reason, count) in tally.reasons {
            counts.add(count) { Self.value($0, reason, nil, letters.queue) }
        }
    }

    private static func value(_ group: Group, _ reason: String, _ row: DeadLetterRow?, _ queue: String) -> String? {
        switch group {
        case .reason: reason
        case .app: row?.app
        case .campaign: row?.campaign
        case .queue: queue
        }
    }

    /// The dead letters of a command, which prints them once all queues were read; without a limit, as it reads them.
    private struct Listing {
        let limit: Int?
        let isJSON: Bool
        private let output = ByteOutput.standard
        private var rows: [DeadLetterRow] = []
        private var written = 0

        init(limit: Int?, isJSON: Bool) { (self.limit, self.isJSON) = (limit, isJSON) }

        /// Adds those of a queue.
        mutating func add(_ letters: DeadLetters, _ filter: DeadLetterFilter) async throws {
            // One more, to find out whether there are more.
            let most = limit.map { isJSON ? $0 : Int(bounding: $0) + 1 }
            try await DeadList.sweep(letters, filter, limit: most) { page in
                guard limit == nil else { return rows += page }
                for row in page { try output.write(try row.json(isWhole: false) + "\n") }
                written += page.count
            }
        }

        /// Prints the rest.
        /// - Returns: the number of dead letters found.
        mutating func end(namesQueue: Bool) throws -> Int {
            // Within one queue they are already in order.
            if namesQueue { rows.sort { $0.at > $1.at } }
            let chosen = rows.prefix(limit ?? 0)
            if isJSON {
                for row in chosen { try output.write(try row.json(isWhole: false) + "\n") }
            } else if !chosen.isEmpty {
                let screen = StatusScreen()
                let now = Moment.now
                let first = namesQueue ? 0 : 1
                let titles = Array(DeadLetterRow.titles[first...])
                let cells = chosen.map { Array($0.cells(now: now)[first...]) }
                let table = Table(titles, cells, width: screen.isTerminal ? screen.size.columns : nil)
                for line in [titles] + cells { try output.write(table.line(line) + "\n") }
            }
            try output.flush()
            if rows.count > chosen.count, !isJSON {
                Terminal.note("there are more: use --limit, --count, or a filter such as --reason\n")
            }
            return written + rows.count
        }
    }

    private static func sweep(
        _ letters: DeadLetters, _ filter: DeadLetterFilter, limit: Int?, _ body: ([DeadLetterRow]) throws -> Void
    ) async throws {
        var sweep = DeadLetterSweep(letters, .list, filter)
        sweep.newestFirst = true
        sweep.lower(limit)
        try await sweep.run { page, _ in
            try body(page.letters.map { DeadLetterRow($0, queue: letters.queue) })
        }
    }
}
