import Operations
import PushQueue
import WebPages

/// The state of a worker in words. A worker without heartbeats may hang, so its last report does not count.
struct WorkerCondition {
    let word: String
    let tone: Elements.Tone
    let sentence: String

    init(_ worker: WorkerStatus) {
        let claimed = Words.count(worker.claimed, "claimed job")
        let lease =
            worker.leaseLeftMs > 0
            ? "when its lease ends, in \(Words.duration(worker.leaseLeftMs))" : "because its lease has ended"
        switch worker.state {
        case .gone:
            (word, tone) = ("lease expired", .bad)
            let ago = Words.duration(max(0, -worker.leaseLeftMs))
            sentence =
                "The worker's lease ended \(ago) ago. "
                + (worker.claimed == 0
                    ? "It has no claimed jobs." : "Other workers of its queues reclaim its \(claimed).")
        case _ where worker.latenessMs != nil:
            (word, tone) = ("no heartbeat", .bad)
            sentence =
                "No heartbeat for \(Words.duration(worker.latenessMs ?? 0)): its process hangs, is stopped, or cannot "
                + "reach Redis. Other workers reclaim its \(claimed) \(lease)."
        case .draining:
            (word, tone) = ("draining", .warning)
            sentence = "The worker finishes its \(claimed), claims no more, and exits."
        case .quiet:
            (word, tone) = ("quiet", .warning)
            sentence =
                "An operator asked the worker to claim no jobs. It keeps running, and claims jobs again after the action Work."
        case .running where !worker.notReady.isEmpty:
            (word, tone) = ("not ready", .warning)
            sentence = "The worker reports problems: \(worker.notReady.joined(separator: "; "))."
        case .running:
            (word, tone) = ("running", .good)
            sentence = "The worker claims and sends jobs."
        case .unknown:
            (word, tone) = ("unknown", .quiet)
            sentence = "The worker has a lease, but this version cannot read its report."
        }
    }

    static func lease(_ leftMs: Int64) -> String {
        leftMs >= 0 ? "\(Words.duration(leftMs)) left" : "ended \(Words.duration(-leftMs)) ago"
    }
}

struct WorkersPage: DashboardPage {
    let path = "/workers"
    let section = Section.workers

    func isLive(_ query: Fields) -> Bool { true }

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
        let list = request.list(
            "Workers", status.workers,
            action: { $0.state == .gone ? "" : Self.actions($0, request, style: "small") },
            empty: Elements.empty(
                "No workers are running.",
                """
                <p>Jobs wait until there is one. Start it: \
                \(Elements.command("apns-worker run --config worker.yaml"))</p>
                """)
        ) { worker, column, value in
            switch column.title {
            case "Worker": Self.link(worker, request)
            case "Queues": "\(worker.queues.joined(separator: ", "))"
            case "State":
                Elements.label(WorkerCondition(worker).word, WorkerCondition(worker).tone)
            case "Heartbeat":
                "\(Term.of("Heartbeat")) \(Self.heartbeat(worker.silenceMs, isLate: worker.isSilent))"
            case "Lanes": Self.lanes(worker)
            case "Version" where versions.count > 1: Elements.label(worker.version, .warning)
            case "Lease": "\(WorkerCondition.lease(worker.leaseLeftMs))"
            case "Problem":
                worker.state == .running ? Elements.clamped(worker.notReady.joined(separator: "; ")) : nil
            default: value
            }
        }
        return PageContent(title: "Workers", main: Elements.live("workers", "\(mixed)\(list)"))
    }

    private static func lanes(_ worker: WorkerStatus) -> HTML {
        let lanes = "\(worker.lanes) of \(worker.lanesTotal)"
        return worker.lanes < worker.lanesTotal ? Elements.label(lanes, .warning) : "\(lanes)"
    }

    /// Returns the name of a worker, linked to its page. Long names wrap on phones.
    static func link(_ worker: WorkerStatus, _ request: PageRequest) -> HTML {
        "<span class=\"worker\">\(request.link(["workers", worker.name], worker.name))</span>"
    }

    static func heartbeat(_ silenceMs: Int64?, isLate: Bool) -> HTML {
        let text = silenceMs.map { "\(Words.duration($0)) ago" } ?? "–"
        return isLate ? Elements.label(text, .bad) : "\(text)"
    }

    /// Returns the buttons for a worker; none for viewers.
    static func actions(_ worker: WorkerStatus, _ request: PageRequest, style: String) -> HTML {
        let fields = [("worker", worker.name)]
        let quiet =
            worker.state == .quiet
            ? request.form("work-worker", fields, "<button class=\"\(style)\">Work</button>")
            : request.form("quiet-worker", fields, "<button class=\"\(style)\">Quiet</button>")
        return "\(quiet) \(request.form("stop-worker", fields, "<button class=\"\(style) danger\">Stop</button>"))"
    }
}

