import Foundation
import NIOCore
import PushJob
import PushQueue
import QueueTestSupport
import TestSupport
import Testing

@testable import Operations

@Suite("Results for producers", .serialized, .queue)
struct ResultsTests {
    private let queue = QueueScope.queue

    private static let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    private static var limits: QueueLimits {
        let limits = QueueLimits { $0.results = .all }
        return limits
    }

    private static func result(_ id: String, _ outcome: Outcome = .delivered) -> NotificationResult {
        var result = NotificationResult(outcome, attempt: 1)
        result.id = ByteBuffer(string: id)
        return result
    }

    private static func page(_ queue: TestQueue) async throws -> ResultPage {
        try await ResultPage.read(from: "-", to: "+", count: 10_000, queue.client, queue.keys)
    }

    private static func ids(_ queue: TestQueue) async throws -> [String] {
        try await page(queue).results.map { $0["id"] ?? "" }
    }

    /// Returns a result with a token of 64 hex digits.
    private static func result(token number: Int, _ outcome: Outcome = .delivered) -> NotificationResult {
        var result = result("fan-out", outcome)
        let text = String(number, radix: 16)
        result.token = ByteBuffer(string: String(repeating: "0", count: 64 - text.count) + text)
        return result
    }

    @Test("have all fields, in UTF-8, and the time of Redis")
    func fields() async throws {
        let worker = try await queue.worker("w", claiming: ["job"], Self.limits)
        var result = NotificationResult(.dead, reason: "BadCollapseId", attempt: 3)
        let id: [UInt8] = Array("\"\\\n\u{1B}[2J é".utf8) + [0xFF, 0x00, 0xC3]
        result.id = ByteBuffer(bytes: id)
        result.token = ByteBuffer(repeating: 0x61, count: 70_000)
        result.status = 400
        result.apnsID = String(repeating: "i", count: 300)
        result.app = "shop"
        result.apnsUniqueID = "u-1"
        result.trace = TraceParent(ByteBuffer(string: Self.traceparent))
        result.campaign = ByteBuffer(string: "spring")
        result.fair = ByteBuffer(string: "acme")
        result.labels = ByteBuffer(string: #"{"user":"4711"}"#)
        let before = try #require(queue.redis.run("TIME").elements?[0].text.flatMap { Int64($0) }) * 1000
        try await worker.settle { $0.end(1, .delivered, results: .of(result)) }
        let stored = try await Self.page(queue)
        let entry = try #require(stored.results.first)
        #expect(stored.results.count == 1 && stored.entries.count == 1)
        #expect(
            entry.fields.map(\.name) == [
                "id", "token", "outcome", "reason", "status", "apns_id", "app", "attempt", "time", "trace_id",
                "parent_id", "apns_unique_id", "campaign", "fair", "labels", "event", "report",
            ])
        #expect(entry["id"] == String(decoding: id, as: UTF8.self))
        #expect(entry["token"] == String(repeating: "a", count: 2048))
        #expect(entry["outcome"] == "dead" && entry["reason"] == "BadCollapseId" && entry["status"] == "400")
        #expect(entry["apns_id"]?.count == 300 && entry["app"] == "shop" && entry["attempt"] == "3")
        #expect(entry["apns_unique_id"] == "u-1")
        #expect(entry["fair"] == "acme" && entry.labels == ["user": "4711"])
        #expect(entry["campaign"] == "spring" && entry["labels"] == #"{"user":"4711"}"#)
        #expect(entry["trace_id"] == "0af7651916cd43dd8448eb211c80319c" && entry["parent_id"] == "b7ad6b7169203331")
        #expect(try #require(entry["time"].flatMap { Int64($0) }) >= before)
    }

