import NIOCore
import Operations
import PushJob
import PushQueue
import WebPages

/// The list of dead letters, with the newest counted by reason, app and hour.
struct DeadLettersPage: DashboardPage {
    let path = "/dead"
    let section = Section.dead

    private static let sample = 1000

    func content(_ request: PageRequest) async throws -> PageContent {
        let filter = try DeadLetterFilter(request.query, now: Moment.now)
        let queues = try await request.site.data.queues()
        let chosen = try await request.site.data.queues(named: request.query.all("queue"))
        if let (counts, part) = try await request.counted({ try await self.list(request, filter, $0) }) {
            return PageContent(
                title: "Dead letters", main: "\(try await filters(request))\(request.numbers(counts, part, ["dead"]))")
        }
        let isOldestFirst = request.query["order"] == "oldest"
        async let status = request.site.data.fleetStatus()
        async let form = filters(request)
        let listing = try await list(request, filter, request.reading, newestFirst: !isOldestFirst)
        let areCancelled = filter.reasons == [DeadLetter.cancelledReason]
        var rest = filter
        if areCancelled { rest.reasons = [] }
        let names = chosen.map(\.queue)
        let counted = try await status.queues.filter { names.contains($0.name) }
        let isKnown = counted.allSatisfy { $0.error == nil }
        let dead = isKnown ? counted.reduce(0) { $0 + $1.dead } : nil
        let cancelled = isKnown ? counted.reduce(0) { $0 + $1.cancelled } : nil
        let totals = request.totals(
            areCancelled ? "cancelled job" : "dead letter", listing, of: areCancelled ? cancelled : dead,
            isFiltered: !rest.isEmpty)
        let tabs = Elements.tabs(
            "Kinds",
            [
                ("Errors", request.path(["dead"], "reason", nil), !areCancelled, rest.isEmpty ? dead : nil),
                (
                    "Cancelled", request.path(["dead"], "reason", DeadLetter.cancelledReason), areCancelled,
                    rest.isEmpty ? cancelled : nil
                ),
            ])
        var groups = (line: "" as HTML, tables: "" as HTML)
        if request.place.isFirst, !areCancelled, !isOldestFirst, !listing.rows.isEmpty {
            groups = try await summary(request, filter)
        }
        let time = request.sorted(
            "Time", ["dead"], isOldestFirst ? .ascending : .descending, reversed: isOldestFirst ? nil : "oldest")
        let table = request.list(
            "Dead letters", listing.rows, hasQueue: queues.count > 1,
            heads: ["Time": time, "Key": .init("ID and key", .key)],
            select: { ("key", $0.key, "dead letter \($0.key)") },
            empty: Elements.empty(
                "\(totals.sentence)",
                totals.isFiltered || areCancelled
                    ? ""
                    : "<p>A job that can't be delivered is kept here with its reason, to be corrected and requeued.</p>"
            )
        ) { row, column, value in
            switch column.title {
            case "Key": request.identity(row.id, row.key, to: ["dead", row.queue, row.key])
            case "Reason": Elements.label(row.reason, areCancelled ? .quiet : .bad)
            default: value
            }
        }
        let list = request.selection(
            "change-dead-letters", table, totals,
            """
            <button class="main" name="action" value="requeue">Requeue</button>
            <button class="danger" name="action" value="delete">Delete</button>
            \(PageRequest.rate)
            """, hint: PageRequest.confirmation)
        let notes =
            (chosen.count > 1 ? [PageRequest.queueByQueue] : [])
            + [
                request.reversal(
                    ["dead"], to: isOldestFirst ? nil : "oldest", isOldestFirst ? "newest first" : "oldest first")
            ]
        return PageContent(
            title: "Dead letters",
            main: """
                \(request.notices(listing.unread))\(tabs)\(try await form)\
                \(groups.line)\(request.line(totals, notes))\(list)\(request.pager(["dead"], totals, listing.cursor))\
                \(groups.tables)
                """, scripts: ["select.js"])
    }

