import Operations
import WebPages

extension PageRequest {
    /// Returns the facts about a thing, by its columns.
    /// - Parameters:
    ///   - more: further facts.
    ///   - shown: returns the HTML for a column, given the default HTML for its kind; `nil` to leave the column out.
    func facts<Thing: Shown>(
        _ thing: Thing, and more: [(name: HTML, value: HTML?)] = [], _ shown: (Column<Thing>, HTML?) -> HTML? = { $1 }
    ) -> HTML {
        let facts = Thing.columns.shown(in: .facts).map { column -> (name: HTML, value: HTML?) in
            ("\(column.title)", shown(column, html(column.value(thing), as: column.kind)))
        }
        return Elements.facts(facts + more)
    }

    /// Returns a value, with a link if it names something that has a page; `nil` for an unknown value.
    func html(_ value: ShownValue, as kind: ColumnKind) -> HTML? {
        if case .bytes(let bytes) = value { return html(.text(bytes.text), as: kind) }
        return switch (kind, value) {
        case (.time, .number(let at)), (.age, .number(let at)): time(at)
        case (.queue, .text(let name)): link(["queues", name], name)
        case (.app, .text(let name)): link(["apps", name], name)
        case (.campaign, .text(let name)): link(["campaigns", name], name)
        case (.worker, .text(let name)): link(["workers", name], name)
        case (.key, .text(let text)): "<span class=\"mono\">\(text)</span>"
        case (_, .text(let text)): "\(text)"
        default: kind.text(value, now: Moment.now).map { "\($0)" }
        }
    }
}

// MARK: Lists

extension PageRequest {
    /// Returns a list of things, by their columns.
    /// - Parameters:
    ///   - heads: replacements for the heads of columns, by the titles of the columns.
    ///   - select: returns the name, the value and the label of the checkbox of a thing.
    ///   - action: returns the buttons of a thing, which only operators see.
    ///   - empty: the HTML in place of an empty list.
    ///   - shown: returns the HTML for a column of a thing, given the default HTML for its kind; `nil` for an empty cell.
    func list<Thing: Shown>(
        _ caption: String, _ things: [Thing], hasQueue: Bool = true, heads: [String: Elements.Column] = [:],
        select: ((Thing) -> (name: String, value: String, label: String))? = nil, action: ((Thing) -> HTML)? = nil,
        empty: HTML, _ shown: (Thing, Column<Thing>, HTML?) -> HTML? = { $2 }
    ) -> HTML {
        let all = Thing.columns.shown(in: .lists).filter { hasQueue || $0.name != "queue" }
        let columns = all.filter { $0.under == nil }
        let hasAction = action != nil && isOperator
        let rows = things.map { thing -> [HTML] in
            func cell(_ column: Column<Thing>) -> HTML? {
                shown(thing, column, cellHTML(column.value(thing), as: column.kind))
            }
            let box = select?(thing)
            return (box.map { self.select($0.name, $0.value, $0.label) } ?? [])
                + columns.map { column in
                    let second = all.filter { $0.under == column.title }.compactMap(cell).filter { !$0.isEmpty }
                    return Elements.lines(cell(column) ?? (column.isNumber ? "–" : ""), second.joined(separator: ", "))
                } + (hasAction ? [action?(thing) ?? ""] : [])
        }
        return Elements.list(
            caption,
            (select == nil ? [] : selectAll) + columns.enumerated().map { heads[$1.title] ?? $1.head(isFirst: $0 == 0) }
                + (hasAction ? [.init("Actions", .key)] : []), rows, empty: empty)
    }

    private func cellHTML(_ value: ShownValue, as kind: ColumnKind) -> HTML? {
        switch (kind, value) {
        case (_, .bytes(let bytes)): cellHTML(.text(bytes.text), as: kind)
        case (.campaign, .text(let name)): short(name, to: ["campaigns", name])
        case (.queue, .text(let name)), (.app, .text(let name)), (.key, .text(let name)): short(name)
        case (.plain, .text(let text)): Elements.clamped(text)
        case (.plain, .list): kind.text(value, now: Moment.now).map { Elements.clamped($0) }
        default: html(value, as: kind)
        }
    }
}

extension Column {
    fileprivate var isNumber: Bool {
        switch (kind, form) {
        case (.count, _), (.rate, _), (.bytes, _), (.duration, _), (.plain, .number): true
        default: false
        }
    }

    /// The column's head in a list.
    fileprivate func head(isFirst: Bool) -> Elements.Column {
        let style: Elements.Column.Kind =
            switch kind {
            case .queue where isFirst, .campaign where isFirst: .name
            case _ where isNumber: .number
            case .plain, .worker: .text
            default: .key
            }
        return .init(
            Term.of(title), style, priority: places.contains(.widest) ? 3 : places.contains(.wide) ? 2 : 1)
    }
}
