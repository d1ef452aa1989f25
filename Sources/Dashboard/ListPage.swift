import Operations
import PushQueue
import Redis
import WebPages

// Shared by the pages with a list: reading across several queues, and actions on selected rows.

/// Some rows of a list, and the position to continue from.
struct ListPart<Row> {
    var rows: [Row] = []
    /// The number of entries that were searched.
    var looked = 0
    /// The position of the next part; `nil` after the last.
    var cursor: String?
}

extension ListPart {
    /// Reads rows, one queue after the other. The cursor contains the name of its queue.
    /// - Parameters:
    ///   - cursor: that of the previous part; `nil` for the first.
    ///   - limit: the number of rows at which the part ends.
    ///   - end: the time at which it ends, even with fewer rows.
    ///   - read: reads rows of a queue, given the cursor within it and the number of missing rows.
    static func of(
        _ queues: [QueueKeys], after cursor: String?, limit: Int, until end: ContinuousClock.Instant,
        _ read: (QueueKeys, _ cursor: String?, _ missing: Int) async throws -> ListPart
    ) async throws -> ListPart {
        let parts = (cursor ?? "").split(separator: "|", maxSplits: 1).map(String.init)
        var rest = queues[...]
        if let name = parts.first, let index = queues.firstIndex(where: { $0.queue == name }) {
            rest = queues[index...]
        }
        var inner = parts.count > 1 ? parts[1] : nil
        var sum = ListPart()
        var isFull: Bool { sum.rows.count >= limit || .now >= end }
        while let queue = rest.popFirst() {
            repeat {
                let found = try await Self.part(inner) { try await read(queue, inner, limit - sum.rows.count) }
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
        return sum
    }

    /// Reads a part, and blames a cursor that a script does not know on the request.
    private static func part(_ cursor: String?, _ read: () async throws -> ListPart) async throws -> ListPart {
        do {
            return try await read()
        } catch {
            let refusal: RedisServerError? =
                switch error {
                case QueueConnection.Failure.redis(.server(let refusal)), RedisError.server(let refusal): refusal
                default: nil
                }
            guard let cursor, refusal?.refusesCursor == true else { throw error }
            throw WebError.unknownCursor(cursor)
        }
    }
}

extension PageRequest {
    /// The time at which the search for a page ends: early for the first page, so that it appears at once; later for
    /// the following ones, which the user asked for.
    var searchEnd: ContinuousClock.Instant { .now + (query["after"] == nil ? .milliseconds(150) : .seconds(4)) }

    /// The header of the column of checkboxes; none for viewers.
    var selectAll: [HTML] { isOperator ? ["<input type=\"checkbox\" aria-label=\"Select all\">"] : [] }

    /// Returns the cell with the checkbox of a row; none for viewers.
    func select(_ name: String, _ value: String, _ label: String) -> [HTML] {
        guard isOperator else { return [] }
        return ["<input type=\"checkbox\" name=\"\(name)\" value=\"\(value)\" aria-label=\"Select \(label)\">"]
    }

    /// Returns the table in a form whose buttons act on the selected rows, or on everything that matches the page's
    /// filters. Returns only the table for viewers.
    func selection(_ action: String, _ table: HTML, of noun: String = "", _ buttons: HTML, hint: String) -> HTML {
        guard isOperator else { return table }
        let filters = query.without(["after"]).map { name, value -> HTML in
            "<input type=\"hidden\" name=\"filter_\(name)\" value=\"\(value)\">"
        }
        let of = noun.isEmpty ? "" : " \(noun)"
        return """
            <form method="post" action="\(links.path(["actions", action]))" data-select>\
            \(site.formToken(visitor))\(filters)\(table)
            <div class="toolbar"><div class="actions">
            <span data-selected></span>
            <label class="check"><input type="radio" name="scope" value="selected" checked>selected\(of)</label>
            <label class="check"><input type="radio" name="scope" value="all">all\(of) that match</label>
            \(buttons)
            </div><p class="hint">\(hint)</p></div></form>
            """
    }

    /// The field for the maximum rate of an action.
    static let rate: HTML =
        "<label>Per second<input name=\"rate\" type=\"number\" min=\"1\" placeholder=\"unlimited\"></label>"
}
