import HTTPPort
import HTTPTypes
import Hummingbird
import Logging
import Operations
import PushQueue
import Synchronization
import WebPages

/// The parts that all pages share.
final class Site: Sendable {
    let configuration: DashboardConfiguration
    let source: DashboardSource
    let links: Links
    let live = LiveUpdates()
    let data: DashboardData
    let runs = ChangeRuns()
    let notes = Notes()
    let searches = WholeSearches()
    let admission: AdmissionMiddleware
    let logger: Logger
    private let hasWarned = Atomic(false)

    init(_ configuration: DashboardConfiguration, _ source: DashboardSource, logger: Logger) {
        self.configuration = configuration
        self.source = source
        self.logger = logger
        links = Links(base: configuration.base)
        data = DashboardData(source)
        admission = AdmissionMiddleware(
            rules: Admission(
                hasUsers: configuration.users != nil, isReadOnly: configuration.isReadOnly,
                viewersSeeContent: configuration.viewersSeeContent, admitsUnlisted: configuration.admitsUnlisted,
                foreign: ForeignRequests(names: configuration.hostNames)),
            users: configuration.users, sessions: Sessions(source.fleet, logger: logger), links: links,
            hasTLS: configuration.tls != nil, proxies: configuration.proxies, userHeader: configuration.userHeader)
    }

    func client(of request: Request, _ context: WebContext) -> String {
        let forwarded = request.headers[values: .xForwardedFor]
        // Warns only about a local address. Any other may be a client that wrote the header itself.
        if !forwarded.isEmpty, TrustedProxies.isLocal(context.peer), !configuration.proxies.contains(context.peer),
            !hasWarned.exchange(true, ordering: .relaxed)
        {
            logger.warning(
                """
                requests come through a proxy that is not trusted, so the limit on logins is one for all its clients; \
                set --trusted-proxy \(context.peer)
                """, metadata: ["event": "web_proxy_not_trusted", "address": "\(context.peer)"])
        }
        return configuration.proxies.client(of: context.peer, forwarded: forwarded)
    }

    /// The problems of the dashboard itself, as sentences.
    var problems: [String] { configuration.users?.problems ?? [] }

    /// Returns the path of a page that a request names without the base path. For anything else, it returns the path of the overview.
    func local(_ path: String?) -> String {
        // `//host` is another site, and browsers strip tabs and line feeds.
        guard let path, path.hasPrefix("/"), !path.hasPrefix("//"),
            path.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x5C }), !Self.hasDots(path)
        else { return links.path([]) }
        return links.base + path
    }

    /// Returns true for a path with a segment that browsers resolve, such as `..`. It could leave the base path and lead to another program
    /// of the host. ``Links`` makes no such path.
    private static func hasDots(_ path: String) -> Bool {
        path.prefix { $0 != "?" && $0 != "#" }.split(separator: "/").contains { segment in
            [".", ".."].contains(segment.lowercased().replacing("%2e", with: "."))
        }
    }

    /// Returns the number of problems, by the last status.
    func problemCount() async -> Int { (await data.lastStatus?.problems.count ?? 0) + problems.count }

    /// Returns a complete page.
    /// - Parameter isLive: true if the page asks for updates.
    func html(_ content: PageContent, in section: Section, _ request: PageRequest, isLive: Bool = false) async -> HTML {
        var page = Page(content.title, of: "apns-worker", main: content.main)
        page.problems = await problemCount()
        page.navigation = Section.groups.map { title, sections in
            Page.Group(
                title,
                sections.map {
                    Page.Item(
                        $0.title, links.path($0.segments), isCurrent: $0 == section,
                        count: $0 == .overview ? page.problems : 0)
                })
        }
        page.lead = content.lead
        page.menu = content.menu
        page.notices = await notices(for: request.visitor, note: request.note, withRuns: !isRun(request))
        page.search = links.path(["search"])
        page.searched = section == .elsewhere ? request.query["q"] ?? "" : ""
        page.theme = request.theme
        page.tools = themes(request)
        page.account = account(request.visitor)
        let topology = "\(source.fleet.clients.topology)"
        page.footer = "apns-worker \(source.version) · Redis \(topology) · prefix \(source.fleet.prefix)"
        page.isLive = isLive
        page.scripts = ["actions.js"] + content.scripts
        return page.html(links)
    }

    private func isRun(_ request: PageRequest) -> Bool { request.path.hasPrefix("/runs/") }

    private func themes(_ request: PageRequest) -> HTML {
        let buttons = Page.Theme.allCases.map { theme -> HTML in
            """
            <button class="small quiet" name="theme" value="\(theme.rawValue)" \
            aria-pressed="\(theme == request.theme ? "true" : "false")">\(theme.rawValue.capitalized)</button>
            """
        }
        return """
            <form class="theme" method="post" action="\(links.path(["theme"]))" aria-label="Colors">\
            \(formToken(request.visitor))<input type="hidden" name="to" value="\(request.path)">\(buttons)</form>
            """
    }

    private func account(_ visitor: Visitor) -> HTML {
        guard let name = visitor.name else {
            return configuration.isReadOnly ? "<span class=\"account\">read-only</span>" : ""
        }
        // The visitor logs out at the proxy.
        if visitor.isOfProxy { return "<span class=\"account\">\(name) (\(visitor.role.rawValue))</span>" }
        return """
            <form class="account" method="post" action="\(links.path(["logout"]))">\(formToken(visitor))\
            <span>\(name) (\(visitor.role.rawValue))</span><button class="small">Log out</button></form>
            """
    }

    /// Returns a form that posts to an action; empty for viewers.
    func form(
        _ visitor: Visitor, _ action: String, _ fields: [(name: String, value: String)] = [],
        class style: String = "inline", _ content: HTML
    ) -> HTML {
        guard visitor.role == .operator else { return "" }
        let hidden = fields.map { "<input type=\"hidden\" name=\"\($0.name)\" value=\"\($0.value)\">" as HTML }
        return """
            <form class="\(style)" method="post" action="\(links.path(["actions", action]))">\(formToken(visitor))\
            \(hidden)\(content)</form>
            """
    }

    /// Returns the hidden field that every form needs.
    func formToken(_ visitor: Visitor) -> HTML {
        "<input type=\"hidden\" name=\"form_token\" value=\"\(visitor.formToken)\">"
    }
}

