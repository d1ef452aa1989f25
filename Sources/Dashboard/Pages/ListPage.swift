import Operations
import PushQueue
import Redis
import WebPages

/// Some rows of a list, and the position to continue from.
struct ListPart<Row> {
    var rows: [Row] = []
    /// The number of entries that were searched.
    var looked = 0
    /// The position of the next part; `nil` after the last.
    var cursor: String?
    var unread = UnreadParts()
}

extension ListPart: Sendable where Row: Sendable {}

extension ListPart {
    /// Reads rows, one queue after the other. It skips queues that can't be read, and reports them in ``unread``. The cursor contains the
    /// name of its queue.
    /// - Parameter read: reads rows of a queue, given the cursor within it and the maximum number of rows.
    /// - Throws: the first error if none of the queues can be read.
    static func of(
        _ queues: [QueueKeys], _ reading: ListReading,
        _ read: (QueueKeys, _ cursor: String?, _ missing: Int) async throws -> ListPart
    ) async throws -> ListPart {
        var rest = queues[...]
        var inner: String?
        if let cursor = reading.after {
            // Names of queues may contain the separator, so the longest matching name counts.
            let indices = queues.indices.filter { cursor.hasPrefix(queues[$0].queue + "|") }
            guard let index = indices.max(by: { queues[$0].queue.utf8.count < queues[$1].queue.utf8.count }) else {
                throw WebError.unknownCursor(cursor)
            }
            rest = queues[index...]
            let text = cursor.dropFirst(queues[index].queue.count + 1)
            inner = text.isEmpty ? nil : String(text)
        }
        var (sum, isRead) = (ListPart(), false)
        var isFull: Bool { sum.rows.count >= reading.limit || .now >= reading.end }
        while let queue = rest.popFirst() {
            repeat {
                let (position, missing) = (inner, reading.limit - sum.rows.count)
                let part = try await sum.unread.read(queue.queue) {
                    try await Self.part(position) { try await read(queue, position, missing) }
                }
                guard let found = part else {
                    inner = nil
                    break
                }
                isRead = true
                sum.rows += found.rows
                sum.looked += found.looked
                inner = found.cursor
                if let inner, isFull {
                    sum.cursor = "\(queue.queue)|\(inner)"
                    return sum
                }
            } while inner != nil
            if isFull, let next = rest.first {
                sum.cursor = "\(next.queue)|"
                return sum
            }
        }
        if !isRead, reading.after == nil { try sum.unread.throwFirst() }
        return sum
    }

    /// Reads a part. Throws ``WebError/unknownCursor(_:)`` if a script refuses the cursor.
    private static func part(_ cursor: String?, _ read: () async throws -> ListPart) async throws -> ListPart {
        do {
            return try await read()
        } catch {
            let refusal: RedisServerError? =
                switch error {
                case QueueFailure.redis(.server(let refusal)), RedisError.server(let refusal): refusal
                default: nil
                }
            guard let cursor, refusal?.refusesCursor == true else { throw error }
            throw WebError.unknownCursor(cursor)
        }
    }
}

/// The limits of one reading of a list.
struct ListReading: Sendable {
    /// The cursor of the previous part; `nil` for the first.
    var after: String?
    /// The maximum number of rows.
    var limit = PageRequest.rows
    /// The time at which the reading ends, even if it has fewer rows than ``limit``.
    var end: ContinuousClock.Instant
}

/// The place of a page in its list, as its URL contains it. Redis' cursors only lead forward, so the URL also contains the cursors of the
/// earlier pages.
struct ListPlace: Equatable {
    /// The beginning of a page.
    struct Start: Equatable {
        /// The cursor; `nil` for the first page.
        var cursor: String?
        /// The number of rows on all earlier pages.
        var seen = 0

        init(_ cursor: String? = nil, seen: Int = 0) {
            self.cursor = cursor
            self.seen = max(0, min(seen, 1_000_000_000_000))
        }

        /// Reads the number and, except for the first page, the cursor.
        fileprivate init?(_ text: String) {
            let parts = text.split(separator: " ", maxSplits: 1).map(String.init)
            guard let seen = parts.first.flatMap({ Int($0) }) else { return nil }
            self.init(parts.count > 1 ? parts[1] : nil, seen: seen)
        }

