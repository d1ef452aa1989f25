import NIOCore
import Operations
import PushQueue
import WebPages

struct InvalidTokensPage: DashboardPage {
    let path = "/invalid"
    let section = Section.invalid

    /// A position in the set: Redis' cursor, and the number of its tokens that earlier pages have shown. Redis can return any number of
    /// tokens for a cursor.
    struct Position: Equatable {
        /// `nil` for the beginning of the set.
        var cursor: String?
        var skipped = 0

        /// Reads the cursor of the set, or `<skipped>+<cursor>`; `nil` for other texts.
        init?(_ text: String) {
            let parts = text.split(separator: "+", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            if parts.count == 2 {
                guard let number = Int(parts[0]), 0...1_000_000 ~= number else { return nil }
                skipped = number
            }
            let rest = parts[parts.count - 1]
            guard rest.isEmpty && parts.count == 2 || InvalidTokenCursor(rest) != nil else { return nil }
            cursor = rest.isEmpty ? nil : rest
        }

        init(_ cursor: String? = nil) { self.cursor = cursor }

        var text: String { (skipped > 0 ? "\(skipped)+" : "") + (cursor ?? "") }
    }

    /// The number of tokens that a search reads at once.
    private static let portion = 500

    static func list(
        _ request: PageRequest, limit: Int = portion
    ) async throws -> ListPart<InvalidTokenSet.Listed> {
        let filter = try InvalidTokenFilter(request.query, now: Moment.now)
        let after = request.query["after"]
        guard let position = after.map({ Position($0) }) ?? Position() else {
            throw WebError.unknownCursor(after ?? "")
        }
        let count = filter.isEmpty ? limit : portion
        return try await part(from: position, limit: limit, until: request.searchEnd) { cursor in
            var unread = UnreadParts()
            let page = try await request.source.invalidTokens.scan(
                after: cursor, count: count, withDetails: true, &unread)
            let tokens = filter.isEmpty ? page.tokens : page.tokens.filter { filter.fits($0.details) }
            return ListPart(rows: tokens, looked: page.tokens.count, cursor: page.cursor, unread: unread)
        }
    }

    /// Reads rows until the page is full, the set ends, or the time has ended.
    /// - Parameter read: reads the rows at a cursor. It returns the same rows each time, as long as the set does not change.
    static func part<Row>(
        from start: Position, limit: Int, until end: ContinuousClock.Instant,
        _ read: (_ cursor: String?) async throws -> ListPart<Row>
    ) async throws -> ListPart<Row> {
        var (part, position) = (ListPart<Row>(), start)
        repeat {
            let found = try await read(position.cursor)
            let rest = limit - part.rows.count
            let new = found.rows.dropFirst(position.skipped)
            part.rows += new.prefix(rest)
            part.looked += found.looked
            part.unread.add(found.unread)
            if new.count > rest {
                position.skipped += rest
                part.cursor = position.text
                return part
            }
            position = Position(found.cursor)
        } while position.cursor != nil && part.rows.count < limit && .now < end
        part.cursor = position.cursor
        return part
    }

    func content(_ request: PageRequest) async throws -> PageContent {
        async let fleetStatus = request.site.data.fleetStatus()
        let part = try await Self.list(request, limit: PageRequest.rows)
        let status = try await fleetStatus
        let isFiltered = try !InvalidTokenFilter(request.query, now: Moment.now).isEmpty
        let totals = request.totals(
            "token", part, of: status.sharedError == nil ? status.invalidTokens : nil, isFiltered: isFiltered)
        let table = request.list(
            "Invalid tokens", part.rows,
            select: { ("token", $0.token.text, "token \($0.token.text.prefix(8))") },
            empty: Elements.empty(
                "\(totals.sentence)",
                isFiltered
                    ? "" : "<p>A token that APNs refuses for good is kept here, and workers send nothing to it.</p>")
        ) { line, column, value in
            column.title == "Token"
                ? "<span class=\"mono\">\(request.device(line.token.text, length: 16))</span>" : value
        }
        let list = request.selection(
            "remove-invalid-tokens", table, totals, "<button class=\"danger\">Remove from the set</button>",
            hint: "Workers send to removed tokens again. \(PageRequest.confirmation)")
        return PageContent(
            title: "Invalid tokens",
            main: """
                \(request.notices(part.unread))\(tabs(request, isFiltered ? nil : totals.all))\
                \(try await filters(request))\
                \(request.line(totals))\(list)\(request.pager(["invalid"], totals, part.cursor))\(add(request))
                """, scripts: ["select.js"])
    }

    /// Returns the tabs of the sources. Only the tab for all has a number, because Redis does not count by source.
    private func tabs(_ request: PageRequest, _ total: Int?) -> HTML {
        let sources = [
            ("All", nil), ("APNs", "apns"), ("Gateway", "gateway"), ("Feedback", "feedback"), ("Import", "import"),
        ]
        return Elements.tabs(
            "Sources",
            sources.map { title, source in
                (
                    "\(title)", request.path(["invalid"], "source", source), request.query["source"] == source,
                    source == nil ? total : nil
                )
            })
    }

    func filters(_ request: PageRequest) async throws -> HTML {
        let status = try await request.site.data.fleetStatus()
        let reasons = status.reasons(["invalid_token"]) + ["BadDeviceToken", "Unregistered", "Manual"]
        let filters = [
            ListFilter("Reason", "reason", placeholder: "BadDeviceToken", known: reasons, isMain: true),
            ListFilter("Environment", "environment", known: ["production", "sandbox"], isMain: true),
            ListFilter("Topic", "topic"),
        ]
        return request.filters(["invalid"], filters + ListFilter.range("Invalid"), keeping: ["source"])
    }

    private func add(_ request: PageRequest) -> HTML {
        let form = request.form(
            "add-invalid-tokens", class: "stack",
            """
            <label>Device tokens in hex, separated by white space<textarea name="tokens" required></textarea></label>\
            \(Elements.field("Reason", "reason", value: "Manual"))<p><button>Add</button></p>
            """)
        return form.isEmpty ? "" : Elements.card("Add tokens", form)
    }
}
