import NIOCore
import Operations
import PushQueue
import Redis
import WebPages

/// The apps and their credentials.
struct AppsPage: DashboardPage {
    let path = "/apps"
    let section = Section.apps

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let status = try await request.site.data.fleetStatus()
        let apps = status.apps.map { part($0, request) }
        let main: HTML =
            apps.isEmpty ? "<p class=\"empty\">No workers are running, so no apps are known.</p>" : HTML(apps)
        // Live updates leave a section alone while its form is being filled in; see live.js.
        return PageContent(title: "Apps and credentials", main: Elements.live("apps", main))
    }

    static func state(_ app: FleetStatus.App) -> HTML {
        let tone: Elements.Tone =
            switch app.state {
            case .connected: .good
            case .idle, .unknown: .quiet
            case .connecting: .plain
            case .paused, .unconnected, .unanswered, .serverErrors: .bad
            }
        return Elements.label(app.state.rawValue.replacing("_", with: " "), tone)
    }

    private func part(_ app: FleetStatus.App, _ request: PageRequest) -> HTML {
        let facts = Elements.facts([
            ("State", Self.state(app)), ("Paused by", app.paused.map { $0.isByHand ? "an operator" : "its workers" }),
            ("Reason", app.paused.map { "\($0.inWords)" }),
            ("Rule", app.paused.flatMap { request.source.explain($0.reason) }.map { "\($0)" }),
            ("Detail", app.paused?.detail.map { "\($0)" }),
            ("Next probe", app.paused?.until.map { request.time($0) }),
            ("Endpoints", "\(app.endpoints.joined(separator: ", "))"),
            ("Connections", "\(app.connections)\(if: app.connecting > 0, ", \(app.connecting) connecting")"),
            ("Streams", "\(Words.number(app.streams)) of \(Words.number(app.streamLimit))"),
            (Term.lanes, "\(app.lanes)"),
            ("Without answers", app.lanesUnanswered > 0 ? "\(Words.count(app.lanesUnanswered, "lane"))" : nil),
            ("Server errors", app.serverError.map { "\($0), \(Words.count(app.lanesWithServerErrors, "lane"))" }),
            ("Failure", app.failure.map { "\($0)" }),
            ("Provider token", app.tokenIssuedAt.map { "issued \(request.time($0))" }),
            ("Certificate", app.certificateExpiresAt.map { Self.certificate($0) }),
        ])
        let action: HTML =
            app.paused == nil
            ? request.form(
                "pause-app", [("app", app.name)], class: "filters",
                "\(Elements.field("Reason", "reason"))<button class=\"danger\">Pause</button>")
            : request.form(
                "resume-app", [("app", app.name)],
                "<button class=\"main\">\(app.paused?.isByHand == true ? "Resume" : "Resume, and probe now")</button>")
        return "<h2>\(app.name)</h2>\(facts)\(action)"
    }

    /// Returns the remaining validity of a certificate.
    static func certificate(_ expiresAt: Int64) -> HTML {
        let days = (expiresAt - Moment.now) / 86_400_000
        let text = days < 0 ? "expired" : "\(days) days left"
        return
            "\(Elements.label(text, days < 7 ? .bad : days < 30 ? .warning : .good)) until \(Moment.text(expiresAt).prefix(10))"
    }
}

