import NIOCore
import Operations
import PushJob
import PushQueue
import WebPages

/// The list of dead letters, with the newest counted by reason, app and hour.
struct DeadLettersPage: DashboardPage {
    let path = "/dead"
    let section = Section.dead

    private static let (limit, sample) = (50, 1000)

    func content(_ request: PageRequest) async throws -> PageContent {
        let filter = try DeadLetterFilter(request.query, now: Moment.now)
        let queues = try await request.site.data.queues()
        let listing = try await list(request, filter, after: request.query["after"])
        let form = request.filters(
            ["dead"],
            [
                request.queueChoice(queues.map(\.queue)),
                request.field("Reason", "reason", placeholder: "BadPayload or Bad*"),
                request.field("App", "app"), request.field("Campaign", "campaign"), request.field("ID", "id"),
                request.field("Token", "token"), request.field("Error or status", "error"),
                request.field("Since", "since", placeholder: "2h, or 2026-11-21T08:00:00Z"),
                request.field("Until", "until", placeholder: "30m"),
            ])
        var groups: HTML = ""
        if request.query["after"] == nil, !listing.rows.isEmpty {
            groups = try await summary(request, filter)
        }
        let titles: [HTML] =
            request.selectAll + ["Time", "Key", "Queue", "Reason", "App", "ID", "Attempts", "Error"]
        let table = Elements.table(
            "Dead letters", titles, listing.rows.map { row($0, request) }, numbers: [request.isOperator ? 7 : 6],
            empty: listing.cursor == nil ? "No dead letter matches." : "No dead letter matches so far.")
        let few = listing.rows.count < Self.limit
        let more = request.next(["dead"], listing.cursor, few ? "Search further" : "Next page")
        let list = request.selection(
            "change-dead-letters", table,
            """
            <button class="main" name="action" value="requeue">Requeue</button>
            <button class="danger" name="action" value="delete">Delete</button>
            \(PageRequest.rate)
            """, hint: "The next page shows the number before anything changes.")
        return PageContent(
            title: "Dead letters", main: "\(form)\(groups)\(list)\(more)", scripts: ["select.js"])
    }

    /// Returns a page of dead letters of the queues in the query, newest first.
    func list(
        _ request: PageRequest, _ filter: DeadLetterFilter, after cursor: String?, limit: Int = Self.limit
    ) async throws -> ListPart<DeadLetterRow> {
        try await .of(
            request.site.data.queues(named: request.query.all("queue")), after: cursor, limit: limit,
            until: request.searchEnd
        ) { keys, cursor, missing in
            let page = try await request.source.fleet.deadLetters(of: keys).page(
                .list, filter, after: cursor, limit: missing, newestFirst: true)
            return ListPart(
                rows: page.letters.map { DeadLetterRow($0, queue: keys.queue) }, looked: page.looked,
                cursor: page.cursor)
        }
    }

    /// Returns the newest dead letters counted by reason and app, and by hour.
    private func summary(_ request: PageRequest, _ filter: DeadLetterFilter) async throws -> HTML {
        let part = try await list(request, filter, after: nil, limit: Self.sample)
        let (rows, cursor) = (part.rows, part.cursor)
        guard !rows.isEmpty else { return "" }
        let hour: Int64 = 3_600_000
        let times = Chart.Times(first: (Moment.now / hour - 23) * hour, step: hour, count: 24)
        var (groups, hours): ([String: [DeadLetterRow]], [String: [Double]]) = ([:], [:])
        for row in rows {
            groups["\(row.reason)\u{0}\(row.app ?? "")", default: []].append(row)
            guard let index = times.index(of: row.at) else { continue }
            hours[row.reason, default: Array(repeating: 0, count: times.count)][index] += 1
        }
        let sorted = groups.values.sorted { ($1.count, $0[0].reason) < ($0.count, $1[0].reason) }
        let table = Elements.table(
            "Dead letters by reason and app", ["Reason", "App", "Dead letters", "Newest", "Rule"],
            sorted.prefix(20).map { rows -> [HTML] in
                let first = rows[0]
                return [
                    request.link(
                        ["dead"], request.query.without(["reason", "after"]) + [("reason", first.reason)], first.reason),
                    "\(first.app ?? "–")", "\(Words.number(rows.count))", request.time(rows.map(\.at).max()),
                    "\(request.source.explain(first.reason))",
                ]
            }, numbers: [2], empty: "")
        let shown = hours.keys.sorted().prefix(8)
        let chart = Chart(
            "The last 24 hours", .columns, times, .count,
            shown.map { reason in
                .init(reason, hours[reason, default: []]) { hour in
                    let range = [("since", times.start(hour)), ("until", times.start(hour + 1))]
                    return request.links.path(
                        ["dead"],
                        request.query.without(["reason", "after", "since", "until"]) + [("reason", reason)]
                            + range.map { ($0, Moment.text($1)) })
                }
            }, lastIsUnfinished: true)
        return """
            <p class="muted">\(cursor == nil ? "All" : "The newest \(Words.number(rows.count))") that match:</p>
            <div class="columns"><div>\(table)</div>\(chart.html)</div>
            """
    }

