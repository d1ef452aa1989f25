import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import WebPages

/// The form to look up a device token.
struct DevicesPage: DashboardPage {
    let path = "/devices"
    let section = Section.devices

    func content(_ request: PageRequest) async throws -> PageContent {
        if let token = request.query["token"] { return try await DevicePage().content(of: token, request) }
        return PageContent(
            title: "Device",
            main: """
                \(Self.form(request, ""))
                \(Elements.empty(
                    "Did this device get its push?",
                    """
                    <p>Enter a device token, or at least its first eight digits, as logs, results and the inbox show \
                    them.</p>
                    <p>The page shows its pushes in their order, with the reasons; the jobs that are still to be sent; \
                    and since when the token is invalid, if it is.</p>
                    """))
                """, lead: "Everything that Redis has about one device token.")
    }

    func filters(_ request: PageRequest) async throws -> HTML { Self.form(request, request.query["token"] ?? "") }

    static func form(_ request: PageRequest, _ token: String) -> HTML {
        let field = Elements.field(
            "Device token in hex or base64, or at least its first eight digits", "token", value: token, isRequired: true
        )
        return """
            <form class="filters device-search" method="get" action="\(request.links.path(["devices"]))">\
            \(field)<button class="main">Show</button></form>
            """
    }
}

/// Everything known about a device token, as a timeline.
struct DevicePage: DashboardPage {
    let path = "/devices/{token}"
    let section = Section.devices

    /// The time limit of a page's search, unless the request asks for everything.
    private static let searchTime = Duration.milliseconds(150)
    /// The maximum number of results, of jobs and of dead letters that are shown of a queue.
    private static let limit = 50
    /// The maximum number of queues whose limits are shown.
    private static let named = 5

    func content(_ request: PageRequest) async throws -> PageContent {
        try await content(of: request.parameters("token") ?? "", request)
    }

    func filters(_ request: PageRequest) async throws -> HTML {
        DevicesPage.form(request, request.parameters("token") ?? "")
    }

    func content(of text: String, _ request: PageRequest) async throws -> PageContent {
        try await Self.bounded(request) { try await found(text, request) }
    }

    /// Runs a search. A search for everything has no time limit, so only a few run at the same time.
    static func bounded<Found>(
        _ request: PageRequest, _ search: () async throws -> Found
    ) async throws -> Found {
        guard time(for: request, 1) == nil else { return try await search() }
        return try await request.site.searches.run(for: request.visitor, search)
    }

    // MARK: Searching

    static func findings(
        _ token: String, _ request: PageRequest
    ) async throws -> (findings: DeviceFindings, unread: UnreadParts) {
        guard !TokenText.isShortened(token) else {
            throw FieldMistake { _ in
                "\(token.printable) is the beginning of a token; a device token has 64 hex digits or more"
            }
        }
        guard TokenText.isToken(token) else {
            throw FieldMistake { _ in "\(token.prefix(40).printable) is not a device token in hex or base64" }
        }
        var findings = DeviceFindings(token: token, now: Moment.now)
        findings.record = try await DeviceRecord.read(token, request.source.fleet)
        let queues = try await request.site.data.queues(named: [])
        let time = time(for: request, queues.count)
        var unread = UnreadParts()
        _ = try await unread.each(queues) { keys in
            try await findings.search(request.source.fleet.jobs(of: keys), limit: limit, for: time)
        }
        return (findings, unread)
    }

    /// Searches for the tokens that begin with some digits.
    private static func matches(
        _ matches: TokenMatches, _ request: PageRequest
    ) async throws -> (matches: TokenMatches, unread: UnreadParts) {
        var matches = matches
        let queues = try await request.site.data.queues(named: [])
        let time = time(for: request, queues.count + 1)
        var unread = UnreadParts()
        _ = try await unread.each(queues) { keys in
            try await matches.search(request.source.fleet.jobs(of: keys), for: time)
        }
        try await matches.search(request.source.invalidTokens, for: time)
        return (matches, unread)
    }

