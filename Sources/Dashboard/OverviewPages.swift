import Operations
import PushQueue
import WebPages

/// The problems, followed by key figures and charts.
struct OverviewPage: DashboardPage {
    let path = "/"
    let section = Section.overview

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let status = try await request.site.data.fleetStatus()
        let main: HTML = """
            \(Elements.live("problems", Self.problems(status, request.site.problems)))
            \(Elements.live("figures", Self.figures(status)))
            \(try await HistoryCharts(request, status.queues.map(\.name)).html(segments: []))
            """
        return PageContent(title: "Overview", main: main)
    }

    /// - Parameter own: what is wrong with the dashboard itself, as sentences.
    private static func problems(_ status: FleetStatus, _ own: [String]) -> HTML {
        let notes = status.notes.map { "<p class=\"notice\">\($0)</p>" as HTML }
        guard !status.problems.isEmpty || !own.isEmpty else {
            return "<p class=\"problem good\">No problems.</p>\(notes)"
        }
        let ofDashboard = own.map { "<div class=\"problem bad\"><strong>This dashboard</strong>\($0)</div>" as HTML }
        let problems = status.problems.map { problem -> HTML in
            """
            <div class="problem\(if: problem.kind.isCritical, " bad")"><strong>\(problem.message)</strong>\(problem.advice)</div>
            """
        }
        return "<h2 class=\"hidden\">Problems</h2>\(ofDashboard)\(problems)\(notes)"
    }

    private static func figures(_ status: FleetStatus) -> HTML {
        let queues = status.queues
        func today(_ outcome: Outcome) -> Int { queues.reduce(0) { $0 + ($1.today[outcome.rawValue] ?? 0) } }
        let oldest = queues.compactMap(\.oldestAgeMs).max()
        let later = queues.reduce(0) { $0 + $1.later }
        let claimed = queues.reduce(0) { $0 + $1.claimed }
        let inFlight = status.living.reduce(0) { $0 + $1.inFlight }
        let lanes = status.living.reduce(0) { $0 + $1.lanes }
        return """
            <h2 class="hidden">Now</h2><div class="figures">
            \(Elements.figure("Delivered today", "\(Words.number(today(.delivered)))", "\(Words.rate(status.rate)) per second now"))
            \(Elements.figure(
                "Waiting", "\(Words.number(queues.reduce(0) { $0 + $1.waiting + $1.due }))",
                oldest.map { "the oldest for \(Words.duration($0))" } ?? "jobs to send"))
            \(Elements.figure("Later", "\(Words.number(later))", "retrying, scheduled, deferred"))
            \(Elements.figure("Claimed", "\(Words.number(claimed))", "\(Words.number(inFlight)) requests in flight"))
            \(Elements.figure(
                "Dead letters", "\(Words.number(queues.reduce(0) { $0 + $1.dead }))",
                "\(Words.number(today(.dead))) today"))
            \(Elements.figure("Invalid tokens", "\(Words.number(status.invalidTokens))", "\(Words.number(today(.invalidToken))) today"))
            \(Elements.figure("Workers", "\(status.living.count)", "\(lanes) lane\(lanes == 1 ? "" : "s")"))
            </div>
            """
    }
}

