import ArgumentParser
import NIOCore
import Operations
import PushQueue

/// Writes the tokens of the set of invalid tokens that match a filter.
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
        let isOfTokens = format == .tokens
        var rows = RowOutput<InvalidTokenSet.Listed>(
            limit: limit ?? (format == .table ? 50 : .max), isJSON: format == .ndjson)
        rows.output = output
        var written = 0
        if format == .csv { try output.write(InvalidTokenSet.Listed.csvHead) }
        try await client.sweep(
            filter, withDetails: !isOfTokens, sets: isOfTokens ? filter.ownSets : .all, &unread
        ) { marks in
            if format == .table || format == .ndjson { return try rows.add(marks) }
            let chosen = (isOfTokens ? InvalidTokenSet.Listed.tokens(of: marks, in: filter) : marks)
                .prefix(rows.limit - written)
            written += chosen.count
            var text = ByteBuffer()
            for listed in chosen {
                if isOfTokens {
                    text.writeImmutableBuffer(listed.token)
                    text.writeString("\n")
                } else {
                    listed.writeCSV(to: &text)
                }
            }
            try output.write(text)
            return written < rows.limit
        }
        try rows.end()
        try file?.finish()
        return written + rows.written
    }

    func reportCount(_ count: Int) {
        Terminal.note("\(count) invalid token\(count == 1 ? "" : "s")\(path.map { " written to \($0)" } ?? "")\n")
    }
}

/// The options that select invalid tokens, which several commands share.
struct InvalidTokenOptions: ParsableArguments {
    @Option(help: .field("topic", of: InvalidTokenFilter.fields)) var topic: [String] = []
    @Option(help: .field("reason", of: InvalidTokenFilter.fields)) var reason: [String] = []
    @Option(help: .field("source", of: InvalidTokenFilter.fields)) var source: [String] = []
    @Option(help: .field("environment", of: InvalidTokenFilter.fields)) var environment: [String] = []
    @Option(help: .field("since", of: InvalidTokenFilter.fields)) var since: String?
    @Option(help: .field("until", of: InvalidTokenFilter.fields)) var until: String?

    var fields: Fields {
        var fields = Fields(refusesEmpty: true)
        for (name, values) in [
            ("topic", topic), ("reason", reason), ("source", source), ("environment", environment),
        ] { fields.append(name, values) }
        fields.append("since", since)
        fields.append("until", until)
        return fields
    }

    /// - Parameter now: the time from which durations count back.
    func filter(now: Int64) throws -> InvalidTokenFilter {
        try readingFlags { () throws(FieldMistake) in try InvalidTokenFilter(fields, now: now) }
    }
}
