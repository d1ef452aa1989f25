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
        let queues = try await request.site.data.queues().map(\.queue)
        guard let queue = request.query["queue"] ?? queues.first else {
            return PageContent(
                title: "Try it", main: "<p class=\"empty\">There is no queue yet: start a worker first.</p>")
        }
        let token = request.query["token"] ?? String(repeating: "0", count: 64)
        let example = """
            {
              "token": "\(TokenText.normalized(token))",
              "payload": {
                "aps": {
                  "alert": { "title": "Hello", "body": "From the dashboard" },
                  "sound": "default"
                }
              }
            }
            """
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
            action="\(request.links.path(["actions", "enqueue"]))" data-check="\(request.links.path(["try", "check"]))">\
            \(request.site.formToken(request.visitor))
            \(Elements.choice("Queue", "queue", queues.map { ($0, $0) }, chosen: queue))
            <label>Job<textarea name="job" spellcheck="false">\(example)</textarea></label>
            <p>\(if: request.isOperator, "<button class=\"main\">Send</button> ")\
            <button formaction="\(request.links.path(["try", "check"]))">Check</button></p>
            <p class="hint">Send enqueues the job. A worker sends it to the app that the job names, through the queue's \
            workers: to APNs, or to a simulator if they run with one.</p></form>
            <section id="verdicts" aria-live="polite" aria-label="Check and preview"></section></div>
            """
        return PageContent(title: "Try it", main: main, scripts: ["compose.js"])
    }
}

/// The preview of a job on a device, and the result of a check.
enum JobPreview {
    static func add(to routes: RouterGroup<WebContext>, _ site: Site) {
        routes.post("/try/check") { request, context in
            let queue = try await site.data.queue(context.form["queue"] ?? "")
            let job = ByteBuffer(string: context.form.raw("job"))
            let html = checked(await site.source.check(job, queue))
            // Without scripts, the browser shows this as a page.
            return Response.page(
                await site.html(
                    PageContent(title: "Check", main: html), in: .composer, PageRequest(site, request, context)))
        }
    }

    /// Returns the preview and the verdicts of a job.
    static func checked(_ check: DashboardSource.Check) -> HTML {
        """
        <div id="checked" class="columns"><section><h2>On a device</h2>\
        \(check.preview?.html() ?? "<p class=\"empty\">The job cannot be sent, so a device shows nothing.</p>")</section>
        <section><h2>Check</h2>\(verdicts(check.verdicts))</section></div>
        """
    }

    private static func verdicts(_ verdicts: [DashboardSource.Verdict]) -> HTML {
        HTML(
            verdicts.map { verdict -> HTML in
                let style: String =
                    switch verdict.level {
                    case "failure": "problem bad"
                    case "warning": "problem"
                    default: "problem good"
                    }
                return "<p class=\"\(style)\">\(verdict.sentence)</p>"
            })
    }

    /// Formats JSON with one member per line; returns other text, and large jobs, unchanged.
    static func pretty(_ job: ByteBuffer) -> String {
        job.readableBytes > 1 << 18 ? String(buffer: job) : PayloadText.pretty(Array(job.readableBytesView))
    }
}
