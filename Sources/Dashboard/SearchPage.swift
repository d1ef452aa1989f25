import Operations
import PrintableText
import PushQueue
import WebPages

/// The things that a text names: a device token, a queue, a campaign, an app, a worker, or the ID of a job. If
/// it names one thing only, the search leads to that.
struct SearchPage: DashboardPage {
    let path = "/search"
    let section = Section.elsewhere

    /// Something that a text may name.
    struct Match {
        let kind, name: String
        let path: String
        /// True if the text is the whole name.
        let isExact: Bool
    }

    /// The number of matches of a kind that are shown.
    private static let limit = 20

    func content(_ request: PageRequest) async throws -> PageContent {
        let text = (request.query["q"] ?? "").trimmed
        guard !text.isEmpty else { return PageContent(title: "Search", main: Self.help) }
        if Self.isToken(text) {
            return PageContent(title: "Search", main: "", redirect: request.links.path(["devices", text.lowercased()]))
        }
        let (campaigns, jobs) = (try await request.site.data.campaigns(), try await jobs(text, request))
        let matches = try await named(text, campaigns.value.map(\.campaign), request) + jobs.matches
        var unread = campaigns.unread
        unread.add(jobs.unread)
        let exact = matches.filter(\.isExact)
        if unread.isEmpty, let only = exact.count == 1 ? exact[0] : matches.count == 1 ? matches[0] : nil {
            return PageContent(title: "Search", main: "", redirect: only.path)
        }
        let rows = matches.map { match -> [HTML] in
            ["<a href=\"\(match.path)\">\(match.name)</a>", Elements.label(match.kind, .quiet)]
        }
        let list = Elements.list(
            "Matches", [.init("Name"), .init("Kind", .key)], rows,
            empty: Elements.empty("Nothing is named \(text).", Self.help))
        let further: HTML = """
            <p class="actions">\(request.link(["jobs"], [("id", text)], "Search all jobs for this ID")) ·
            \(request.link(["dead"], [("id", text)], "Search all dead letters for this ID"))</p>
            """
        return PageContent(title: "Search", main: "\(request.notices(unread))\(list)\(further)")
    }

    /// Returns true for the whole, or at least eight digits, of a device token in hex.
    static func isToken(_ text: String) -> Bool { text.utf8.count >= 8 && text.isHexadecimal }

    /// Returns the names that are a text, or else those that contain it, ignoring case.
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

    /// Returns unfinished jobs and dead letters with an ID, as far as they are found at once.
    private func jobs(_ id: String, _ request: PageRequest) async throws -> (matches: [Match], unread: UnreadParts) {
        var filter = JobFilter()
        filter.ids = [Name(id)]
        var letters = DeadLetterFilter()
        letters.ids = [id]
        // At the same time, because each may search until the page must appear.
        async let listing = JobsPage().list(request, filter)
        let dead = try await DeadLettersPage().list(request, letters, after: nil, limit: Self.limit)
        let jobs = try await listing
        var unread = jobs.unread
        unread.add(dead.unread)
        let matches =
            jobs.rows.map {
                Match(
                    kind: "\($0.job.state.rawValue) job", name: id,
                    path: request.links.path(["jobs", $0.queue, $0.job.key], [("state", $0.job.state.rawValue)]),
                    isExact: true)
            }
            + dead.rows.map {
                Match(
                    kind: "dead letter", name: id, path: request.links.path(["dead", $0.queue, $0.key]),
                    isExact: true)
            }
        return (matches, unread)
    }

    private static let help: HTML = """
        <p>Search for a device token (eight digits are enough), the ID of a job, or the name of a campaign, an app, a \
        queue or a worker.</p>
        """
}
