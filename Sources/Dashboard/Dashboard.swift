import HTTPPort
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import Operations
import PushJob
import PushQueue
import ServiceLifecycle
import TLS
import WebPages

/// The address, the users and the limits of a dashboard.
package struct DashboardConfiguration: Sendable {
    package var host = "127.0.0.1"
    /// 0 for a free one.
    package var port = 8080
    /// The path under which a proxy serves the dashboard, such as `/push`; empty for none.
    package var base = ""
    /// Host names that requests can use besides `localhost` and IP addresses, without users.
    package var hostNames: [String] = []
    /// The users; `nil` to admit everyone who can reach the port.
    package var users: UserFile?
    /// True to refuse all changes.
    package var isReadOnly = false
    /// True to show tokens and payloads to viewers.
    package var viewersSeeContent = false
    package var tls: TLSContext?

    package init() {}
}

/// The data sources of the dashboard, and what its actions need.
package struct DashboardSource: Sendable {
    /// A queue, and the format of its jobs.
    package struct Queue: Sendable {
        package var keys: QueueKeys
        package var format = JobFormat.native
        package var limits = QueueLimits()

        package init(_ keys: QueueKeys, format: JobFormat = .native, limits: QueueLimits = QueueLimits()) {
            (self.keys, self.format, self.limits) = (keys, format, limits)
        }
    }

    /// A finding about a job.
    package struct Verdict: Encodable, Sendable {
        /// `ok`, `warning` or `failure`.
        package let level, subject, sentence: String

        package init(level: String, subject: String, sentence: String) {
            (self.level, self.subject, self.sentence) = (level, subject, sentence)
        }
    }

    /// The result of checking a job.
    package struct Check: Sendable {
        package var verdicts: [Verdict]
        /// The notification for the first device; `nil` if the job cannot be sent.
        package var preview: PushPreview?

        package init(_ verdicts: [Verdict], _ preview: PushPreview?) {
            (self.verdicts, self.preview) = (verdicts, preview)
        }

        /// The first finding that would make the job a dead letter.
        var failure: Verdict? { verdicts.first { $0.level == "failure" } }
    }

    /// The queues, workers and apps, through clients that stay connected.
    package var fleet: Fleet
    package var invalidTokens: InvalidTokenClient
    /// Returns the configuration of a queue that was found in Redis.
    package var configured: @Sendable (QueueKeys) -> Queue
    /// Apps to show even if no worker has reported them.
    package var appNames: [String] = []
    /// Checks a job of a queue, as `check --job` does.
    package var check: @Sendable (_ job: ByteBuffer, Queue) async -> Check
    /// Returns the rule behind a reason, in Apple's words for reasons of APNs; `nil` if it is unknown.
    package var explain: @Sendable (_ reason: String) -> String?
    package var version: String

    package init(
        fleet: Fleet, invalidTokens: InvalidTokenClient, version: String,
        configured: @escaping @Sendable (QueueKeys) -> Queue,
        check: @escaping @Sendable (_ job: ByteBuffer, Queue) async -> Check,
        explain: @escaping @Sendable (_ reason: String) -> String?
    ) {
        (self.fleet, self.invalidTokens, self.version) = (fleet, invalidTokens, version)
        (self.configured, self.check, self.explain) = (configured, check, explain)
    }
}

/// The web dashboard: pages and a JSON API over the queues of a Redis.
package struct Dashboard: Service {
    /// The port of the dashboard.
    package let port: Int
    private let http: HTTPPort

    /// Starts listening.
    /// - Throws: `HTTPPortFailure` if the port cannot be opened.
    package static func start(
        _ configuration: DashboardConfiguration, _ source: DashboardSource, on eventLoop: any EventLoop, logger: Logger
    ) async throws -> Dashboard {
        let site = Site(configuration, source, logger: logger)
        var limits = PortLimits()
        // A browser has up to six connections, plus one for each open page's live updates.
        limits.connections = 512
        let http = try await HTTPPort.listen(
            "dashboard", host: configuration.host, port: configuration.port, limits: limits, on: eventLoop,
            router: site.router(), tls: configuration.tls, logger: logger)
        return Dashboard(port: http.port, http: http)
    }

    package func run() async throws {
        try? await gracefulShutdown()
        try await http.stop()
    }
}