/// A group of pages, with a link in the navigation.
enum Section: String {
    case overview, queues, jobs, campaigns, dead, devices, invalid, apps, workers, redis
    case composer = "try"
    case activity
    /// A page without a link in the navigation.
    case elsewhere

    static let groups: [(title: String, sections: [Section])] = [
        ("Now", [.overview]), ("Work", [.queues, .jobs, .campaigns, .dead]), ("Delivery", [.devices, .invalid, .apps]),
        ("Fleet", [.workers, .redis, .activity]), ("Tools", [.composer]),
    ]

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
        case .elsewhere: ""
        }
    }

    var segments: [String] { self == .overview ? [] : [rawValue] }
}

struct PageContent {
    var title: String
    var main: HTML
    /// A line below the title.
    var lead: HTML = ""
    var scripts: [String] = []
    /// The path of the page to show instead.
    var redirect: String?
    var status = HTTPResponse.Status.ok
    /// True if it shows the last numbers, because Redis does not answer.
    var isOld = false
    /// The forms of the menu of actions; empty for a page without one.
    var menu: HTML = ""
}

extension PageContent {
    /// The page of an error.
    init(_ error: WebError) {
        title = "\(error.status.code) \(error.status.reasonPhrase)"
        main = Self.alert(error)
        status = error.status
    }

    /// Returns the problem, above the content of a page.
    static func alert(_ error: WebError, _ more: HTML = "") -> HTML {
        """
        <div class="problem bad" role="alert"><strong>\(error.problem.asSentence)</strong>
        \(more)</div>
        """
    }
}

struct PageRequest: Sendable {
    let site: Site
    let query: Form
    var visitor: Visitor
    /// The path and the query, without the base path and without the ID of a note.
    let path: String
    /// The ID of the result of an action, which the page reports; see ``Notes``.
    let note: String?
    let theme: Page.Theme
    let parameters: @Sendable (String) -> String?

    init(_ site: Site, _ request: Request, _ context: WebContext) {
        self.site = site
        (path, note) = Notes.separated(String(request.uri.string.dropFirst(site.links.base.utf8.count)))
        query = Form(path.split(separator: "?", maxSplits: 1).dropFirst().first ?? "")
        visitor = context.visitor
        theme = request.cookies[Self.themeCookie].flatMap { Page.Theme(rawValue: $0.value) } ?? .system
        parameters = { context.parameters.get($0).map { Links.unescaped(Form.decoded($0, plusIsSpace: false)) } }
    }