        fileprivate var text: String { cursor.map { "\(seen) \($0)" } ?? "\(seen)" }
    }

    /// The fields of a URL that contain the place.
    static let fields: Set<String> = ["after", "seen", "back"]
    /// The maximum number of earlier pages in a URL, because servers limit its length.
    static let maximumBack = 20

    private(set) var start = Start()
    /// The earlier pages, the nearest last.
    private(set) var back: [Start] = []

    /// Reads the fields of a URL. Malformed earlier pages are ignored.
    init(_ query: Fields) {
        guard let cursor = query["after"] else { return }
        start = Start(cursor, seen: query["seen"].flatMap { Int($0) } ?? 0)
        back = query.all("back").suffix(Self.maximumBack).compactMap { Start($0) }
    }

    private init(_ start: Start, _ back: [Start]) { (self.start, self.back) = (start, back) }

    var isFirst: Bool { start.cursor == nil }

    /// Returns the place of the next page.
    /// - Parameter rows: the number of rows of this page.
    func next(_ cursor: String, rows: Int) -> ListPlace {
        ListPlace(Start(cursor, seen: start.seen + rows), (back + [start]).suffix(Self.maximumBack))
    }

    /// The place of the page before; `nil` if it is not known.
    var previous: ListPlace? { back.last.map { ListPlace($0, back.dropLast()) } }

    var query: [(name: String, value: String?)] {
        guard let cursor = start.cursor else { return [] }
        return [("after", cursor), ("seen", "\(start.seen)")] + back.map { ("back", $0.text) }
    }
}

/// The number of rows of a list's page, and of the whole list, in words.
struct ListTotals {
    /// The noun of a row, such as `job`.
    let noun: String
    /// The number of rows on all earlier pages.
    var seen = 0
    var rows = 0
    /// The number of entries in the list; `nil` if Redis does not count them, or if filters select some entries.
    var total: Int?
    /// The number of entries that were searched for this page; `nil` if that is not known.
    var looked: Int?
    var isFiltered = false
    var isLast = false

    /// The number of rows of all pages, if it is known.
    var all: Int? { isLast ? seen + rows : isFiltered ? nil : total.map { max($0, seen + rows) } }

    /// The rows of the page and their number, such as `51–100 of 12,345 jobs`.
    var sentence: String {
        guard rows > 0 else { return nothing }
        let searched =
            isFiltered && !isLast ? looked.map { "; \(Words.count($0, self.noun)) searched for this page" } : nil
        if let all, all == rows { return "\(Words.count(all, noun))\(isFiltered ? " found" : "")" }
        let range = "\(Words.number(seen + 1))–\(Words.number(seen + rows))"
        if let all { return "\(range) of \(Words.count(all, noun))\(isFiltered ? " found" : "")" }
        return isFiltered
            ? "\(range) of the \(noun)s that match\(searched ?? "")"
            : "\(range); the number of all \(noun)s is not known"
    }

    /// The sentence for a page without rows.
    var nothing: String {
        let searched = looked.map { "\(Words.count($0, noun)) searched" }
        guard isLast else {
            return
                "No \(noun) matches so far\(searched.map { ": \($0)" } ?? ""). The search continues on the next page."
        }
        if seen > 0 { return "There are no more \(noun)s\(isFiltered ? " that match" : "")." }
        return isFiltered ? "No \(noun) matches\(searched.map { ": \($0)" } ?? "")." : "There are no \(noun)s."
    }
}

extension PageRequest {
    static let rows = 50

    var place: ListPlace { ListPlace(query) }

    /// The end of a page's search. The first page should appear at once. The visitor asked for each further page, so it may take longer.
    var searchEnd: ContinuousClock.Instant { .now + (query["after"] == nil ? .milliseconds(150) : .seconds(4)) }

    var reading: ListReading { ListReading(after: query["after"], end: searchEnd) }

