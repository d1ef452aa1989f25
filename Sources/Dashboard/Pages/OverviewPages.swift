import Operations
import PushQueue
import WebPages

/// The problems, the running campaigns, key figures and charts.
struct OverviewPage: DashboardPage {
    let path = "/"
    let section = Section.overview

    func isLive(_ query: Fields) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let status = try await request.site.data.fleetStatus()
        let problems = Elements.live("problems", ProblemCards(request).html(status, request.site.problems))
        guard !status.queues.isEmpty || !status.workers.isEmpty else {
            return PageContent(
                title: "Overview", main: "\(problems)\(Elements.live("start", FirstSteps(request).html))")
        }
        let delivered = try await DeliveryRate(request, status.queues)
        let main: HTML = """
            \(problems)\
            \(Elements.live("figures", Self.figures(status, delivered)))\
            \(Elements.live("running", try await RunningCampaigns(request).html))\
            \(try await HistoryCharts(request, status.queues.map(\.name)).html(segments: []))
            """
        return PageContent(title: "Overview", main: main)
    }

    private static func figures(_ status: FleetStatus, _ delivered: DeliveryRate) -> HTML {
        let queues = status.queues
        func today(_ outcome: Outcome) -> Int { queues.reduce(0) { $0 + ($1.today[outcome.rawValue] ?? 0) } }
        let oldest = queues.compactMap(\.oldestAgeMs).max()
        let later = queues.reduce(0) { $0 + $1.later }
        let claimed = queues.reduce(0) { $0 + $1.claimed }
        let inFlight = status.living.reduce(0) { $0 + $1.inFlight }
        let lanes = status.living.reduce(0) { $0 + $1.lanes }
        let waiting = queues.reduce(0) { $0 + $1.waiting + $1.due }
        return """
            <h2 class="hidden">Now</h2><div class="figures large">
            \(delivered.figure)
            \(Elements.figure(
                "Waiting", "\(Words.number(waiting))", oldest.map { "the oldest for \(Words.duration($0))" } ?? "jobs to send"))
            \(Elements.figure("Later", "\(Words.number(later))", "retrying, scheduled or deferred"))
            \(Elements.figure(
                "Dead letters", "\(Words.number(queues.reduce(0) { $0 + $1.dead }))", "\(Words.number(today(.dead))) today"))
            </div>
            \(Elements.line([
                ("\(Words.number(today(.delivered)))", "delivered today"), ("\(Words.number(claimed))", "claimed"),
                ("\(Words.number(inFlight))", "in flight"),
                ("\(Words.number(status.invalidTokens))", "invalid tokens, \(Words.number(today(.invalidToken))) today"),
                ("\(status.living.count)", status.living.count == 1 ? "worker" : "workers"),
                ("\(lanes)", lanes == 1 ? "lane" : "lanes"),
            ]))
            """
    }
}

/// The notifications that some queues deliver per second: now, and in the last hour.
struct DeliveryRate {
    /// The rate between the last two readings; after a single reading, the rate of the last complete minute.
    let now: Double?
    /// The rate in each minute of the last hour.
    let minutes: [Double?]

    init(_ request: PageRequest, _ queues: [QueueStatus]) async throws {
        let keys = try await request.site.data.queues().filter { key in queues.contains { $0.name == key.queue } }
        let points = try await request.site.data.history(.hour, of: keys).value?.points ?? []
        // The last minute is not complete.
        self.init(queues, minutes: points.dropLast().map { Double($0.counts.outcomes[.delivered]) / 60 })
    }

    init(_ queues: [QueueStatus], minutes: [Double?]) {
        self.minutes = minutes
        let rates = queues.compactMap(\.deliveredRate)
        now = rates.isEmpty ? minutes.last ?? nil : rates.reduce(0, +)
    }

    var figure: HTML {
        let text = now.map(Words.rate) ?? "–"
        return Elements.figure(
            "Delivered per second", "\(text)",
            "\(SVG.spark(values: minutes, title: "Delivered per second in the last hour, now \(text)"))")
    }
}

/// Problems as cards, the worst first. Each has a link to its object, and the buttons and commands that help.
struct ProblemCards {
    /// The maximum number of cards for one kind of problem. The last card has links to further problems.
    private static let shownOfKind = 3

    private let request: PageRequest

    init(_ request: PageRequest) { self.request = request }