/// The parts that all pages share.
final class Site: Sendable {
    let configuration: DashboardConfiguration
    let source: DashboardSource
    let links: Links
    let live = LiveUpdates()
    let data: DashboardData
    let runs = BulkRuns()
    let admission: Admission
    let logger: Logger

    init(_ configuration: DashboardConfiguration, _ source: DashboardSource, logger: Logger) {
        self.configuration = configuration
        self.source = source
        self.logger = logger
        links = Links(base: configuration.base)
        data = DashboardData(source)
        admission = Admission(
            users: configuration.users, isReadOnly: configuration.isReadOnly,
            viewersSeeContent: configuration.viewersSeeContent, links: links,
            foreign: ForeignRequests(names: configuration.hostNames), hasTLS: configuration.tls != nil)
    }

    func router() -> Router<WebContext> {
        let router = Router(context: WebContext.self)
        router.middlewares.add(PageSecurity())
        router.middlewares.add(ErrorPages(site: self))
        router.middlewares.add(admission)
        let routes = router.group(RouterPath(links.base))
        routes.get("/assets/{name}") { _, context in
            guard let name = context.parameters.get("name"), let asset = WebAssets.response(name) else {
                throw WebError(.notFound, "there is no such file")
            }
            return asset
        }
        routes.get("/healthz") { _, _ in "ok\n" }
        LoginPages(site: self).add(to: routes)
        let pages: [any DashboardPage] = [
            OverviewPage(), QueuesPage(), QueuePage(), JobsPage(), JobPage(), DevicesPage(), DevicePage(),
            CampaignsPage(), CampaignPage(), DeadLettersPage(), DeadLetterPage(), AppsPage(), InvalidTokensPage(),
            WorkersPage(), RedisPage(), TryPage(), ActivityPage(), BulkRunPage(),
        ]
        for page in pages { add(page, to: routes) }
        Actions(site: self).add(to: routes)
        JobPreview.add(to: routes, self)
        DashboardAPI(site: self).add(to: routes)
        return router
    }

    private func add(_ page: any DashboardPage, to routes: RouterGroup<WebContext>) {
        routes.get(RouterPath(page.path)) { [self] request, context in
            let pageRequest = PageRequest(self, request, context)
            guard LiveUpdates.isRequested(by: request) else {
                return Response.page(try await html(page.content(pageRequest), in: page.section, context.visitor))
            }
            return live.response {
                let content = try await page.content(pageRequest)
                return "<main>\(content.main)</main>"
            }
        }
    }

    /// Returns a complete page.
    func html(_ content: PageContent, in section: Section, _ visitor: Visitor) async -> HTML {
        var page = Page(content.title, of: "apns-worker", main: content.main)
        // Shows the number of problems of the last status, if there is one.
        let problems = await data.lastStatus?.problems.count ?? 0
        page.navigation = Section.allCases.map { one in
            Page.Item(
                one.title, links.path(one.segments), isCurrent: one == section,
                count: one == .overview ? problems : 0)
        }
        page.account = account(visitor)
        page.footer =
            "apns-worker \(source.version) · Redis \("\(source.fleet.clients.topology)") · prefix \(source.fleet.prefix)"
        page.isLive = content.isLive
        page.scripts = content.scripts
        return page.html(links)
    }

    private func account(_ visitor: Visitor) -> HTML {
        guard let name = visitor.name else {
            return configuration.isReadOnly ? "<span class=\"account\">read-only</span>" : ""
        }
        return """
            <form class="account" method="post" action="\(links.path(["logout"]))">\(formToken(visitor))\
            <span>\(name) (\(visitor.role.rawValue))</span><button class="small">Log out</button></form>
            """
    }