    /// Counts the rows of a list by the columns in the field `by`. It stops after a few seconds.
    /// - Parameter read: reads a part of the list.
    /// - Returns: the counts, and the part that was read, without its rows; `nil` without the field `by`.
    func counted<Row: Counted>(
        _ read: @Sendable (ListReading) async throws -> ListPart<Row>
    ) async throws -> (counts: Counts<Row>, part: ListPart<Row>)? {
        guard let by = query["by"]?.trimmed else { return nil }
        var counts = Counts<Row>(by: try Counts<Row>.groups(by))
        return try await site.searches.run(for: visitor) {
            var sum = ListPart<Row>()
            var reading = ListReading(after: query["after"], limit: Self.countedAtOnce, end: .now + Self.countingTime)
            repeat {
                let part = try await read(reading)
                for row in part.rows { counts.add(row) }
                sum.looked += part.looked
                sum.unread.add(part.unread)
                (reading.after, sum.cursor) = (part.cursor, part.cursor)
            } while reading.after != nil && .now < reading.end
            return (counts, sum)
        }
    }

    /// Reads results of the queues in the query, with tokens as the visitor may see them.
    func results(
        _ filter: ResultFilter, _ order: ResultListing.Order, _ reading: ListReading
    ) async throws -> ListPart<ResultLine> {
        var part = try await ListPart<ResultLine>.of(
            site.data.queues(named: query.all("queue")), reading
        ) { keys, cursor, missing in
            let place = cursor.flatMap { StoredResult.Place(id: $0) }
            if let cursor, place == nil { throw WebError.unknownCursor(cursor) }
            let found = try await ResultListing.read(
                filter, order, after: place, limit: missing, until: reading.end,
                source.fleet.client(for: keys.results), keys)
            return ListPart(
                rows: found.results.map { ResultLine(queue: keys.queue, result: $0) }, looked: found.looked,
                cursor: found.cursor)
        }
        part.rows = part.rows.map { $0.replacingToken(token) }
        return part
    }

    private static let (countedAtOnce, countingTime) = (2000, Duration.seconds(4))

    /// Returns counts as a table. Each value is a link to the rows that have it.
    func numbers<Row: Counted>(
        _ counts: Counts<Row>, _ part: ListPart<Row>, _ segments: [String]
    ) -> HTML {
        let groups = counts.groups
        let rest = query.without(ListPlace.fields.union(["by"]))
        let rows = counts.rows.prefix(Self.countedAtOnce).map { row -> [HTML] in
            let cells = zip(groups, row.values).map { group, value -> HTML in
                guard let value else { return "<span class=\"muted\">–</span>" }
                let filter =
                    group.hasPrefix("label.")
                    ? ("label", "\(group.dropFirst(6))=\(value)") : (group == "deferral" ? "reason" : group, value)
                return "<a href=\"\(links.path(segments, rest + [filter]))\">\(value.shown)</a>"
            }
            return ["\(Words.number(row.count))"] + cells
        }
        let searched = "\(Words.number(counts.sum)) counted of \(Words.number(part.looked)) searched"
        let more: HTML =
            part.cursor == nil
            ? "<p class=\"totals\">\(searched)</p>"
            : "<p class=\"notice\">\(searched), as many as are found in a few seconds. The rest is not counted.</p>"
        let list = Elements.list(
            "Numbers of \(Row.things)", [.init("Number", .number)] + groups.map { .init("\($0)", .key) }, rows,
            empty: Elements.empty("Nothing to count."))
        return "\(notices(part.unread))\(more)\(list)"
    }

    func totals<Row>(_ noun: String, _ part: ListPart<Row>, of total: Int?, isFiltered: Bool) -> ListTotals {
        ListTotals(
            noun: noun, seen: place.start.seen, rows: part.rows.count, total: total,
            looked: part.looked > 0 ? part.looked : nil, isFiltered: isFiltered, isLast: part.cursor == nil)
    }

    /// Returns the line above a list: its totals, and notes.
    func line(_ totals: ListTotals, _ notes: [HTML] = []) -> HTML {
        guard totals.rows > 0 else { return "" }
        return "<p class=\"totals\"><span class=\"num\">\(totals.sentence)</span>\(notes)</p>"
    }

