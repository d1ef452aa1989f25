import Testing
import WebPages

@Suite("Components of pages")
struct ElementsTests {
    @Test(
        "shows text between backticks as code",
        arguments: [
            ("run `apns-worker status` now", "run <code>apns-worker status</code> now"), ("`a`", "<code>a</code>"),
            ("no code", "no code"), ("one ` only", "one ` only"), ("`a` and ` b", "<code>a</code> and ` b"),
            ("`<b>`", "<code>&lt;b&gt;</code>"), ("", ""),
        ])
    func prose(text: String, html: String) { #expect(Elements.prose(text).text == html) }

    @Test("names the cells of a list for phones, without the markup of a title")
    func list() {
        let html = Elements.list(
            "Jobs",
            [.init("ID", .key), .init(Elements.term("Due", "Soon"), .number), .init("Error", priority: 3)],
            [["a", "1", Elements.clamped("<x>")]], empty: "none"
        ).text
        #expect(html.contains("<td class=\"key p1\">a</td>"))
        #expect(html.contains("<td class=\"number p1\" data-title=\"Due\">1</td>"))
        #expect(html.contains("<td class=\"long p3\" data-title=\"Error\"><span class=\"clamp\" title=\"&lt;x&gt;\">"))
    }

    @Test("shows what to do instead of an empty list")
    func empty() {
        #expect(Elements.empty("No \("<job>").").text == "<p class=\"empty\">No &lt;job&gt;.</p>")
        for empty in [Elements.empty("No job."), Elements.empty("No job.", "<p>Enqueue one.</p>"), "", "No job."] {
            #expect(Elements.list("Jobs", [.init("ID")], [], empty: empty).text == empty.text)
        }
    }

    @Test(
        "groups the digits of a tab's count",
        arguments: [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")])
    func count(number: Int, text: String) {
        let html = Elements.tabs("States", [("All", "/jobs", true, number)]).text
        #expect(html.contains("<a href=\"/jobs\" aria-current=\"true\">All <span class=\"num\">\(text)</span></a>"))
    }

    @Test("marks the chosen colours, and the number of problems")
    func page() throws {
        var page = Page("Jobs", of: "site", main: "")
        #expect(page.html(Links()).text.contains("<html lang=\"en\">"))
        page.theme = .dark
        page.problems = 3
        page.navigation = [.init("Work", [.init("Jobs", "/jobs", isCurrent: true)])]
        let html = page.html(Links(base: "/push")).text
        #expect(html.contains("<html lang=\"en\" data-theme=\"dark\">"))
        #expect(html.contains("href=\"/push/assets/icon-3.svg\""))
        #expect(html.contains("<a href=\"/jobs\" aria-current=\"page\">Jobs</a>"))
    }

    @Test("draws an icon with a number from 1 to 99", arguments: ["1", "42", "99"])
    func icon(number: String) throws {
        let response = try #require(WebAssets.response("icon-\(number).svg"))
        #expect(response.headers[.contentType] == "image/svg+xml")
    }

    @Test("draws no other icon", arguments: ["0", "100", "-1", "x", "", "1<script>"])
    func noIcon(number: String) { #expect(WebAssets.response("icon-\(number).svg") == nil) }
}
