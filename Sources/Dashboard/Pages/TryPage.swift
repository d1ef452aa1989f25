import HTTPTypes
import Hummingbird
import NIOCore
import Operations
import PushJob
import PushQueue
import WebPages

/// The page to write, check and send a job.
struct TryPage: DashboardPage {
    let path = "/try"
    let section = Section.composer

    func content(_ request: PageRequest) async throws -> PageContent {
        let queues = try await request.site.data.fleetStatus().queues
        guard !queues.isEmpty || request.query["queue"] != nil else {
            return PageContent(
                title: "Try it",
                main: Elements.empty(
                    "There is no queue yet.",
                    "<p>Start a worker first: \(request.command(["run", "--simulate"]))</p>"))
        }
        // Without a worker, a job would only wait.
        let queue = request.query["queue"] ?? queues.first { $0.workers > 0 && $0.paused == nil }?.name ?? ""
        let token = request.query["token"] ?? String(repeating: "0", count: 64)
        let sent: HTML =
            request.query["sent"].map {
                """
                <p class="notice good" role="status">The job is enqueued. Its state: \
                \(request.link(["jobs", queue, $0], "job \($0)")); its result, if workers keep results: \
                \(request.link(["devices"], [("token", token)], "the device")).</p>
                """
            } ?? ""
        let main: HTML = """
            \(sent)<div class="columns"><form class="stack" method="post" \
            action="\(request.links.path(["actions", "enqueue"]))" \
            data-check="\(request.links.path(["try", "check"]))">\
            \(request.site.formToken(request.visitor))
            \(choice(of: queues, queue))
            \(Self.members)
            <label>Job<textarea name="job" spellcheck="false">\(try Self.example(token))</textarea></label>
            \(if: request.isOperator, Self.question)\
            <p>\(if: request.isOperator, "<button class=\"main\">Send</button> ")\
            <button formaction="\(request.links.path(["try", "check"]))" formnovalidate>Check</button></p>
            <p class="hint">Send enqueues the job. A worker of the queue then sends it to APNs, or to a simulator if \
            it runs with one.</p></form>
            <section id="verdicts" aria-live="polite" aria-label="Check and preview"></section></div>
            \(if: request.isOperator, Self.dialog)
            """
        return PageContent(title: "Try it", main: main, scripts: ["compose.js"])
    }

    /// Returns the first text of the editor. A link to the page can set the token, and nothing else of the job.
    static func example(_ token: String) throws -> String {
        """
        {
          "token": \(try JSONLine.text(TokenText.normalized(token))),
          "payload": {
            "aps": {
              "alert": { "title": "Hello", "body": "From the dashboard" },
              "sound": "default"
            }
          }
        }
        """
    }

    private func choice(of queues: [QueueStatus], _ chosen: String) -> HTML {
        var options = queues.map { queue in
            (queue.name, queue.workers == 0 ? "no worker" : queue.paused != nil ? "paused" : nil)
        }
        if !chosen.isEmpty, !options.contains(where: { $0.0 == chosen }) { options.append((chosen, "unknown")) }
        let list = options.map { name, note -> HTML in
            """
            <option value="\(name)"\(if: name == chosen, " selected")>\(name)\(note.map { " (\($0))" })</option>
            """
        }
        return """
            <label>Queue<select name="queue" required>\
            \(if: chosen.isEmpty, "<option value=\"\">Choose a queue</option>")\(list)</select></label>
            """
    }

    /// Fields for the members that are changed most. A script shows them, and writes them into the job.
    private static let members: HTML = """
        <div class="fields" data-members hidden>\
        <label class="wide">Token<input data-member="token" autocomplete="off" spellcheck="false"></label>\
        <label>Title<input data-member="title" autocomplete="off"></label>\
        <label class="wide">Body<input data-member="body" autocomplete="off"></label></div>
        """

    /// The question before a job is sent. A script replaces it with ``dialog``.
    private static let question: HTML = """
        <label class="check" data-question><input type="checkbox" name="sure" value="1" required>\
        Send a real notification, unless the app is one of a simulator</label>
        """

    /// The question with the destination of the job, which compose.js fills in.
    private static let dialog: HTML = """
        <dialog id="ask" class="action" aria-labelledby="ask-title">\
        <h2 id="ask-title" tabindex="-1">Send this notification?</h2><div data-destination></div>\
        <form method="dialog" class="actions"><button class="main" value="send">Send</button>\
        <button value="cancel">Cancel</button></form></dialog>
        """
}