    /// Returns the time limit of each search; `nil` to search everything.
    /// - Parameter count: the number of searches that share the page's time.
    private static func time(for request: PageRequest, _ count: Int) -> Duration? {
        request.query["search"] == "all" ? nil : searchTime / max(1, count)
    }

    /// - Parameter text: a token in hex or base64, or the beginning of one in hex, perhaps with an ellipsis.
    private func found(_ text: String, _ request: PageRequest) async throws -> PageContent {
        let token = TokenMatches.digits(of: text)
        guard token.isHexadecimal, token.utf8.count < TokenText.wholeDigits else {
            return try await page(token, asked: token, request)
        }
        guard let beginning = TokenMatches(Self.searched(token, by: request.visitor)) else {
            throw FieldMistake { _ in
                "\(token) is too short: a device token has 64 hex digits or more, and a search needs the first "
                    + "\(TokenText.shownDigits)"
            }
        }
        let (matches, unread) = try await Self.matches(beginning, request)
        guard let only = matches.tokens.first, matches.tokens.count == 1 else {
            return choice(matches, unread, request)
        }
        let which = matches.isPartial || !unread.isEmpty ? "The first token found" : "The only token in Redis"
        let notice: HTML = """
            <p class="notice">\(which) that begins with \(matches.beginning). \
            \(if: matches.isPartial, searchAll(matches.beginning, request))</p>
            """
        return try await page(only, asked: matches.beginning, request, notice)
    }

    /// Returns the part of a token's beginning that a visitor may search for. Viewers see the first eight digits of tokens. If they could
    /// search for more, a few hundred searches would reveal the rest digit by digit.
    static func searched(_ beginning: String, by visitor: Visitor) -> String {
        visitor.seesContent ? beginning : String(beginning.prefix(TokenText.shownDigits))
    }

    private func searchAll(_ token: String, _ request: PageRequest) -> HTML {
        """
        Redis holds more than could be searched at once: \
        \(request.link(["devices", token], [("search", "all")], "search everything")), which may take a minute.
        """
    }

    /// Returns the page for a beginning that no token or several tokens have.
    private func choice(_ matches: TokenMatches, _ unread: UnreadParts, _ request: PageRequest) -> PageContent {
        let form: HTML = "\(DevicesPage.form(request, matches.beginning))\(request.notices(unread))"
        let partial: HTML =
            matches.isPartial ? "<p class=\"notice\">\(searchAll(matches.beginning, request))</p>" : ""
        let title = "Devices \(matches.beginning.prefix(8))…"
        guard !matches.tokens.isEmpty else {
            let empty = Elements.empty(
                "No token that begins with \(matches.beginning) was found.",
                """
                <p>Searched: the invalid tokens, \(Words.number(matches.results)) results, \
                \(Words.number(matches.jobs)) jobs and \(Words.number(matches.letters)) dead letters. With the whole \
                token, its last registration is looked up, too.</p>
                <p>This does not prove that nothing was sent: \(Self.kept)</p>
                """)
            return PageContent(title: title, main: "\(form)\(partial)\(empty)")
        }
        guard request.visitor.seesContent else {
            return PageContent(
                title: title,
                main: """
                    \(form)\(partial)<p class="notice">\(matches.tokens.count) tokens begin with \
                    \(matches.beginning). Enter the whole token: only operators see all of its digits.</p>
                    """)
        }
        let rows = matches.tokens.map { token -> [HTML] in
            ["<span class=\"mono\">\(request.link(["devices", token], token))</span>"]
        }
        let list = Elements.list("Device tokens", [.init("Token")], rows, empty: "")
        return PageContent(
            title: title,
            main: "\(form)\(partial)\(list)",
            lead: "\(matches.tokens.count) tokens begin with \(matches.beginning).")
    }

    // MARK: The page of a token