    private func row(_ row: DeadLetterRow, _ request: PageRequest) -> [HTML] {
        let cells = row.cells(now: Moment.now)
        return request.select("key", row.key, "dead letter \(row.key)") + [
            request.time(row.at), request.link(["dead", row.queue, row.key], row.key), "\(row.queue)",
            Elements.label(row.reason, .bad), "\(cells[5])", "\(cells[6])", "\(cells[7])", "\(cells[8])",
        ]
    }
}

/// One dead letter: the reason, the rule behind it, and an editor for the job.
struct DeadLetterPage: DashboardPage {
    let path = "/dead/{queue}/{key}"
    let section = Section.dead

    /// Returns the dead letter that the path names.
    static func find(_ request: PageRequest) async throws -> DeadLetterRow {
        let queue = try await request.site.data.queue(request.parameters("queue") ?? "")
        let key = request.parameters("key") ?? ""
        let filter = try DeadLetterFilter(Form([("key", key)]), now: 0)
        var sweep = DeadLetterSweep(try await request.source.fleet.deadLetters(of: queue.keys), .show, filter)
        sweep.newestFirst = true
        var found: DeadLetterRow?
        try await sweep.run { page, _ in
            found = found ?? page.letters.first.map { DeadLetterRow($0, queue: queue.keys.queue) }
        }
        guard let found else {
            throw WebError(.notFound, "dead letter \(key) is no longer in queue \(queue.keys.queue)")
        }
        return found
    }

    func content(_ request: PageRequest) async throws -> PageContent {
        let row = try await Self.find(request)
        let (queue, key) = (try await request.site.data.queue(row.queue), row.key)
        let facts = Elements.facts(
            row.facts(now: Moment.now).filter { $0.name != "tokens" || request.visitor.seesContent }.map {
                ("\($0.name)", "\($0.value)")
            })
        let rule = request.source.explain(row.reason).map {
            "<p class=\"notice\"><strong>\(row.reason)</strong>: \($0)</p>" as HTML
        }
        let fields = [("queue", queue.keys.queue), ("key", key)]
        let actions: HTML = """
            <div class="actions">
            \(request.form("change-dead-letters", fields + [("action", "requeue")], "<button class=\"main\">Requeue</button>"))
            \(request.form("change-dead-letters", fields + [("action", "delete")], "<button class=\"danger\">Delete</button>"))
            </div>
            """
        guard request.visitor.seesContent else {
            return PageContent(
                title: "Dead letter \(key)",
                main: "\(facts)\(rule)\(actions)<p class=\"notice\">The payload is shown to operators only.</p>")
        }
        let check = await request.source.check(row.original, queue)
        let text = String(buffer: row.original)
        let editor: HTML = """
            <h2>Edit and requeue</h2>
            <p class="hint">The edited job is enqueued as a new one, and the dead letter is deleted.</p>
            <form class="stack" method="post" action="\(request.links.path(["actions", "edit-and-requeue"]))" \
            data-check="\(request.links.path(["try", "check"]))">\(request.site.formToken(request.visitor))\
            <input type="hidden" name="queue" value="\(queue.keys.queue)"><input type="hidden" name="key" value="\(key)">\
            <label>Job<textarea name="job" spellcheck="false">\(JobPreview.pretty(row.original))</textarea></label>\
            <p><button class="main">Enqueue the edited job</button></p></form>
            """
        let main: HTML = """
            \(facts)\(rule)\(actions)
            <div id="verdicts">\(JobPreview.checked(check))</div>
            \(if: request.isOperator, editor)
            <h2>Job</h2>\(Elements.source(text, title: "The job as its producer wrote it"))
            """
        return PageContent(title: "Dead letter \(key)", main: main, scripts: request.isOperator ? ["compose.js"] : [])
    }
}