    /// Returns a notice for each part of the page that could not be read.
    func notices(_ unread: UnreadParts) -> HTML {
        HTML(unread.notes.map { "<p class=\"problem bad\" role=\"alert\">\(visitor.shown($0).asSentence)</p>" as HTML })
    }

    /// A note on a list of several queues.
    static let queueByQueue: HTML = "<span>one queue after the other</span>"

    /// Returns a link that reverses the order of the rows, for phones, where a list has no titles.
    func reversal(_ segments: [String], to order: String?, _ title: String) -> HTML {
        "<span class=\"order\"><a href=\"\(path(segments, "order", order))\">\(title)</a></span>"
    }

    /// Returns the links to the first, the previous and the next page, with the same filters.
    func pager(_ segments: [String], _ totals: ListTotals, _ cursor: String?) -> HTML {
        let place = place
        func link(_ to: ListPlace?, _ attributes: HTML, _ title: String) -> HTML {
            guard let to else { return "" }
            let path = links.path(segments, query.without(ListPlace.fields) + to.query)
            return "<a class=\"button\"\(attributes) href=\"\(path)\">\(title)</a>"
        }
        let next = cursor.map { place.next($0, rows: totals.rows) }
        guard next != nil || !place.isFirst else { return "" }
        return """
            <nav class="pager" aria-label="Pages of the list">\
            \(link(place.isFirst ? nil : ListPlace(Fields()), "", "First page"))\
            \(link(place.previous, " rel=\"prev\"", "Previous page"))\
            \(link(next, " rel=\"next\"", totals.rows < Self.rows ? "Search further" : "Next page"))</nav>
            """
    }

    /// The column of checkboxes; none for viewers.
    var selectAll: [Elements.Column] {
        isOperator ? [.init("<input type=\"checkbox\" aria-label=\"Select all rows of this page\">", .check)] : []
    }

    /// Returns the cell with the checkbox of a row; none for viewers.
    func select(_ name: String, _ value: String, _ label: String) -> [HTML] {
        guard isOperator else { return [] }
        return ["<input type=\"checkbox\" name=\"\(name)\" value=\"\(value)\" aria-label=\"Select \(label)\">"]
    }

    /// Returns the table in a form whose buttons act on the selected rows, or on everything that matches the page's filters. Returns only
    /// the table for viewers, and for a table without rows.
    ///
    /// Without scripts, the buttons are below the table. `select.js` shows them once a row is selected. Once all rows of the page are
    /// selected, it also offers everything that matches.
    func selection(_ action: String, _ table: HTML, _ totals: ListTotals, _ buttons: HTML, hint: String) -> HTML {
        guard isOperator, totals.rows > 0 else { return table }
        let filters = query.without(ListPlace.fields.union(["order"])).map { name, value -> HTML in
            "<input type=\"hidden\" name=\"filter_\(name)\" value=\"\(value)\">"
        }
        let all =
            totals.all.map { "all \(Words.count($0, totals.noun))" } ?? "all \(totals.noun)s that match"
        return """
            <form method="post" action="\(links.path(["actions", action]))" data-select>\
            \(site.formToken(visitor))\(filters)\(table)
            <div class="toolbar selection" data-bar><div class="actions">
            <strong data-selected aria-live="polite"></strong>
            <button type="button" class="small" data-all hidden>Select all \(totals.rows) of this page</button>
            <button type="button" class="small quiet" data-none hidden>Clear</button>
            <span class="scope" data-scope>\
            <label class="check"><input type="radio" name="scope" value="selected" checked>\
            selected \(totals.noun)s</label>
            <label class="check"><input type="radio" name="scope" value="all">\(all)</label></span>
            </div><div class="actions" data-actions>\(buttons)</div><p class="hint">\(hint)</p></div></form>
            """
    }

    /// The hint below the buttons of a selection.
    static let confirmation = "You see the number, and confirm it, before anything changes."

    /// The field for the maximum rate of an action.
    static let rate: HTML =
        "<label>Per second<input name=\"rate\" type=\"number\" min=\"1\" placeholder=\"unlimited\"></label>"
}
