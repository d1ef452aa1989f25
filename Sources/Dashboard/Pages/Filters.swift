import Operations
import PrintableText
import PushQueue
import WebPages

/// Words of the pages that not every operator knows, with their meanings.
enum Term {
    private static let meanings = [
        "Claimed": "Jobs that workers hold and send",
        "Deferred":
            "Jobs that cannot be sent now, for example because their app is paused; no attempt is spent",
        "Lanes": "Event loops of workers, each with its own connections",
        "Lane": "An event loop of a worker, with its own connections",
        "Heartbeat":
            "The age of the last report. A worker with claims reports every three seconds, an idle worker every eleven",
        "Lease": "Time left until other workers reclaim the worker's jobs, unless it renews its lease",
    ]

    /// Returns a word, with its meaning in a tooltip if ``meanings`` has it.
    static func of(_ word: String) -> HTML { meanings[word].map { Elements.term("\(word)", $0) } ?? "\(word)" }
}

struct ListFilter {
    /// The name that the form shows.
    let title: String
    /// The name in the URL.
    let name: String
    var placeholder = ""
    /// Values that are offered while the operator types.
    var known: [String] = []
    /// The allowed values with their titles; empty if any text is allowed.
    var choices: [(value: String, title: String)] = []
    /// True to show the filter at once. The other filters are behind *More filters*.
    var isMain = false

    /// The maximum number of values that are offered.
    private static let maximumKnown = 100

    init(
        _ title: String, _ name: String, placeholder: String = "", known: some Sequence<String> = [],
        isMain: Bool = false
    ) {
        (self.title, self.name, self.placeholder, self.isMain) = (title, name, placeholder, isMain)
        self.known = Array(Set(known).sorted().prefix(Self.maximumKnown))
    }

    init(_ title: String, _ name: String, choices: [(value: String, title: String)], isMain: Bool = false) {
        (self.title, self.name, self.choices, self.isMain) = (title, name, choices, isMain)
    }

    /// The choice between queues; `nil` if there is only one.
    static func queue(_ names: [String]) -> ListFilter? {
        names.count > 1 ? ListFilter("Queue", "queue", choices: names.map { ($0, $0) }, isMain: true) : nil
    }

    /// The field for the columns to count by.
    static func counted(_ rows: (some Counted).Type) -> ListFilter {
        ListFilter("Count by", "by", placeholder: "\(rows.groups[1]) or label.NAME", known: rows.groups)
    }

    /// The fields for a range of times.
    static func range(_ name: String) -> [ListFilter] {
        let ages = ["15m", "1h", "6h", "1d", "7d"]
        return [
            ListFilter("\(name) since", "since", placeholder: "2h, or 2026-11-21T08:00:00Z", known: ages),
            ListFilter("\(name) until", "until", placeholder: "30m", known: ages),
        ]
    }

    /// Returns the field, with the values of the query. If there are several, only the first can be edited.
    fileprivate func field(_ values: [String]) -> HTML {
        let others = values.dropFirst().map { "<input type=\"hidden\" name=\"\(name)\" value=\"\($0)\">" as HTML }
        guard choices.isEmpty else {
            return "\(Elements.choice(title, name, [("", "all")] + choices, chosen: values.first ?? ""))\(others)"
        }
        let list: HTML =
            known.isEmpty
            ? ""
            : "<datalist id=\"known-\(name)\">\(known.map { "<option value=\"\($0)\"></option>" as HTML })</datalist>"
        return """
            <label>\(title)<input name="\(name)" value="\(values.first)" placeholder="\(placeholder)" \
            \(if: !known.isEmpty, "list=\"known-\(name)\" ")autocomplete="off"></label>\(list)\(others)
            """
    }

    /// Returns a link for each value of the filters that removes this value, and a link that removes all.
    /// - Parameter path: returns the path of the page with some fields.
    static func chips(
        _ filters: [ListFilter], _ query: Fields, _ path: ([(name: String, value: String?)]) -> String
    ) -> HTML {
        let fields = query.without(ListPlace.fields)
        let chips = filters.flatMap { filter in
            query.all(filter.name).map { value -> HTML in
                let others = fields.filter { $0.name != filter.name || $0.value?.trimmed != value }
                return """
                    <a class="chip" href="\(path(others))">\
                    <span>\(filter.title) <strong>\(filter.words(value))</strong>\
                    <span class="hidden">, remove this filter</span></span><span aria-hidden="true">×</span></a>
                    """
            }
        }
        guard !chips.isEmpty else { return "" }
        let all = query.without(ListPlace.fields.union(filters.map(\.name)))
        return "<p class=\"chips\">\(chips)\(if: chips.count > 1, "<a href=\"\(path(all))\">Clear all</a>")</p>"
    }

    fileprivate func words(_ value: String) -> String { choices.first { $0.value == value }?.title ?? value }
}

