import Operations
import PushQueue
import WebPages

/// The list of apps. Apps with a problem come first.
struct AppsPage: DashboardPage {
    let path = "/apps"
    let section = Section.apps

    func isLive(_ query: Fields) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let status = try await request.site.data.fleetStatus()
        let apps = status.apps.filter { AppState($0).tone == .bad } + status.apps.filter { AppState($0).tone != .bad }
        let list = request.list(
            "Apps", apps, action: { Self.action($0, request) },
            empty: Elements.empty(
                "No app is known.",
                """
                <p>Workers report their apps when they start. Start one: \
                \(Elements.command("apns-worker run --config worker.yaml"))</p>
                <p>Without a key or a certificate, \(request.command(["run", "--simulate"])) sends to a \
                simulated APNs.</p>
                """)
        ) { app, column, value in
            switch column.title {
            case "App": request.link(["apps", app.name], app.name)
            case "State": Elements.label(AppState(app).word, AppState(app).tone)
            case "Connections": "\(app.connections)\(if: app.connecting > 0, " +\(app.connecting)")"
            case "Credential": Self.credential(app.certificateExpiresAt, app.tokenIssuedAt, request)
            case "Environment": "\(AppPage.environments(app, request))"
            default: value
            }
        }
        return PageContent(
            title: "Apps", main: Elements.live("apps", list),
            lead: "The connections of each app to APNs, and the reasons of those that fail.")
    }

    private static func action(_ app: AppStatus, _ request: PageRequest) -> HTML {
        app.paused == nil
            ? "<a class=\"button small\" href=\"\(request.links.path(["apps", app.name]))#pause\">Pause…</a>"
            : request.form("resume-app", [("app", app.name)], "<button class=\"small\">Resume</button>")
    }

    /// Returns the credential in use, with its age or its remaining validity.
    static func credential(_ certificateExpiresAt: Int64?, _ tokenIssuedAt: Int64?, _ request: PageRequest) -> HTML {
        certificateExpiresAt.map(certificate)
            ?? tokenIssuedAt.map { "provider token, signed \(request.time($0))" } ?? ""
    }

    /// Returns the remaining validity of a certificate.
    static func certificate(_ expiresAt: Int64) -> HTML {
        let days = expiresAt.since(Moment.now) / 86_400_000
        let text =
            expiresAt < Moment.now ? "certificate expired" : "certificate, \(Words.count(Int(days), "day")) left"
        return """
            <span title="valid until \(Moment.text(expiresAt))">\
            \(Elements.label(text, days < 7 ? .bad : days < 30 ? .warning : .good))</span>
            """
    }
}

extension AppStatus.State {
    /// The state in a word or two, and its tone.
    fileprivate var words: (word: String, tone: Elements.Tone) {
        switch self {
        case .paused: ("paused", .bad)
        case .unavailable: ("unavailable", .bad)
        case .refused: ("refused", .bad)
        case .blocked: ("blocked", .bad)
        case .unconnected: ("no connection", .bad)
        case .connecting: ("connecting", .plain)
        case .connected: ("connected", .good)
        case .idle: ("idle", .quiet)
        case .unknown: ("unknown", .quiet)
        }
    }
}

struct AppState {
    let word: String
    let tone: Elements.Tone
    let sentence: String

    init(_ app: AppStatus, now: Int64 = Moment.now) {
        let endpoints = app.endpoints.joined(separator: ", ")
        word = app.state.words.word
        // A pause is intended, so it is not an error.
        tone = app.state == .paused ? .warning : app.state.words.tone
        switch app.state {
        case .paused:
            let pause = app.paused
            let length = Words.since(pause?.since, now: now)
            let by = pause?.by.map { ", by \($0)" } ?? ""
            let why = pause.flatMap { $0.isReasonless ? nil : ": \($0.reason)" } ?? ""
            sentence = "An operator has paused the app\(length)\(by)\(why). Its jobs wait until an operator resumes it."
        case .unavailable:
            sentence = "\(endpoints) does not answer, or answers only with errors. The jobs are kept, and sent later."
        case .refused:
            sentence = "APNs refuses the app, or its credential. The jobs are kept, and sent later."
        case .blocked:
            sentence =
                "Nothing is sent for the app: \(app.blocked ?? ""). Its jobs wait for another certificate or topic."
        case .unconnected:
            sentence = "There is no connection to \(endpoints): \(app.failure ?? "none succeeded")."
        case .connecting:
            sentence = "The first connection to \(endpoints) is being established."
        case .connected:
            let connections = Words.count(app.connections, "connection")
            sentence = "APNs accepts the app. \(connections), \(Words.number(app.streams)) requests in flight."
        case .idle:
            sentence = "The app has nothing to send, so it has no connection."
        case .unknown:
            sentence = "No running worker reports the app."
        }
    }
}

/// One app: its state, the reason if APNs refuses it, and its state in each lane.
struct AppPage: DashboardPage {
    let path = "/apps/{app}"
    let section = Section.apps