/// One worker: its lanes, its problems, and the consequences of stopping it.
struct WorkerPage: DashboardPage {
    let path = "/workers/{worker}"
    let section = Section.workers

    func isLive(_ query: Fields) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let name = request.parameters("worker") ?? ""
        let status = try await request.site.data.fleetStatus()
        guard let worker = status.workers.first(where: { $0.name == name }) else {
            // A page can be open while its worker ends.
            return PageContent(
                title: "Worker \(name)",
                main: Elements.live(
                    "worker",
                    Elements.empty(
                        "No worker \(name) has a lease.",
                        """
                        <p>It has ended, or was never started. Its jobs are settled, returned to their queues, or \
                        reclaimed by other workers. See \(request.link(["workers"], "the running workers")).</p>
                        """)))
        }
        let condition = WorkerCondition(worker)
        let card = Elements.card(
            "\(Elements.label(condition.word, condition.tone)) \(condition.sentence)", tone: condition.tone,
            id: "state",
            problems(worker, status))
        return PageContent(
            title: "Worker \(name)",
            main: """
                \(Elements.live(
                    "worker",
                    """
                    \(card)\(figures(worker))\(facts(worker, status, request))
                    <h2>Lanes</h2>\(lanes(worker, request))
                    """))
                """, menu: stop(worker, status, request))
    }

    private func problems(_ worker: WorkerStatus, _ status: FleetStatus) -> HTML {
        let problems = status.problems.filter { $0.subject == worker.name }
        let others = worker.notReady.filter { reason in !problems.contains { $0.message.contains(reason) } }
        guard !problems.isEmpty || !others.isEmpty else { return "" }
        let items = problems.map { problem -> HTML in
            "<li><strong>\(problem.message).</strong> \(Elements.prose(problem.advice)).</li>"
        }
        return "<ul>\(items)\(others.map { "<li>\($0)</li>" as HTML })</ul>"
    }

    private func figures(_ worker: WorkerStatus) -> HTML {
        """
        <div class="figures">
        \(Elements.figure("In flight", "\(Words.number(worker.inFlight))", "requests without an answer"))
        \(Elements.figure("Claimed", "\(Words.number(worker.claimed))", "jobs that it holds"))
        \(Elements.figure("Per second", "\(Words.rate(worker.rate))", "delivered, over the last minute"))
        \(Elements.figure("Done", "\(Words.number(worker.done))", "notifications since its start"))
        </div>
        """
    }

    private func facts(_ worker: WorkerStatus, _ status: FleetStatus, _ request: PageRequest) -> HTML {
        let configurations = Set(worker.laneStates.compactMap { $0.report?.configuration?.text })
        let others = Set(
            status.living.filter { $0.name != worker.name }.flatMap(\.laneStates)
                .compactMap { $0.report?.configuration?.text })
        let differs = !others.isEmpty && configurations.isDisjoint(with: others)
        let connections = worker.laneStates.compactMap(\.report).flatMap(\.apps)
        let apps = Set(connections.map(\.name)).sorted()
        return Elements.facts([
            ("Host", "\(worker.host)"), ("Process", worker.pid > 0 ? "\(worker.pid)" : nil),
            ("Version", worker.version.isEmpty ? nil : "\(worker.version)"),
            ("Started", request.time(worker.startedAt)),
            (Term.of("Heartbeat"), WorkersPage.heartbeat(worker.silenceMs, isLate: worker.isSilent)),
            (Term.of("Lease"), "\(WorkerCondition.lease(worker.leaseLeftMs))"),
            (Term.of("Lanes"), "\(worker.lanes) of \(worker.lanesTotal)"),
            ("Queues", worker.queues.map { request.link(["queues", $0], $0) }.joined(separator: ", ")),
            ("Apps", apps.isEmpty ? nil : apps.map { request.link(["apps", $0], $0) }.joined(separator: ", ")),
            (
                "Connections",
                """
                \(connections.reduce(0) { $0 + $1.usable }), for \
                \(Words.number(connections.reduce(0) { $0 + $1.streamLimit })) requests at once
                """
            ),
            (
                Elements.term("Configuration", "The digest of the settings that decide which jobs the worker accepts"),
                configurations.isEmpty
                    ? nil
                    : """
                    <span class="mono">\(configurations.sorted().joined(separator: ", "))</span>\
                    \(if: differs, " \(Elements.label("no other worker has it", .warning))")
                    """
            ),
            ("Redis", worker.redis.isEmpty ? nil : "\(worker.redis)"),
            ("Configuration", worker.refusedReload.map { "its reload was refused: \($0)" }),
            ("Failovers", worker.failoverWatch.map { "the worker learns of failovers late: \($0)" }),
        ])
    }

    private func lanes(_ worker: WorkerStatus, _ request: PageRequest) -> HTML {
        let rows = worker.laneStates.map { lane -> [HTML] in
            let report = lane.report
            let (word, tone): (String, Elements.Tone) =
                if !lane.isLiving {
                    ("lease expired", .bad)
                } else if worker.isSilent {
                    ("no heartbeat", .bad)
                } else if let report {
                    report.obstacles.isEmpty
                        ? (report.state.rawValue, report.state == .running ? .good : .warning) : ("not ready", .warning)
                } else {
                    ("unknown", .quiet)
                }
            let apps = report?.apps ?? []
            return [
                "\(lane.index)", Elements.label(word, tone),
                WorkersPage.heartbeat(lane.silenceMs, isLate: worker.isSilent && lane.isLiving),
                "\(report.map { Words.number($0.inFlight) } ?? "–")", "\(Words.number(lane.claimed))",
                "\(apps.reduce(0) { $0 + $1.usable })", "\(report.map { Words.rate($0.rate) } ?? "–")",
                "\(report.map { Words.number($0.done) } ?? "–")", "\(WorkerCondition.lease(lane.leaseLeftMs))",
                Elements.clamped((report?.obstacles ?? []).map(\.reason).joined(separator: "; ")),
            ]
        }
        return Elements.list(
            "Lanes",
            [
                .init(Term.of("Lane"), .number), .init("State", .key), .init(Term.of("Heartbeat"), .key),
                .init("In flight", .number), .init(Term.of("Claimed"), .number),
                .init("Connections", .number, priority: 2), .init("Per second", .number, priority: 2),
                .init("Done", .number, priority: 3), .init(Term.of("Lease"), .key, priority: 2),
                .init("Problem", priority: 2),
            ], rows, empty: Elements.empty("No lane of the worker has a lease."))
    }

    private func stop(_ worker: WorkerStatus, _ status: FleetStatus, _ request: PageRequest) -> HTML {
        guard request.isOperator, worker.state != .gone else { return "" }
        let consequences = WorkersChange.consequences(of: .stop, on: [worker], status, serving: request.source.worker)
        let items = consequences.map { "<li>\($0.asSentence)</li>" as HTML }
        return Elements.action(
            "Quiet or stop",
            """
            A quiet worker finishes what it has and keeps running. A stopped one finishes, or returns, what it has, and exits.
            """,
            """
            \(if: !items.isEmpty, "<ul>\(items)</ul>")
            <div class="actions">\(WorkersPage.actions(worker, request, style: ""))\
            \(request.command(["stop"], worker.name))</div>
            """)
    }
}
