import ArgumentParser
import NIOCore
import PushQueue

struct InvalidList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List invalid tokens, with what is known of each; in no order.")

    @OptionGroup(title: "Redis") var redis: RedisOptions

    @OptionGroup(title: "Which tokens") var options: InvalidTokenOptions

    @Option(help: "How many at the most. (default 50; with --json all)") var limit: Int?

    @Flag(help: "Only count them, by reason, source, environment and topic.") var count = false

    @Flag(help: "Print a JSON object a line.") var json = false

    func validate() throws {
        try DeadLetterOptions.check(limit: limit)
        if count, limit != nil { throw ValidationError("--count counts all: leave out --limit") }
        _ = try options.filter(now: 0)
    }

    func run() async throws {
        let filter = try options.filter(now: Moment.now)
        try await redis.withInvalidTokens { inspector in
            let found = count ? try await tellCounts(inspector, filter) : try await tellTokens(inspector, filter)
            if found == 0 {
                Terminal.tell(filter.isEmpty ? "there are no invalid tokens\n" : "no invalid token fits\n")
            }
        }
    }

    private func tellTokens(_ inspector: InvalidTokenClient, _ filter: InvalidTokenFilter) async throws -> Int {
        let shown = limit ?? (json ? .max : 50)
        let output = ByteOutput.standard
        var (written, hasMore, table) = (0, false, Table?.none)
        try await inspector.sweep(filter) { tokens in
            let lines = tokens.prefix(shown - written).map(InvalidTokenLine.init)
            hasMore = tokens.count > lines.count
            written += lines.count
            if json {
                var text = ByteBuffer()
                for line in lines { line.writeJSON(to: &text) }
                try output.write(text)
            } else if !lines.isEmpty {
                let rows = lines.map(\.cells)
                if table == nil {
                    table = Table(InvalidTokenLine.titles, rows)
                    try output.write((table?.line(InvalidTokenLine.titles) ?? "") + "\n")
                }
                for row in rows { try output.write((table?.line(row) ?? "") + "\n") }
            }
            return !hasMore
        }
        try output.flush()
        if hasMore, !json { Terminal.tell("there are more: see --count, --limit and `apns-worker invalid export`\n") }
        return written
    }

    private struct Count: Encodable {
        let reason, source, environment, topic: String
        let count: Int
    }

    private func tellCounts(_ inspector: InvalidTokenClient, _ filter: InvalidTokenFilter) async throws -> Int {
        var counts: [String: Int] = [:]
        try await inspector.sweep(filter) { tokens in
            for token in tokens { counts[InvalidTokenLine(token).group, default: 0] += 1 }
            return true
        }
        let sorted = counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
        if json {
            for (group, count) in sorted {
                let parts = group.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
                guard parts.count == 4 else { continue }
                print(
                    try JSONLine.text(
                        Count(reason: parts[0], source: parts[1], environment: parts[2], topic: parts[3], count: count))
                )
            }
        } else if !sorted.isEmpty {
            let rows = sorted.map { group, count in
                ["\(count)"] + group.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
            }
            let titles = ["COUNT", "REASON", "SOURCE", "ENVIRONMENT", "TOPIC"]
            let table = Table(titles, rows)
            for row in [titles] + rows { print(table.line(row)) }
        }
        return sorted.reduce(0) { $0 + $1.value }
    }
}