    /// - Parameter own: the problems of the dashboard itself, as sentences.
    func html(_ status: FleetStatus, _ own: [String]) -> HTML {
        let notes = status.notes.map { "<p class=\"notice\">\(Elements.prose($0))</p>" as HTML }
        guard !status.problems.isEmpty || !own.isEmpty else {
            return "<p class=\"problem good\">No problems.</p>\(notes)"
        }
        let ofDashboard = own.map { Elements.card("This dashboard", tone: .bad, "<p>\($0)</p>") }
        return """
            <h2 class="hidden">Problems</h2>\
            <div class="problems">\(ofDashboard)\(cards(status.problems))</div>\(notes)
            """
    }

    /// Returns the problems of one object.
    func html(_ problems: [Problem]) -> HTML {
        problems.isEmpty ? "" : "<h2 class=\"hidden\">Problems</h2><div class=\"problems\">\(cards(problems))</div>"
    }

    private func cards(_ problems: [Problem]) -> [HTML] {
        var cards: [HTML] = []
        var seen: Set<String> = []
        for problem in problems where seen.insert(problem.kind.name).inserted {
            let ofKind = problems.filter { $0.kind.name == problem.kind.name }
            let shown = ofKind.count > Self.shownOfKind ? Self.shownOfKind - 1 : ofKind.count
            cards += ofKind.prefix(shown).map(card)
            guard ofKind.count > shown else { continue }
            let links = ofKind.dropFirst(shown).map { problem -> HTML in
                "<a href=\"\(path(problem.object))\">\(problem.subject)</a>"
            }
            cards.append(
                Elements.card(
                    "The same problem for \(links.count) more", tone: problem.isCritical ? .bad : .warning,
                    "<p>\(links.joined(separator: ", "))</p>"))
        }
        return cards
    }

    private func card(_ problem: Problem) -> HTML {
        let since = problem.since.map { "<span class=\"muted\">began \(request.time($0))</span>" as HTML } ?? ""
        let remedies = problem.remedies.map { remedy -> HTML in
            let button = remedy.action.map { action in
                request.form(
                    action.name, action.fields,
                    "<button class=\"small\(action.style)\">\(action.title)</button>"
                )
            }
            return "<li>\(button)\(remedy.link(request))\(Elements.command(remedy.command(problem.access)))</li>"
        }
        // The part of the message that names the object becomes the title.
        let end = problem.message.firstRange(of: "\(problem.subject): ")?.upperBound
        let title = end.map { String(problem.message[..<$0].dropLast(2)) } ?? problem.message
        let rest = end.map { String(problem.message[$0...]).asSentence }
        return Elements.card(
            "<a href=\"\(path(problem.object))\">\(Elements.prose(title))</a>",
            tone: problem.isCritical ? .bad : .warning, tools: since,
            """
            \(rest.map { "<p>\(Elements.prose($0))</p>" as HTML })\
            \(if: !problem.hint.isEmpty, "<p class=\"muted\">\(Elements.prose(problem.hint.capitalizedFirst))</p>")\
            \(if: !remedies.isEmpty, "<ul class=\"remedies\">\(remedies)</ul>")
            """)
    }

    private func path(_ object: Problem.Object) -> String { request.links.path(object.segments) }
}

extension Problem.Object {
    /// The path of the page about the object. Keys and the shared state are on the page about Redis.
    var segments: [String] {
        switch self {
        case .server, .key, .shared: ["redis"]
        case .queue(let name): ["queues", name]
        case .app(let name): ["apps", name]
        case .worker(let name): ["workers", name]
        case .campaign(let name): ["campaigns", name]
        case .job: ["jobs"]
        case .topic(_, let app), .credential(_, let app), .endpoint(_, let app): app.map { ["apps", $0] } ?? ["apps"]
        }
    }
}

extension Remedy {
    /// An action of the dashboard, with its fields and the title of its button.
    struct Action {
        var name: String
        var title: String
        var fields: [(name: String, value: String)]
        /// The further classes of its button, with a leading space.
        var style: HTML = " main"
    }

    /// The action with the effect of the remedy's command; `nil` if there is none, or if a page has the values that the command prints.
    var action: Action? {
        switch self {
        case .resumeApp(let app): Action(name: "resume-app", title: "Resume, and probe now", fields: [("app", app)])
        case .resumeQueue(let queue):
            Action(name: "resume-queue", title: "Resume the queue", fields: [("queue", queue)])
        case .resumeCampaign(let name):
            Action(name: "resume-campaign", title: "Resume the campaign", fields: [("campaign", name)])
        case .cancelCampaign(let name):
            Action(
                name: "cancel-campaign", title: "Cancel the campaign", fields: [("campaign", name)], style: " danger")
        case .requeue(let queue, let reason):
            Action(
                name: "change-dead-letters", title: "Requeue \(reason ?? "all")",
                fields: [("action", "requeue"), ("queue", queue)] + (reason.map { [("reason", $0)] } ?? []))
        case .unquiet: Action(name: "work-worker", title: "Let all workers work", fields: [("all", "1")])
        case .showCampaign, .showJobs, .countJobs, .listDeadLetters, .listInvalidTokens, .startWorker, .reshard, .check:
            nil
        }
    }

