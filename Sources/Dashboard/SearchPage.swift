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
        filter.ids = [id]
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

/// All components of the pages in one place, to look at after a change of the style sheet.
struct StylesPage: DashboardPage {
    let path = "/styles"
    let section = Section.elsewhere

    func content(_ request: PageRequest) async throws -> PageContent {
        let tones: [Elements.Tone] = [.plain, .good, .warning, .bad, .quiet]
        let pills = tones.map { Elements.label($0.rawValue, $0) }.joined(separator: " ")
        let cards = [Elements.Tone.plain, .good, .warning, .bad].map { tone in
            Elements.card(
                "A card", tone: tone, tools: "<button type=\"button\" class=\"small\">Tool</button>",
                """
                <p>\(Elements.prose("A text with `code`, and what it means."))</p>\
                \(Elements.command("apns-worker status"))
                """
            )
        }
        let long = String(repeating: "A long text that is cut after two lines. ", count: 8)
        let list = Elements.list(
            "A list",
            [
                .init("Name", .key), .init("State", .key), .init("Number", .number), .init("Text", priority: 2),
                .init("More", .key, priority: 3),
            ],
            (1...3).map { row in
                [
                    "<a href=\"#main\">row-\(row)</a>", Elements.label("running", .good), "\(Words.number(row * 1234))",
                    Elements.clamped(long), "detail",
                ]
            }, empty: "")
        let buttons: HTML = """
            <div class="actions"><button type="button" class="main">Main</button> <button type="button">Plain</button>
            <button type="button" class="danger">Danger</button> <button type="button" class="quiet">Quiet</button>
            <button type="button" class="small">Small</button> <button type="button" disabled>Disabled</button></div>
            """
        let form: HTML = """
            <form class="filters" method="get" action="\(request.links.path(["styles"]))">
            \(Elements.field("Field", "field", placeholder: "placeholder"))
            \(Elements.choice("Choice", "choice", [("", "all"), ("a", "one")], chosen: ""))
            <button class="main">Filter</button></form>
            """
        let tabs = Elements.tabs(
            "Views",
            [
                ("All", request.links.path(["styles"]), true, 12345),
                ("Some", request.links.path(["styles"], [("field", "a")]), false, 7),
            ])
        let figures: HTML = """
            <div class="figures">\(Elements.figure("Delivered", "12,345", "190 per second"))\
            \(Elements.figure("Waiting", "0", "jobs to send"))</div>
            """
        let facts = Elements.facts([("Name", "value"), ("Other", "another value")])
        return PageContent(
            title: "Styles",
            main: """
                <p>\(pills)</p>\(figures)<div class="columns">\(cards)</div>\(tabs)\(form)\(list)\(buttons)\(facts)
                \(Elements.empty("Nothing here yet.", "<p>What to do next.</p>"))
                <p class="problem bad"><strong>A problem</strong>What to do.</p><p class="notice good">A notice.</p>
                \(Self.charts(request.links))
                """, lead: "All components of these pages.")
    }

    /// Returns charts with all outcomes, gaps, marks and links.
    private static func charts(_ links: Links) -> HTML {
        let times = ChartTimes(first: 1_795_266_300_000, step: 60_000, count: 60)
        let columns = Chart(
            "Columns, per minute", .columns, times, .count,
            Outcome.allCases.map { outcome in
                .init(
                    outcome.rawValue, style: outcome.rawValue,
                    (0..<60).map { $0 < 12 ? nil : Double((7 - outcome.index) * (20 + $0 * 7 % 30)) },
                    link: { ChartLinks(links, times, queues: []).path(of: outcome, $0) })
            },
            marks: [
                .init(at: times.start(20), "Paused queue news (ada: wrong template)"),
                .init(at: times.start(40), "3 workers started with version 1.2.3"),
            ], lastIsUnfinished: true)
        let lines = Chart(
            "Lines", .lines, times, .milliseconds,
            ["p50", "p90", "p99"].enumerated().map { index, name in
                .init(name, (0..<60).map { $0 % 20 == 10 ? nil : Double((index + 1) * (9000 + $0 * 331 % 5000)) })
            })
        let spark = SVG.spark(values: (0..<60).map { Double($0 * 7 % 30) }, title: "Delivered per minute")
        let shares = SVG.shares(
            Outcome.allCases.map { ($0.rawValue, $0.rawValue, $0 == .delivered ? 95_000 : 100 * $0.index) })
        return """
            <div class="columns">\(columns.html)\(lines.html)\(Elements.card("A sparkline", spark))\
            \(Elements.card("Shares", shares))</div>
            """
    }
}
