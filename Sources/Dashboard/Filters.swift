import Operations
import PushQueue
import WebPages

/// Words of the pages that not every operator knows.
enum Term {
    static let due = Elements.term("Due", "Jobs whose time has come, and that workers claim next")
    static let claimed = Elements.term("Claimed", "Jobs that workers hold and send")
    static let deferred = Elements.term(
        "Deferred", "Jobs that cannot be sent now, for example because their app is paused; no attempt is spent")
    static let lanes = Elements.term("Lanes", "Event loops of workers, each with its own connections")
    static let lease = Elements.term("Lease", "Time left until other workers reclaim its jobs, if it does not renew")
}

extension PageRequest {
    /// Returns a form of filters that requests a page with GET.
    func filters(_ segments: [String], _ fields: [HTML]) -> HTML {
        """
        <form class="filters" method="get" action="\(links.path(segments))">\(fields)\
        <button class="main">Filter</button> <a class="button" href="\(links.path(segments))">Clear</a></form>
        """
    }

    func field(_ title: String, _ name: String, placeholder: String = "") -> HTML {
        Elements.field(title, name, value: query.all(name).joined(separator: ","), placeholder: placeholder)
    }

    /// Returns the choice of a queue; empty if there is only one.
    func queueChoice(_ names: [String]) -> HTML {
        guard names.count > 1 else { return "" }
        return Elements.choice(
            "Queue", "queue", [("", "all")] + names.map { ($0, $0) }, chosen: query["queue"] ?? "")
    }

    /// Returns the link to the next page, with the same filters.
    func next(_ segments: [String], _ cursor: String?, _ title: String = "Next page") -> HTML {
        guard let cursor else { return "" }
        return """
            <p class="pager"><a class="button" rel="next" \
            href="\(links.path(segments, query.without(["after"]) + [("after", cursor)]))">\(title)</a></p>
            """
    }

    /// Returns a point in time as its age.
    func time(_ milliseconds: Int64?) -> HTML {
        guard let milliseconds else { return "–" }
        let age = Moment.now - milliseconds
        let words = age >= 0 ? "\(Words.duration(age)) ago" : "in \(Words.duration(-age))"
        return "<time datetime=\"\(Moment.text(milliseconds))\" title=\"\(Moment.text(milliseconds))\">\(words)</time>"
    }
}
