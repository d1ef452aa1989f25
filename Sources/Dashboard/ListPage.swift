import PushQueue
import WebPages

// Common to the pages with a list: parts of several queues, and actions on a selection of rows.

/// Some rows of a list, and the place to continue from.
struct ListPart<Row> {
    var rows: [Row] = []
    /// The number of entries that were searched.
    var looked = 0
    /// The argument for the next part; `nil` after the last.
    var cursor: String?
}

extension ListPart {
    /// Reads rows of queues, one queue after the other. The cursor has the name of its queue.
    /// - Parameters:
    ///   - cursor: of the part before; `nil` for the first.
    ///   - limit: the number of rows from which the part ends.
    ///   - end: the time at which it ends, also if too few were found.
    ///   - read: reads some rows of a queue, given the cursor within it and the number of rows that are missing.
    static func of(
        _ queues: [DashboardSource.Queue], after cursor: String?, limit: Int, until end: ContinuousClock.Instant,
        _ read: (DashboardSource.Queue, _ cursor: String?, _ missing: Int) async throws -> ListPart
    ) async throws -> ListPart {
        let parts = (cursor ?? "").split(separator: "|", maxSplits: 1).map(String.init)
        var rest = queues[...]
        if let name = parts.first, let index = queues.firstIndex(where: { $0.keys.queue == name }) {
            rest = queues[index...]
        }
        var inner = parts.count > 1 ? parts[1] : nil
        var sum = ListPart()
        var isFull: Bool { sum.rows.count >= limit || .now >= end }
        while let queue = rest.popFirst() {
            repeat {
                let found = try await read(queue, inner, limit - sum.rows.count)
                sum.rows += found.rows
                sum.looked += found.looked
                inner = found.cursor
                if let inner, isFull {
                    sum.cursor = "\(queue.keys.queue)|\(inner)"
                    return sum
                }
            } while inner != nil
            if isFull, let next = rest.first {
                sum.cursor = "\(next.keys.queue)|"
                return sum
            }
        }
        return sum
    }
}

extension PageRequest {
    /// The time at which a search for a page ends: soon for the first part, so that the page is there at once; later for what
    /// follows, because then a person waits for it.
    var searchEnd: ContinuousClock.Instant { .now + (query["after"] == nil ? .milliseconds(150) : .seconds(4)) }

    /// The title of the column of boxes; none for viewers.
    var selectAll: [HTML] { isOperator ? ["<input type=\"checkbox\" aria-label=\"Select all\">"] : [] }

    /// The cell with the box of a row; none for viewers.
    func select(_ name: String, _ value: String, _ label: String) -> [HTML] {
        guard isOperator else { return [] }
        return ["<input type=\"checkbox\" name=\"\(name)\" value=\"\(value)\" aria-label=\"Select \(label)\">"]
    }

    /// The table in a form whose buttons act on the selected rows, or on all that match the page's filters. Just the table
    /// for viewers.
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

    /// The field for the rate of an action.
    static let rate: HTML =
        "<label>Per second<input name=\"rate\" type=\"number\" min=\"1\" placeholder=\"unlimited\"></label>"
}
