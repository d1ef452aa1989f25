import Operations
import PrintableText
import PushQueue
import WebPages

/// The actions of operators, through commands and the dashboard.
struct ActivityPage: DashboardPage {
    let path = "/activity"
    let section = Section.activity

    /// Selects the entries that match every given value.
    struct Filter: Equatable {
        /// The operator.
        var by: String?
        var action: AuditEntry.Action?
        /// A part of the subject or the detail, ignoring case.
        var text: String?
        var ending: AuditEntry.Ending?

        init() {}

        init(_ query: Fields) throws(FieldMistake) {
            (by, text) = (query["by"], query["subject"])
            (action, ending) = (try Self.one(query, "action"), try Self.one(query, "result"))
        }

        private static func one<Value: RawRepresentable<String> & CaseIterable>(
            _ query: Fields, _ name: String
        ) throws(FieldMistake) -> Value? {
            guard let text = query[name] else { return nil }
            guard let value = Value(rawValue: text) else {
                let known = Value.allCases.map(\.rawValue).joined(separator: ", ")
                throw FieldMistake { "\($0(name)) is \(text.printable.prefix(40)); it must be one of \(known)" }
            }
            return value
        }

        var isEmpty: Bool { self == Filter() }

        func matches(_ entry: AuditEntry) -> Bool {
            if let by, entry.by != by { return false }
            if let action, entry.action != action { return false }
            if let ending, entry.ending != ending { return false }
            guard let text = text?.lowercased() else { return true }
            return "\(entry.subject) \(entry.detail ?? "")".lowercased().contains(text)
        }
    }

    func isLive(_ query: Fields) -> Bool {
        guard query["after"] == nil else { return false }
        // The page itself reports a mistake in the filter.
        do { return try Filter(query).isEmpty } catch { return false }
    }

    /// Returns a page of entries, newest first. If few match, it reads all kept entries, which are a few thousand.
    /// - Parameter limit: the maximum number of entries.
    static func list(_ request: PageRequest, limit: Int) async throws -> ListPart<AuditEntry> {
        let keys = request.source.fleet.sharedKeys
        let after = request.query["after"]
        guard after.map(isID) ?? true else { throw WebError.unknownCursor(after ?? "") }
        let client = try await request.source.fleet.client(for: keys.audit)
        let filter = try Filter(request.query)
        // Reads one more entry than the page has, to find out if another page follows.
        let portion = filter.isEmpty ? limit + 1 : AuditLog.maximumPage
        return try await part(filter, after: after, limit: limit, portion: portion, until: request.searchEnd) {
            try await AuditLog.latest(portion, before: $0, client, keys)
        }
    }

    /// Returns true for a text like the ID of an entry, which Redis makes of two numbers.
    static func isID(_ text: String) -> Bool {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        return parts.count == 2 && parts.allSatisfy { part in UInt64(part).map { "\($0)" == part } ?? false }
    }

    /// - Parameters:
    ///   - portion: the number of entries that are read at once.
    ///   - read: reads the entries that are older than the entry with this ID; the newest entries for `nil`.
    static func part(
        _ filter: Filter, after cursor: String?, limit: Int, portion: Int, until end: ContinuousClock.Instant,
        _ read: (_ before: String?) async throws -> [AuditEntry]
    ) async throws -> ListPart<AuditEntry> {
        var (part, cursor) = (ListPart<AuditEntry>(), cursor)
        repeat {
            let found = try await read(cursor)
            for entry in found {
                if part.rows.count == limit {
                    part.cursor = cursor
                    return part
                }
                part.looked += 1
                cursor = entry.id
                if filter.matches(entry) { part.rows.append(entry) }
            }
            guard found.count == portion else { return part }
        } while part.rows.count < limit && .now < end
        part.cursor = cursor
        return part
    }

    func content(_ request: PageRequest) async throws -> PageContent {
        let filter = try Filter(request.query)
        let part = try await Self.list(request, limit: PageRequest.rows)
        let totals = request.totals("action", part, of: nil, isFiltered: true)
        let queues = Set(try await request.site.data.queues().map(\.queue))
        let table = request.list(
            "Activity", part.rows,
            empty: filter.isEmpty && part.cursor == nil && request.place.isFirst
                ? Elements.empty(
                    "No actions yet.",
                    "<p>Each action of an operator, by a command or by this dashboard, is recorded here.</p>"
                )
                : Elements.empty("\(totals.sentence)")
        ) { entry, column, value in
            switch column.title {
            case "Action": "\(Self.words(entry.actionName))"
            case "Subject": subject(entry, queues, request)
            case "Result": Self.result(entry.ending)
            default: value
            }
        }
        let isFirst = isLive(request.query)
        let people = Set(part.rows.map(\.by) + (request.visitor.name.map { [$0] } ?? []))
        return PageContent(
            title: "Activity",
            main: """
                \(Self.filters(request, people))\
                \(isFirst ? Elements.live("activity", table) : table)\
                \(request.pager(["activity"], totals, part.cursor))
                """)
    }

