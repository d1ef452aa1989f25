import NIOCore
import Operations
import PushJob
import PushQueue
import WebPages

/// The list of unfinished jobs, by state and filter.
struct JobsPage: DashboardPage {
    let path = "/jobs"
    let section = Section.jobs

    func content(_ request: PageRequest) async throws -> PageContent {
        let filter = try JobFilter(request.query, now: Moment.now)
        let queues = try await request.site.data.queues()
        let chosen = try await request.site.data.queues(named: request.query.all("queue"))
        if let (counts, part) = try await request.counted({ try await self.list(request, filter, $0) }) {
            return PageContent(
                title: "Jobs", main: "\(try await filters(request))\(request.numbers(counts, part, ["jobs"]))")
        }
        let isLatestFirst = request.query["order"] == "latest"
        async let status = request.site.data.fleetStatus()
        async let form = filters(request)
        let listing = try await list(request, filter, request.reading, latestFirst: isLatestFirst)
        let counts = StateCounts(try await status, chosen.map(\.queue))
        let totals = request.totals(
            "job", listing, of: counts.total(filter.states), isFiltered: !filter.matchesAll)
        // Failed jobs are in a set of their own, so lists that mix them with other jobs have no order.
        let areOrdered =
            filter.states == [.retrying]
            || !filter.states.isEmpty && filter.states.isSubset(of: [.scheduled, .deferred])
        let next = request.sorted(
            "Next attempt", ["jobs"], isLatestFirst ? .descending : .ascending,
            reversed: isLatestFirst ? nil : "latest", priority: 2)
        let table = request.list(
            "Jobs", listing.rows, hasQueue: queues.count > 1,
            heads: ["Key": .init("ID and key", .key), "Next attempt": areOrdered ? next : nil].compactMapValues(\.self),
            select: { ("key", $0.job.key, "job \($0.job.key)") }, empty: Self.empty(request, totals)
        ) { Self.cell($0, $1, $2, request) }
        // The jobs come from the chosen queue, so it is not offered as their target.
        let others = request.query["queue"].map { chosen in queues.map(\.queue).filter { $0 != chosen } } ?? []
        let list = request.selection(
            "change-jobs", table, totals,
            """
            <button name="action" value="run">Run now</button>
            <button name="action" value="cancel" class="danger">Cancel</button>
            <button name="action" value="discard" class="danger">Delete</button>
            \(if: !others.isEmpty, """
                \(Elements.choice("To", "to_queue", others.map { ($0, $0) }, chosen: ""))\
                <button name="action" value="move">Move</button>
                """)
            \(PageRequest.rate)
            """, hint: PageRequest.confirmation)
        var notes = chosen.count > 1 ? [PageRequest.queueByQueue] : []
        if areOrdered {
            notes.append(
                request.reversal(
                    ["jobs"], to: isLatestFirst ? nil : "latest", isLatestFirst ? "first due first" : "last due first"))
        }
        return PageContent(
            title: "Jobs",
            main: """
                \(request.notices(listing.unread))\(tabs(request, filter, counts))\(try await form)\
                \(request.line(totals, notes))\(list)\(request.pager(["jobs"], totals, listing.cursor))
                """, scripts: ["select.js"])
    }

    func filters(_ request: PageRequest) async throws -> HTML {
        let queues = try await request.site.data.queues()
        let chosen = try await request.site.data.queues(named: request.query.all("queue"))
        let status = try await request.site.data.fleetStatus()
        let main = [
            ListFilter.queue(queues.map(\.queue)), ListFilter("ID", "id", isMain: true),
            ListFilter("Campaign", "campaign", known: try await request.campaignNames(chosen), isMain: true),
            ListFilter("App", "app", known: request.appNames(status), isMain: true),
        ].compactMap(\.self)
        let others = [
            ListFilter(
                "Last error", "reason", placeholder: "ServiceUnavailable or Too*",
                known: status.reasons(["retried", "deferred"])),
            ListFilter("Fair key", "fair"), ListFilter("Label", "label", placeholder: "country=de"),
            ListFilter("Token", "token"), ListFilter("Key", "key"), ListFilter("Topic", "topic"),
        ]
        let text = request.visitor.seesContent ? [ListFilter("Text in the job", "match")] : []
        let last = [ListFilter("Due before", "due_before", placeholder: "2h"), ListFilter.counted(JobRow.self)]
        return request.filters(
            ["jobs"], main + others + text + ListFilter.range("Enqueued") + last, keeping: ["state", "order"])
    }

    /// The numbers of jobs of some queues by state, from the status.
    struct StateCounts {
        private let queues: [QueueStatus]

        init(_ status: FleetStatus, _ names: [String]) {
            queues = status.queues.filter { names.contains($0.name) }
        }