/// The preview of a job on a device, and the result of a check.
enum JobPreview {
    static func add(to routes: RouterGroup<WebContext>, _ site: Site) {
        routes.post("/try/check") { request, context in
            var html: HTML = "<div id=\"checked\"><p class=\"notice\">Choose a queue to check the job.</p></div>"
            if let name = context.form["queue"] {
                let queue = try await site.data.queue(name)
                let job = ByteBuffer(string: context.form.raw("job"))
                let apps = try await site.data.fleetStatus().apps
                let check = try await site.data.check(job, queue)
                let destination = JobDestination(job, queue, apps, environment: site.source.environment)
                html = checked(check, destination?.html(check.failure) ?? "")
            }
            // Without scripts, the browser shows the answer as a page.
            return Response.page(
                await PageFrame(request: PageRequest(site, request, context)).html(
                    PageContent(title: "Check", main: html), in: .composer))
        }
    }

    /// Returns the preview and the verdicts of a job.
    static func checked(_ check: DashboardSource.Check, _ destination: HTML = "") -> HTML {
        """
        <div id="checked" class="columns">\(destination)<section><h2>On a device</h2>\
        \(check.preview?.html() ?? "<p class=\"empty\">The job cannot be sent, so a device shows nothing.</p>")\
        </section>
        <section><h2>Check</h2>\(verdicts(check.verdicts))</section></div>
        """
    }

    /// Returns the findings of a check. Passed checks are folded.
    private static func verdicts(_ verdicts: [JobRow.Verdict]) -> HTML {
        let found = verdicts.filter { ["failure", "warning"].contains($0.level) }
        let right = verdicts.filter { !["failure", "warning"].contains($0.level) }
        let problems = found.map { verdict -> HTML in
            "<p class=\"problem\(if: verdict.level == "failure", " bad")\">\(Elements.prose(verdict.sentence))</p>"
        }
        guard !right.isEmpty else { return HTML(problems) }
        let items = right.map { "<li>\(Elements.prose($0.sentence))</li>" as HTML }
        return """
            \(problems)<details class="right"><summary>\(Words.count(right.count, "check")) passed</summary>\
            <ul>\(items)</ul></details>
            """
    }

    /// Formats JSON with one member per line; returns other text, and large jobs, unchanged.
    static func pretty(_ job: ByteBuffer) -> String {
        job.readableBytes > 1 << 18 ? String(buffer: job) : PayloadText.pretty(Array(job.readableBytesView))
    }
}

/// The device, the app and the environment that a job is sent to, according to the workers' reports.
struct JobDestination {
    /// The first digits of the token, a number of devices, or a channel.
    let device: String
    /// The name of the app; `nil` if the workers choose it by the topic.
    let app: String?
    /// `production`, `sandbox`, or the address of another server; empty if no worker has reported the app.
    let environments: [String]

    /// - Returns: `nil` for a job that cannot be read.
    init?(
        _ body: ByteBuffer, _ queue: QueueSource, _ apps: [AppStatus], environment: (String) -> String
    ) {
        let job: Job
        do { job = try JobDecoder.decode(body, as: queue.format) } catch { return nil }
        if let token = job.token {
            let text = String(buffer: job.text(token))
            device = "device \(text.prefix(8).printable)\(text.count > 8 ? "…" : "")"
        } else if job.channel != nil {
            device = "all devices of a broadcast channel"
        } else {
            device = Words.count(job.tokenCount, "device")
        }
        let named = job.app.map { String(buffer: job.text($0)) }
        let app = named ?? (apps.count == 1 ? apps[0].name : nil)
        self.app = app
        let found = app == nil ? apps : apps.filter { $0.name == app }
        environments = Set(found.flatMap(\.endpoints).map(environment)).sorted()
    }

    /// Returns the destination in words.
    /// - Parameter failure: the finding that would make the job a dead letter.
    func html(_ failure: JobRow.Verdict?) -> HTML {
        let to: HTML = app.map { "the app <strong>\($0)</strong>" } ?? "the app with the job's topic"
        let places = environments.map { environment -> HTML in
            switch environment {
            case "production": "<strong>production</strong>"
            case "sandbox": "the <strong>sandbox</strong>"
            default: "<strong>\(environment)</strong>, which is not Apple's server: a simulator or a proxy"
            }
        }
        let effect: HTML =
            if failure != nil {
                "The job cannot be sent: it would become a dead letter."
            } else if environments.contains(where: { ["production", "sandbox"].contains($0) }) {
                "This is a real notification."
            } else if environments.isEmpty {
                "No worker has reported this app: the job waits until one does."
            } else {
                "Apple's servers do not get the notification."
            }
        return """
            <p class="destination">To <strong>\(device)</strong>, through \(to)\
            \(if: !places.isEmpty, ", in \(places.joined(separator: " or "))"). \(effect)</p>
            """
    }
}