    static let themeCookie = "apns_worker_theme"

    var links: Links { site.links }
    var source: DashboardSource { site.source }
    var isOperator: Bool { visitor.role == .operator }

    /// Returns a form that posts to an action; empty for viewers.
    func form(
        _ action: String, _ fields: [(name: String, value: String)] = [], class style: String = "inline",
        _ content: HTML
    ) -> HTML {
        site.form(visitor, action, fields, class: style, content)
    }

    /// Returns a token in the form that the visitor is allowed to see.
    func token(_ token: String) -> String {
        visitor.seesContent ? token : String(token.prefix(8)) + "…"
    }

    /// Returns a token in the form that the visitor is allowed to see. Only a whole token is linked to its page, because the link contains
    /// it.
    func device(_ token: String, length: Int = .max) -> HTML {
        guard visitor.seesContent else { return "\(self.token(token))" }
        return link(["devices", token], token.utf8.count > length ? "\(token.prefix(length))…" : token)
    }

    /// Returns a link to the pushes that the simulated APNs received for a token; `nil` with the real APNs, and for
    /// visitors who may not see tokens and payloads.
    func inboxLink(token: String) -> HTML? {
        guard let inbox = site.configuration.inbox, visitor.seesContent else { return nil }
        let base = inbox.hasSuffix("/") ? String(inbox.dropLast()) : inbox
        return "<a href=\"\(Links(base: base).path([], [("token", token)]))\">Pushes in the simulator's inbox</a>"
    }

    func link(_ segments: [String], _ title: String) -> HTML { link(segments, [], title) }

    /// Returns a command of `apns-worker` on this fleet, to copy.
    /// - Parameters:
    ///   - name: the name of a thing, as the last word.
    ///   - rest: more text for the shell, such as a redirection.
    func command(_ words: [String], _ name: String? = nil, then rest: String = "") -> HTML {
        Elements.command(source.fleet.access.command(words, name) + rest)
    }

    /// Returns a link to another page in the form of a button.
    /// - Parameter style: further classes, such as `small`.
    func button(
        _ title: String, _ segments: [String], _ query: [(name: String, value: String?)] = [], style: String = ""
    ) -> HTML {
        "<a class=\"button\(if: !style.isEmpty, " \(style)")\" href=\"\(links.path(segments, query))\">\(title)</a>"
    }

    /// The notice in place of a payload that the visitor may not see.
    static let hiddenPayload: HTML = "<p class=\"notice\">The payload is shown to operators only.</p>"

    func link(_ segments: [String], _ query: [(name: String, value: String?)], _ title: String) -> HTML {
        "<a href=\"\(links.path(segments, query))\">\(title)</a>"
    }
}

protocol DashboardPage: Sendable {
    /// The route, such as `/queues/{queue}`.
    var path: String { get }
    var section: Section { get }
    /// Returns true if the page keeps itself up to date. A page with a search does not, because each update would search again.
    func isLive(_ query: Form) -> Bool
    func content(_ request: PageRequest) async throws -> PageContent
    /// Returns the form with the page's filters as they were sent, so that a mistake can be corrected; empty for a page without filters.
    func filters(_ request: PageRequest) async throws -> HTML
}

extension DashboardPage {
    func isLive(_ query: Form) -> Bool { false }

    func filters(_ request: PageRequest) async throws -> HTML { "" }

    /// Returns the content of the page. If a filter has a mistake, returns the mistake and the form of the filters.
    func contentOrMistake(_ request: PageRequest) async throws -> PageContent {
        do {
            return try await content(request)
        } catch let mistake as FieldMistake {
            let form = try await filters(request)
            guard !form.isEmpty else { throw mistake }
            return PageContent(
                title: section.title,
                main: """
                    <p class="problem bad" role="alert">\(mistake.text(.member).asSentence)</p>\(form)
                    """, status: .badRequest)
        }
    }
}

extension HTTPField.Name {
    fileprivate static var xForwardedFor: HTTPField.Name { HTTPField.Name("X-Forwarded-For")! }
}
