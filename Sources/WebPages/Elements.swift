/// The building blocks of pages.
package enum Elements {
    /// The tone of a label.
    package enum Tone: String, Sendable { case plain, good, warning, bad, quiet }

    /// Returns a word in a frame, such as a state.
    package static func label(_ text: String, _ tone: Tone = .plain) -> HTML {
        "<span class=\"label \(tone.rawValue)\">\(text)</span>"
    }

    /// Returns a table in a frame that scrolls on narrow screens.
    /// - Parameters:
    ///   - caption: the name of the table, for screen readers.
    ///   - numbers: the columns of numbers, which are right-aligned.
    ///   - empty: the sentence to show if there are no rows.
    package static func table(
        _ caption: String, _ titles: [HTML], _ rows: [[HTML]], numbers: Set<Int> = [], empty: HTML
    ) -> HTML {
        guard !rows.isEmpty else { return "<p class=\"empty\">\(empty)</p>" }
        func cell(_ tag: HTML, _ column: Int, _ content: HTML) -> HTML {
            "<\(tag)\(if: numbers.contains(column), " class=\"number\"")>\(content)</\(tag)>"
        }
        let head = titles.enumerated().map { column, title -> HTML in
            "<th scope=\"col\"\(if: numbers.contains(column), " class=\"number\"")>\(title)</th>"
        }
        let body = rows.map { row -> HTML in
            "<tr>\(row.enumerated().map { cell("td", $0, $1) })</tr>\n"
        }
        return """
            <div class="table" role="region" aria-label="\(caption)" tabindex="0"><table>
            <caption class="hidden">\(caption)</caption>
            <thead><tr>\(head)</tr></thead>
            <tbody>
            \(body)</tbody></table></div>
            """
    }

    /// Returns a list of names and values, without those that have no value.
    package static func facts(_ facts: [(name: HTML, value: HTML?)]) -> HTML {
        let rows = facts.compactMap { name, value -> HTML? in
            value.map { "<div><dt>\(name)</dt><dd>\($0)</dd></div>" }
        }
        return "<dl class=\"facts\">\(rows)</dl>"
    }

    /// Returns a word with an explanation, which is shown when the pointer rests on it.
    package static func term(_ word: String, _ explanation: String) -> HTML {
        "<abbr title=\"\(explanation)\">\(word)</abbr>"
    }

    /// Returns a large number with its name.
    package static func figure(_ name: String, _ value: HTML, _ note: HTML = "") -> HTML {
        """
        <div class="figure"><span class="name">\(name)</span><span class="value">\(value)</span>\
        \(if: !note.isEmpty, "<span class=\"note\">\(note)</span>")</div>
        """
    }

    /// Returns a form field with its name.
    package static func field(
        _ title: String, _ name: String, value: String = "", type: String = "text", placeholder: String = "",
        hint: HTML = "", isRequired: Bool = false
    ) -> HTML {
        """
        <label>\(title)<input type="\(type)" name="\(name)" value="\(value)" placeholder="\(placeholder)"\
        \(if: isRequired, " required")></label>\(if: !hint.isEmpty, "<p class=\"hint\">\(hint)</p>")
        """
    }

    /// Returns a choice of one value.
    package static func choice(
        _ title: String, _ name: String, _ values: [(value: String, title: String)], chosen: String
    )
        -> HTML
    {
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
