import WebPages

/// The parts of a page around its content.
struct PageFrame {
    let request: PageRequest
    private var site: Site { request.site }

    /// Returns a complete page.
    /// - Parameter isLive: true if the page asks for updates.
    func html(_ content: PageContent, in section: Section, isLive: Bool = false) async -> HTML {
        var page = Page(content.title, of: "apns-worker", main: content.main)
        page.problems = await site.problemCount()
        page.navigation = Section.groups.map { title, sections in
            Page.Group(
                title,
                sections.map {
                    Page.Item(
                        $0.title, request.links.path($0.segments), isCurrent: $0 == section,
                        count: $0 == .overview ? page.problems : 0)
                })
        }
        page.lead = content.lead
        page.menu = content.menu
        page.notices = await Notices(site: site, visitor: request.visitor).html(
            note: request.note, withRuns: !request.path.hasPrefix("/runs/"))
        page.search = request.links.path(["search"])
        page.searched = section == .elsewhere ? request.query["q"] ?? "" : ""
        page.theme = request.theme
        page.tools = themes
        page.account = account
        let topology = "\(request.source.fleet.clients.topology)"
        page.footer =
            "apns-worker \(request.source.version) · Redis \(topology) · prefix \(request.source.fleet.prefix)"
        page.isLive = isLive
        page.scripts = ["actions.js"] + content.scripts
        return page.html(request.links)
    }

    private var themes: HTML {
        let buttons = Page.Theme.allCases.map { theme -> HTML in
            """
            <button class="small quiet" name="theme" value="\(theme.rawValue)" \
            aria-pressed="\(theme == request.theme ? "true" : "false")">\(theme.rawValue.capitalized)</button>
            """
        }
        return """
            <form class="theme" method="post" action="\(request.links.path(["theme"]))" aria-label="Colors">\
            \(site.formToken(request.visitor))<input type="hidden" name="to" value="\(request.path)">\(buttons)</form>
            """
    }

    private var account: HTML {
        let visitor = request.visitor
        guard let name = visitor.name else {
            return site.configuration.isReadOnly ? "<span class=\"account\">read-only</span>" : ""
        }
        // The visitor logs out at the proxy.
        if visitor.isOfProxy { return "<span class=\"account\">\(name) (\(visitor.role.rawValue))</span>" }
        return """
            <form class="account" method="post" action="\(request.links.path(["logout"]))">\(site.formToken(visitor))\
            <span>\(name) (\(visitor.role.rawValue))</span><button class="small">Log out</button></form>
            """
    }
}