    func filters(_ request: PageRequest) async throws -> HTML { Self.filters(request, []) }

    private static func filters(_ request: PageRequest, _ people: Set<String>) -> HTML {
        let filters = [
            ListFilter("Person", "by", known: people, isMain: true),
            ListFilter(
                "Action", "action", choices: AuditEntry.Action.allCases.map { ($0.rawValue, words($0.rawValue)) },
                isMain: true),
            ListFilter("Subject or detail", "subject", isMain: true),
            ListFilter(
                "Result", "result", choices: AuditEntry.Ending.allCases.map { ($0.rawValue, $0.rawValue) }, isMain: true
            ),
        ]
        return request.filters(["activity"], filters)
    }

    private static func words(_ action: String) -> String { action.replacing("_", with: " ") }

    private static func result(_ ending: AuditEntry.Ending?) -> HTML {
        switch ending {
        case .done: Elements.label("done", .good)
        case .refused: Elements.label("refused", .warning)
        case .failed: Elements.label("failed", .bad)
        case nil: ""
        }
    }

    private func subject(_ entry: AuditEntry, _ queues: Set<String>, _ request: PageRequest) -> HTML {
        HTML(
            SubjectPart.parts(of: entry.subject, queues: queues).map { part -> HTML in
                part.segments.map { request.link($0, part.query, part.text) } ?? "\(part.text)"
            })
    }
}

/// A part of an action's subject: a text, perhaps with a link to a page.
struct SubjectPart: Equatable {
    var text: String
    /// The page; `nil` for a text only.
    var segments: [String]?
    var query: [(name: String, value: String?)] = []

    init(_ text: String, _ segments: [String]? = nil, _ query: [(name: String, value: String?)] = []) {
        (self.text, self.segments, self.query) = (text, segments, query)
    }

    static func == (one: SubjectPart, other: SubjectPart) -> Bool {
        one.text == other.text && one.segments == other.segments
            && one.query.map { "\($0.name)=\($0.value ?? "")" } == other.query.map { "\($0.name)=\($0.value ?? "")" }
    }

    /// Divides a subject such as `queue default, state=retrying, app=shop`. Names may contain any character, so a link can lead to a page
    /// that reports an unknown thing. It never leads to another site.
    /// - Parameter queues: the known queues.
    static func parts(of subject: String, queues: Set<String>) -> [SubjectPart] {
        for (noun, section) in [("campaign ", "campaigns"), ("app ", "apps")] where subject.hasPrefix(noun) {
            let name = String(subject.dropFirst(noun.count))
            return [SubjectPart(noun), SubjectPart(name, [section, name])]
        }
        if subject.hasPrefix("token ") {
            // The audit log has only the beginning of a token. The search finds the rest.
            let token = String(subject.dropFirst(6))
            return [
                SubjectPart("token "),
                SubjectPart(token, ["search"], [("q", String(token.prefix { $0 != "…" }))]),
            ]
        }
        var parts: [SubjectPart] = []
        var kind = "", queue: String?
        for (index, word) in subject.split(separator: ", ", omittingEmptySubsequences: false).map(String.init)
            .enumerated()
        {
            if index > 0 { parts.append(SubjectPart(", ")) }
            var name = word
            for noun in ["queues ", "queue ", "worker ", "dead letter ", "id "] where word.hasPrefix(noun) {
                kind = noun
                name = String(word.dropFirst(noun.count))
                parts.append(SubjectPart(noun))
                break
            }
            switch kind {
            case "queue ", "queues ":
                if queues.contains(name) {
                    queue = name
                    parts.append(SubjectPart(name, ["queues", name]))
                    continue
                }
            case "worker ":
                parts.append(SubjectPart(name, ["workers", name]))
                continue
            case "dead letter ":
                parts.append(SubjectPart(name, queue.map { ["dead", $0, name] }))
                continue
            case "id ":
                parts.append(SubjectPart(name, ["jobs"], [("id", name)]))
                continue
            default: break
            }
            parts.append(filter(name))
        }
        return parts
    }

    /// Returns a part of a filter, such as `campaign=spring`.
    private static func filter(_ text: String) -> SubjectPart {
        let parts = text.split(separator: "=", maxSplits: 1).map(String.init)
        guard parts.count == 2 else { return SubjectPart(text) }
        switch parts[0] {
        case "campaign": return SubjectPart(text, ["campaigns", parts[1]])
        case "app": return SubjectPart(text, ["apps", parts[1]])
        case "id": return SubjectPart(text, ["search"], [("q", parts[1])])
        default: return SubjectPart(text)
        }
    }
}
