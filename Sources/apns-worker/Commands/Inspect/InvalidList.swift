import ArgumentParser
import NIOCore
import Operations
import PushQueue

struct Invalid: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "invalid",
        abstract: "List, export, import or repair the set of invalid device tokens.",
        discussion: """
            All queues share the set. Workers do not send to the tokens in it.
            """,
        subcommands: [InvalidList.self, InvalidAdd.self, InvalidRemove.self, InvalidReshard.self, InvalidExport.self])
}

struct InvalidList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List invalid tokens with their details, in no particular order.",
        discussion: """
            A token has a line for each topic and environment for which it is invalid. SET is the set that other programs read and that it is \
            in because of that; it has none for topics that are not the own one of an app, such as that of VoIP.

            To delete the tokens in your own database, export those of an environment:

              apns-worker invalid list --format tokens --environment production --output invalid.txt

            The format tokens prints only tokens in that environment's set (default: production's). If workers add and remove tokens in the meantime, some may be listed twice; no token that stays in the set is \
            omitted.
            """)

    @OptionGroup(title: "Redis") var redis: RedisOptions

    @OptionGroup(title: "Filters") var options: InvalidTokenOptions

    @Option(help: "table; tokens, those in a set, one per line; ndjson or csv, with their details. (default: table)")
    var format: InvalidListing.Format?

    @Option(help: "An output file, written atomically. (default: standard output)") var output: String?

    @Option(help: "Maximum number of tokens. (default: 50 for a table, otherwise all)") var limit: Int?

    @Flag(help: "Count tokens by reason, source, environment and topic instead.") var count = false

    @Flag(help: "Print a JSON object per line, as --format ndjson.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        if count, limit != nil { throw ValidationError("--count cannot be combined with --limit") }
        if count, format != nil || output != nil {
            throw ValidationError("--count cannot be combined with --format and --output")
        }
        if json, format != nil { throw ValidationError("--json and --format cannot be combined") }
        _ = try options.filter(now: 0)
    }

    func run() async throws {
        let listing = InvalidListing(
            filter: try options.filter(now: Moment.now), format: format ?? (json ? .ndjson : .table), limit: limit,
            path: output)
        try await CommandRedis(redis.settings()).withInvalidTokens { client in
            var unread = UnreadParts()
            let found =
                count
                ? try await printCounts(client, listing.filter, &unread) : try await listing.write(client, &unread)
            if found == 0 {
                Terminal.note(listing.filter.isEmpty ? "there are no invalid tokens\n" : "no invalid token matches\n")
            } else if output != nil {
                listing.reportCount(found)
            }
            unread.report()
            try unread.check()
        }
    }

    private struct Count: Encodable {
        let reason, source, environment, topic, set: String
        let count: Int
    }

    private func printCounts(
        _ client: InvalidTokenClient, _ filter: InvalidTokenFilter, _ unread: inout UnreadParts
    ) async throws -> Int {
        var counts: [String: Int] = [:]
        try await client.sweep(filter, &unread) { tokens in
            for token in tokens { counts[InvalidTokenLine(token).group, default: 0] += 1 }
            return true
        }
        let sorted = counts.largestFirst
        if json {
            for (group, count) in sorted {
                let parts = group.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
                guard parts.count == 5 else { continue }
                print(
                    try JSONLine.text(
                        Count(
                            reason: parts[0], source: parts[1], environment: parts[2], topic: parts[3], set: parts[4],
                            count: count)))
            }
        } else if !sorted.isEmpty {
            let rows = sorted.map { group, count in
                ["\(count)"] + group.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
            }
            let titles = ["COUNT"] + InvalidTokenLine.titles.dropFirst(2)
            let table = Table(titles, rows)
            for row in [titles] + rows { print(table.line(row)) }
        }
        return sorted.reduce(0) { $0 + $1.value }
    }
}

/// The former name of `list --format tokens`.
struct InvalidExport: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export", abstract: "The same as list, with another default: --format tokens.",
        shouldDisplay: false)

    @OptionGroup(title: "Redis") var redis: RedisOptions

    @OptionGroup(title: "Filters") var options: InvalidTokenOptions

    @Option(help: "tokens, one per line; ndjson or csv, with their details.") var format = InvalidListing.Format.tokens

    @Option(help: "An output file, written atomically. (default: standard output)") var output: String?

    func validate() throws { _ = try options.filter(now: 0) }

    func run() async throws {
        let listing = InvalidListing(
            filter: try options.filter(now: Moment.now), format: format, limit: nil, path: output)
        try await CommandRedis(redis.settings()).withInvalidTokens { client in
            var unread = UnreadParts()
            listing.reportCount(try await listing.write(client, &unread))
            unread.report()
            try unread.check()
        }
    }
}

/// A walk through the set of invalid tokens that writes them.
struct InvalidListing {
    enum Format: String, CaseIterable, ExpressibleByArgument {
        case table, tokens, ndjson, csv
    }

    let filter: InvalidTokenFilter
    let format: Format
    let limit: Int?
    /// The output file; `nil` for standard output.
    let path: String?

    /// - Parameter unread: gets the shards that can't be read.
    /// - Returns: the number of tokens written.
    func write(_ client: InvalidTokenClient, _ unread: inout UnreadParts) async throws -> Int {
        let file = try path.map { try FileReplacement($0) }
        let output = file?.output ?? ByteOutput.standard
        let maximum = limit ?? (format == .table ? 50 : .max)
        var (written, hasMore, table) = (0, false, Table?.none)
        if format == .csv { try output.write(InvalidTokenLine.members.joined(separator: ",") + "\r\n") }
        let isOfTokens = format == .tokens
        try await client.sweep(
            filter, withDetails: !isOfTokens, sets: isOfTokens ? filter.ownSets : .all, &unread
        ) { marks in
            let tokens = isOfTokens ? InvalidTokenSet.Listed.tokens(of: marks, in: filter) : marks
            let chosen = tokens.prefix(maximum - written)
            hasMore = tokens.count > chosen.count
            written += chosen.count
            let lines = chosen.map(InvalidTokenLine.init)
            var text = ByteBuffer()
            switch format {
            case .tokens:
                for token in chosen {
                    text.writeImmutableBuffer(token.token)
                    text.writeString("\n")
                }
            case .ndjson: for line in lines { line.writeJSON(to: &text) }
            case .csv: for line in lines { line.writeCSV(to: &text) }
            case .table where lines.isEmpty: break
            case .table:
                let columns = table ?? Table(InvalidTokenLine.titles, lines.map(\.cells))
                if table == nil { text.writeString(columns.line(InvalidTokenLine.titles) + "\n") }
                for line in lines { text.writeString(columns.line(line.cells) + "\n") }
                table = columns
            }
            try output.write(text)
            return !hasMore
        }
        try output.flush()
        try file?.finish()
        if hasMore, format == .table { Terminal.note("there are more: see --count, --limit and --format\n") }
        return written
    }

    func reportCount(_ count: Int) {
        Terminal.note("\(count) invalid token\(count == 1 ? "" : "s")\(path.map { " written to \($0)" } ?? "")\n")
    }
}