/// The workers.
struct WorkersPage: DashboardPage {
    let path = "/workers"
    let section = Section.workers

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let status = try await request.site.data.fleetStatus()
        let versions = Set(status.living.map(\.version).filter { !$0.isEmpty })
        let mixed: HTML =
            versions.count < 2
            ? ""
            : """
            <div class="problem"><strong>The workers have \(versions.count) versions: \
            \(versions.sorted().joined(separator: ", ")).</strong>\
            That is fine during a deployment; see “Upgrading” in the documentation.</div>
            """
        let rows = status.workers.map { row($0, request, isOdd: versions.count > 1) }
        let table = Elements.table(
            "Workers",
            [
                "Worker", "State", "Host", "Version", Term.lanes, "Queues", "In flight", Term.claimed, "Done",
                "Per second",
                "Started", Term.lease, "Not ready",
            ] + (request.isOperator ? ["Actions"] : []), rows, numbers: [4, 6, 7, 8, 9],
            empty: "No workers are running.")
        return PageContent(title: "Workers", main: Elements.live("workers", "\(mixed)\(table)"))
    }

    private func row(_ worker: FleetStatus.Worker, _ request: PageRequest, isOdd: Bool) -> [HTML] {
        let tone: Elements.Tone =
            switch worker.state {
            case .running: worker.notReady.isEmpty ? .good : .warning
            case .quiet, .draining: .warning
            case .gone: .bad
            case .unknown: .quiet
            }
        let lease =
            worker.leaseLeftMs >= 0
            ? Words.duration(worker.leaseLeftMs) : "ended \(Words.duration(-worker.leaseLeftMs)) ago"
        let fields = [("worker", worker.name)]
        let actions: HTML = """
            \(worker.state == .quiet
                ? request.form("work-worker", fields, "<button class=\"small\">Work</button>")
                : request.form("quiet-worker", fields, "<button class=\"small\">Quiet</button>")) \
            \(request.form("stop-worker", fields, "<button class=\"small danger\">Stop</button>"))
            """
        return [
            "<span class=\"mono\">\(worker.name)</span>",
            Elements.label(
                worker.state == .running && !worker.notReady.isEmpty ? "not ready" : worker.state.rawValue, tone),
            "\(worker.host)",
            isOdd ? Elements.label(worker.version, .warning) : "\(worker.version)",
            "\(worker.lanes) of \(worker.lanesTotal)", "\(worker.queues.joined(separator: ", "))",
            "\(Words.number(worker.inFlight))", "\(Words.number(worker.claimed))", "\(Words.number(worker.done))",
            "\(Words.rate(worker.rate))", request.time(worker.startedAt), "\(lease)",
            worker.notReady.isEmpty ? "–" : "\(worker.notReady.joined(separator: "; "))",
        ] + (request.isOperator ? [worker.state == .gone ? "" : actions] : [])
    }
}

/// The Redis servers, and the keys that use the most memory.
struct RedisPage: DashboardPage {
    let path = "/redis"
    let section = Section.redis

    func isLive(_ query: Form) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let status = try await request.site.data.fleetStatus()
        let servers = status.servers.map { server($0) }
        let sizes = try await KeySizes.read(request.source.fleet, request.site.data.queues())
        let keys = Elements.table(
            "Keys by size", ["Key", "Type", "Entries", "Memory"],
            sizes.map {
                [
                    "<span class=\"mono\">\($0.key)</span>", "\($0.type)", "\(Words.number($0.entries))",
                    "\(Words.bytes($0.bytes))",
                ]
            }, numbers: [2, 3], empty: "There are no keys.")
        return PageContent(
            title: "Redis",
            main: """
                \(Elements.live("servers", HTML(servers)))<h2>Keys by size</h2>\
                <p class="hint">Estimated by Redis from samples. Excludes keys of single jobs, tokens and minutes.</p>\(keys)
                """)
    }

    private func server(_ server: FleetStatus.Server) -> HTML {
        guard let info = server.info else {
            return "<h2>\(server.found.address)</h2><p class=\"problem bad\">The server does not answer INFO.</p>"
        }
        let share: HTML? = info.memoryShare.map { share in
            """
            <progress value="\(Int(share * 1000))" max="1000" aria-label="Memory in use"></progress>\(Int(share * 100))%
            """
        }
        let findings = server.found.findings.map { finding -> HTML in
            "<div class=\"problem\(if: finding.kind.isFailure, " bad")\"><strong>\(finding.message)</strong>\(finding.advice)</div>"
        }
        return """
            <h2>\(server.found.address)</h2>\(findings)
            \(Elements.facts([
                ("Version", info.version.map { "\($0)" }), ("Role", info.role.map { "\("\($0)")" }),
                ("Memory", info.memoryInWords.map { "\($0)" }), ("Share", share),
                ("Eviction", info.evictionPolicy.map { "\($0)" }),
                ("Append-only file", info.keepsAppendOnlyFile.map { $0 ? "on" : "off" }),
                ("Replicas", info.replicas.map { "\($0)" }), ("In sync", info.replicasInStep.map { "\($0)" }),
                ("Queues", "\(server.queues.joined(separator: ", "))"),
            ]))
            """
    }
}