/// The list of queues.
struct QueuesPage: DashboardPage {
    let path = "/queues"
    let section = Section.queues

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let status = try await request.site.data.fleetStatus()
        let rows = status.queues.map { queue -> [HTML] in
            let name = request.link(["queues", queue.name], queue.name)
            if let error = queue.error { return [name, Elements.label("unreadable", .bad), "\(error)"] }
            return [
                name, Self.state(queue), "\(Words.number(queue.waiting + queue.due))",
                "\(queue.oldestAgeMs.map(Words.duration) ?? "–")", "\(Words.number(queue.claimed))",
                "\(queue.retrying.map(Words.number) ?? "–")", "\(queue.scheduled.map(Words.number) ?? "–")",
                "\(queue.deferred.map(Words.number) ?? "–")",
                queue.dead > 0 ? request.link(["dead"], [("queue", queue.name)], Words.number(queue.dead)) : "0",
                "\(Words.number(queue.today["delivered"] ?? 0))", "\(queue.deliveredRate.map(Words.rate) ?? "–")",
                "\(queue.workers)",
            ]
        }
        let table = Elements.table(
            "Queues",
            [
                "Queue", "State", "Waiting", "Oldest", Term.claimed, "Retrying", "Scheduled", Term.deferred,
                "Dead letters",
                "Delivered today", "Per second", Term.lanes,
            ], rows, numbers: Set(2...11),
            empty: "There are no queues. A queue begins with its first job or worker.")
        return PageContent(title: "Queues", main: Elements.live("queues", table))
    }

    static func state(_ queue: FleetStatus.Queue) -> HTML {
        guard let pause = queue.paused else {
            return queue.workers > 0 ? Elements.label("running", .good) : Elements.label("no worker", .quiet)
        }
        return "\(Elements.label("paused", .warning)) <span class=\"muted\">\(pause.inWords)</span>"
    }
}

/// One queue: its state, its pause and its charts.
struct QueuePage: DashboardPage {
    let path = "/queues/{queue}"
    let section = Section.queues

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let name = request.parameters("queue") ?? ""
        let status = try await request.site.data.fleetStatus()
        guard let queue = status.queues.first(where: { $0.name == name }) else {
            throw WebError(.notFound, "there is no queue \(name)")
        }
        func jobs(_ state: String, _ count: Int?) -> HTML {
            request.link(["jobs"], [("queue", name), ("state", state)], count.map(Words.number) ?? "show")
        }
        let facts = Elements.facts([
            ("State", QueuesPage.state(queue)), ("Problem", queue.error.map { "\($0)" }),
            ("Waiting", jobs("waiting", queue.waiting)), (Term.due, "\(Words.number(queue.due))"),
            ("Oldest job", queue.oldestAgeMs.map { "\(Words.duration($0))" }),
            (Term.claimed, jobs("claimed", queue.claimed)), ("Retrying", jobs("retrying", queue.retrying)),
            ("Scheduled", jobs("scheduled", queue.scheduled)), (Term.deferred, jobs("deferred", queue.deferred)),
            ("Dead letters", request.link(["dead"], [("queue", name)], Words.number(queue.dead))),
            (
                "Cancelled jobs",
                request.link(["dead"], [("queue", name), ("reason", "Cancelled")], Words.number(queue.cancelled))
            ),
            ("Size of dead letters", "\(Words.bytes(queue.deadBytes))"), (Term.lanes, "\(queue.workers)"),
        ])
        let outcomes = queue.today.filter { !$0.key.contains(":") }.sorted { $0.key < $1.key }
        let today = Elements.table(
            "Today, in UTC", ["Outcome", "Notifications"], outcomes.map { ["\($0.key)", "\(Words.number($0.value))"] },
            numbers: [1], empty: "No outcomes today.")
        let pause: HTML =
            queue.paused == nil
            ? request.form(
                "pause-queue", [("queue", name)], class: "filters",
                """
                \(Elements.field("Reason", "reason", placeholder: "wrong template"))\
                <label class="check"><input type="checkbox" name="now" value="1">release claimed jobs</label>\
                <button class="danger">Pause</button>
                """) : request.form("resume-queue", [("queue", name)], "<button class=\"main\">Resume</button>")
        let main: HTML = """
            \(Elements.live("queue", "\(facts)<h2>Today</h2>\(today)"))
            \(if: request.isOperator, "<h2>\(queue.paused == nil ? "Pause" : "Resume")</h2>\(pause)")
            <h2>History</h2>\(try await HistoryCharts(request, [name]).html(segments: ["queues", name]))
            """
        return PageContent(title: "Queue \(name)", main: main)
    }
}