    /// - Parameter asked: the token or its beginning, as the visitor has entered it. A link to the page has no more digits, because viewers
    ///   may not see whole tokens.
    private func page(
        _ token: String, asked: String, _ request: PageRequest, _ notice: HTML = ""
    ) async throws -> PageContent {
        let (findings, unread) = try await Self.findings(token, request)
        return PageContent(
            title: "Device \(token.prefix(8))…",
            main: """
                \(DevicesPage.form(request, request.token(token)))\(request.notices(unread))\(notice)\
                \(card(findings, request))
                \(if: findings.isPartial, "<p class=\"notice\">\(searchAll(asked, request))</p>")
                \(HTML(findings.gaps.map { "<p class=\"hint\">\(Elements.prose($0.asSentence))</p>" as HTML }))
                <h2>Timeline</h2>\(timeline(findings, request))
                \(try await limits(request))
                """)
    }

    private func card(_ findings: DeviceFindings, _ request: PageRequest) -> HTML {
        let record = findings.record
        let throttled = record.throttledUntil.flatMap { $0 > findings.now ? $0 : nil }
        let marks = record.marks.flatMap { mark -> [(name: HTML, value: HTML?)] in
            let details = mark.details
            let place = [details.topic, details.environment].compactMap { $0?.text }.joined(separator: ", ")
            return [
                ("Invalid for", place.isEmpty ? "all topics" : "\(place)"),
                ("Since", details.at.map { request.time($0) }),
                ("Reason", details.reason.map { Self.explained($0.text, request) }),
                ("Reported by", details.source.map { "\($0.text)" }),
            ]
        }
        let isInvalid: HTML =
            !record.sets.isEmpty
            ? Elements.label("yes", .bad)
            : marks.isEmpty ? Elements.label("no", .good) : Elements.label("only for other topics", .warning)
        let token: (name: HTML, value: HTML?) = (
            "Token", "<span class=\"mono\">\(request.token(findings.token))</span>"
        )
        let others: [(name: HTML, value: HTML?)] = [
            ("Throttled", throttled.map { "until \(request.time($0))" } ?? "no"),
            ("Registered", record.registeredAt.map { request.time($0) } ?? "not recorded"),
            ("Simulator", request.inboxLink(token: findings.token)),
        ]
        let facts = Elements.facts([token, (name: "Invalid", value: isInvalid)] + marks + others)
        let remove: HTML =
            record.marks.isEmpty
            ? ""
            : request.form(
                "remove-invalid-tokens", [("token", findings.token)],
                "<button class=\"danger\">Remove from invalid tokens</button>")
        let forget = request.form(
            "forget-devices", [("tokens", findings.token)], "<button class=\"danger\">Forget this device</button>")
        let test = request.button("Send a test", ["try"], [("token", findings.token)])
        let command = request.command(["device", "export"], findings.token)
        let export: HTML =
            request.visitor.seesContent ? "<p class=\"hint\">Export everything about it: \(command)</p>" : ""
        let (sentence, tone) = DeviceTimeline.verdict(findings)
        return Elements.card(
            Elements.prose(sentence), tone: tone, id: "verdict",
            "\(facts)\(if: request.isOperator, "<div class=\"actions\">\(test)\(remove)\(forget)</div>")\(export)")
    }

    /// Returns a reason with its explanation in a tooltip.
    private static func explained(_ reason: String, _ request: PageRequest) -> HTML {
        request.source.explain(reason).map { Elements.term("\(reason)", $0) } ?? "\(reason)"
    }

