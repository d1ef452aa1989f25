import PrintableText

package enum Elements {
    package enum Tone: String, Sendable { case plain, good, warning, bad, quiet }

    /// The number of characters above which a list may cut a label.
    private static let longestLabel = 16

    /// Returns a word in a frame, such as a state.
    package static func label(_ text: String, _ tone: Tone = .plain) -> HTML {
        "<span class=\"label \(tone.rawValue)\"\(if: text.shown.count > longestLabel, " title=\"\(text)\"")>\(text)</span>"
    }

    package struct Column: Sendable {
        package enum Kind: Sendable {
            /// A text that may wrap between words.
            case text
            /// The name of the row's object: a text with space for several words.
            case name
            /// Something that is never cut or wrapped, such as an ID, a state or a time.
            case key
            /// A number, right-aligned.
            case number
            /// The box that selects the row.
            case check
        }

        let title: HTML
        let kind: Kind
        /// 1 for a column that is always shown; 2 for a column that has a line of its own on phones; 3 for a column that only wide screens
        /// and phones show.
        let priority: Int
        /// The order of the rows by this column; nil if another column orders them.
        let order: Order?
        /// True to show the title in each cell on phones, where rows are cards without a head.
        let namesCells: Bool

        package enum Order: String, Sendable { case ascending, descending }

        package init(
            _ title: HTML, _ kind: Kind = .text, priority: Int = 1, order: Order? = nil, namesCells: Bool? = nil
        ) {
            (self.title, self.kind, self.priority, self.order) = (title, kind, priority, order)
            self.namesCells = namesCells ?? (kind == .number || priority > 1)
        }
    }

    /// Returns a table whose rows are cards on phones. The keyboard can walk through its rows.
    ///
    /// An absent text is an empty cell, which phones omit. An unknown number or time is `–`. A column with only empty and unknown cells is
    /// not shown.
    /// - Parameters:
    ///   - caption: the name of the table, for screen readers.
    ///   - empty: the markup in place of a table without rows; see ``empty(_:_:)``.
    package static func list(_ caption: String, _ columns: [Column], _ rows: [[HTML]], empty: HTML) -> HTML {
        guard !rows.isEmpty else { return empty }
        let shown = columns.indices.filter { index in
            rows.contains { index < $0.count && !["", "–"].contains($0[index].text) }
        }
        let (columns, rows) = (
            shown.map { columns[$0] }, rows.map { row in shown.filter { $0 < row.count }.map { row[$0] } }
        )
        func style(_ column: Column) -> HTML {
            let kind: HTML =
                switch column.kind {
                case .text: "long"
                case .name: "long name"
                case .key: "key"
                case .number: "number"
                case .check: "check"
                }
            return " class=\"\(kind) p\(column.priority)\""
        }
        let head = columns.map { column -> HTML in
            let order = column.order.map { " aria-sort=\"\($0.rawValue)\"" as HTML }
            return "<th scope=\"col\"\(style(column))\(order)>\(column.title)</th>"
        }
        let body = rows.map { row -> HTML in
            let cells = zip(columns, row).map { column, cell -> HTML in
                "<td\(style(column))\(if: column.namesCells, " data-title=\"\(column.title.words)\"")>\(cell)</td>"
            }
            return "<tr>\(cells)</tr>\n"
        }
        return """
            <div class="table" role="region" aria-label="\(caption)" tabindex="0"><table class="list">
            <caption class="hidden">\(caption)</caption>
            <thead><tr>\(head)</tr></thead>
            <tbody>
            \(body)</tbody></table></div>
            """
    }

    /// Returns a frame with a title.
    /// - Parameters:
    ///   - tone: the color of its edge.
    ///   - tools: buttons beside the title.
    package static func card(
        _ title: HTML, tone: Tone = .plain, id: String? = nil, tools: HTML = "", _ content: HTML
    ) -> HTML {
        """
        <section class="card\(if: tone != .plain, " \(tone.rawValue)")"\(if: id != nil, " id=\"\(id)\"")>\
        <header><h2>\(title)</h2>\(if: !tools.isEmpty, "<div class=\"tools\">\(tools)</div>")</header>
        \(content)</section>
        """
    }

    /// Returns a text that is cut after two lines. A tooltip has the whole text.
    package static func clamped(_ text: String) -> HTML {
        text.isEmpty ? "" : "<span class=\"clamp\" title=\"\(text)\">\(prose(text))</span>"
    }

    /// Returns the content of a cell with two lines. The second line is less important, and can be empty.
    package static func lines(_ first: HTML, _ second: HTML) -> HTML {
        "\(first)\(if: !second.text.isEmpty, " <span class=\"second\">\(second)</span>")"
    }

    /// Returns a command with a button to copy it, which needs scripts.
    package static func command(_ text: String) -> HTML {
        """
        <span class="command"><code>\(text)</code><button type="button" class="small" data-copy hidden \
        aria-label="Copy the command \(text)">Copy</button></span>
        """
    }

    /// Returns the text in place of a list without entries: a sentence and, if there are any, the next steps.
    package static func empty(_ sentence: HTML, _ content: HTML = "") -> HTML {
        content.isEmpty
            ? "<p class=\"empty\">\(sentence)</p>"
            : "<div class=\"empty\"><strong>\(sentence)</strong>\(content)</div>"
    }

    /// Returns links that switch between views.
    package static func tabs(
        _ name: String, _ tabs: [(title: HTML, path: String, isCurrent: Bool, count: Int?)]
    ) -> HTML {
        let links = tabs.map { tab -> HTML in
            let count = tab.count.map { " <span class=\"num\">\($0.grouped)</span>" as HTML }
            return "<a href=\"\(tab.path)\"\(if: tab.isCurrent, " aria-current=\"true\"")>\(tab.title)\(count)</a>"
        }
        return "<nav class=\"tabs\" aria-label=\"\(name)\">\(links)</nav>"
    }

    /// Returns a text. Its parts between backticks become code.
    package static func prose(_ text: String) -> HTML {
        let parts = text.split(separator: "`", omittingEmptySubsequences: false).map(String.init)
        return HTML(
            parts.enumerated().map { index, part -> HTML in
                if index.isMultiple(of: 2) { return "\(part)" }
                // A single backtick is text.
                return index == parts.count - 1 ? "`\(part)" : "<code>\(part)</code>"
            })
    }

    /// Returns a list of names and values. Names without a value are omitted.
    package static func facts(_ facts: [(name: HTML, value: HTML?)]) -> HTML {
        let rows = facts.compactMap { name, value -> HTML? in
            value.map { "<div><dt>\(name)</dt><dd>\($0)</dd></div>" }
        }
        return "<dl class=\"facts\">\(rows)</dl>"
    }

    /// Returns a word with an explanation, which is shown when the pointer rests on it.
    package static func term(_ word: HTML, _ explanation: String) -> HTML {
        "<abbr title=\"\(explanation)\">\(word)</abbr>"
    }

    /// Returns a large number with its name.
    package static func figure(_ name: String, _ value: HTML, _ note: HTML = "") -> HTML {
        """
        <div class="figure"><span class="name">\(name)</span><span class="value">\(value)</span>\
        \(if: !note.isEmpty, "<span class=\"note\">\(note)</span>")</div>
        """
    }

    /// Returns one line of numbers with their names.
    package static func line(_ numbers: [(value: HTML, name: HTML)]) -> HTML {
        let items = numbers.map { value, name -> HTML in "<li><strong class=\"num\">\(value)</strong> \(name)</li>" }
        return "<ul class=\"numbers\">\(items)</ul>"
    }

    /// Returns a form for the menu of actions, with a title and a sentence about its effect.
    package static func action(_ title: HTML, _ words: HTML, _ form: HTML) -> HTML {
        "<div class=\"action\"><h2>\(title)</h2><p class=\"hint\">\(words)</p>\(form)</div>"
    }

    package static func field(
        _ title: String, _ name: String, value: String = "", type: String = "text", placeholder: String = "",
        isRequired: Bool = false
    ) -> HTML {
        """
        <label>\(title)<input type="\(type)" name="\(name)" value="\(value)" placeholder="\(placeholder)"\
        \(if: isRequired, " required")></label>
        """
    }

    package static func choice(
        _ title: String, _ name: String, _ values: [(value: String, title: String)], chosen: String
    ) -> HTML {
        let options = values.map { value, title -> HTML in
            "<option value=\"\(value)\"\(if: value == chosen, " selected")>\(title)</option>"
        }
        return "<label>\(title)<select name=\"\(name)\">\(options)</select></label>"
    }

    /// Returns a section of a page that is kept up to date; see ``LiveUpdates``.
    /// - Parameter id: unique within the page.
    package static func live(_ id: String, _ content: HTML) -> HTML {
        "<section id=\"\(id)\" data-live>\(content)</section>\n"
    }

    /// Returns preformatted text in a frame, such as JSON.
    package static func source(_ text: String, title: String) -> HTML {
        "<pre class=\"source\" tabindex=\"0\" aria-label=\"\(title)\">\(text)</pre>"
    }
}
