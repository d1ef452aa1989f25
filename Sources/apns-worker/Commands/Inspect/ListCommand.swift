import ArgumentParser
import NIOCore
import Operations

struct ListOptions<Row: Counted>: ParsableArguments {
    @Option(help: ArgumentHelp("Maximum number of \(Row.things). (default: 50; with --json all)", valueName: "number"))
    var limit: Int?

    @Flag(help: "Print the number of \(Row.things).") var count = false

    @Option(
        help:
            "Count by \(Row.groupsInWords), or several, such as \(Row.groups[0]),\(Row.groups[1]).",
        transform: Counts<Row>.names)
    var by: [String]?

    @Flag(help: "Print one JSON object per line.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        if counts != nil, limit != nil { throw ValidationError("--limit cannot be combined with --count") }
    }

    /// The counts to print; `nil` for a list.
    var counts: Counts<Row>? { count || by != nil ? Counts(by: by ?? []) : nil }

    /// Returns the output of a list.
    /// - Parameter hasQueue: true if the rows are of several queues.
    func output(hasQueue: Bool = true) -> RowOutput<Row> {
        RowOutput(limit: limit ?? (json ? .max : 50), isJSON: json, hasQueue: hasQueue)
    }
}

/// Writes rows as lines of JSON, or as a table whose columns fit the first rows.
struct RowOutput<Row: Counted> {
    let limit: Int
    let isJSON: Bool
    var hasQueue = true
    /// The maximum length of a line, at which the last column is cut; `nil` for no limit.
    var width: Int?
    var output = ByteOutput.standard
    /// The time from which ages count.
    var now = Moment.now
    private(set) var written = 0
    /// True if there are more rows than the limit.
    private(set) var hasMore = false
    private var table: Table?

    init(limit: Int, isJSON: Bool, hasQueue: Bool = true) {
        (self.limit, self.isJSON, self.hasQueue) = (limit, isJSON, hasQueue)
    }

    /// Writes rows.
    /// - Returns: false if there are more rows than the limit.
    mutating func add(_ rows: some Collection<Row>) throws -> Bool {
        let chosen = rows.prefix(limit - written)
        hasMore = rows.count > chosen.count
        written += chosen.count
        if isJSON {
            var lines = ByteBuffer()
            for row in chosen {
                row.writeJSON(to: &lines)
                lines.writeStaticString("\n")
            }
            try output.write(lines)
        } else if !chosen.isEmpty {
            let cells = chosen.map { $0.cells(now: now, hasQueue: hasQueue) }
            let titles = Row.titles(hasQueue: hasQueue)
            let lines = table == nil ? [titles] + cells : cells
            let table = table ?? Table(titles, cells, width: width)
            for line in lines { try output.write(table.line(line) + "\n") }
            self.table = table
        }
        return !hasMore
    }

    /// Ends the output, and reports if there are more rows.
    func end() throws {
        try output.flush()
        if hasMore { Terminal.note("there are more: use --limit, --count, or a filter such as \(Row.narrowing)\n") }
    }
}

extension Counts {
    /// Prints the numbers, the largest first. Without groups, prints the sum.
    /// - Parameter isTable: true to print a table with titles.
    func print(isJSON: Bool, isTable: Bool = false) {
        guard !groups.isEmpty else {
            Terminal.print(isJSON ? "{\"count\":\(sum)}\n" : "\(sum)\n")
            return
        }
        if isJSON {
            for row in rows { Terminal.print(json(row) + "\n") }
            return
        }
        let lines = rows.map { row in ["\(row.count)"] + row.values.map { ($0 ?? "-").printable } }
        guard isTable, !lines.isEmpty else {
            for line in lines { Terminal.print(line.joined(separator: "\t") + "\n") }
            return
        }
        let titles = ["COUNT"] + groups.map { $0.uppercased() }
        let table = Table(titles, lines)
        for line in [titles] + lines { Terminal.print(table.line(line) + "\n") }
    }

    /// Reads the value of `--by`.
    static func names(_ text: String) throws -> [String] {
        try readingFlags { () throws(FieldMistake) in try groups(text) }
    }
}