    /// Returns the hidden field that every form needs.
    func formToken(_ visitor: Visitor) -> HTML {
        "<input type=\"hidden\" name=\"form_token\" value=\"\(visitor.formToken)\">"
    }

    /// Records an operator's action. A failure is only logged, because the action has already happened.
    func record(
        _ action: AuditEntry.Action, _ subject: String, by visitor: Visitor, count: Int? = nil, detail: String? = nil
    ) async {
        let entry = AuditEntry(
            action, subject, by: visitor.name ?? "anonymous", count: count, detail: detail, via: .web)
        do {
            try await source.fleet.record(entry)
        } catch {
            logger.warning(
                "could not record an operator's action",
                metadata: [
                    "event": "audit_failed", "action": "\(action.rawValue)", "subject": "\(entry.subject)",
                    "by": "\(entry.by)", "error": "\(error)",
                ])
        }
    }
}

/// A group of pages, with a link in the navigation.
enum Section: String, CaseIterable {
    case overview, queues, jobs, campaigns, dead, devices, invalid, apps, workers, redis
    case composer = "try"
    case activity

    var title: String {
        switch self {
        case .overview: "Overview"
        case .queues: "Queues"
        case .jobs: "Jobs"
        case .campaigns: "Campaigns"
        case .dead: "Dead letters"
        case .devices: "Device"
        case .invalid: "Invalid tokens"
        case .apps: "Apps"
        case .workers: "Workers"
        case .redis: "Redis"
        case .composer: "Try it"
        case .activity: "Activity"
        }
    }

    var segments: [String] { self == .overview ? [] : [rawValue] }
}

/// The content of a page for one request.
struct PageContent {
    var title: String
    var main: HTML
    var isLive = false
    var scripts: [String] = []
}

/// A request for a page.
struct PageRequest: Sendable {
    let site: Site
    let query: Form
    let visitor: Visitor
    let parameters: @Sendable (String) -> String?

    init(_ site: Site, _ request: Request, _ context: WebContext) {
        self.site = site
        query = Form(request.uri.query ?? "")
        visitor = context.visitor
        parameters = { context.parameters.get($0).map { Form.decoded($0, plusIsSpace: false) } }
    }

    var links: Links { site.links }
    var source: DashboardSource { site.source }
    var isOperator: Bool { visitor.role == .operator }

    /// Returns a form that posts to an action; empty for viewers.
    func form(
        _ action: String, _ fields: [(name: String, value: String)] = [], class style: String = "inline",
        _ content: HTML
    ) -> HTML {
        guard isOperator else { return "" }
        let hidden = fields.map { "<input type=\"hidden\" name=\"\($0.name)\" value=\"\($0.value)\">" as HTML }
        return """
            <form class="\(style)" method="post" action="\(links.path(["actions", action]))">\(site.formToken(visitor))\
            \(hidden)\(content)</form>
            """
    }

    /// Returns a token in the form that the visitor is allowed to see.
    func token(_ token: String) -> String {
        visitor.seesContent ? token : String(token.prefix(8)) + "…"
    }

    /// Returns a token in the form that the visitor is allowed to see, linked to its page only if that is the whole
    /// token, because the link contains it.
    func device(_ token: String, length: Int = .max) -> HTML {
        guard visitor.seesContent else { return "\(self.token(token))" }
        return link(["devices", token], token.utf8.count > length ? "\(token.prefix(length))…" : token)
    }

    func link(_ segments: [String], _ title: String) -> HTML { link(segments, [], title) }

    func link(_ segments: [String], _ query: [(name: String, value: String?)], _ title: String) -> HTML {
        "<a href=\"\(links.path(segments, query))\">\(title)</a>"
    }
}

