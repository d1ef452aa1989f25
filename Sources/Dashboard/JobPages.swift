import NIOCore
import Operations
import PushJob
import PushQueue
import WebPages

/// The list of unfinished jobs, by state and filter.
struct JobsPage: DashboardPage {
    let path = "/jobs"
    let section = Section.jobs

    /// The number of jobs on a page.
    static let limit = 50

    func content(_ request: PageRequest) async throws -> PageContent {
        let filter = try JobFilter(request.query, now: Moment.now)
        let names = try await request.site.data.queues().map(\.queue)
        let listing = try await list(request, filter)
        let states = [("", "all")] + StoredJob.State.allCases.map { ($0.rawValue, $0.rawValue) }
        let form = request.filters(
            ["jobs"],
            [
                Elements.choice("State", "state", states, chosen: request.query["state"] ?? ""),
                request.queueChoice(names),
                request.field("Campaign", "campaign"), request.field("App", "app"), request.field("Topic", "topic"),
                request.field("ID", "id"), request.field("Token", "token"),
                request.field("Last error", "reason", placeholder: "ServiceUnavailable or Too*"),
                request.visitor.seesContent ? request.field("Text in the job", "match") : "",
                request.field("Since", "since", placeholder: "2h, or 2026-11-21T08:00:00Z"),
                request.field("Until", "until", placeholder: "30m"),
            ])
        let titles: [HTML] =
            request.selectAll
            + ["State", "Key", "Queue", "Age", "Next try", "Attempt", "App", "ID", "Campaign", "Token", "Last error"]
        let table = Elements.table(
            "Jobs", titles, listing.rows.map { row($0, request) }, numbers: [request.isOperator ? 6 : 5],
            empty: listing.cursor == nil ? "No job matches." : "No job matches so far.")
        let more: HTML =
            listing.cursor == nil
            ? ""
            : """
            \(if: listing.rows.count < Self.limit, "<p class=\"notice\">\(Words.number(listing.looked)) jobs were searched.</p>")\
            \(request.next(["jobs"], listing.cursor, listing.rows.count < Self.limit ? "Search further" : "Next page"))
            """
        // The filter's queue is the source, so jobs can be moved to the others only.
        let others = request.query["queue"].map { chosen in names.filter { $0 != chosen } } ?? []
        let list = request.selection(
            "change-jobs", table, of: "jobs",
            """
            <button name="action" value="run">Run now</button>
            <button name="action" value="cancel" class="danger">Cancel</button>
            <button name="action" value="discard" class="danger">Delete</button>
            \(if: !others.isEmpty, """
                \(Elements.choice("To", "to_queue", others.map { ($0, $0) }, chosen: ""))\
                <button name="action" value="move">Move</button>
                """)
            \(PageRequest.rate)
            """, hint: "The next page shows the number before anything changes.")
        return PageContent(title: "Jobs", main: "\(form)\(list)\(more)", scripts: ["select.js"])
    }

    /// Returns a page of jobs of the queues in the query.
    func list(_ request: PageRequest, _ filter: JobFilter) async throws -> ListPart<JobRow> {
        // A text search would reveal parts of a job to visitors who cannot see its content.
        guard filter.texts.isEmpty || request.visitor.seesContent else {
            throw WebError(.forbidden, "only operators can search jobs by their text")
        }
        let end = request.searchEnd
        return try await .of(
            request.site.data.queues(named: request.query.all("queue")), after: request.query["after"],
            limit: Self.limit,
            until: end
        ) { keys, cursor, missing in
            let found = try await request.source.fleet.jobs(of: keys).list(
                filter, after: cursor, limit: missing, until: end)
            return ListPart(
                rows: found.jobs.map { JobRow(queue: keys.queue, job: $0, now: found.now) },
                looked: found.looked, cursor: found.cursor)
        }
    }