    @Test("are written once, with the settlement, and not by one that finds no claim")
    func once() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b", "c", "d"], Self.limits)
        let settlement = worker.filled { settlement in
            settlement.end(1, .delivered, results: .of(Self.result("a")))
            settlement.end(2, .invalidToken, results: .of(Self.result("b", .invalidToken)))
            settlement.bury(3, reason: "X")
            settlement.addResults(.of(Self.result("c", .dead)))
            settlement.endMixed(4)
            settlement.addCount("delivered", 2)
            settlement.addResults(.of(Self.result("d1"), Self.result("d2")))
            settlement.end(9, .delivered, results: .of(Self.result("nobody's")))
            settlement.endMixed(8)
            settlement.addResults(.of(Self.result("nobody's either")))
        }
        #expect(try await worker.settle(settlement) == 2)
        #expect(Set(try await Self.ids(queue)) == ["a", "b", "c", "d1", "d2"])
        // One entry has all results.
        #expect(try await Self.page(queue).entries.count == 1)
        #expect(try queue.stats() == ["delivered": 3, "invalid_token": 1, "dead": 1, "dead:X": 1, "mixed": 1])
        #expect(try await worker.settle(settlement) == 6)
        #expect(try await Self.ids(queue).count == 5)
    }

    @Test("of a settlement lack those of claims that are not found", arguments: [[1], [2], [3], [1, 3], [1, 2]])
    func lost(_ lost: [Int]) async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b", "c"], Self.limits)
        for number in lost { try await worker.settle { $0.end(number, .delivered) } }
        let ids = ["a, \n\"]}", "b", "c"]
        let missing = try await worker.settle { settlement in
            for (number, id) in zip(1...3, ids) { settlement.end(number, .delivered, results: .of(Self.result(id))) }
        }
        #expect(missing == lost.count)
        #expect(try await Self.ids(queue) == [1, 2, 3].filter { !lost.contains($0) }.map { ids[$0 - 1] })
    }

    @Test("are capped by their number, not by that of entries", arguments: [1, 7, 100])
    func capped(batch: Int) async throws {
        var limits = Self.limits
        limits.maximumResults = 500
        let worker = try await queue.worker("w", claiming: (0..<1400).map { "job \($0)" }, limits)
        for first in stride(from: 1, through: 1400, by: batch) {
            try await worker.settle { settlement in
                for number in first..<first + batch {
                    settlement.end(number, .delivered, results: .of(Self.result("\(number)")))
                }
            }
        }
        let ids = try await Self.ids(queue)
        // Results are removed after each thirty-second part of the limit, with whole entries.
        #expect((500...532 + 3 * batch).contains(ids.count) && ids.last == "1400", "\(ids.count)")
        #expect(try queue.redis.run("ZCARD", queue.keys.resultsMarks).number ?? 99 <= 40)
    }

    @Test(
        "are capped again after their marks were lost, or entries were removed by other means",
        arguments: ["lost", "spoilt", "removed", "deleted"])
    func capsRecover(_ accident: String) async throws {
        var limits = Self.limits
        limits.maximumResults = 100
        let worker = try await queue.worker("w", claiming: (0..<600).map { "job \($0)" }, limits)
        func settle(_ numbers: ClosedRange<Int>) async throws {
            for number in numbers {
                try await worker.settle { $0.end(number, .delivered, results: .of(Self.result("\(number)"))) }
            }
        }
        try await settle(1...150)
        let (stream, marks) = (queue.keys.results, queue.keys.resultsMarks)
        switch accident {
        case "lost": try queue.redis.run("DEL", marks)
        case "spoilt": try queue.redis.run("ZADD", marks, "1e300", "added")
        case "removed": try queue.redis.run("XTRIM", stream, "MAXLEN", "60")
        default: try queue.redis.run("DEL", stream)
        }
        let before = try await Self.ids(queue).count
        try await settle(151...200)
        // Nothing is removed too early.
        #expect(try await Self.ids(queue).count >= min(before + 50, 100))
        try await settle(201...600)
        let ids = try await Self.ids(queue)
        #expect((100...110).contains(ids.count) && ids.last == "600", "\(ids.count)")
    }

    @Test("of a job with many tokens share an entry, in which the job's members are once")
    func groups() async throws {
        let worker = try await queue.worker("w", claiming: ["job", "other"], Self.limits)
        try await worker.settle { settlement in
            settlement.endMixed(1)
            var results = PackedResults()
            for number in 0..<1000 {
                results.append(Self.result(token: number, number % 100 == 7 ? .invalidToken : .delivered))
            }
            #expect(results.count == 1000)
            settlement.addResults(results)
            settlement.endMixed(2)
            settlement.addResults(.of(Self.result("other")))
        }
        let page = try await Self.page(queue)
        // The 1,000 results of a job are not divided, and their entry gets no results of other jobs.
        #expect(page.entries.count == 2 && page.results.count == 1001)
        #expect(Set(page.results.prefix(1000).compactMap { $0["token"] }).count == 1000)
        #expect(page.results.count { $0["outcome"] == "invalid_token" } == 10)
        #expect(page.results.prefix(1000).allSatisfy { $0["id"] == "fan-out" && $0["attempt"] == "1" })
        #expect(page.results.prefix(1000).map(\.index) == Array(0..<1000) && page.results[1000].index == 0)
        // The entry as other programs read it.
        let entry = try #require(queue.redis.run("XRANGE", queue.keys.results, "-", "+", "COUNT", "1").elements?.first)
        let fields = try #require(entry.elements?[1].elements)
        #expect(fields.count == 2 && fields[0].text == "results")
        let text = try #require(fields[1].text)
        let array = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [[String: Any]]
        let groups = try #require(array)
        #expect(groups.count == 2 && groups.allSatisfy { $0["id"] as? String == "fan-out" })
        #expect(groups.compactMap { ($0["notifications"] as? [[String: String]])?.count }.sorted() == [10, 990])
    }

    @Test("of a large settlement are divided into entries of some 50 KB")
    func entries() async throws {
        let worker = try await queue.worker("w", claiming: (0..<2000).map { "job \($0)" }, Self.limits)
        try await worker.settle { settlement in
            for number in 1...2000 {
                settlement.end(number, .delivered, results: .of(Self.result(token: number)))
            }
        }
        let page = try await Self.page(queue)
        #expect(Set(page.results.compactMap { $0["token"] }).count == 2000 && page.results.count == 2000)
        let sizes = try #require(queue.redis.run("XRANGE", queue.keys.results, "-", "+").elements)
            .compactMap { $0.elements?[1].elements?[1].text?.utf8.count }
        #expect(sizes.count > 2 && sizes.allSatisfy { $0 < 65_536 }, "\(sizes)")
    }

    /// The values of `results` that no worker writes.
    private static let damaged = [
        #"[{"id":"x","notifications":[{"token":"aa"}"#, #"[{"id":"x"}]"#, #"[{"id":"x","notifications":[]}]"#,
        #"[{"id":"x","notifications":{"token":"aa"}}]"#, #"[{"id":"x","notifications":["aa"]}]"#, "[1]", "[]", "",
        #"{"id":"x","notifications":[{}]}"#, #"[{"id":"x","notifications":[{}]}] []"#, "nil",
        "[{\"id\":\"\u{1}\",\"notifications\":[{}]}]", String(repeating: "[", count: 100_000),
    ]

    @Test("of workers, of other programs and damaged ones can be mixed in a stream")
    func mixed() async throws {
        let worker = try await queue.worker("w", claiming: (0..<4).map { "job \($0)" }, Self.limits)
        func add(_ fields: String...) throws {
            try queue.redis.run((["XADD", queue.keys.results, "*"] + fields).map { Array($0.utf8) })
        }
        try await worker.settle { $0.end(1, .delivered, results: .of(Self.result("one"))) }
        try add("id", "foreign", "outcome", "dead", "time", "1795279247000")
        try await worker.settle { settlement in
            settlement.endMixed(2)
            settlement.addResults(.of(Self.result(token: 1), Self.result(token: 2, .dead)))
            settlement.end(3, .delivered, results: .of(Self.result("three")))
        }
        for text in Self.damaged { try add("id", "damaged", "results", text) }
        let unusual =
            #" [ {"notifications" : [ {"id":"\u0061\n", "outcome": null}, {"id":"own","more":[1]}], "id":1} ] "#
        try add("results", unusual)
        try await worker.settle { $0.end(4, .delivered, results: .of(Self.result("last"))) }

        let page = try await Self.page(queue)
        let ids = page.results.map { $0["id"] ?? "" }
        let count = Self.damaged.count
        #expect(page.entries.count == 5 + count)
        #expect(ids.first == "one" && ids[1] == "foreign")
        // A settlement writes jobs with one token first.
        #expect(ids[2...4] == ["three", "fan-out", "fan-out"])
        #expect(page.results[2...4].map(\.index) == [0, 1, 2])
        #expect(page.results[4]["outcome"] == "dead" && page.results[4].id == "\(page.entries[2])/2")
        #expect(page.results[3].time == Int64(page.entries[2].prefix { $0 != "-" }))
        #expect(page.results[1].time == 1_795_279_247_000)
        // A damaged entry is shown as it is.
        #expect(ids[5..<5 + count].allSatisfy { $0 == "damaged" })
        #expect(page.results[5..<5 + count].map { $0["results"] ?? "" } == Self.damaged)
        #expect(ids.suffix(3) == ["a\n", "own", "last"])
        #expect(page.results[5 + count]["outcome"] == nil && page.results[6 + count]["more"] == "[1]")
        let places = page.results.map(\.place)
        #expect(zip(places, places.dropFirst()).allSatisfy { $0 < $1 })

        let newest = try await ResultPage.read(
            from: "+", to: "-", newestFirst: true, count: 1000, queue.client, queue.keys)
        #expect(newest.results.map(\.id) == page.results.map(\.id).reversed())
        for result in page.results {
            var json = ByteBuffer()
            ResultLine(queue: "default", result: result).writeJSON(to: &json)
            let object = try JSONSerialization.jsonObject(with: Data(String(buffer: json).utf8)) as? [String: Any]
            #expect(object?["entry"] as? String == result.id)
        }
    }

    @Test("are kept for a time, if there is one", arguments: [0, 3_600_000])
    func old(age: Int) async throws {
        try await withQueue { queue in
            let now = Int(Moment.now)
            for index in 0..<600 {
                // A hundred entries are a block, which is dropped as a whole.
                let id = now - (index < 300 ? 7_200_000 : 1_800_000) + index
                try queue.redis.run("XADD", queue.keys.results, "\(id)-0", "id", "\(index)")
            }
            var limits = Self.limits
            limits.maximumResultAge = age
            let worker = try await queue.worker("w", claiming: ["job"], limits)
            try await worker.settle { settlement in
                settlement.end(1, .delivered, results: .of(Self.result("new")))
                settlement.minute = .sample()
            }
            let ids = try await Self.ids(queue)
            #expect(ids.count == (age == 0 ? 601 : 301) && ids.last == "new", "\(ids.count)")
        }
    }

    @Test("are listed in parts that can end within an entry, in both directions", arguments: [1, 7, 100, 5000])
    func listing(limit: Int) async throws {
        let worker = try await queue.worker("w", claiming: (0..<30).map { "job \($0)" }, Self.limits)
        for number in 1...30 {
            try await worker.settle { settlement in
                settlement.endMixed(number)
                var results = PackedResults()
                for token in 0..<(number % 3 == 0 ? 40 : 1) {
                    results.append(Self.result(token: token, token % 4 == 3 ? .dead : .delivered))
                }
                settlement.addResults(results)
            }
        }
        let all = try await Self.page(queue).results
        #expect(all.count == 420)
        var dead = ResultFilter()
        dead.outcomes = ["dead"]
        for (filter, newestFirst) in [(ResultFilter(), false), (ResultFilter(), true), (dead, false), (dead, true)] {
            var order = ResultListing.Order()
            order.newestFirst = newestFirst
            var (found, looked, cursor) = ([String](), 0, String?.none)
            repeat {
                let part = try await ResultListing.read(
                    filter, order, after: cursor.flatMap { StoredResult.Place(id: $0) }, limit: limit,
                    until: .now + .seconds(60), queue.client, queue.keys)
                #expect(part.results.count <= limit)
                found += part.results.map(\.id)
                looked += part.looked
                cursor = part.cursor
            } while cursor != nil
            let expected = all.filter(filter.matches).map(\.id)
            #expect(found == (newestFirst ? expected.reversed() : expected) && looked == 420)
        }
        var order = ResultListing.Order()
        order.since = all[200].time
        order.until = all[300].time
        let period = try await ResultListing.read(
            ResultFilter(), order, after: nil, limit: 9999, until: .now + .seconds(60), queue.client, queue.keys)
        let times = try #require(order.since)...(try #require(order.until))
        #expect(period.results.map(\.id) == all.filter { times.contains($0.time ?? 0) }.map(\.id))
        #expect(
            ["", "x", "1-1", "1-1/x", "1-1/-1", "a-b/0", "1-1/0/0", "01-1/0"].allSatisfy { text in
                StoredResult.Place(id: text) == nil
            })
    }

    @Test("of jobs that end in Redis itself, unread: too large, or claimed too often", arguments: [true, false])
    func unread(areKept: Bool) async throws {
        var limits = Self.limits
        limits.results = areKept ? .failures : .off
        limits.maximumJobSize = 200
        limits.maximumReclaims = 0
        let filler = String(repeating: "x", count: 300)
        try queue.push([
            "plain \(filler)",
            #"{"apns_worker":1,"attempt":2,"id":"piece","tokens":["aa","bb"],"job":{"x":"\#(filler)"}}"#,
        ])
        let worker = queue.worker("w", limits)
        #expect(try await worker.claim(5).bodies.isEmpty)
        try queue.push([#"{"apns_worker":1,"attempt":1,"id":"poison","job":{}}"#])
        #expect(try await worker.claim(5, first: 6).bodies.count == 1)
        try queue.endLease("w")
        try await queue.worker("other", limits).reclaim("w")
        let lines = try await Self.page(queue).results.map {
            "\($0["id"] ?? "-") \($0["token"] ?? "-") \($0["outcome"] ?? "-") \($0["reason"] ?? "-")"
        }
        #expect(
            lines
                == (areKept
                    ? [
                        "- - dead JobTooLarge", "piece aa dead JobTooLarge", "piece bb dead JobTooLarge",
                        "poison - dead Poison",
                    ] : []))
    }
}
