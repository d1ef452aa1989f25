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
        // Warns only about a local address. A client with any other address may have written the header itself.
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

    /// Returns the number of problems according to the last status.
    func problemCount() async -> Int { (await data.lastStatus?.problems.count ?? 0) + problems.count }

    /// Returns the desk for a visitor's changes, with all queues chosen.
    func desk(_ visitor: Visitor) async throws -> Desk {
        var desk = Desk(
            source.fleet, invalidTokens: source.invalidTokens, person: visitor.by, via: .web,
            queues: try await data.queues()
        ) { [logger] error in
            logger.warning(
                "could not record an operator's action",
                metadata: ["event": "audit_failed", "by": "\(visitor.by)", "error": "\(error)"])
        }
        desk.configuredApps = source.appNames
        desk.servingWorker = source.worker
        desk.check = { [data] job, queue in try await data.check(job, queue).failure?.sentence }
        return desk
    }

    /// Returns the path of the page of this site that sent a request; `nil` if there is no such page.
    func origin(of request: Request) -> String? {
        // A proxy may have changed `Host`, so this relies on the browser: it reports if the page is of this site.
        let isOwn = Admission.Head(request, base: links.base).fetchSite == "same-origin"
        let host = isOwn ? nil : request.head.authority ?? ""
        return Self.origin(request.headers[.referer], host: host, base: links.base).map(local)
    }

    /// Returns the path and query of a `Referer`, without the base path; `nil` if it is not a page of this site.
    /// - Parameter host: the host that it must have; `nil` for any.
    static func origin(_ referer: String?, host: String?, base: String) -> String? {
        guard let referer, let scheme = referer.firstRange(of: "://") else { return nil }
        let rest = referer[scheme.upperBound...].prefix { $0 != "#" }
        let authority = rest.prefix { $0 != "/" }
        let path = rest.dropFirst(authority.count)
        let isOwn = host.map { authority.lowercased() == $0.lowercased() } ?? true
        guard isOwn, path.hasPrefix(base + "/") else { return nil }
        let local = Notes.separated(String(path.dropFirst(base.count))).path
        // These paths are not pages, or show the progress of an action.
        let isPage = !["/actions/", "/api/", "/assets/", "/runs", "/login", "/try/check"].contains {
            local.hasPrefix($0)
        }
        return isPage ? local : nil
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

    func form(_ visitor: Visitor, _ undo: Undo) -> HTML {
        form(visitor, undo.action, undo.fields, "<button class=\"small\">\(undo.title)</button>")
    }

    /// Returns the hidden field that every form needs.
    func formToken(_ visitor: Visitor) -> HTML {
        "<input type=\"hidden\" name=\"form_token\" value=\"\(visitor.formToken)\">"
    }
}

/// Limits the searches through whole queues, because they have no time limit.
final class WholeSearches: Sendable {
    /// The maximum numbers of simultaneous searches: of one visitor, and of all visitors.
    static let (ofVisitor, all) = (4, 16)

    private let running = Shares(ofVisitor: ofVisitor, all: all)

    /// Runs a search.
    /// - Throws: ``WebError`` if too many are running.
    func run<Found>(for visitor: Visitor, _ search: () async throws -> Found) async throws -> Found {
        guard running.take(1, for: visitor) == nil else {
            throw WebError(
                .tooManyRequests, "too many searches of whole queues are in progress; try again when one has ended",
                retryAfter: 5)
        }
        defer { running.giveBack(1, for: visitor) }
        return try await search()
    }
}

extension HTTPField.Name {
    fileprivate static var xForwardedFor: HTTPField.Name { HTTPField.Name("X-Forwarded-For")! }
}