    private func timeline(_ findings: DeviceFindings, _ request: PageRequest) -> HTML {
        let timeline = DeviceTimeline(findings)
        guard !timeline.entries.isEmpty else {
            let searched =
                findings.searched == 0
                ? "there are no results in Redis" : "\(Words.number(findings.searched)) results were searched"
            return Elements.empty(
                "Redis has nothing about this device\(findings.isPartial ? " in what was searched" : "").",
                """
                <p>It is not in the set of invalid tokens, no unfinished job and no dead letter is for it, and \
                \(searched).</p><p>This does not prove that nothing was sent\(gaps(findings)).</p>
                """)
        }
        let future = timeline.future.map { item($0, "future", request) }
        let past = timeline.past.map { item($0, $0.at == timeline.now ? "present" : "past", request) }
        return """
            <ol class="timeline" data-rows>\(future)\
            \(if: !future.isEmpty, "<li class=\"now\"><span>now</span></li>")\(past)</ol>
            """
    }

    private func item(_ entry: DeviceTimeline.Entry, _ style: String, _ request: PageRequest) -> HTML {
        let page = entry.page.map { page in
            request.link(page.segments, page.state.map { [("state", $0)] } ?? [], page.key)
        }
        let facts: [HTML] = [
            page.map { "\(entry.page?.segments.first == "dead" ? "dead letter" : "job") \($0)" },
            entry.id.map { "ID \(request.link(["search"], [("q", $0)], $0))" },
            entry.app.map { "app \(request.link(["apps", $0], $0))" },
            entry.campaign.map { "campaign \(request.link(["campaigns", $0], $0))" },
            entry.queue.map { "queue \(request.link(["queues", $0], $0))" },
        ].compactMap(\.self)
        let when: HTML = style == "present" ? "now" : request.time(entry.at)
        return """
            <li class="\(style) \(entry.tone.rawValue)"><span class="when">\(when)</span><div class="what">\
            <p>\(Self.pill(entry)) \(entry.reason.map { Self.explained($0, request) }) \
            \(if: !entry.text.isEmpty, "<span class=\"detail\">\(Elements.prose(entry.text))</span>")</p>\
            \(if: !facts.isEmpty, "<p class=\"hint\">\(facts.joined(separator: " · "))</p>")</div></li>
            """
    }

    /// Returns the word of an entry, with its meaning in a tooltip.
    private static func pill(_ entry: DeviceTimeline.Entry) -> HTML {
        let pill = Elements.label(entry.word, entry.tone)
        return DeviceTimeline.meaning(of: entry.word).map { Elements.term(pill, $0) } ?? pill
    }

    /// Returns the reasons why a search may have missed something, as the end of a sentence.
    private func gaps(_ findings: DeviceFindings) -> HTML {
        findings.gaps.isEmpty ? "" : ": \(Elements.prose(findings.gaps.joined(separator: "; ")))"
    }

    /// The end of a sentence that explains which pushes leave no result.
    private static let kept: HTML = """
        without <code>results: all</code> in the workers' configuration, a delivered push leaves no result. A job with \
        <code>keep_result: true</code> leaves one, too.
        """

    /// Returns a note about the results that each queue keeps.
    private func limits(_ request: PageRequest) async throws -> HTML {
        let queues = try await request.site.data.queues()
        // The findings report the queues that can't be read.
        var (unread, words) = (UnreadParts(), [String]())
        for keys in queues.prefix(Self.named) {
            let source = try await unread.read(keys.queue) {
                try await request.source.fleet.queue(keys, ignoresSettings: true)
            }
            guard let limits = source?.limits, let kept = source?.resultsKept else { continue }
            let which = kept == .failures ? " of what was not delivered" : ""
            words.append(
                kept == .off
                    ? "queue \(keys.queue) keeps none"
                    : "queue \(keys.queue) the newest \(Words.number(limits.maximumResults))\(which)")
        }
        guard !words.isEmpty else { return "" }
        let more = queues.count - words.count
        let others = more > 0 ? ", and \(Words.count(more, "further queue"))" : ""
        return """
            <p class="hint">Results are kept for 30 days (<code>results_days</code>) unless the configuration says \
            otherwise: \(words.joined(separator: ", "))\(others).</p>
            """
    }
}
