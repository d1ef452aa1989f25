import HTTPPort
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import Operations
import PushJob
import PushQueue
import Redis
import ServiceLifecycle
import Synchronization
import TLS
import WebPages

/// The web dashboard: pages and a JSON API over the queues of a Redis.
package struct Dashboard: Service {
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
            router: router(site), tls: configuration.tls, logger: logger)
        return Dashboard(port: http.port, http: http)
    }

    package func run() async throws {
        try? await gracefulShutdown()
        try await http.stop()
    }

    private static func router(_ site: Site) -> Router<WebContext> {
        let router = Router(context: WebContext.self)
        router.middlewares.add(PageSecurity())
        router.middlewares.add(ErrorPages(site: site))
        router.middlewares.add(site.admission)
        let routes = router.group(RouterPath(site.links.base))
        routes.get("/assets/{name}") { _, context in
            guard let name = context.parameters.get("name"), let asset = WebAssets.response(name) else {
                throw WebError(.notFound, "there is no such file")
            }
            return asset
        }
        routes.get("/healthz") { _, _ in "ok\n" }
        LoginPages(site: site).add(to: routes)
        routes.post("/theme") { _, context in
            let theme = context.form["theme"].flatMap(Page.Theme.init) ?? .system
            var response = Response.seeOther(site.local(context.form["to"]))
            let path = site.links.base.isEmpty ? "/" : site.links.base
            response.headers[.setCookie] =
                "\(PageRequest.themeCookie)=\(theme.rawValue); Path=\(path); "
                + "HttpOnly; SameSite=Lax; Max-Age=\(theme == .system ? 0 : 31_536_000)"
            return response
        }
        let pages: [any DashboardPage] = [
            OverviewPage(), QueuesPage(), QueuePage(), JobsPage(), JobPage(), DevicesPage(), DevicePage(),
            CampaignsPage(), CampaignPage(), DeadLettersPage(), DeadLetterPage(), AppsPage(), AppPage(),
            InvalidTokensPage(), WorkersPage(), WorkerPage(), RedisPage(), TryPage(), ActivityPage(), ChangeRunPage(),
            SearchPage(),
        ]
        for page in pages { add(page, of: site, to: routes) }
        Actions(site: site).add(to: routes)
        JobPreview.add(to: routes, site)
        DashboardAPI(site: site).add(to: routes)
        JobsAPI(site: site).add(to: routes)
        return router
    }

    private static func add(_ page: any DashboardPage, of site: Site, to routes: RouterGroup<WebContext>) {
        routes.get(RouterPath(page.path)) { request, context in
            let pageRequest = PageRequest(site, request, context)
            guard LiveUpdates.isRequested(by: request) else {
                let content: PageContent
                do {
                    content = try await page.contentOrMistake(pageRequest)
                } catch let error where !request.acceptsJSON && !(error is CancellationError) {
                    content = await without(error, page, pageRequest)
                }
                if let redirect = content.redirect { return Response.seeOther(redirect) }
                return Response.page(
                    await PageFrame(request: pageRequest).html(
                        content, in: page.section,
                        isLive: (content.status == .ok || content.isOld) && page.isLive(pageRequest.query)),
                    status: content.status)
            }
            // After this status, the browser does not request the stream again.
            guard page.isLive(pageRequest.query) else { return Response(status: .noContent) }
            let head = site.admission.head(of: request, from: context.peer)
            return site.live.response {
                guard let visitor = await site.admission.visitor(of: head) else { return nil }
                var pageRequest = pageRequest
                pageRequest.visitor = visitor
                let main = try await page.content(pageRequest).main
                let icon = WebAssets.icon(await site.problemCount(), site.links)
                return "<main data-icon=\"\(icon)\">\(await Notices(site: site, visitor: visitor).runs)\(main)</main>"
            }
        }
    }
}

