import NIOCore
import Operations
import PushQueue
import WebPages

/// The list of invalid tokens.
struct InvalidTokensPage: DashboardPage {
    let path = "/invalid"
    let section = Section.invalid

    private static let limit = 100

    /// Returns a page of tokens that match the query.
    static func list(_ request: PageRequest) async throws -> (tokens: [InvalidTokenSet.Listed], cursor: String?) {
        let filter = try InvalidTokenFilter(request.query, now: Moment.now)
        var (tokens, cursor): ([InvalidTokenSet.Listed], String?) = ([], request.query["after"])
        let end = request.searchEnd
        if let cursor, InvalidTokenCursor(cursor) == nil {
            throw WebError.unknownCursor(cursor)
        }
        repeat {
            let page = try await request.source.invalidTokens.scan(after: cursor, withDetails: true)
            tokens += filter.isEmpty ? page.tokens : page.tokens.filter { filter.fits($0.details) }
            cursor = page.cursor
        } while cursor != nil && tokens.count < limit && .now < end
        return (tokens, cursor)
    }

    func content(_ request: PageRequest) async throws -> PageContent {
        let (tokens, cursor) = try await Self.list(request)
        let status = try await request.site.data.fleetStatus()
        let form = request.filters(
            ["invalid"],
            [
                request.field("Reason", "reason", placeholder: "BadDeviceToken"),
                Elements.choice(
                    "Source", "source",
                    [
                        ("", "all"), ("apns", "apns"), ("gateway", "gateway"), ("feedback", "feedback"),
                        ("import", "import"),
                    ],
                    chosen: request.query["source"] ?? ""),
                request.field("Environment", "environment", placeholder: "sandbox"), request.field("Topic", "topic"),
                request.field("Since", "since", placeholder: "2h"), request.field("Until", "until"),
            ])
        let titles: [HTML] =
            request.selectAll + ["Token", "Since", "Reason", "Source", "Environment", "Topic"]
        let rows = tokens.map { listed -> [HTML] in
            let token = String(buffer: listed.token)
            let line = InvalidTokenLine(listed)
            return request.select("token", token, "token \(token.prefix(8))") + [
                "<span class=\"mono\">\(request.device(token, length: 24))</span>",
                request.time(listed.details.at),
            ] + line.cells.dropFirst(2).map { "\($0)" }
        }
        let table = Elements.table("Invalid tokens", titles, rows, empty: "No invalid token matches.")
        let list = request.selection(
            "remove-invalid-tokens", table, "<button class=\"danger\">Remove from the set</button>",
            hint: "Workers send to removed tokens again. The next page shows the number.")
        let add: HTML = request.form(
            "add-invalid-tokens", class: "stack",
            """
            <h2>Add tokens</h2><label>Device tokens in hex, separated by white space\
            <textarea name="tokens" required></textarea></label>\(Elements.field("Reason", "reason", value: "Manual"))\
            <p><button>Add</button></p>
            """)
        return PageContent(
            title: "Invalid tokens",
            main: """
                <p>\(Words.number(status.invalidTokens)) tokens.</p>\(form)\(list)\
                \(request.next(["invalid"], cursor, tokens.count < Self.limit ? "Search further" : "Next page"))\(add)
                """, scripts: ["select.js"])
    }
}