        /// Returns the number of jobs in some states, or in all; `nil` if it is not known.
        func total(_ states: Set<StoredJob.State>) -> Int? {
            let states =
                states.isEmpty || states.count == StoredJob.State.allCases.count ? [nil] : states.map(Optional.some)
            var sum = 0
            for queue in queues {
                for state in states {
                    guard queue.error == nil, let count = Self.count(state, queue) else { return nil }
                    sum += count
                }
            }
            return sum
        }

        private static func count(_ state: StoredJob.State?, _ queue: QueueStatus) -> Int? {
            switch state {
            case nil: queue.waiting + queue.due + queue.later + queue.claimed
            case .waiting: queue.waiting
            case .claimed: queue.claimed
            case .retrying: queue.retrying
            case .scheduled: queue.scheduled
            case .deferred: queue.deferred
            }
        }
    }

    /// Returns the tabs of the states. They have numbers only without further filters, because the status counts all jobs of a state.
    private func tabs(_ request: PageRequest, _ filter: JobFilter, _ counts: StateCounts) -> HTML {
        let states: [StoredJob.State?] = [nil] + StoredJob.State.allCases
        return Elements.tabs(
            "States",
            states.map { state in
                let query =
                    request.query.without(ListPlace.fields.union(["state", "order"])) + [("state", state?.rawValue)]
                return (
                    Self.title(state), request.links.path(["jobs"], query),
                    filter.states == Set([state].compactMap { $0 }),
                    filter.matchesAll ? counts.total(Set([state].compactMap { $0 })) : nil
                )
            })
    }

    private static func title(_ state: StoredJob.State?) -> HTML {
        switch state {
        case nil: "All"
        case .waiting: "Waiting"
        case .retrying: "Retrying"
        case .scheduled: "Scheduled"
        case .deferred: Term.of("Deferred")
        case .claimed: Term.of("Claimed")
        }
    }

    private static func empty(_ request: PageRequest, _ totals: ListTotals) -> HTML {
        guard totals.isLast, !totals.isFiltered, totals.seen == 0 else {
            return Elements.empty("\(totals.sentence)")
        }
        return Elements.empty(
            request.query["state"] == nil ? "There are no jobs." : "There are no \(request.query["state"]) jobs.",
            """
            <p>A producer pushes jobs to the list of a queue, or a file is enqueued:</p>
            <p>\(request.command(["enqueue"], then: " <jobs.ndjson"))</p>
            \(if: request.isOperator, "<p>\(request.link(["try"], "Try it")) sends a single test.</p>")
            """)
    }

    /// Returns a page of jobs of the queues in the query.
    /// - Parameter latestFirst: true to begin with the postponed jobs that are due last.
    func list(
        _ request: PageRequest, _ filter: JobFilter, _ reading: ListReading, latestFirst: Bool = false
    ) async throws -> ListPart<JobRow> {
        // A text search would reveal parts of a job to visitors who cannot see its content.
        guard filter.texts.isEmpty || request.visitor.seesContent else {
            throw WebError(.forbidden, "only operators can search jobs by their text")
        }
        return try await .of(request.site.data.queues(named: request.query.all("queue")), reading) {
            keys, cursor, missing in
            let found = try await request.source.fleet.jobs(of: keys).list(
                filter, after: cursor, limit: missing, until: reading.end, latestFirst: latestFirst)
            return ListPart(
                rows: found.jobs.map { JobRow(queue: keys.queue, job: $0, now: found.now) },
                looked: found.looked, cursor: found.cursor)
        }
    }

    private static func cell(
        _ row: JobRow, _ column: Column<JobRow>, _ value: HTML?, _ request: PageRequest
    ) -> HTML? {
        let job = row.job
        return switch column.title {
        case "State": label(job.state)
        case "Key":
            request.identity(
                job.id?.text, job.key, to: ["jobs", row.queue, job.key], [("state", job.state.rawValue)])
        case "Next attempt": job.due.map { $0 > row.now ? request.time($0) : "due" }
        case "Enqueued at": value.map { "enqueued \($0)" }
        case "Tokens" where job.tokens.count == 1: request.device(String(buffer: job.tokens[0]), length: 8)
        default: value
        }
    }

    static func label(_ state: StoredJob.State) -> HTML { Elements.label(state.rawValue, tone(state)) }

    static func tone(_ state: StoredJob.State) -> Elements.Tone {
        switch state {
        case .retrying: .warning
        case .claimed: .good
        case .waiting, .scheduled, .deferred: .plain
        }
    }
}

/// One job: its history, a preview on a device, and the problems that a check finds.
struct JobPage: DashboardPage {
    let path = "/jobs/{queue}/{key}"
    let section = Section.jobs