    private func row(_ row: JobRow, _ request: PageRequest) -> [HTML] {
        let job = row.job
        let cells = row.cells
        let tokens = job.tokens
        let token: HTML =
            tokens.count == 1
            ? request.device(String(buffer: tokens[0]), length: 8) : "\(cells[8])"
        return request.select("key", job.key, "job \(job.key)") + [
            Elements.label(cells[0], Self.tone(job.state)),
            request.link(["jobs", row.queue, job.key], [("state", job.state.rawValue)], job.key), "\(row.queue)",
            "\(cells[2])", "\(cells[3])", "\(cells[4])", "\(cells[5])", "\(cells[6])",
            job.campaign.map { request.link(["campaigns", String(buffer: $0)], String(buffer: $0)) } ?? "–", token,
            "\(cells[9])",
        ]
    }

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
        var filter = try JobFilter(Form([("key", key)]), now: 0)
        // Search the state that the list showed first, because the job was there a moment ago.
        if let state = request.query["state"].flatMap(StoredJob.State.init) { filter.states = [state] }
        let jobs = try await request.source.fleet.jobs(of: queue.keys)
        var row = try await find(jobs, filter)
        if row == nil, !filter.states.isEmpty {
            filter.states = []
            row = try await find(jobs, filter)
        }
        guard let row else {
            throw WebError(
                .notFound, "job \(key) is no longer in queue \(queue.keys.queue); it may be done or a dead letter")
        }
        return (row, queue)
    }

    func content(_ request: PageRequest) async throws -> PageContent {
        let (row, queue) = try await Self.find(request)
        return PageContent(title: "Job \(row.job.key)", main: await html(row, queue, request))
    }

    private static func find(_ jobs: QueueJobs, _ filter: JobFilter) async throws -> JobRow? {
        var found: JobRow?
        try await jobs.sweep(filter) { _, page, now in
            found = page.first.map { JobRow(queue: jobs.keys.queue, job: $0, now: now) }
            return found == nil
        }
        return found
    }

    private func html(_ row: JobRow, _ queue: QueueSource, _ request: PageRequest) async -> HTML {
        let job = row.job
        func text(_ value: ByteBuffer?) -> HTML? { value.map { "\(String(buffer: $0))" } }
        let devices = job.tokens.prefix(20).map { token -> HTML in
            request.device(String(buffer: token))
        }
        let more = job.tokens.count - devices.count
        let facts = Elements.facts([
            ("State", Elements.label(job.state.rawValue, JobsPage.tone(job.state))),
            ("Queue", request.link(["queues", row.queue], row.queue)), ("Claimed by", job.lane.map { "\($0)" }),
            ("Next attempt", job.due.map { request.time($0) }), ("Attempt", "\(job.envelope.attempt)"),
            ("Last error", "\(row.cells[9])"), ("First seen", request.time(job.enqueuedAt)),
            ("Reclaimed", job.envelope.reclaims > 0 ? "\(job.envelope.reclaims) times" : nil),
            ("Requeued", job.envelope.requeues > 0 ? "\(job.envelope.requeues) times" : nil), ("ID", text(job.id)),
            ("App", text(job.app)), ("Topic", text(job.topic)),
            (
                "Campaign",
                job.campaign.map { request.link(["campaigns", String(buffer: $0)], String(buffer: $0)) }
            ),
            (
                "Devices",
                devices.isEmpty ? nil : "\(devices.joined(separator: ", "))\(if: more > 0, " and \(more) more")"
            ),
            ("Size", "\(Words.bytes(job.size))"),
        ])
        let fields = [("queue", row.queue), ("key", job.key), ("state", job.state.rawValue)]
        let actions: HTML =
            job.state == .claimed
            ? "<p class=\"hint\">A worker has claimed the job. Cancel it by its ID to have the worker drop it.</p>"
            : """
            \(if: job.state != .waiting, request.form("change-jobs", fields + [("action", "run")], "<button class=\"main\">Run now</button>"))
            \(request.form("change-jobs", fields + [("action", "cancel")], "<button class=\"danger\">Cancel</button>"))
            \(request.form("change-jobs", fields + [("action", "discard")], "<button class=\"danger\">Delete</button>"))
            """
        let byID: HTML =
            job.id.map { id in
                request.form(
                    "change-jobs", [("queue", row.queue), ("id", String(buffer: id)), ("action", "cancel")],
                    "<button class=\"danger\">Cancel ID \(String(buffer: id))</button>")
            } ?? ""
        guard request.visitor.seesContent else {
            return "\(facts)<p class=\"notice\">The payload is shown to operators only.</p>"
        }
        let check = await request.source.check(job.original, queue)
        return """
            \(facts)\(if: request.isOperator, "<div class=\"actions\">\(actions)\(byID)</div>")
            \(JobPreview.checked(check))
            <h2>Job</h2>\(Elements.source(JobPreview.pretty(job.original), title: "The job as its producer wrote it"))
            """
    }
}
