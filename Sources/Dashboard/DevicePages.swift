import NIOCore
import Operations
import PushJob
import PushQueue
import WebPages

/// The form to look up a device token.
struct DevicesPage: DashboardPage {
    let path = "/devices"
    let section = Section.devices

    func content(_ request: PageRequest) async throws -> PageContent {
        if let token = request.query["token"] {
            return try await DevicePage().content(of: TokenText.normalized(token), request)
        }
        return PageContent(title: "Device", main: Self.form(request, ""))
    }

    static func form(_ request: PageRequest, _ token: String) -> HTML {
        """
        <form class="filters" method="get" action="\(request.links.path(["devices"]))">\
        \(Elements.field("Device token, in hex or base64", "token", value: token, isRequired: true))\
        <button class="main">Show</button></form>
        """
    }
}

/// Everything known about a device token.
struct DevicePage: DashboardPage {
    let path = "/devices/{token}"
    let section = Section.devices

    /// The time limit of a page's search, unless the request asks for everything.
    private static let searchTime = Duration.milliseconds(150)

    func content(_ request: PageRequest) async throws -> PageContent {
        try await content(of: TokenText.normalized(request.parameters("token") ?? ""), request)
    }

    /// Searches for a token.
    static func findings(_ token: String, _ request: PageRequest) async throws -> DeviceFindings {
        guard !TokenText.isShortened(token) else {
            throw WebError(
                .badRequest, "\(token) is the beginning of a token; a device token has 64 hex digits or more")
        }
        guard TokenText.isToken(token) else {
            throw WebError(.badRequest, "\(token.prefix(40)) is not a device token in hex or base64")
        }
        var findings = DeviceFindings(token: token, now: Moment.now)
        findings.record = try await DeviceRecord.read(token, request.source.fleet)
        let queues = try await request.site.data.queues(named: [])
        let time = request.query["search"] == "all" ? nil : searchTime / max(1, queues.count)
        for keys in queues {
            try await findings.search(
                request.source.fleet.jobs(of: keys), request.source.fleet.client(for: keys.results), limit: 20,
                for: time)
        }
        return findings
    }

    func content(of token: String, _ request: PageRequest) async throws -> PageContent {
        let findings = try await Self.findings(token, request)
        return PageContent(title: "Device \(token.prefix(8))…", main: html(findings, request))
    }

    private func html(_ findings: DeviceFindings, _ request: PageRequest) -> HTML {
        let record = findings.record
        func text(_ value: ByteBuffer?) -> HTML? { value.map { "\(String(buffer: $0))" } }
        let throttled = record.throttledUntil.flatMap { $0 > findings.now ? $0 : nil }
        let facts = Elements.facts([
            ("Token", "<span class=\"mono\">\(request.token(findings.token))</span>"),
            ("Invalid", record.invalid == nil ? Elements.label("no", .good) : Elements.label("yes", .bad)),
            ("Since", record.invalid?.at.map { request.time($0) }), ("Reason", text(record.invalid?.reason)),
            ("Topic", text(record.invalid?.topic)), ("Environment", text(record.invalid?.environment)),
            ("Reported by", text(record.invalid?.source)),
            ("Throttled", throttled.map { "until \(request.time($0))" } ?? "no"),
            ("Registered", record.registeredAt.map { request.time($0) } ?? "not recorded"),
        ])
        let remove: HTML =
            record.invalid == nil
            ? ""
            : request.form(
                "remove-invalid-tokens", [("token", findings.token)],
                "<button class=\"danger\">Remove from invalid tokens</button>")
        let forget = request.form(
            "forget-devices", [("tokens", findings.token)], "<button class=\"danger\">Forget this device</button>")
        let test: HTML = request.isOperator ? request.link(["try"], [("token", findings.token)], "Send a test") : ""
        let results = Elements.table(
            "Results", ["Time", "Queue", "Outcome", "Reason", "Status", "App", "ID", "APNs ID"],
            findings.results.map { queue, result -> [HTML] in
                let names = ["reason", "status", "app", "id", "apns_id"]
                return [
                    request.time(result.time), "\(queue)",
                    Elements.label(result["outcome"] ?? "?", result["outcome"] == "delivered" ? .good : .warning),
                ] + names.map { "\(result[$0] ?? "–")" }
            },
            empty: findings.searched == 0
                ? "None. Workers keep results with <code>results: all</code> or <code>failures</code>."
                : "None among the \(Words.number(findings.searched)) newest results.")
        let none: HTML = findings.isPartial ? "None so far." : "None."
        let partial: HTML =
            findings.isPartial
            ? """
            <p class="notice">Redis holds more than could be searched at once. \
            \(request.link(["devices", findings.token], [("search", "all")], "Search everything")), which may take a minute.</p>
            """ : ""
        let jobs = Elements.table(
            "Jobs", ["State", "Key", "Queue", "Next try", "Attempt", "Last error"],
            findings.jobs.map { row -> [HTML] in
                [
                    Elements.label(row.cells[0], JobsPage.tone(row.job.state)),
                    request.link(["jobs", row.queue, row.job.key], row.job.key), "\(row.queue)", "\(row.cells[3])",
                    "\(row.cells[4])", "\(row.cells[9])",
                ]
            }, empty: none)
        let dead = Elements.table(
            "Dead letters", ["Time", "Key", "Queue", "Reason", "Error"],
            findings.dead.map { row -> [HTML] in
                [
                    request.time(row.at), request.link(["dead", row.queue, row.key], row.key), "\(row.queue)",
                    Elements.label(row.reason, .bad), "\(row.cells(now: findings.now)[8])",
                ]
            }, empty: none)
        return """
            \(DevicesPage.form(request, findings.token))\(facts)<div class="actions">\(remove)\(forget)\(test)</div>\(partial)
            <h2>Results</h2>\(results)<h2>Jobs</h2>\(jobs)<h2>Dead letters</h2>\(dead)
            """
    }
}