    /// Returns the job that the path names, and its queue.
    static func find(_ request: PageRequest) async throws -> (row: JobRow, queue: QueueSource) {
        let queue = try await request.site.data.queue(request.parameters("queue") ?? "")
        let key = request.parameters("key") ?? ""
        var filter = try JobFilter(Fields([("key", key)]), now: 0)
        // Starts with the state that the list showed, because the job was there a moment ago.
        if let state = request.query["state"].flatMap(StoredJob.State.init) { filter.states = [state] }
        let jobs = try await request.source.fleet.jobs(of: queue.keys)
        let row = try await request.site.searches.run(for: request.visitor) { () -> JobRow? in
            if let row = try await find(jobs, filter) { return row }
            guard !filter.states.isEmpty else { return nil }
            filter.states = []
            return try await find(jobs, filter)
        }
        guard let row else {
            throw WebError(
                .notFound, "job \(key) is no longer in queue \(queue.keys.queue); it may be done or a dead letter")
        }
        var rows = [row]
        try await JobRow.findReplacements(
            of: &rows, try await request.source.fleet.client(for: queue.keys.jobs), queue.keys)
        return (rows[0], queue)
    }

    func content(_ request: PageRequest) async throws -> PageContent {
        let (row, queue) = try await Self.find(request)
        return PageContent(
            title: "Job \(row.job.id?.text ?? row.job.key)", main: try await html(row, queue, request))
    }

    private static func find(_ jobs: QueueJobs, _ filter: JobFilter) async throws -> JobRow? {
        var found: JobRow?
        try await jobs.sweep(filter) { _, page, now in
            found = page.first.map { JobRow(queue: jobs.keys.queue, job: $0, now: now) }
            return found == nil
        }
        return found
    }

    private func html(_ row: JobRow, _ queue: QueueSource, _ request: PageRequest) async throws -> HTML {
        let job = row.job
        let devices = job.tokens.prefix(20).map { token -> HTML in
            request.device(String(buffer: token))
        }
        let more = job.tokens.count - devices.count
        let ofContents: Set = ["ID", "Key", "App", "Topic", "Campaign", "Tokens", "Size"]
        func shown(_ column: Column<JobRow>, _ value: HTML?) -> HTML? {
            switch column.title {
            case "State": JobsPage.label(job.state)
            case "Claimed by": job.lane.map { request.link(["workers", Self.worker(of: $0)], $0) }
            case "Tokens":
                devices.isEmpty ? nil : "\(devices.joined(separator: ", "))\(if: more > 0, " and \(more) more")"
            default: value
            }
        }
        let delivery = request.facts(row) { ofContents.contains($0.title) ? nil : shown($0, $1) }
        let inbox = job.tokens.count == 1 ? request.inboxLink(token: String(buffer: job.tokens[0])) : nil
        let contents = request.facts(row, and: [("Simulator", inbox)]) {
            ofContents.contains($0.title) ? shown($0, $1) : nil
        }
        let rule = job.failure?.reason.flatMap { request.source.explain($0) }.map {
            "<p>\(Elements.prose($0))</p>" as HTML
        }
        let cards: HTML = """
            <div class="columns">\
            \(Elements.card("Delivery", tone: job.failure == nil ? .plain : .warning, "\(delivery)\(rule)"))\
            \(Elements.card("Notification", contents))</div>\(actions(row, request))
            """
        guard request.visitor.seesContent else {
            return "\(cards)\(PageRequest.hiddenPayload)"
        }
        let check = try await request.site.data.check(job.original, queue)
        let source = Elements.source(JobPreview.pretty(job.original), title: "The job as its producer wrote it")
        return """
            \(cards)\(JobPreview.checked(check))\(Elements.card("Job", source))
            """
    }

    /// Returns the name of the worker of a lane, such as `vm.2747` of `vm.2747.0`.
    private static func worker(of lane: String) -> String {
        lane.lastIndex(of: ".").map { String(lane[..<$0]) } ?? lane
    }

    private func actions(_ row: JobRow, _ request: PageRequest) -> HTML {
        let job = row.job
        guard request.isOperator else { return "" }
        func button(_ action: String, _ content: HTML) -> HTML {
            let fields = [("queue", row.queue), ("key", job.key), ("state", job.state.rawValue), ("action", action)]
            return request.form("change-jobs", fields, content)
        }
        let id = job.id?.text
        let byID: HTML =
            id.map { id in
                request.form(
                    "change-jobs", [("queue", row.queue), ("id", id), ("action", "cancel")],
                    "<button class=\"danger\">Cancel ID \(id)</button>")
            } ?? ""
        if job.state == .claimed {
            let hint =
                "A worker has claimed the job." + (id == nil ? "" : " Cancel it by its ID to have the worker drop it.")
            return "<p class=\"hint\">\(hint)</p><div class=\"actions\">\(byID)</div>"
        }
        return """
            <div class="actions">\
            \(if: job.state != .waiting, button("run", "<button class=\"main\">Run now</button>"))
            \(button("cancel", "<button class=\"danger\">Cancel</button>"))
            \(button("discard", "<button class=\"danger\">Delete</button>"))
            \(byID)</div>
            """
    }
}
