import PushQueue
import Redis
import Testing

@testable import Dashboard
@testable import Operations

@Suite("Lists of the dashboard")
struct ListTests {
    private static func url(_ place: ListPlace) -> Fields {
        Fields(place.query.map { ($0.name, $0.value ?? "") })
    }

    @Test("the pages of a list lead forward and, through their URLs, back to the first")
    func forwardAndBack() throws {
        var place = ListPlace(Fields())
        #expect(place.isFirst && place.previous == nil && place.query.isEmpty)
        for number in 1...5 {
            place = ListPlace(Self.url(place.next("default|retry@\(number) 0 1", rows: 50)))
            #expect(place.start == .init("default|retry@\(number) 0 1", seen: number * 50))
        }
        for number in [4, 3, 2, 1] {
            place = ListPlace(Self.url(try #require(place.previous)))
            #expect(place.start == .init("default|retry@\(number) 0 1", seen: number * 50))
        }
        let first = ListPlace(Self.url(try #require(place.previous)))
        #expect(first.isFirst && first == ListPlace(Fields()))
    }

    @Test("a URL contains a limited number of earlier pages, and the page before the oldest of them is not known")
    func boundedBack() throws {
        var place = ListPlace(Fields())
        for number in 1...100 { place = place.next("c\(number)", rows: 1) }
        #expect(place.back.count == ListPlace.maximumBack && place.back.last?.cursor == "c99")
        for _ in 1...ListPlace.maximumBack { place = try #require(place.previous) }
        #expect(place.previous == nil && !place.isFirst)
    }

    @Test(
        "malformed fields of a place are ignored",
        arguments: [
            ("seen=5&back=0", nil, 0, 0), ("after=c&seen=x", "c", 0, 0), ("after=c&seen=-4&back=x%20y", "c", 0, 0),
            ("after=c&seen=9223372036854775807&back=&back=7%20b", "c", 1_000_000_000_000, 1),
        ] as [(String, String?, Int, Int)])
    func malformed(query: String, cursor: String?, seen: Int, back: Int) {
        let place = ListPlace(Fields(query))
        #expect(place.start == .init(cursor, seen: seen) && place.back.count == back)
        #expect(place.next("d", rows: 50).start.seen == seen + 50 || seen == 1_000_000_000_000)
    }

    @Test(
        "the numbers of a page say what is known",
        arguments: [
            (ListTotals(noun: "job", rows: 50, total: 12345), "1–50 of 12,345 jobs"),
            (ListTotals(noun: "job", seen: 50, rows: 50, total: 12345), "51–100 of 12,345 jobs"),
            // The total is from a status that is older than the page.
            (ListTotals(noun: "job", seen: 50, rows: 50, total: 7), "51–100 of 100 jobs"),
            (ListTotals(noun: "job", seen: 50, rows: 7, total: 60, isLast: true), "51–57 of 57 jobs"),
            (ListTotals(noun: "job", rows: 1, total: 1, isLast: true), "1 job"),
            (ListTotals(noun: "job", rows: 50), "1–50; the number of all jobs is not known"),
            (
                ListTotals(noun: "job", rows: 50, total: 9, looked: 4000, isFiltered: true),
                "1–50 of the jobs that match; 4,000 jobs searched for this page"
            ),
            (ListTotals(noun: "job", rows: 7, looked: 4000, isFiltered: true, isLast: true), "7 jobs found"),
            (ListTotals(noun: "job", seen: 50, rows: 7, isFiltered: true, isLast: true), "51–57 of 57 jobs found"),
            (
                ListTotals(noun: "job", looked: 4000, isFiltered: true),
                "No job matches so far: 4,000 jobs searched. The search continues on the next page."
            ),
            (ListTotals(noun: "job", looked: 12, isFiltered: true, isLast: true), "No job matches: 12 jobs searched."),
            (ListTotals(noun: "job", seen: 50, isFiltered: true, isLast: true), "There are no more jobs that match."),
            (ListTotals(noun: "job", isLast: true), "There are no jobs."),
        ])
    func totals(totals: ListTotals, expected: String) {
        #expect(totals.sentence == expected)
    }

    @Test("each value of a filter has a link that removes this value only, and begins at the first page")
    func chips() {
        let filters = [
            ListFilter("App", "app"), ListFilter("ID", "id"), ListFilter("State", "kind", choices: [("a", "Alpha")]),
        ]
        let query = Fields("app=shop&id=1&id=%3Cb%3E&kind=a&queue=q&after=c&seen=50&back=0")
        let html = ListFilter.chips(filters, query) { fields in
            "/x?" + fields.map { "\($0.name)=\($0.value ?? "")" }.joined(separator: ";")
        }
        let links = html.text.split(separator: "href=\"").dropFirst().map { String($0.prefix { $0 != "\"" }) }
        #expect(
            links == [
                "/x?id=1;id=&lt;b&gt;;kind=a;queue=q", "/x?app=shop;id=&lt;b&gt;;kind=a;queue=q",
                "/x?app=shop;id=1;kind=a;queue=q", "/x?app=shop;id=1;id=&lt;b&gt;;queue=q", "/x?queue=q",
            ])
        #expect(html.text.contains("State <strong>Alpha</strong>") && !html.text.contains("<b>"))
        #expect(ListFilter.chips(filters, Fields("queue=q&app=")) { _ in "" }.isEmpty)
    }

    @Test("the number of jobs in some states is known only if the status has counted them")
    func stateCounts() {
        func queue(_ name: String, deferred: Int?) -> QueueStatus {
            var queue = QueueStatus(name: name)
            (queue.waiting, queue.due, queue.later, queue.claimed) = (10, 1, 5, 3)
            (queue.retrying, queue.scheduled, queue.deferred) = (4, 2, deferred)
            return queue
        }
        var status = FleetStatus()
        status.queues = [queue("a", deferred: 0), queue("b", deferred: nil), queue("c", deferred: 0)]
        status.queues[2].error = "WRONGTYPE"
        let (one, two) = (JobsPage.StateCounts(status, ["a"]), JobsPage.StateCounts(status, ["a", "b"]))
        #expect(one.total([]) == 19 && two.total([]) == 38)
        #expect(one.total([.retrying, .claimed]) == 7 && two.total([.claimed]) == 6)
        #expect(two.total([.retrying]) == 8 && two.total([.deferred]) == nil)
        #expect(JobsPage.StateCounts(status, ["c"]).total([.waiting]) == nil)
    }

    private struct Mistake: Error {}

    /// Reads a list with two rows of each readable queue.
    private static func part(
        _ names: [String], without unreadable: Set<String>, after cursor: String? = nil, limit: Int = 10,
        error: any Error = QueueFailure.redis(.notConnected(address: "a:1", reason: "refused"))
    ) async throws -> ListPart<String> {
        try await .of(
            names.map { try QueueKeys(queue: $0) }, ListReading(after: cursor, limit: limit, end: .now + .seconds(60))
        ) { keys, cursor, _ in
            if unreadable.contains(keys.queue) { throw error }
            // Each queue has two parts.
            return ListPart(rows: [keys.queue], looked: 1, cursor: cursor == nil ? "2" : nil)
        }
    }

    @Test("a queue that can't be read is left out of a list, and named")
    func unreadQueues() async throws {
        let all = try await Self.part(["a", "b", "c"], without: ["b"])
        #expect(all.rows == ["a", "a", "c", "c"] && all.cursor == nil && all.unread.names == ["queue b"])
        #expect(all.unread.notes.first?.hasPrefix("queue b is not included: ") == true, "\(all.unread.notes)")
        #expect(try await Self.part(["a", "b"], without: []).unread.isEmpty)
        // The first page ends before the unreadable queue.
        let first = try await Self.part(["a", "b"], without: ["b"], limit: 2)
        #expect(first.cursor == "b|" && first.unread.isEmpty)
        let second = try await Self.part(["a", "b"], without: ["b"], after: first.cursor, limit: 2)
        #expect(second.rows.isEmpty && second.cursor == nil && second.unread.names == ["queue b"])
        // The cursor is in the middle of the unreadable queue.
        let rest = try await Self.part(["a", "b", "c"], without: ["b"], after: "b|2")
        #expect(rest.rows == ["c", "c"] && rest.unread.names == ["queue b"])
    }

    @Test("an error is thrown if no queue of a list can be read, or if it is not an error of reading")
    func unreadList() async throws {
        await #expect(throws: QueueFailure.self) {
            try await Self.part(["a", "b"], without: ["a", "b"])
        }
        await #expect(throws: Mistake.self) { try await Self.part(["a", "b"], without: ["b"], error: Mistake()) }
    }

    @Test("a set that Redis reads in parts of any size is listed in pages of one size, each token once")
    func pagesOfASet() async throws {
        let parts: [String?: [Int]] = [nil: Array(0..<53), "8": [], "16": Array(53..<54), "24": Array(54..<180)]
        let next: [String?: String] = [nil: "8", "8": "16", "16": "24"]
        var (pages, position) = ([[Int]](), InvalidTokensPage.Position())
        while true {
            let page = try await InvalidTokensPage.part(
                from: position, limit: 50, until: .now + .seconds(60)
            ) { cursor in ListPart(rows: parts[cursor] ?? [], looked: 0, cursor: next[cursor]) }
            pages.append(page.rows)
            guard let cursor = page.cursor else { break }
            position = try #require(InvalidTokensPage.Position(cursor))
        }
        #expect(pages.map(\.count) == [50, 50, 50, 30])
        #expect(pages.flatMap { $0 } == Array(0..<180))
    }

    @Test(
        "a position in the set of invalid tokens is checked",
        arguments: [
            ("48", "48"), ("50+48", "50+48"), ("50+", "50+"), ("3+16.2.48", "3+16.2.48"), ("", nil), ("x", nil),
            ("-1+48", nil), ("5+x", nil), ("99999999999999999999+4", nil),
        ] as [(String, String?)])
    func positions(text: String, expected: String?) {
        #expect(InvalidTokensPage.Position(text)?.text == expected)
    }
}

@Suite("The page of operators' actions")
struct ActivityTests {
    private static func words(_ parts: [SubjectPart]) -> String {
        parts.map { part in
            guard let segments = part.segments else { return part.text }
            let query = part.query.map { "?\($0.name)=\($0.value ?? "")" }.joined()
            return "[\(part.text)](\(segments.joined(separator: "/"))\(query))"
        }.joined()
    }

    @Test(
        "the subject of an action links to what it names",
        arguments: [
            ("queue default", "queue [default](queues/default)"), ("queue typo", "queue typo"),
            ("queues bulk, default, all", "queues [bulk](queues/bulk), [default](queues/default), all"),
            (
                "queue default, state=retrying, app=shop, campaign=a=b",
                "queue [default](queues/default), state=retrying, [app=shop](apps/shop), [campaign=a=b](campaigns/a=b)"
            ),
            (
                "queue default, dead letter 0a1b2c3d4e",
                "queue [default](queues/default), dead letter [0a1b2c3d4e](dead/default/0a1b2c3d4e)"
            ),
            ("campaign spring, 2 of 3", "campaign [spring, 2 of 3](campaigns/spring, 2 of 3)"),
            ("app news", "app [news](apps/news)"),
            ("worker vm.1, vm.2", "worker [vm.1](workers/vm.1), [vm.2](workers/vm.2)"),
            ("id a-1, a-2", "id [a-1](jobs?id=a-1), [a-2](jobs?id=a-2)"),
            ("token 0f0f0f0f…", "token [0f0f0f0f…](search?q=0f0f0f0f)"), ("all workers", "all workers"),
            ("2 devices, sha256 00ff", "2 devices, sha256 00ff"), ("", ""),
        ])
    func subjects(subject: String, expected: String) {
        #expect(Self.words(SubjectPart.parts(of: subject, queues: ["bulk", "default"])) == expected)
    }

    private static let entries = (0..<2500).map { number in
        AuditEntry(
            number.isMultiple(of: 2) ? .pause : .resume, "queue q\(number)", by: number < 2400 ? "ann" : "ben",
            detail: number == 2499 ? "a Typo" : nil, ending: number.isMultiple(of: 500) ? .refused : .done, via: .web)
    }

    @Test(
        "the actions are filtered by person, action, subject and result",
        arguments: [
            ("", 2500), ("by=ben", 100), ("by=be", 0), ("action=pause", 1250), ("result=refused", 5),
            ("subject=typo", 1),
            ("subject=Q249", 11), ("by=ben&action=resume&result=done", 50),
        ])
    func filter(query: String, count: Int) throws {
        let filter = try ActivityPage.Filter(Fields(query))
        #expect(Self.entries.count(where: filter.matches) == count)
        #expect(filter.isEmpty == query.isEmpty)
    }

    @Test(
        "only the ID of an entry is a position in the list",
        arguments: [
            ("1795266300000-0", true), ("1-12", true), ("", false), ("1", false), ("-", false), ("1-", false),
            ("1-2-3", false), ("½-1", false), ("+1-0", false), ("99999999999999999999-0", false), ("01-0", false),
        ])
    func position(text: String, isID: Bool) { #expect(ActivityPage.isID(text) == isID) }

    @Test("an unknown action or result is a mistake", arguments: ["action=explode", "result=maybe"])
    func mistakes(query: String) {
        #expect(throws: FieldMistake.self) { try ActivityPage.Filter(Fields(query)) }
    }

    @Test("a page of actions ends with its last row, and the last page has no next one", arguments: [50, 100, 51])
    func pages(count: Int) async throws {
        let part = try await ActivityPage.part(
            .init(), after: nil, limit: 50, portion: 51, until: .now + .seconds(60)
        ) { _ in Array(Self.entries.prefix(min(count, 51))) }
        #expect(part.rows.count == 50)
        #expect((part.cursor == nil) == (count == 50))
    }
}