    func filters(_ request: PageRequest) async throws -> HTML {
        let queues = try await request.site.data.queues()
        let chosen = try await request.site.data.queues(named: request.query.all("queue"))
        let status = try await request.site.data.fleetStatus()
        let areCancelled = request.query.all("reason") == [DeadLetter.cancelledReason]
        let reasons = status.queues.flatMap(\.deadReasons.keys) + status.reasons(["dead"])
        let reason = ListFilter(
            "Reason", "reason", placeholder: "BadPayload or Bad*",
            known: reasons.filter { $0 != DeadLetter.cancelledReason }, isMain: true)
        let main = [
            ListFilter.queue(queues.map(\.queue)), areCancelled ? nil : reason,
            ListFilter("App", "app", known: request.appNames(status), isMain: true),
            ListFilter("Campaign", "campaign", known: try await request.campaignNames(chosen), isMain: true),
        ].compactMap(\.self)
        let others = [
            ListFilter("ID", "id"), ListFilter("Key", "key"), ListFilter("Token", "token"),
            ListFilter("Fair key", "fair"), ListFilter("Label", "label", placeholder: "country=de"),
            ListFilter("Error or status", "error"),
        ]
        return request.filters(
            ["dead"], main + others + ListFilter.range("Dead") + [ListFilter.counted(DeadLetterRow.self)],
            keeping: areCancelled ? ["order", "reason"] : ["order"])
    }

    /// Returns a page of dead letters of the queues in the query.
    func list(
        _ request: PageRequest, _ filter: DeadLetterFilter, _ reading: ListReading, newestFirst: Bool = true
    ) async throws -> ListPart<DeadLetterRow> {
        try await .of(request.site.data.queues(named: request.query.all("queue")), reading) { keys, cursor, missing in
            let page = try await request.source.fleet.deadLetters(of: keys).page(
                .list, filter, after: cursor, limit: missing, newestFirst: newestFirst)
            return ListPart(
                rows: page.letters.map { DeadLetterRow($0, queue: keys.queue) }, looked: page.looked,
                cursor: page.cursor)
        }
    }

    /// Counts the newest dead letters.
    /// - Returns: a line of links with the numbers by reason, and tables by reason, app and hour.
    private func summary(
        _ request: PageRequest, _ filter: DeadLetterFilter
    ) async throws -> (line: HTML, tables: HTML) {
        let part = try await list(request, filter, ListReading(limit: Self.sample, end: request.searchEnd))
        let (rows, cursor) = (part.rows, part.cursor)
        guard !rows.isEmpty else { return ("", "") }
        let hour: Int64 = 3_600_000
        let times = ChartTimes(first: (Moment.now / hour - 23) * hour, step: hour, count: 24)
        var (groups, hours): ([String: [DeadLetterRow]], [String: [Double]]) = ([:], [:])
        for row in rows {
            groups["\(row.reason)\u{0}\(row.app ?? "")", default: []].append(row)
            guard let index = times.index(of: row.at) else { continue }
            hours[row.reason, default: Array(repeating: 0, count: times.count)][index] += 1
        }
        let sorted = groups.values.sorted { ($1.count, $0[0].reason) < ($0.count, $1[0].reason) }
        let table = Elements.list(
            "Dead letters by reason and app",
            [
                .init("Reason", .key), .init("App", .key, priority: 2), .init("Dead letters", .number),
                .init("Newest", .key, priority: 2), .init("Rule", priority: 2),
            ],
            sorted.prefix(20).map { rows -> [HTML] in
                let first = rows[0]
                return [
                    "<a href=\"\(request.path(["dead"], "reason", first.reason))\">\(first.reason)</a>",
                    request.short(first.app), "\(Words.number(rows.count))", request.time(rows.map(\.at).max()),
                    Elements.clamped(request.source.explain(first.reason) ?? ""),
                ]
            }, empty: "")
        let shown = hours.keys.sorted().prefix(8)
        let chart = Chart(
            "The last 24 hours", .columns, times, .count,
            shown.map { reason in
                .init(reason, hours[reason, default: []]) { hour in
                    let range = [("since", times.start(hour)), ("until", times.start(hour + 1))]
                    return request.links.path(
                        ["dead"],
                        request.query.without(ListPlace.fields.union(["reason", "since", "until"]))
                            + [("reason", reason)] + range.map { ($0, Moment.text($1)) })
                }
            }, lastIsUnfinished: true)
        let newest = cursor == nil ? "All that match" : "The newest \(Words.number(rows.count)) that match"
        let reasons = Dictionary(rows.map { ($0.reason, 1) }, uniquingKeysWith: +).largestFirst
        let counts = reasons.prefix(6).map { reason, count -> HTML in
            """
            <a class="chip" href="\(request.path(["dead"], "reason", reason))">\(reason) \
            <strong class="num">\(Words.number(count))</strong></a>
            """
        }
        let tables: HTML = """
            <h2>By reason</h2><p class="muted">\(newest):</p>\(table)\(chart.html)
            """
        return (counts.count > 1 ? "<p class=\"chips\"><span>\(newest):</span>\(counts)</p>" : "", tables)
    }
}