extension PageRequest {
    /// Returns the form of a list's filters, and below it a link for each filter that is set. The link removes the filter.
    /// - Parameter keeping: fields of the URL that are not filters of the form, such as the state of the tabs.
    func filters(_ segments: [String], _ filters: [ListFilter], keeping: Set<String> = []) -> HTML {
        func fields(_ filters: [ListFilter]) -> HTML { HTML(filters.map { $0.field(query.all($0.name)) }) }
        let others = filters.filter { !$0.isMain }
        let kept = keeping.sorted().flatMap { name in
            query.all(name).map { "<input type=\"hidden\" name=\"\(name)\" value=\"\($0)\">" as HTML }
        }
        let set = others.count { query[$0.name] != nil }
        let more: HTML =
            others.isEmpty
            ? ""
            : """
            <details><summary>More filters\(if: set > 0, " (\(set) set)")</summary>\
            <div class="fields">\(fields(others))</div></details>
            """
        return """
            <form class="filters" method="get" action="\(links.path(segments))">\(kept)\
            \(fields(filters.filter(\.isMain)))<button class="main">Filter</button>\(more)</form>\
            \(ListFilter.chips(filters, query) { links.path(segments, $0) })
            """
    }

    /// Returns the path of the first page of this list with another value of a field.
    func path(_ segments: [String], _ name: String, _ value: String?) -> String {
        links.path(segments, query.without(ListPlace.fields.union([name])) + [(name, value)])
    }

    /// Returns a column whose title is a link that reverses the order of the rows.
    /// - Parameter reversed: the value of the field `order` for the reversed order; `nil` for the default order.
    func sorted(
        _ title: String, _ segments: [String], _ order: Elements.Column.Order, reversed: String?, priority: Int = 1
    ) -> Elements.Column {
        .init(
            "<a href=\"\(path(segments, "order", reversed))\">\(title)</a>", .key, priority: priority, order: order)
    }

    /// Returns the names of the latest campaigns of some queues. A queue that can't be read is left out, because the list itself reports
    /// it.
    func campaignNames(_ queues: [QueueKeys]) async throws -> [String] {
        var unread = UnreadParts()
        var names: [String] = []
        for keys in queues.prefix(20) {
            names +=
                try await unread.read(keys.queue) {
                    try await CampaignCounts.names(50, source.fleet.client(for: keys.jobs), keys)
                } ?? []
        }
        return names
    }

    /// Returns the names of the apps that workers have, or that are configured.
    func appNames(_ status: FleetStatus) -> [String] { status.apps.map(\.name) + source.appNames }

    /// Returns a text on one line. A long text is cut, and a tooltip has the whole text.
    func short(_ text: String?) -> HTML {
        guard let text, !text.isEmpty else { return "" }
        return text.shown.count > 16 ? "<span class=\"short\" title=\"\(text)\">\(text)</span>" : "\(text)"
    }

    /// Returns a link in the cell of a key column; see ``short(_:)``.
    func short(_ text: String?, to segments: [String], _ query: [(name: String, value: String?)] = []) -> HTML {
        guard let text, !text.isEmpty else { return "" }
        let style = text.shown.count > 16 ? " class=\"short\" title=\"\(text)\"" as HTML : ""
        return "<a\(style) href=\"\(links.path(segments, query))\">\(text)</a>"
    }

    /// Returns a job's ID and key; only the key if it has no ID.
    func identity(_ id: String?, _ key: String, to segments: [String], _ query: [(name: String, value: String?)] = [])
        -> HTML
    {
        guard let id, !id.isEmpty else { return "<span class=\"mono\">\(short(key, to: segments, query))</span>" }
        return "\(short(id, to: segments, query)) <span class=\"second mono\">\(key)</span>"
    }

    /// Returns a point in time as its age.
    func time(_ milliseconds: Int64?) -> HTML {
        guard let milliseconds else { return "–" }
        let age = Moment.now.since(milliseconds)
        let words = age >= 0 ? "\(Words.duration(age)) ago" : "in \(Words.duration(-age))"
        return "<time datetime=\"\(Moment.text(milliseconds))\" title=\"\(Moment.text(milliseconds))\">\(words)</time>"
    }
}

extension FleetStatus {
    /// Returns the reasons in today's counters of some outcomes or postponements, such as `retried`.
    func reasons(_ kinds: [String]) -> [String] {
        queues.flatMap { queue in
            queue.today.keys.compactMap { name in
                kinds.first { name.hasPrefix($0 + ":") }.map { String(name.dropFirst($0.utf8.count + 1)) }
            }
        }
    }
}
