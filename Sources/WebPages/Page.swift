/// A complete page: the navigation, and one `main` element.
///
/// On wide screens, the navigation is a column at the side. On other screens, it is a popover that a button opens. Neither needs a script.
package struct Page: Sendable {
    /// A link in the navigation.
    package struct Item: Sendable {
        let title, path: String
        let isCurrent: Bool
        /// The number of things that need attention, such as problems; hidden if 0.
        let count: Int

        package init(_ title: String, _ path: String, isCurrent: Bool, count: Int = 0) {
            (self.title, self.path, self.isCurrent, self.count) = (title, path, isCurrent, count)
        }
    }

    /// Links that belong together.
    package struct Group: Sendable {
        let title: String
        let items: [Item]

        package init(_ title: String, _ items: [Item]) { (self.title, self.items) = (title, items) }
    }

    package enum Theme: String, CaseIterable, Sendable { case system, light, dark }

    package var title: String
    /// The name of the site, at the top of each page.
    package var site: String
    package var navigation: [Group] = []
    /// The controls below the navigation.
    package var tools: HTML = ""
    /// The path of the search; nil for a site without one.
    package var search: String?
    /// The text that was searched for.
    package var searched = ""
    package var theme = Theme.system
    /// The number of problems, which the icon shows.
    package var problems = 0
    /// The results of actions, and actions that are running: above the title.
    package var notices: HTML = ""
    /// A line below the title.
    package var lead: HTML = ""
    /// The forms of the menu of actions, which a button beside the title opens; empty for a page without a menu.
    package var menu: HTML = ""
    /// The name of the user, and the form to log out.
    package var account: HTML = ""
    /// The line at the end of each page.
    package var footer: HTML = ""
    package var main: HTML
    /// True if the page updates its live parts; see ``LiveUpdates``.
    package var isLive = false
    /// Further scripts of the page: files of `Assets`.
    package var scripts: [String] = []

    package init(_ title: String, of site: String, main: HTML) {
        (self.title, self.site, self.main) = (title, site, main)
    }

    package func html(_ links: Links) -> HTML {
        let asset = { (name: String) in links.path(["assets", WebAssets.versioned(name)]) }
        let charts = main.text.utf8.contains("data-chart=".utf8) ? ["chart.js"] : []
        let scripts: [HTML] = (["page.js"] + charts + (isLive ? ["live.js"] : []) + self.scripts).map {
            "<script type=\"module\" src=\"\(asset($0))\"></script>"
        }
        let theme: HTML = theme == .system ? "" : " data-theme=\"\(theme.rawValue)\""
        return """
            <!doctype html>
            <html lang="en"\(theme)>
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <title>\(title) · \(site)</title>
            <link rel="stylesheet" href="\(asset("style.css"))">
            <link rel="icon" href="\(WebAssets.icon(problems, links))" type="image/svg+xml">
            \(scripts)
            </head>
            <body>
            <a class="skip" href="#main">Skip to content</a>
            <header class="top">
            <a class="site" href="\(links.path([]))">\(site)</a>
            \(pages)\(searchForm)\(account)
            </header>
            <main id="main" tabindex="-1"\(if: isLive, " data-live-page")>
            \(notices)<div class="title"><h1>\(title)</h1>\(actions)</div>
            \(if: !lead.isEmpty, "<p class=\"lead\">\(lead)</p>")\(main)
            </main>
            <footer>\(footer)\
            \(if: isLive, " · <span id=\"live-state\" role=\"status\"></span>")</footer>
            </body>
            </html>
            """
    }

    /// The button of the menu, and the menu. It needs no script.
    private var actions: HTML {
        guard !menu.text.isEmpty else { return "" }
        return """
            <button type="button" popovertarget="actions">Actions…</button>\
            <div id="actions" class="sheet" popover role="region" aria-label="Actions">\(menu)</div>
            """
    }

    private var pages: HTML {
        guard !navigation.isEmpty else { return "" }
        let groups = navigation.enumerated().map { index, group -> HTML in
            let items = group.items.map { item -> HTML in
                """
                <li><a href="\(item.path)"\(if: item.isCurrent, " aria-current=\"page\"")>\(item.title)\
                \(if: item.count > 0, " <span class=\"count\">\(item.count)</span>")</a></li>
                """
            }
            return """
                <div><p id="group-\(index)">\(group.title)</p><ul aria-labelledby="group-\(index)">\(items)</ul></div>
                """
        }
        return """
            <button type="button" class="menu-button" popovertarget="menu">Menu</button>
            <div id="menu" class="menu" popover><nav aria-label="Pages">\(groups)</nav>
            \(tools)</div>
            """
    }

    private var searchForm: HTML {
        guard let search else { return "" }
        return """
            <form class="search" method="get" action="\(search)" role="search">\
            <label class="hidden" for="search">Search</label>\
            <input id="search" type="search" name="q" value="\(searched)" placeholder="Token, job, campaign, app…" \
            autocomplete="off"><kbd aria-hidden="true">/</kbd></form>
            """
    }
}
