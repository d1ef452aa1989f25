import ArgumentParser
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
            A token has a line for each topic and environment that it is invalid for. SET is the set, for other programs, that has \
            the token for this reason. It is empty for topics other than an app's own, such as that of VoIP.

            To delete the tokens in your own database, export those of an environment:

              apns-worker invalid list --format tokens --environment production --output invalid.txt

            The format tokens prints only the tokens in the set of that environment (default: production). If workers add and \
            remove tokens in the meantime, some may be listed twice; no token that stays in the set is omitted.
            """)

    @OptionGroup(title: "Redis") var redis: RedisOptions

    @OptionGroup(title: "Filters") var options: InvalidTokenOptions

    @Option(help: "table; tokens (only the tokens, one per line); ndjson or csv (with details). (default: table)")
    var format: InvalidListing.Format?

    @Option(help: "An output file, written atomically. (default: standard output)") var output: String?

    @OptionGroup var list: ListOptions<InvalidTokenSet.Listed>

    func validate() throws {
        if list.counts != nil, format != nil || output != nil {
            throw ValidationError("--count cannot be combined with --format and --output")
        }
        if list.json, format != nil { throw ValidationError("--json and --format cannot be combined") }
        _ = try options.filter(now: 0)
    }

    func run() async throws {
        let listing = InvalidListing(
            filter: try options.filter(now: Moment.now), format: format ?? (list.json ? .ndjson : .table),
            limit: list.limit,
            path: output)
        try await CommandRedis(redis.settings()).withInvalidTokens { client in
            var unread = UnreadParts()
            var found = 0
            if var counts = list.counts {
                try await client.sweep(listing.filter, &unread) { tokens in
                    for token in tokens { counts.add(token) }
                    return true
                }
                counts.print(isJSON: list.json, isTable: true)
                found = counts.sum
            } else {
                found = try await listing.write(client, &unread)
            }
            if found == 0 {
                Terminal.note(listing.filter.isEmpty ? "there are no invalid tokens\n" : "no invalid token matches\n")
            } else if output != nil {
                listing.reportCount(found)
            }
            unread.report()
            try unread.check()
        }
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
