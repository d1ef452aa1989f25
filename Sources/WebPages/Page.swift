/// A complete page: the navigation, and one `main` element.
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

    package var title: String
    /// The name of the site, at the top of each page.
    package var site: String
    package var navigation: [Item] = []
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

    /// Returns the HTML document.
    package func html(_ links: Links) -> HTML {
        let asset = { (name: String) in links.path(["assets", WebAssets.versioned(name)]) }
        let scripts: [HTML] = ((isLive ? ["live.js"] : []) + self.scripts).map {
            "<script type=\"module\" src=\"\(asset($0))\"></script>"
        }
        let items: [HTML] = navigation.map { item in
            """
            <li><a href="\(item.path)"\(if: item.isCurrent, " aria-current=\"page\"")>\(item.title)\
            \(if: item.count > 0, " <span class=\"count\">\(item.count)</span>")</a></li>
            """
        }
        return """
            <!doctype html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <title>\(title) · \(site)</title>
            <link rel="stylesheet" href="\(asset("style.css"))">
            <link rel="icon" href="\(asset("icon.svg"))" type="image/svg+xml">
            \(scripts)
            </head>
            <body>
            <a class="skip" href="#main">Skip to content</a>
            <header>
            <a class="site" href="\(links.path([]))">\(site)</a>
            \(if: !items.isEmpty, "<nav aria-label=\"Pages\"><ul>\(items)</ul></nav>")
            \(account)
            </header>
            <main id="main" tabindex="-1"\(if: isLive, " data-live-page")>
            <h1>\(title)</h1>
            \(main)
            </main>
            <footer>\(footer)\
            \(if: isLive, " <span id=\"live-state\" role=\"status\"></span>")</footer>
            </body>
            </html>
            """
    }
}
