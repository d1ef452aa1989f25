import WebPages

struct Inbox: Sendable {
    let service: SimulatedService
    let recorder: Recorder
    /// The port of the HTTP/2 interface.
    let port: Int

    private static let site = "APNs simulator"

    /// Everything that the pages depend on. Equal versions give equal pages.
    struct Version: Equatable {
        let kept: Int
        let newest: UInt64
        let rules: [String]
        let dashboard: String?
    }

    var version: Version {
        let extent = recorder.extent
        return Version(
            kept: extent.kept, newest: extent.newest,
            rules: service.rules.all.map(\.text) + [""] + service.gatewayRules.all.map(\.text),
            dashboard: service.dashboard)
    }

    func push(_ sequence: UInt64) -> (page: Page, isFound: Bool) {
        let title = "Push \(sequence)"
        guard let entry = recorder.entry(sequence) else {
            let main: HTML =
                "<p class=\"empty\">Push \(sequence) is not kept. <a href=\"/\">Show the inbox</a></p>"
            return (page(title, main, isLive: false), false)
        }
        return (page(title, PushPage(service: service, recorder: recorder, entry: entry).html, isLive: true), true)
    }

    func list(_ filter: InboxFilter) -> (page: Page, isFound: Bool) {
        let summary = InboxSummary(recorder, filter)
        let (tools, content): (HTML, HTML?)
        switch filter.view {
        case .all:
            let list = PushList(recorder, filter)
            (tools, content) = (list.tools, list.html)
        case .devices: (tools, content) = ("", summary.deviceList)
        case .activities: (tools, content) = ("", summary.activityList)
        }
        let main: HTML = """
            \(search(filter))
            \(Elements.live("views", tabs(filter, summary)))
            \(Elements.live("tools", tools))
            \(Elements.live("pushes", "\(count(filter))\(content ?? nothing(filter))"))
            \(Elements.live("rules", InboxForms(query: filter.query).rules(service)))
            """
        return (page("Inbox", main, isLive: filter.before == nil), true)
    }

    private func page(_ title: String, _ main: HTML, isLive: Bool) -> Page {
        var page = Page(title, of: Self.site, main: main)
        page.navigation = [Page.Group("Simulator", [Page.Item("Inbox", "/", isCurrent: title == "Inbox")])]
        page.footer = "Nothing here was sent to a device. Times are in UTC."
        page.isLive = isLive
        page.scripts = ["inbox.js"]
        return page
    }

    // MARK: The list

    private func search(_ filter: InboxFilter) -> HTML {
        """
        <form class="filters" method="get" action="/" role="search">
        <label>Search<input id="search" type="search" name="text" value="\(filter.text)" \
        placeholder="Text, token, topic, apns-id" autocomplete="off"></label>
        \(Elements.field("Token", "token", value: filter.token, placeholder: "any part"))
        \(hidden("answer", filter.answer))\(hidden("view", filter.view == .all ? "" : filter.view.rawValue))\
        \(Elements.choice("Push type", "type", InboxFilter.pushTypes, chosen: filter.pushType))
        <button>Search</button>\(if: !filter.isEmpty, "<a class=\"button\" href=\"/\">Show all</a>")
        </form>
        """
    }

    private func hidden(_ name: String, _ value: String) -> HTML {
        value.isEmpty ? "" : "<input type=\"hidden\" name=\"\(name)\" value=\"\(value)\">"
    }

    private func count(_ filter: InboxFilter) -> HTML {
        let extent = recorder.extent
        let forgotten = extent.newest - UInt64(extent.kept)
        return """
            <div class="actions" data-newest="\(extent.newest)"><span class="muted">\(extent.newest) received\
            \(if: forgotten > 0, ", \(forgotten) no longer kept"); the newest \(recorder.limit) are kept</span>\
            <form method="post" action="/inbox/clear"><button class="small">Clear the list</button></form>\
            <button type="button" class="small" data-notify hidden>Notify me</button></div>
            """
    }

    /// The token is an example.
    private static let firstPush = """
        apns-worker enqueue --token 00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0 --alert Hello
        """

    /// The content of an empty list: how to send the first push, or how to see all pushes.
    private func nothing(_ filter: InboxFilter) -> HTML {
        guard filter.isEmpty, filter.view != .activities else {
            return Elements.empty(
                filter.isEmpty ? "No Live Activity was received yet." : "Nothing matches.",
                "<p><a href=\"/\">Show all pushes</a></p>")
        }
        let commands: [HTML] =
            service.configuration.isInWorker
            ? ["<p>Send a push to this simulator:</p><p>\(Elements.command(Self.firstPush))</p>"]
            : [
                "<p>Write a job:</p><p>\(Elements.command(Self.firstPush))</p>",
                """
                <p>Start a worker that sends it here, with a signing key and the authority of this simulator \
                (<code>--write-certificates certs</code>):</p>\
                <p>\(Elements.command("apns-worker run --endpoint localhost:\(port) --ca certs/ca.pem"))</p>
                """,
            ]
        return Elements.empty("Nothing was received yet.", HTML(commands))
    }

    /// Tabs for the views, and links that filter by answer.
    private func tabs(_ filter: InboxFilter, _ summary: InboxSummary) -> HTML {
        let counted = summary.answers
        var answers = counted.answers
        func path(_ change: (inout InboxFilter) -> Void) -> String {
            var other = filter
            (other.before, other.open) = (nil, nil)
            change(&other)
            return other.path
        }
        let views = InboxFilter.View.allCases.map { view in
            (title: view.title, path: path { $0.view = view }, isCurrent: filter.view == view, count: nil as Int?)
        }
        var pills = [
            (
                title: "any answer" as HTML, path: path { $0.answer = "" }, isCurrent: filter.answer.isEmpty,
                count: counted.total as Int?
            )
        ]
        if ["accepted", "refused"].contains(filter.answer) {
            pills.append((title: "\(filter.answer)", path: filter.path, isCurrent: true, count: nil))
        } else if !filter.answer.isEmpty, !answers.contains(where: { $0.answer == filter.answer }) {
            // The filter stays visible when its last push has been deleted.
            answers.append(AnswerCount(answer: filter.answer, count: 0))
        }
        pills += answers.map { one in
            let title: HTML =
                one.answer == "lost" ? "no answer" : one.answer == "0" ? "gateway: accepted" : "\(one.answer)"
            return (
                title: title, path: path { $0.answer = one.answer }, isCurrent: filter.answer == one.answer,
                count: one.count
            )
        }
        let isCounted = counted.total > 0 || !filter.answer.isEmpty
        return "\(Elements.tabs("View", views))\(if: isCounted, Elements.tabs("Answer", pills))"
    }
}
