import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("The audit log", .queue)
struct AuditLogTests {
    private let queue = QueueScope.queue

    @Test("records the operator, the action and the time, for every action and interface")
    func entries() async throws {
        let (client, keys) = (queue.client, queue.sharedKeys)
        #expect(try await AuditLog.latest(10, client, keys).isEmpty)
        let before = try #require(queue.redis.run("TIME").elements?.first?.text.flatMap { Int64($0) }) * 1000
        for (index, action) in AuditEntry.Action.allCases.enumerated() {
            let entry = AuditEntry(
                action, "queue \(index)", by: "ana@ops", count: index % 2 == 0 ? index : nil,
                detail: index % 3 == 0 ? "APNs is down" : nil, via: index % 2 == 0 ? .cli : .web)
            #expect(try await !AuditLog.record(entry, client, keys).isEmpty)
        }
        let entries = try await AuditLog.latest(1000, client, keys)
        #expect(entries.map(\.action) == AuditEntry.Action.allCases.reversed())
        let first = try #require(entries.last)
        #expect(first.subject == "queue 0" && first.by == "ana@ops" && first.count == 0 && first.via == .cli)
        #expect(first.detail == "APNs is down" && (0..<60_000).contains(first.at - before))
        #expect(entries[entries.count - 2].via == .web && entries[entries.count - 2].count == nil)
        #expect(entries[entries.count - 2].detail == nil)
    }

    @Test("is read page by page, newest first")
    func pages() async throws {
        let (client, keys) = (queue.client, queue.sharedKeys)
        for number in 0..<25 {
            try await AuditLog.record(.init(.requeue, "\(number)", by: "b", via: .web), client, keys)
        }
        var subjects: [String] = []
        var last: String?
        while true {
            let page = try await AuditLog.latest(10, before: last, client, keys)
            #expect(page.count <= 10)
            guard !page.isEmpty else { break }
            subjects += page.map(\.subject)
            last = page.last?.id
        }
        #expect(subjects == (0..<25).reversed().map { "\($0)" })
        #expect(try await AuditLog.latest(-5, client, keys).map(\.subject) == ["24"])
    }

    @Test("keeps about the last ten thousand actions")
    func cap() async throws {
        let (client, keys) = (queue.client, queue.sharedKeys)
        for number in 0..<10_300 {
            try queue.redis.run("XADD", keys.audit, "*", "action", "pause", "subject", "\(number)")
        }
        try await AuditLog.record(.init(.resume, "last", by: "b", via: .cli), client, keys)
        let length = try #require(queue.redis.run("XLEN", keys.audit).number)
        #expect((10_000...10_200).contains(length))
        #expect(try await AuditLog.latest(5000, client, keys).count == AuditLog.maximumPage)
    }

    @Test("has texts that are printable, short, and without device tokens")
    func texts() async throws {
        let token = String(repeating: "0a1B2c3D", count: 8)
        let base64 = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA="
        let entry = AuditEntry(
            .removeInvalidTokens, "tokens \(token), \(token)\u{1B}[2J", by: "eve\nroot\u{202E}", count: 2,
            detail: "token=\(base64) of job 0af7651916cd43dd8448eb211c80319c " + String(repeating: "x", count: 2000),
            via: .web)
        #expect(entry.subject == "tokens 0a1B2c3D…, 0a1B2c3D…[2J" && entry.by == "everoot")
        let detail = try #require(entry.detail)
        #expect(detail.hasPrefix("token=q83vEjRW…= of job 0af7651916cd43dd8448eb211c80319c xxx"))
        #expect(detail.unicodeScalars.count == 500 && detail.hasSuffix("x…"))
        // A token among unprintable characters, and a text that is longer than texts can be.
        let hidden = token.map { "\($0)\u{200E}" }.joined()
        let long = String(repeating: token, count: 20)
        let other = AuditEntry(.testSend, hidden, by: long, detail: "", via: .cli)
        #expect(other.subject == "0a1B2c3D…" && other.by == "0a1B2c3D…" && other.detail == nil)
        // A token in the base64 alphabet for URLs.
        let forURLs = AuditEntry(.cancelJobs, "match=q83vEjRWeJCrze8S-FZ4kKvN_xI0VniQq83vEjRWeJA", by: "a", via: .web)
        #expect(forURLs.subject == "match=q83vEjRW…")
        // A text that is not a token stays readable.
        let name = "spring-sale/2026/all-customers-of-the-northern-and-southern-shops"
        #expect(AuditEntry(.cancelCampaign, name, by: "a", via: .cli).subject == name)

        let (client, keys) = (queue.client, queue.sharedKeys)
        try await AuditLog.record(entry, client, keys)
        let bytes = try queue.redis.run("XRANGE", keys.audit, "-", "+")
        #expect(!"\(bytes)".contains(token))
        var stored = try #require(try await AuditLog.latest(1, client, keys).first)
        (stored.id, stored.at) = ("", 0)
        #expect(stored == entry)
    }

    @Test("shows entries of other versions and programs, as far as they can be read")
    func others() async throws {
        let (client, keys) = (queue.client, queue.sharedKeys)
        try queue.redis.run(
            "XADD", keys.audit, "*", "action", "launch\u{1B}", "by", String(repeating: "z", count: 9000), "via", "fax",
            "count", "many")
        try queue.redis.run("XADD", keys.audit, "*", "x", "y")
        let entries = try await AuditLog.latest(10, client, keys)
        #expect(entries.count == 2 && entries.allSatisfy { $0.action == nil && $0.via == nil && $0.count == nil })
        #expect(entries[1].actionName == "launch" && entries[1].by.unicodeScalars.count == 100)
        #expect(entries[0].actionName.isEmpty && entries[0].subject.isEmpty)
    }

    @Test("a key of another type is an error")
    func wrongType() async throws {
        try queue.redis.run("SET", queue.sharedKeys.audit, "x")
        await #expect(throws: RedisError.self) {
            try await AuditLog.record(.init(.pause, "x", by: "b", via: .cli), queue.client, queue.sharedKeys)
        }
    }
}