/// A page of the dashboard.
protocol DashboardPage: Sendable {
    /// The route, such as `/queues/{queue}`.
    var path: String { get }
    var section: Section { get }
    func content(_ request: PageRequest) async throws -> PageContent
}

/// Converts errors to pages or, for the API, to JSON.
struct ErrorPages: RouterMiddleware {
    typealias Context = WebContext
    let site: Site

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        do {
            return try await next(request, context)
        } catch let error as CancellationError {
            throw error
        } catch {
            let found = WebError(error)
            if request.uri.path.dropFirst(site.links.base.utf8.count).hasPrefix("/api/") {
                return try .json(["error": found.problem], status: found.status)
            }
            let main: HTML = """
                <div class="problem bad" role="alert"><strong>\(found.problem.prefix(1).uppercased() + found.problem.dropFirst()).</strong>
                </div>
                """
            // Visitors that are not authenticated get no navigation.
            var page = Page("\(found.status.code) \(found.status.reasonPhrase)", of: "apns-worker", main: main)
            page.footer = "<a href=\"\(site.links.path([]))\">Overview</a>"
            return Response.page(page.html(site.links), status: found.status)
        }
    }
}

extension Response {
    static func json(_ value: some Encodable, status: HTTPResponse.Status = .ok) throws -> Response {
        .json(bytes: try JSONLine.text(value, keys: .convertToSnakeCase).utf8, status: status)
    }
}

/// The login page.
struct LoginPages: Sendable {
    let site: Site
    private let limits = LoginLimits()

    init(site: Site) { self.site = site }

    func add(to routes: RouterGroup<WebContext>) {
        routes.get("/login") { request, _ in
            Response.page(page(to: Form(request.uri.query ?? "")["to"]))
        }
        routes.post("/login") { request, context in
            let (name, to) = (context.form["name"] ?? "", context.form["to"])
            guard let users = site.configuration.users?.current else { return Response.seeOther(site.links.path([])) }
            if let seconds = limits.wait(name, context.address) {
                var response = Response.page(
                    page(to: to, problem: "Too many attempts; try again in \(seconds) seconds."),
                    status: .tooManyRequests)
                response.headers[.retryAfter] = "\(seconds)"
                return response
            }
            guard let user = await users.user(name, password: context.form.raw("password")),
                let cookie = site.admission.loginCookie(for: user.name, request)
            else {
                limits.failed(name, context.address)
                site.logger.notice(
                    "a login was refused",
                    metadata: [
                        "event": "web_login_refused", "user": "\(name.prefix(100))", "address": "\(context.address)",
                    ])
                return Response.page(page(to: to, problem: "Wrong name or password."), status: .forbidden)
            }
            // Only a path of this site: `//host` is another site, and browsers strip tabs and line feeds.
            let isPath =
                to.map {
                    $0.hasPrefix("/") && !$0.hasPrefix("//")
                        && $0.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x5C }
                } ?? false
            var response = Response.seeOther(isPath ? site.links.base + (to ?? "/") : site.links.path([]))
            response.headers[.setCookie] = cookie
            return response
        }
        routes.post("/logout") { _, _ in
            var response = Response.seeOther(site.links.path(["login"]))
            response.headers[.setCookie] = site.admission.endedCookie
            return response
        }
    }

    private func page(to: String?, problem: String? = nil) -> HTML {
        let notice = problem.map { "<div class=\"problem bad\" role=\"alert\">\($0)</div>" as HTML }
        let main: HTML = """
            \(notice)<form class="stack" method="post" action="\(site.links.path(["login"]))">
            <input type="hidden" name="to" value="\(to)">
            <label>Name<input name="name" autocomplete="username" required autofocus></label>
            <label>Password<input type="password" name="password" autocomplete="current-password" required></label>
            <p><button class="main">Log in</button></p></form>
            """
        return Page("Log in", of: "apns-worker", main: main).html(site.links)
    }
}