extension Dashboard {
    /// Returns the content of a page after an error. While Redis does not answer, a live page shows its last numbers. Other pages show the
    /// error.
    private static func without(
        _ error: any Error, _ page: any DashboardPage, _ request: PageRequest
    ) async -> PageContent {
        let found = WebError(error)
        if error is any RedisFailure, page.isLive(request.query) {
            let last = LastReadings()
            do {
                var content = try await LastReadings.$wanted.withValue(last) { try await page.content(request) }
                let age = Int64((last.age ?? .zero) / .milliseconds(1))
                content.main =
                    "\(PageContent.alert(found, "These numbers are \(Words.duration(age)) old."))\(content.main)"
                (content.status, content.isOld) = (found.status, true)
                return content
            } catch {
                // The page has no last numbers, because it was not shown before.
            }
        }
        return PageContent(found)
    }
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
            if request.acceptsJSON || request.uri.path.dropFirst(site.links.base.utf8.count).hasPrefix("/api/") {
                var response = try Response.json(["error": found.problem], status: found.status)
                if let seconds = found.retryAfter { response.headers[.retryAfter] = "\(seconds)" }
                return response
            }
            let content = PageContent(found)
            // No navigation, because the visitor may be unauthenticated.
            var page = Page(content.title, of: "apns-worker", main: content.main)
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

final class LoginPages: Sendable {
    let site: Site
    private let limits = Mutex(LoginLimits())
    private let passwords = PasswordChecks()

    init(site: Site) { self.site = site }

    func add(to routes: RouterGroup<WebContext>) {
        routes.get("/login") { [self] request, context in
            guard !context.visitor.isOfProxy else { return Response.seeOther(site.links.path([])) }
            return Response.page(page(to: Fields(request.uri.query ?? "")["to"]))
        }
        routes.post("/login") { [self] request, context in
            guard let users = site.configuration.users?.current, !context.visitor.isOfProxy else {
                return Response.seeOther(site.links.path([]))
            }
            return try await logIn(request, context.form, users, from: site.client(of: request, context))
        }
        routes.post("/logout") { [site] request, _ in
            await site.admission.sessions.end(request.cookies[Admission.cookie]?.value ?? "")
            var response = Response.seeOther(site.links.path(["login"]))
            response.headers[.setCookie] = site.admission.endedCookie
            return response
        }
    }

    private func logIn(_ request: Request, _ form: Fields, _ users: Users, from address: String) async throws
        -> Response
    {
        let (name, to, group) = (form["name"] ?? "", form["to"], TrustedProxies.group(of: address))
        let begun = NIODeadline.now()
        let known = users[name]
        let turn = limits.withLock { $0.take(name, group, now: begun) }
        func refused(_ seconds: Int) -> Response {
            var response = Response.page(
                page(to: to, problem: "Too many attempts; try again in \(seconds) seconds."), status: .tooManyRequests)
            response.headers[.retryAfter] = "\(seconds)"
            return response
        }
        if case .refuse(let seconds) = turn { return refused(seconds) }
        guard let isRight = try await passwords.isRight(form.raw("password"), of: known, from: group) else {
            return refused(5)
        }
        if turn == .checkSlowly {
            // Waits for the end of a whole second, so that the response time reveals little.
            let (pace, taken) = (LoginLimits.pace.nanoseconds, (NIODeadline.now() - begun).nanoseconds)
            try await Task.sleep(for: .nanoseconds(pace - taken % pace))
        }
        guard let user = known, isRight else {
            site.logger.notice(
                "a login was refused",
                metadata: [
                    "event": "web_login_refused", "user": "\(name.prefix(100))", "address": "\(address)",
                ])
            let problem =
                users.isEmpty ? "No user can log in: the file of users cannot be used." : "Wrong name or password."
            return Response.page(page(to: to, problem: problem), status: .forbidden)
        }
        limits.withLock { $0.giveBack(name, group) }
        let session = try await site.admission.sessions.begin(for: user)
        var response = Response.seeOther(site.local(to))
        response.headers[.setCookie] = site.admission.cookie(session, for: request)
        return response
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
