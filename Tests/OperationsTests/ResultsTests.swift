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

    private static func ids(_ queue: TestQueue) async throws -> [String] {
        try await StoredResult.read(after: StoredResult.beginning, count: 10_000, queue.client, queue.keys)
            .map { $0["id"] ?? "" }
    }

    @Test("have all fields, of any bytes, and the time of Redis")
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
        result.labels = ByteBuffer(string: #"{"user":"4711"}"#)
        let before = try #require(queue.redis.run("TIME").elements?[0].text.flatMap { Int64($0) }) * 1000
        try await worker.settle { $0.end(1, .delivered, results: .of(result)) }
        let stored = try await StoredResult.read(after: StoredResult.beginning, count: 10, queue.client, queue.keys)
        let entry = try #require(stored.first)
        #expect(stored.count == 1)
        #expect(
            entry.fields.map(\.name) == [
                "id", "token", "outcome", "reason", "status", "apns_id", "app", "attempt", "time", "trace_id",
                "parent_id", "apns_unique_id", "campaign", "labels",
            ])
        #expect(entry.fields[0].value == ByteBuffer(bytes: id))
        #expect(entry["token"] == String(repeating: "a", count: 2048))
        #expect(entry["outcome"] == "dead" && entry["reason"] == "BadCollapseId" && entry["status"] == "400")
        #expect(entry["apns_id"]?.count == 300 && entry["app"] == "shop" && entry["attempt"] == "3")
        #expect(entry["apns_unique_id"] == "u-1")
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
        #expect(try queue.stats() == ["delivered": 3, "invalid_token": 1, "dead": 1, "dead:X": 1, "mixed": 1])
        #expect(try await worker.settle(settlement) == 6)
        #expect(try await Self.ids(queue).count == 5)
    }

    @Test("are capped")
    func capped() async throws {
        var limits = Self.limits
        limits.maximumResults = 500
        let worker = try await queue.worker("w", claiming: (0..<3000).map { "job \($0)" }, limits)
        try await worker.settle { settlement in
            for number in 1...3000 { settlement.end(number, .delivered, results: .of(Self.result("\(number)"))) }
        }
        let ids = try await Self.ids(queue)
        // Redis drops whole blocks, of a hundred entries by default.
        #expect((500...700).contains(ids.count) && ids.last == "3000", "\(ids.count)")
    }

    @Test("are kept for a time, if there is one", arguments: [0, 3_600_000])
    func old(age: Int) async throws {
        try await withQueue { queue in
            let now = Int(Date().timeIntervalSince1970 * 1000)
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
        let results = try await StoredResult.read(after: "0", count: 10, queue.client, queue.keys)
        let lines = results.map {
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

    @Test("include a job that was not sent because another has its id")
    func duplicates() async throws {
        let worker = try await queue.worker("w", claiming: ["one", "two"], Self.limits)
        var reservations = [Reservation.bare(worker.id(1), "one", id: "x"), .bare(worker.id(2), "two", id: "x")]
        reservations[0].results = .of(Self.result("first", .dropped))
        reservations[1].results = .of(Self.result("second", .dropped))
        #expect(try await worker.reserve(reservations) == [.granted, .duplicate])
        #expect(try await worker.reserve(reservations) == [.granted, .lost])
        #expect(try await Self.ids(queue) == ["second"])
    }
}