    func isLive(_ query: Fields) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let name = request.parameters("app") ?? ""
        let status = try await request.site.data.fleetStatus()
        guard let app = status.apps.first(where: { $0.name == name }) else {
            throw WebError(.notFound, Desk.unknown("app", name, status.apps.map(\.name)))
        }
        let lanes = Self.lanes(of: name, status)
        let list = Elements.list(
            "Lanes",
            [
                .init("Worker", .key), .init(Term.of("Lane"), .number), .init("State", .key),
                .init("Connections", .number), .init("In flight", .number),
                .init("Credential", .key, priority: 3), .init("Problem", priority: 2),
            ], lanes.map { row($0, request) },
            empty: Elements.empty(
                "No running worker has this app.",
                """
                <p>Start a worker whose configuration names it. The jobs for it wait until then; see \
                \(request.link(["workers"], "Workers")).</p>
                """))
        return PageContent(
            title: "App \(name)",
            main: """
                \(Elements.live("app", "\(card(app, request))\(facts(app, request))"))
                \(links(app, request))
                <h2>Lanes</h2>\(Elements.live("lanes", list))
                """, menu: pause(app, request))
    }

    /// Returns the lanes that report an app.
    static func lanes(
        of app: String, _ status: FleetStatus
    ) -> [(worker: WorkerStatus, lane: LaneStatus, app: WorkerReport.App)] {
        status.living.flatMap { worker in
            worker.laneStates.filter(\.isLiving).flatMap { lane in
                (lane.report?.apps ?? []).filter { $0.name == app }.map { (worker, lane, $0) }
            }
        }
    }

    /// Returns the environments of an app's endpoints, such as `production`.
    static func environments(_ app: AppStatus, _ request: PageRequest) -> String {
        Set(app.endpoints.map(request.source.environment)).sorted().joined(separator: ", ")
    }

    private func card(_ app: AppStatus, _ request: PageRequest) -> HTML {
        let state = AppState(app)
        let rule = app.paused.flatMap { request.source.explain($0.reason) }
        let remedy = Remedy.resumeApp(app.name)
        let action: HTML =
            app.paused == nil
            ? ""
            : """
            <div class="actions">\(request.form(
                "resume-app", [("app", app.name)], "<button class=\"main\">Resume</button>"))\
            \(Elements.command(remedy.command(request.source.fleet.access)))</div>
            """
        return Elements.card(
            "\(Elements.label(state.word, state.tone)) \(state.sentence)", tone: state.tone, id: "state",
            """
            \(rule.map { "<p>\(Elements.prose($0))</p>" as HTML })\
            \(app.paused?.detail.map { "<p>\(Elements.prose($0))</p>" as HTML })\(action)
            """)
    }

    private func facts(_ app: AppStatus, _ request: PageRequest) -> HTML {
        let settings = request.source.appSettings[app.name]
        let topics = settings.map { $0.topics.joined(separator: ", ") }
        let pausedBy = app.paused.map { pause in "an operator\(if: pause.by != nil, ", \(pause.by ?? "")")" as HTML }
        return Elements.facts([
            ("Paused by", pausedBy),
            ("Since", app.paused?.since.map { request.time($0) }),
            ("Topics", topics.flatMap { $0.isEmpty ? nil : "\($0)" }),
            ("Environment", app.endpoints.isEmpty ? nil : "\(Self.environments(app, request))"),
            ("Endpoints", app.endpoints.isEmpty ? nil : "\(app.endpoints.joined(separator: ", "))"),
            ("Connections", "\(app.connections)\(if: app.connecting > 0, ", \(app.connecting) connecting")"),
            ("In flight", "\(Words.number(app.streams)) of \(Words.number(app.streamLimit)) possible requests"),
            ("Credential", settings?.credential.map { "\($0)" }),
            ("Certificate", app.certificateExpiresAt.map { AppsPage.certificate($0) }),
            ("Provider token", app.tokenIssuedAt.map { "signed \(request.time($0))" }),
            (
                "Maximum rate",
                settings.map { $0.maximumPerSecond.map { "\(Words.number($0)) per second" } ?? "unlimited" }
            ),
            (Term.of("Lanes"), "\(app.lanes)"),
        ])
    }

    private func pause(_ app: AppStatus, _ request: PageRequest) -> HTML {
        guard app.paused == nil, request.isOperator else { return "" }
        return Elements.action(
            "Pause", "Its jobs are deferred, and no attempt is spent.",
            request.form(
                "pause-app", [("app", app.name)], class: "fields",
                "\(Elements.field("Reason", "reason", placeholder: "a new key"))<button class=\"danger\">Pause</button>"
            ))
    }

    private func links(_ app: AppStatus, _ request: PageRequest) -> HTML {
        let filter = [("app", app.name as String?)]
        let topics = request.source.appSettings[app.name]?.topics ?? []
        let invalid = topics.prefix(3).map { topic -> HTML in
            request.button("Invalid tokens of \(topic)", ["invalid"], [("topic", topic)])
        }
        return """
            <nav class="actions" aria-label="Everything about this app">\
            \(request.button("Jobs", ["jobs"], filter))\(request.button("Dead letters", ["dead"], filter))\
            \(invalid)</nav>
            """
    }

    private func row(
        _ found: (worker: WorkerStatus, lane: LaneStatus, app: WorkerReport.App), _ request: PageRequest
    ) -> [HTML] {
        let (worker, lane, app) = found
        let state = app.state == .paused ? .paused : AppStatus.State(of: [app])
        let (word, tone) = worker.isSilent ? (word: "no heartbeat", tone: .bad) : state.words
        return [
            WorkersPage.link(worker, request), "\(lane.index)", Elements.label(word, tone),
            "\(app.usable)\(if: app.connecting > 0, " +\(app.connecting)")",
            "\(Words.number(app.streams)) of \(Words.number(app.streamLimit))",
            AppsPage.credential(app.certificateExpiresAt, app.tokenIssuedAt, request),
            Elements.clamped([app.pause, app.failure].compactMap(\.self).joined(separator: "; ")),
        ]
    }
}