/// One dead letter: the reason, the rule behind it, and an editor for the job.
struct DeadLetterPage: DashboardPage {
    let path = "/dead/{queue}/{key}"
    let section = Section.dead

    static func find(_ request: PageRequest) async throws -> DeadLetterRow {
        let queue = try await request.site.data.queue(request.parameters("queue") ?? "")
        let key = request.parameters("key") ?? ""
        let filter = try DeadLetterFilter(Fields([("key", key)]), now: 0)
        var sweep = DeadLetterSweep(try await request.source.fleet.deadLetters(of: queue.keys), .show, filter)
        sweep.newestFirst = true
        var found: DeadLetterRow?
        try await request.site.searches.run(for: request.visitor) {
            try await sweep.run { page, _ in
                found = found ?? page.letters.first.map { DeadLetterRow($0, queue: queue.keys.queue) }
            }
        }
        guard let found else {
            throw WebError(.notFound, "dead letter \(key) is no longer in queue \(queue.keys.queue)")
        }
        return found
    }

    func content(_ request: PageRequest) async throws -> PageContent {
        let row = try await Self.find(request)
        let (queue, key) = (try await request.site.data.queue(row.queue), row.key)
        let facts = request.facts(row) { $0.name != "tokens" || request.visitor.seesContent ? $1 : nil }
        let rule = request.source.explain(row.reason).map { "<p>\(Elements.prose($0))</p>" as HTML }
        func form(_ action: String, _ button: HTML) -> HTML {
            request.form(
                "change-dead-letters", [("queue", queue.keys.queue), ("key", key), ("action", action)], button)
        }
        let actions: HTML = """
            <div class="actions">
            \(form("requeue", "<button class=\"main\">Requeue</button>"))
            \(form("delete", "<button class=\"danger\">Delete</button>"))
            </div>
            """
        let card = Elements.card("\(row.reason)", tone: .bad, "\(rule)\(facts)")
        guard request.visitor.seesContent else {
            return PageContent(
                title: "Dead letter \(key)",
                main: "\(card)\(actions)\(PageRequest.hiddenPayload)")
        }
        let check = try await request.site.data.check(row.original, queue)
        let text = String(buffer: row.original)
        let editor = Elements.card(
            "Edit and requeue",
            """
            <p class="hint">The edited job is enqueued as a new one, and the dead letter is deleted.</p>
            <form class="stack" method="post" action="\(request.links.path(["actions", "edit-and-requeue"]))" \
            data-check="\(request.links.path(["try", "check"]))">\(request.site.formToken(request.visitor))\
            <input type="hidden" name="queue" value="\(queue.keys.queue)">\
            <input type="hidden" name="key" value="\(key)">\
            <label>Job<textarea name="job" spellcheck="false">\(JobPreview.pretty(row.original))</textarea></label>\
            <p><button class="main">Enqueue the edited job</button></p></form>
            """)
        let main: HTML = """
            \(card)\(actions)
            <div id="verdicts">\(JobPreview.checked(check))</div>
            \(if: request.isOperator, editor)
            \(Elements.card("Job", Elements.source(text, title: "The job as its producer wrote it")))
            """
        return PageContent(title: "Dead letter \(key)", main: main, scripts: request.isOperator ? ["compose.js"] : [])
    }
}
