import HTTPTypes
import Hummingbird
import Operations
import WebPages

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
    /// The path of a page to show in place of this page.
    var redirect: String?
    var status = HTTPResponse.Status.ok
    /// True if the page shows old numbers, because Redis does not answer.
    var isOld = false
    /// The forms of the menu of actions; empty for a page without a menu.
    var menu: HTML = ""
}

extension PageContent {
    /// The page of an error.
    init(_ error: WebError) {
        title = "\(error.status.code) \(error.status.reasonPhrase)"
        main = Self.alert(error)
        status = error.status
    }

    /// Returns an error in a frame, with further content below its message.
    static func alert(_ error: WebError, _ more: HTML = "") -> HTML {
        """
        <div class="problem bad" role="alert"><strong>\(error.problem.asSentence)</strong>
        \(more)</div>
        """
    }
}

struct PageRequest: Sendable {
    let site: Site
    let query: Fields
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
        query = Fields(path.split(separator: "?", maxSplits: 1).dropFirst().first ?? "")
        visitor = context.visitor
        theme = request.cookies[Self.themeCookie].flatMap { Page.Theme(rawValue: $0.value) } ?? .system
        parameters = { context.parameters.get($0).map { Links.unescaped(Fields.decoded($0, plusIsSpace: false)) } }
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

    /// Returns a command line of `apns-worker` for this fleet, which the visitor can copy.
    /// - Parameters:
    ///   - name: the last word, such as a queue's name.
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
    func isLive(_ query: Fields) -> Bool
    func content(_ request: PageRequest) async throws -> PageContent
    /// Returns the form with the page's filters as they were sent, so that a mistake can be corrected; empty for a page without filters.
    func filters(_ request: PageRequest) async throws -> HTML
}

extension DashboardPage {
    func isLive(_ query: Fields) -> Bool { false }

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
