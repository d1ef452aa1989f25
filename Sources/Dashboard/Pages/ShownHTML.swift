import Operations
import WebPages

extension PageRequest {
    /// Returns the facts about a thing, by its columns.
    /// - Parameters:
    ///   - more: further facts.
    ///   - shown: returns what is shown for a column, given what would be shown for one of its kind; `nil` to omit
    ///     it.
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