    /// The link to the page with the values that the remedy's command prints.
    fileprivate func link(_ request: PageRequest) -> HTML {
        switch self {
        case .showCampaign(let name):
            request.button("Its numbers", ["campaigns", name], style: "small")
        case .listDeadLetters(let queue):
            request.button("Dead letters", ["dead"], [("queue", queue)], style: "small")
        case .countJobs(let queue):
            request.button("By campaign", ["jobs"], [("queue", queue), ("by", "campaign,fair")], style: "small")
        case .listInvalidTokens: request.button("Invalid tokens", ["invalid"], style: "small")
        default: ""
        }
    }
}

/// The campaigns that are in progress or paused.
struct RunningCampaigns {
    private static let shown = 10

    private let request: PageRequest
    private let campaigns: [CampaignStatus]

    init(_ request: PageRequest) async throws {
        self.request = request
        // Paused campaigns come first, because an operator must decide about them.
        let unfinished = try await request.site.data.campaigns().value.withoutEmptyParts.filter(\.isUnfinished)
        campaigns = unfinished.filter { !$0.state.isOn } + unfinished.filter(\.state.isOn)
    }

    var html: HTML {
        guard !campaigns.isEmpty else { return "" }
        let shown = Array(campaigns.prefix(Self.shown))
        let more = campaigns.count - shown.count
        return Elements.card(
            "Campaigns in progress",
            tools: request.link(
                ["campaigns"], more > 0 ? "All campaigns (\(Words.number(more)) more)" : "All campaigns"),
            CampaignsPage.list("Campaigns in progress", shown, request, empty: ""))
    }
}

/// The steps to the first notification, for a fleet that has neither queues nor workers.
struct FirstSteps {
    private let request: PageRequest

    init(_ request: PageRequest) { self.request = request }

    private static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

    /// Returns the command that enqueues a first job.
    static func enqueue(_ request: PageRequest) -> HTML {
        request.command(["enqueue", "--token", token, "--alert", "Hello"])
    }

    var html: HTML {
        Elements.empty(
            "This Redis has no queues and no workers yet.",
            """
            <ol class="steps">
            <li><p>Start a worker. Its settings have the key of Apple and the app's topic.</p>\
            \(request.command(["run"]))</li>
            <li><p>Enqueue a job with the token of a device.</p>\(Self.enqueue(request))\
            \(if: request.isOperator, "<p>Or write one here: \(request.link(["try"], "Try it")).</p>")</li>
            <li><p>This page shows how it is sent. <code>docs/getting-started.md</code> explains each \
            step, and how to send without a device or a key from Apple.</p></li>
            </ol>
            """)
    }
}

struct QueuesPage: DashboardPage {
    let path = "/queues"
    let section = Section.queues

    func isLive(_ query: Fields) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let status = try await request.site.data.fleetStatus()
        let list = request.list(
            "Queues", status.queues, action: { $0.error == nil ? Self.button($0, request) : "" },
            empty: Elements.empty(
                "There are no queues.",
                "<p>A queue begins with its first job or worker.</p>\(FirstSteps.enqueue(request))")
        ) { queue, column, value in
            switch column.title {
            case "Queue": request.link(["queues", queue.name], queue.name)
            case "State":
                queue.error.map { "\(Elements.label("unreadable", .bad)) \(Elements.clamped($0))" } ?? Self.state(queue)
            case _ where queue.error != nil: nil
            case "Waiting": "\(Words.number(queue.ready))"
            case "Oldest": value.map { "oldest \($0)" }
            case "Rate": value.map { "\($0)/s" }
            case "Dead letters" where queue.dead > 0:
                request.link(["dead"], [("queue", queue.name)], Words.number(queue.dead))
            default: value
            }
        }
        return PageContent(title: "Queues", main: Elements.live("queues", list))
    }

    static func state(_ queue: QueueStatus) -> HTML {
        guard let pause = queue.paused else {
            return queue.workers > 0 ? Elements.label("running", .good) : Elements.label("no worker", .quiet)
        }
        return "\(Elements.label("paused", .warning)) <span class=\"muted\">\(pause.withOrigin)</span>"
    }

    private static func button(_ queue: QueueStatus, _ request: PageRequest) -> HTML {
        queue.paused == nil
            ? request.button("Pause…", ["queues", queue.name], style: "small")
            : request.form("resume-queue", [("queue", queue.name)], "<button class=\"small main\">Resume</button>")
    }
}

