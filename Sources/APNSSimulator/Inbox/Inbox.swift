import WebPages

/// The pages of the inbox, made from the recording and the rules.
struct Inbox: Sendable {
    let service: SimulatedService
    let recorder: Recorder
    /// The port of the HTTP/2 interface.
    let port: Int

    private static let site = "APNs simulator"
    /// The number of notifications that are searched for earlier attempts of those on the page.
    private static let attemptDepth = 20_000

    /// Everything that the pages depend on; equal versions give equal pages.
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
            rules: service.rules.map(\.text) + [""] + service.gatewayRules.map(\.text),
            dashboard: service.dashboard)
    }

    // MARK: The list

    private struct Row {
        let entry: NotificationPage.Entry
        /// The number of earlier attempts.
        var earlier = 0
    }

    /// Returns the rows of a page, newest first, and true if there are older ones.
    private func rows(_ filter: InboxFilter) -> (rows: [Row], hasOlder: Bool) {
        var (rows, hasOlder, searched) = ([] as [Row], false, 0)
        var byID: [String: [Int]] = [:]
        var byToken: [String: [Int]] = [:]
        recorder.forEach(before: filter.before ?? .max) { entry in
            searched += 1
            let notification = entry.notification
            let candidates =
                (notification.apnsID.flatMap { byID[$0] } ?? []) + (notification.token.flatMap { byToken[$0] } ?? [])
            for index in Set(candidates) where notification.isAttempt(of: rows[index].entry.notification) {
                rows[index].earlier += 1
            }
            if rows.count < InboxFilter.pageSize || !hasOlder, filter.matches(notification) {
                if rows.count < InboxFilter.pageSize {
                    if let id = notification.apnsID { byID[id, default: []].append(rows.count) }
                    if let token = notification.token { byToken[token, default: []].append(rows.count) }
                    rows.append(Row(entry: entry))
                } else {
                    hasOlder = true
                }
            }
            return !hasOlder || searched < Self.attemptDepth
        }
        return (rows, hasOlder)
    }

    /// Returns the list of received notifications.
    func list(_ filter: InboxFilter) -> (page: Page, isFound: Bool) {
        let (tools, content): (HTML, HTML)
        switch filter.view {
        case .all:
            let (rows, hasOlder) = rows(filter)
            tools = self.tools(filter, rows)
            content =
                rows.isEmpty
                ? nothing(filter)
                : """
                <ol class="pushes" data-rows>\(rows.map { item($0, filter) })</ol>
                \(pager(filter, rows, hasOlder))
                """
        case .devices: (tools, content) = ("", devices(filter))
        case .activities: (tools, content) = ("", activities(filter))
        }
        let main: HTML = """
            \(search(filter))
            \(Elements.live("views", views(filter)))
            \(Elements.live("tools", tools))
            \(Elements.live("pushes", "\(count(filter))\(content)"))
            \(Elements.live("rules", rules(filter.query)))
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

    private func pager(_ filter: InboxFilter, _ rows: [Row], _ hasOlder: Bool) -> HTML {
        var (newest, older) = (filter, filter)
        newest.before = nil
        older.before = rows.last?.entry.sequence
        return """
            <nav class="pager" aria-label="Parts of the list">\
            \(if: filter.before != nil, "<a href=\"\(newest.path)\">Newest</a>")\
            \(if: hasOlder, "<a rel=\"next\" href=\"\(older.path)\">Older</a>")</nav>
            """
    }

    private func item(_ row: Row, _ filter: InboxFilter) -> HTML {
        let (sequence, notification) = (row.entry.sequence, row.entry.notification)
        let preview = notification.preview
        return """
            <li id="push-\(sequence)">
            <div class="device\(if: !notification.accepted, " refused")">\
            \(preview.banner(when: age(notification.time), refusal: notification.refusal))</div>
            <div>
            <p>\(answerLabel(notification)) \(Elements.label(preview.title))\
            \(if: notification.transport == .gateway, " \(Elements.label("gateway", .quiet))")\
            \(if: row.earlier > 0, " \(Elements.label("attempt \(row.earlier + 1)", .warning))")</p>
            <p class="muted"><a href="/inbox/\(sequence)">No. \(sequence)</a> \(age(notification.time))\
            \(notification.delayText.map { ", answered after \($0)" as HTML })</p>
            <p>\(target(notification)) <span class="muted">\(notification.topic)</span></p>
            \(nextAnswers(notification, id: "next-\(sequence)", query: filter.query))
            \(deletion(sequence, filter.query))
            </div></li>\n
            """
    }

    /// The form that deletes one push.
    private func deletion(_ sequence: UInt64, _ query: [(name: String, value: String?)]) -> HTML {
        """
        <form class="inline" method="post" action="\(Links().path(["inbox", "delete"], query))">\
        <input type="hidden" name="sequence" value="\(sequence)">\
        <button class="small quiet" data-delete aria-label="Delete No. \(sequence)">Delete</button></form>
        """
    }

    /// The age, with the time in UTC as its tooltip. A script keeps it up to date.
    func age(_ milliseconds: Int64) -> HTML {
        """
        <time datetime="\(moment(milliseconds))" title="\(EpochTime.text(seconds: milliseconds / 1000))" \
        data-age="\(milliseconds)">\(InboxAge.text(milliseconds, now: WallClock.milliseconds()))</time>
        """
    }

    func answerLabel(_ notification: ReceivedNotification) -> HTML {
        let tone: Elements.Tone =
            switch notification.outcome {
            case _ where notification.isSuccess: .good
            case .answered(429, _), .answered(500..., _): .warning
            default: .bad
            }
        return Elements.label(notification.answerText, tone)
    }

    /// The device or the channel, with a link to everything that was sent to it.
    func target(_ notification: ReceivedNotification) -> HTML {
        guard let name = notification.token ?? notification.channel else {
            return "<span class=\"muted\">no token</span>"
        }
        var filter = InboxFilter()
        filter.token = name.lowercased()
        let isShort = name.count <= 16
        return """
            \(if: notification.token == nil, "channel ")<a class="mono" href="\(filter.path)" \
            title="\(name)">\(name.prefix(16) + (isShort ? "" : "…"))</a>
            """
    }

    private func moment(_ milliseconds: Int64) -> String {
        let text = EpochTime.text(seconds: milliseconds / 1000)
        return text.replacing(" UTC", with: "Z").replacing(" ", with: "T")
    }

    // MARK: Answers and rules

    /// The buttons for a search that found one device only.
    private func tools(_ filter: InboxFilter, _ rows: [Row]) -> HTML {
        guard !filter.token.isEmpty, let first = rows.first?.entry.notification, let token = first.token,
            rows.allSatisfy({ $0.entry.notification.token == token })
        else { return "" }
        return buttons(first, query: filter.query)
    }

    private func nextAnswers(
        _ notification: ReceivedNotification, id: String, query: [(name: String, value: String?)]
    ) -> HTML {
        let buttons = buttons(notification, query: query)
        guard !buttons.isEmpty else { return "" }
        return "<details id=\"\(id)\"><summary>Next answer for this token</summary>\(buttons)</details>"
    }

    /// The forms for the next answer to a device; empty if there is no valid device token.
    private func buttons(_ notification: ReceivedNotification, query: [(name: String, value: String?)]) -> HTML {
        guard let token = notification.token, SimulatedToken(hex: token) != nil else { return "" }
        let short = String(token.prefix(8))
        let answers = NextAnswer.all(notification.transport).map { answer -> HTML in
            """
            <button class="small" name="answer" value="\(answer.value)" \
            aria-label="Next answer for \(short)…: \(answer.title)">\(answer.title)</button>
            """
        }
        let hidden: HTML = "<input type=\"hidden\" name=\"token\" value=\"\(token)\">"
        return """
            <div class="actions next"><span class="muted">Next answer for \(short)…:</span>
            <form method="post" action="\(Links().path(["inbox", "next"], query))">\(hidden)\
            <input type="hidden" name="transport" value="\(notification.transport.rawValue)">\(answers)</form>
            <form method="post" action="\(Links().path(["inbox", "forget"], query))">\(hidden)\
            <button class="small" aria-label="Undo the next answers for \(short)…">Undo</button></form></div>
            """
    }

    private func rules(_ query: [(name: String, value: String?)]) -> HTML {
        let all = service.rules.map { ($0.text, false) } + service.gatewayRules.map { ($0.text, true) }
        let rows = all.map { text, isGateway -> [HTML] in
            [
                "<code>\(text)</code>", isGateway ? "gateway" : "HTTP/2",
                """
                <form method="post" action="\(Links().path(["inbox", "remove"], query))">\
                <input type="hidden" name="rule" value="\(text)">\
                <input type="hidden" name="isGateway" value="\(isGateway ? "true" : "false")">\
                <button class="small" aria-label="Remove the rule \(text)">Remove</button></form>
                """,
            ]
        }
        return """
            <h2>Rules</h2>
            \(Elements.list(
                "Rules",
                [.init("Rule"), .init("Interface", .key), .init("<span class=\"hidden\">Action</span>", .key)], rows,
                empty: Elements.empty("No rules: every valid request is accepted.")))
            """
    }

    // MARK: One push

    /// Returns the page of one notification.
    func push(_ sequence: UInt64) -> (page: Page, isFound: Bool) {
        guard let entry = recorder.entry(sequence) else {
            let main: HTML =
                "<p class=\"empty\">Push \(sequence) is not kept. <a href=\"/\">Show the inbox</a></p>"
            return (page("Push \(sequence)", main, isLive: false), false)
        }
        let notification = entry.notification
        let query: [(name: String, value: String?)] = [("push", "\(sequence)")]
        let clock = String(EpochTime.clock(milliseconds: notification.time).prefix(5))
        let main: HTML = """
            \(Elements.live("neighbours", neighbours(sequence)))
            <div class="columns">
            <div>\(notification.preview.html(clock: clock, refusal: notification.refusal))</div>
            <div>\(facts(notification))</div>
            </div>
            <div class="actions"><a class="button" href="/inbox/\(sequence)/fixture" download>Export as a fixture</a>\
            \(deletion(sequence, []))</div>
            \(Elements.live("job", job(notification)))
            \(Elements.live("next", buttons(notification, query: query)))
            <h2>Headers</h2>
            \(headers(notification))
            <h2>Payload</h2>
            \(payload(notification))
            \(Elements.live("attempts", attempts(entry)))
            \(Elements.live("rules", rules(query)))
            """
        return (page("Push \(sequence)", main, isLive: true), true)
    }

    private func facts(_ notification: ReceivedNotification) -> HTML {
        let milliseconds = EpochTime.clock(milliseconds: notification.time).suffix(4)
        let received = EpochTime.text(seconds: notification.time / 1000).replacing(" UTC", with: "")
        return Elements.facts([
            ("Answer", answerLabel(notification)),
            ("Token", notification.token.map { "<span class=\"mono\">\($0)</span>" }),
            ("Channel", notification.channel.map { "\($0)" }),
            ("Topic", notification.topic.map { "\($0)" }),
            ("Push type", "\(notification.preview.title)"),
            (
                "Received",
                "\(age(notification.time)), \(received + milliseconds) UTC"
            ),
            (
                "Answered",
                notification.hasAnswer ? "\(notification.delayText.map { "after \($0)" } ?? "at once")" : "never"
            ),
            ("Interface", notification.transport == .http2 ? "HTTP/2" : "binary gateway"),
            ("Connection", "\(notification.connection)"),
        ])
    }

    private func headers(_ notification: ReceivedNotification) -> HTML {
        let names = (notification.request.map { [("request", $0)] } ?? []) + notification.fields
        let rows = names.map { name, value -> [HTML] in
            ["<code>\(name)</code>", "<code>\(value)</code>\(note(name, value, notification.malformedHeaders))"]
        }
        return Elements.list(
            "Headers", [.init("Name", .key), .init("Value")], rows, empty: Elements.empty("No headers."))
    }

    private func note(_ name: String, _ value: String, _ malformed: [String: String]) -> HTML {
        if malformed[name] != nil { return " \(Elements.label("malformed", .bad))" }
        guard name.hasSuffix("expiration"), let seconds = Int64(value) else { return "" }
        return " <span class=\"muted\">\(seconds == 0 ? "one attempt" : EpochTime.text(seconds: seconds))</span>"
    }

    private func payload(_ notification: ReceivedNotification) -> HTML {
        guard notification.payloadSize > 0 else { return "<p class=\"empty\">No payload.</p>" }
        let cut = notification.payloadSize - notification.payload.count
        return """
            <p class="muted">\(notification.payloadSize) bytes\
            \(if: cut > 0, ", of which the last \(cut) are not kept")</p>
            \(Elements.source(PayloadText.pretty(notification.payload), title: "Payload"))
            \(mistakes(notification))
            """
    }

    /// The mistakes in a payload by Apple's documentation, which APNs accepts.
    private func mistakes(_ notification: ReceivedNotification) -> HTML {
        HTML(notification.mistakes.map { "<p class=\"notice\">\($0)</p>" })
    }

    /// The attempts to send the same notification, newest first.
    private func attempts(_ entry: NotificationPage.Entry) -> HTML {
        var rows: [[HTML]] = []
        var number = 0
        var found: [NotificationPage.Entry] = []
        recorder.forEach { other in
            if other.notification.isAttempt(of: entry.notification) || other.sequence == entry.sequence {
                number += 1
                if found.count < InboxFilter.pageSize { found.append(other) }
            }
            return true
        }
        for (index, other) in found.enumerated() {
            let isThis = other.sequence == entry.sequence
            rows.append([
                "\(number - index)",
                isThis ? "<b>this one</b>" : "<a href=\"/inbox/\(other.sequence)\">No. \(other.sequence)</a>",
                age(other.notification.time), answerLabel(other.notification),
            ])
        }
        return """
            <h2>Attempts</h2>
            <p class="muted">With the same <code>apns-id</code>, or the same payload for the same token.</p>
            \(Elements.list(
                "Attempts",
                [.init("Attempt", .number), .init("Push", .key), .init("Received", .key), .init("Answer", .key)], rows,
                empty: Elements.empty("No attempts.")))
            """
    }
}
