import Operations
import PrintableText
import PushQueue
import WebPages

/// The things that a text names: a device token, a queue, a campaign, an app, a worker, or the ID of a job. If the text names only one
/// thing, the search leads to its page.
struct SearchPage: DashboardPage {
    let path = "/search"
    let section = Section.elsewhere

    /// An object whose name or ID may match the text.
    struct Match {
        let kind, name: String
        let path: String
        /// True if the text is the whole name.
        let isExact: Bool
    }

    /// The maximum number of matches of each kind.
    private static let limit = 20

    func content(_ request: PageRequest) async throws -> PageContent {
        let text = (request.query["q"] ?? "").trimmed
        guard !text.isEmpty else { return PageContent(title: "Search", main: Self.help) }
        let (campaigns, jobs) = (try await request.site.data.campaigns(), try await jobs(text, request))
        let matches = try await named(text, campaigns.value.map(\.campaign), request) + jobs.matches
        var unread = campaigns.unread
        unread.add(jobs.unread)
        let exact = matches.filter(\.isExact)
        if unread.isEmpty, let only = exact.count == 1 ? exact[0] : matches.count == 1 ? matches[0] : nil,
            only.isExact || !Self.isToken(text)
        {
            return PageContent(title: "Search", main: "", redirect: only.path)
        }
        // A text of hexadecimal digits may be the ID or the key of a job, a name, or the beginning of a token.
        let device = Self.isToken(text) ? request.links.path(["devices", text.lowercased()]) : nil
        if matches.isEmpty, let device, !jobs.isPartial || TokenText.isToken(text) {
            return PageContent(title: "Search", main: "", redirect: device)
        }
        let rows = matches.map { match -> [HTML] in
            ["<a href=\"\(match.path)\">\(match.name)</a>", Elements.label(match.kind, .quiet)]
        }
        let list = Elements.list(
            "Matches", [.init("Name"), .init("Kind", .key)], rows,
            empty: Elements.empty(
                jobs.isPartial ? "Nothing with this name was found: \(text)." : "Nothing is named \(text).",
                """
                \(if: jobs.isPartial, """
                    <p>Only \(Words.number(jobs.looked)) jobs, dead letters and results could be searched at once; the \
                    links below search them all.</p>
                    """)<p>A push that has ended is found only if its result is kept: those of deliveries are kept with \
                <code>results: all</code>. All results are searched by \(request.command(["results", "--id"], text)).</p>\(Self.help)
                """))
        let further: HTML = """
            <p class="actions">\(if: device != nil, "<a href=\"\(device ?? "")\">Devices whose token begins with this text</a> · ")\
            \(request.link(["jobs"], [("id", text)], "Search all jobs for this ID")) ·
            \(request.link(["dead"], [("id", text)], "Search all dead letters for this ID"))</p>
            """
        return PageContent(title: "Search", main: "\(request.notices(unread))\(list)\(further)")
    }

    /// Returns true for the whole, or at least eight digits, of a device token in hex.
    static func isToken(_ text: String) -> Bool { text.utf8.count >= 8 && text.isHexadecimal }

    /// Returns the names that contain a text, ignoring case.
    static func matching(_ text: String, _ names: [String]) -> [(name: String, isExact: Bool)] {
        let wanted = text.lowercased()
        let found = names.filter { $0.lowercased().contains(wanted) }
        return found.prefix(limit).map { ($0, $0.lowercased() == wanted) }
    }

    private func named(_ text: String, _ campaigns: [String], _ request: PageRequest) async throws -> [Match] {
        let status = try await request.site.data.fleetStatus()
        let queues = try await request.site.data.queues()
        let kinds: [(kind: String, section: String, names: [String])] = [
            ("queue", "queues", queues.map(\.queue)), ("campaign", "campaigns", Set(campaigns).sorted()),
            ("app", "apps", status.apps.map(\.name)), ("worker", "workers", status.living.map(\.name)),
        ]
        return kinds.flatMap { kind, section, names in
            Self.matching(text, names).map { name, isExact in
                Match(kind: kind, name: name, path: request.links.path([section, name]), isExact: isExact)
            }
        }
    }

    /// The unfinished jobs, dead letters and results with an ID or a key that were found in the page's time.
    private struct FoundJobs {
        var matches: [Match] = []
        var unread = UnreadParts()
        var looked = 0
        var isPartial = false

        mutating func add<Row>(_ part: ListPart<Row>, _ match: (Row) -> Match) {
            matches += part.rows.map(match)
            unread.add(part.unread)
            looked += part.looked
            isPartial = isPartial || part.cursor != nil
        }
    }

    private enum Part: Sendable {
        case jobs(ListPart<JobRow>)
        case letters(ListPart<DeadLetterRow>)
        case results(ListPart<ResultLine>)
    }

    private func jobs(_ text: String, _ request: PageRequest) async throws -> FoundJobs {
        var (byID, byKey, lettersByID, lettersByKey) = (
            JobFilter(), JobFilter(), DeadLetterFilter(), DeadLetterFilter()
        )
        (byID.ids, byKey.keys) = ([Name(text)], [text.lowercased()])
        (lettersByID.ids, lettersByKey.keys) = ([text], [text.lowercased()])
        let isKey = Fields.isKey(text)
        var (results, newestFirst) = (ResultFilter(), ResultListing.Order())
        (results.ids, newestFirst.newestFirst) = ([Name(text)], true)
        let reading = ListReading(limit: Self.limit, end: request.searchEnd)
        var found = FoundJobs()
        // All searches run at the same time, because each may need all the time of the page.
        try await withThrowingTaskGroup(of: Part.self) { [results, newestFirst] group in
            for filter in isKey ? [byID, byKey] : [byID] {
                group.addTask { .jobs(try await JobsPage().list(request, filter, reading)) }
            }
            for filter in isKey ? [lettersByID, lettersByKey] : [lettersByID] {
                group.addTask { .letters(try await DeadLettersPage().list(request, filter, reading)) }
            }
            group.addTask { .results(try await request.results(results, newestFirst, reading)) }
            for try await part in group {
                switch part {
                case .jobs(let jobs):
                    found.add(jobs) { row in
                        Match(
                            kind: "\(row.job.state.rawValue) job", name: row.job.id?.text ?? row.job.key,
                            path: request.links.path(
                                ["jobs", row.queue, row.job.key], [("state", row.job.state.rawValue)]),
                            isExact: true)
                    }
                case .letters(let letters):
                    found.add(letters) { row in
                        Match(
                            kind: "dead letter", name: row.id ?? row.key,
                            path: request.links.path(["dead", row.queue, row.key]), isExact: true)
                    }
                case .results(let results):
                    // The page of the device shows the result.
                    found.add(results) { line in
                        let (outcome, token) = (line.result["outcome"] ?? "ended", line.result["token"] ?? "")
                        return Match(
                            kind: "\(outcome) push", name: text, path: request.links.path(["devices", token]),
                            isExact: true)
                    }
                }
            }
        }
        // A job with an ID like its key is found twice, and so is a dead letter with its result.
        var paths = Set<String>()
        found.matches = found.matches.sorted { ($0.kind, $0.path) < ($1.kind, $1.path) }
            .filter { paths.insert($0.path).inserted }
        return found
    }

    private static let help: HTML = """
        <p>Search for a device token (eight digits are enough), the ID of a job, or the name of a campaign, an app, a \
        queue or a worker.</p>
        """
}
