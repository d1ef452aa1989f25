import NIOCore
import Operations
import PushJob
import PushQueue
import WebPages

// The commands' filters as fields of a query or a form, named like the flags.

enum FilterFields {
    static let jobs = [
        "state", "key", "id", "token", "app", "topic", "campaign", "reason", "match", "older_than", "newer_than",
        "due_before",
    ]
    static let deadLetters = ["key", "id", "token", "app", "campaign", "reason", "error", "older_than", "newer_than"]
    static let invalidTokens = ["topic", "reason", "source", "environment", "newer_than"]

    /// Describes a filter, such as `state=retrying, app=shop`.
    static func words(_ form: Form, _ names: [String]) -> String {
        let parts = (["queue"] + names).flatMap { name in
            form.all(name).map { "\(name)=\(name == "token" && $0.count > 8 ? "\($0.prefix(8))…" : $0)" }
        }
        return parts.isEmpty ? "all" : AuditEntry.maskingTokens(parts.joined(separator: ", "))
    }

    static func seconds(_ form: Form, _ name: String) throws(WebError) -> Int64? {
        guard let text = form[name] else { return nil }
        guard let seconds = JobDuration.seconds(text) else {
            throw WebError(.badRequest, "\(name) is \(text); it must be a duration such as 45s, 30m, 1h30m or 7d")
        }
        return seconds
    }

    static func number(_ form: Form, _ name: String, _ range: ClosedRange<Int>) throws(WebError) -> Int? {
        guard let text = form[name] else { return nil }
        guard let number = Int(text), range.contains(number) else {
            throw WebError(.badRequest, "\(name) is \(text); it must be \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    static func keys(_ form: Form) throws(WebError) -> [String] {
        let keys = form.all("key").map { $0.lowercased() }
        if let wrong = keys.first(where: { $0.utf8.count != 10 || !$0.isHexadecimal }) {
            throw WebError(.badRequest, "key is \(wrong); it must be ten hex digits")
        }
        return keys
    }

    /// Checks that an age range is not empty.
    static func check(older: Int64?, newer: Int64?) throws(WebError) {
        if let older, let newer, older > newer {
            throw WebError(.badRequest, "nothing is older than older_than and newer than newer_than")
        }
    }
}

extension JobFilter {
    init(_ form: Form) throws(WebError) {
        self.init()
        for text in form.all("state").flatMap({ $0.split(separator: ",").map(String.init) }) {
            guard let state = StoredJob.State(rawValue: text) else {
                let known = StoredJob.State.allCases.map(\.rawValue).joined(separator: ", ")
                throw WebError(.badRequest, "\(text) is not a state; states are \(known)")
            }
            states.insert(state)
        }
        keys = Set(try FilterFields.keys(form))
        ids = Set(form.all("id"))
        tokens = Set(form.all("token").flatMap { [$0, TokenText.normalized($0)] })
        apps = Set(form.all("app"))
        topics = Set(form.all("topic"))
        campaigns = Set(form.all("campaign"))
        reasons = form.all("reason")
        texts = form.all("match")
        olderThan = try FilterFields.seconds(form, "older_than")
        newerThan = try FilterFields.seconds(form, "newer_than")
        try FilterFields.check(older: olderThan, newer: newerThan)
        if let text = form["due_before"] {
            guard let time = JobTime.milliseconds(text) ?? JobDuration.seconds(text).map({ Moment.now + $0 * 1000 })
            else {
                throw WebError(
                    .badRequest,
                    "due_before is \(text); it must be a time such as 2026-11-21T08:00:00Z, or a duration such as 2h")
            }
            dueBefore = time
        }
    }
}

extension DeadLetterFilter {
    init(_ form: Form) throws(WebError) {
        self.init()
        keys = try FilterFields.keys(form)
        (ids, apps, campaigns) = (form.all("id"), form.all("app"), form.all("campaign"))
        tokens = form.all("token").map(TokenText.normalized)
        (reasons, errors) = (form.all("reason"), form.all("error"))
        olderThan = try FilterFields.seconds(form, "older_than")
        newerThan = try FilterFields.seconds(form, "newer_than")
        try FilterFields.check(older: olderThan, newer: newerThan)
    }
}

extension InvalidTokenFilter {
    init(_ form: Form) throws(WebError) {
        let earliest = try FilterFields.seconds(form, "newer_than").map { Moment.now - $0 * 1000 }
        if let wrong = form.all("source").first(where: { InvalidToken.Source(rawValue: $0) == nil }) {
            throw WebError(.badRequest, "source is \(wrong); it must be apns, gateway, feedback or import")
        }
        self.init(
            topics: form.all("topic"), reasons: form.all("reason"), sources: form.all("source"),
            environments: form.all("environment"), earliest: earliest)
    }
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