/// One queue: its problems, its state, its pause and its charts.
struct QueuePage: DashboardPage {
    let path = "/queues/{queue}"
    let section = Section.queues

    func isLive(_ query: Fields) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let name = request.parameters("queue") ?? ""
        let status = try await request.site.data.fleetStatus()
        guard let queue = status.queues.first(where: { $0.name == name }) else {
            throw WebError(.notFound, "there is no queue \(name)")
        }
        func jobs(_ states: String..., count: Int) -> HTML {
            request.link(["jobs"], [("queue", name)] + states.map { ("state", $0) }, Words.number(count))
        }
        // Redis counts scheduled and deferred jobs together. To count them separately, they must be read.
        let postponed: HTML =
            if let scheduled = queue.scheduled, let deferred = queue.deferred {
                """
                \(Elements.figure("Scheduled", jobs("scheduled", count: scheduled)))
                \(Elements.figure("Deferred", jobs("deferred", count: deferred)))
                """
            } else {
                Elements.figure(
                    "Scheduled or deferred", jobs("scheduled", "deferred", count: max(0, queue.later - queue.retrying)))
            }
        let delivered = try await DeliveryRate(request, [queue])
        let figures: HTML = """
            <h2 class="hidden">Now</h2><div class="figures">\(delivered.figure)
            \(Elements.figure(
                "Waiting", jobs("waiting", count: queue.waiting + queue.due),
                queue.oldestAgeMs.map { "the oldest for \(Words.duration($0))" } ?? "jobs to send"))
            \(Elements.figure(
                "Claimed", jobs("claimed", count: queue.claimed),
                "in \(Words.count(queue.workers, "lane"))"))
            \(Elements.figure("Retrying", jobs("retrying", count: queue.retrying)))
            \(postponed)
            \(Elements.figure(
                "Dead letters", request.link(["dead"], [("queue", name)], Words.number(queue.dead)),
                "\(Words.bytes(queue.deadBytes))"))
            \(Elements.figure(
                "Cancelled jobs",
                request.link(
                    ["dead"], [("queue", name), ("reason", DeadLetter.cancelledReason)], Words.number(queue.cancelled)),
                "kept"))
            </div>
            """
        let today = Outcome.allCases.map { ($0.rawValue, $0.rawValue, queue.today[$0.rawValue] ?? 0) }
        let shares = SVG.shares(today)
        let outcomes = Elements.card(
            "Today, in UTC", shares.isEmpty ? "<p class=\"muted\">No outcomes today.</p>" : shares)
        let state = QueuesPage.state(queue)
        let problems = status.problems.filter { $0.object == .queue(name) }
        let fair = queue.fair.map(Self.card) ?? ""
        let pause = Elements.action(
            "Pause", "Workers finish the jobs that they have claimed, and claim no more.",
            request.form(
                "pause-queue", [("queue", name)], class: "fields",
                """
                \(Elements.field("Reason", "reason", placeholder: "wrong template"))\
                <label class="check"><input type="checkbox" name="now" value="1">release claimed jobs</label>\
                <button class="danger">Pause</button>
                """))
        let resume = Elements.card(
            "Resume", tone: .warning,
            request.form("resume-queue", [("queue", name)], "<button class=\"main\">Resume</button>"))
        let main: HTML = """
            \(Elements.live("queue", "<p>\(state)</p>\(ProblemCards(request).html(problems))\(figures)\(fair)"))
            \(Elements.live("today", outcomes))
            \(if: request.isOperator && queue.paused != nil, resume)
            <h2>History</h2>\(try await HistoryCharts(request, [name]).html(segments: ["queues", name]))
            """
        return PageContent(
            title: "Queue \(name)", main: main, menu: request.isOperator && queue.paused == nil ? pause : "")
    }

    /// Returns a card with the keys of `fair` that have the most waiting bytes.
    static func card(_ shares: QueueShares) -> HTML {
        guard !shares.largest.isEmpty else { return "" }
        let rows = shares.largest.map { share -> [HTML] in
            ["\(QueueShares.name(share))", "\(Words.bytes(share.waitingBytes))"]
        }
        let others = shares.count - rows.count
        return Elements.card(
            "Waiting by fair",
            """
            \(Elements.list("Waiting by fair", [.init("Key"), .init("Waiting bytes", .number)], rows, empty: ""))\
            \(if: others > 0, "<p class=\"muted\">\(Words.count(others, "key")) more</p>")
            """)
    }
}
