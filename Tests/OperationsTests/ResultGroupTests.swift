import NIOCore
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("A consumer group of results", .queue)
struct ResultGroupTests {
    private let queue = QueueScope.queue

    private func group(_ name: String, _ consumer: String = "a") -> ResultGroup {
        ResultGroup(queue.client, queue.keys, group: name, consumer: consumer)
    }

    private func newGroup() async throws -> ResultGroup {
        let group = group("g")
        _ = try await group.open(since: nil)
        return group
    }

    private func add(_ count: Int) throws {
        for number in 0..<count { try queue.redis.run("XADD", queue.keys.results, "*", "id", "\(number)") }
    }

    private func ids(_ page: ResultPage) -> [String] { page.results.map { $0["id"] ?? "" } }

    @Test("is created once, from now on or from a time, even if the stream does not exist")
    func creation() async throws {
        let now = group("now")
        #expect(try await now.open(since: nil) == .new(skipped: 0))
        #expect(try await now.open(since: nil) == .existing)
        try queue.redis.run("XADD", queue.keys.results, "5000-0", "id", "a")
        try queue.redis.run("XADD", queue.keys.results, "5000-1", "id", "b")
        try queue.redis.run("XADD", queue.keys.results, "5001-0", "id", "c")
        #expect(ids(try await now.take(10, waiting: nil)) == ["a", "b", "c"])
        let since = group("since")
        #expect(try await since.open(since: 5000) == .new(skipped: 0))
        #expect(ids(try await since.take(10, waiting: nil)) == ["a", "b", "c"])
        let later = group("later")
        #expect(try await later.open(since: 5001) == .new(skipped: 0))
        #expect(ids(try await later.take(10, waiting: 1)) == ["c"])
        let all = group("all")
        #expect(try await all.open(since: 0) == .new(skipped: 0))
        #expect(try await all.take(2, waiting: nil).entries.count == 2)
        #expect(try await group("none").open(since: nil) == .new(skipped: 3))
    }

    @Test("A lost group continues with the first entry that it has not handled, for any consumer.")
    func continued() async throws {
        for (name, destroysStream, remembers) in [
            ("group", false, false), ("group", false, true), ("stream", true, false), ("stream", true, true),
        ] {
            let group = group("\(name) \(remembers)")
            _ = try await group.open(since: nil)
            try add(5)
            let entries = try await group.take(3, waiting: nil).entries
            var last = try await group.acknowledge([entries[0], entries[2]])
            #expect(last.entry == entries[1] && !last.isHandled)
            last = try await group.acknowledge([])
            if destroysStream {
                try queue.redis.run("DEL", queue.keys.results)
            } else {
                try queue.redis.run("XGROUP", "DESTROY", queue.keys.results, group.name)
            }
            await #expect(throws: RedisError.self) { _ = try await group.acknowledge([]) }
            let before = try queue.redis.run("HGET", queue.keys.resultsPositions, group.name).text
            #expect(before == "0 \(entries[1])")
            // Later than the first entries, also on a fast machine.
            let later = (Int(entries[2].prefix { $0 != "-" }) ?? 0) + 1000
            for number in 0..<2 {
                try queue.redis.run("XADD", queue.keys.results, "\(later)-\(number + 1)", "id", "\(number)")
            }
            let opening = try await group.open(since: nil, after: remembers ? last : nil)
            let page = try await group.take(10, waiting: nil)
            if destroysStream {
                #expect(ids(page) == ["0", "1"])
                guard case .restarted = opening else { Issue.record("\(opening)"); continue }
            } else {
                #expect(ids(page) == ["1", "2", "3", "4", "0", "1"])
                guard case .continued = opening else { Issue.record("\(opening)"); continue }
            }
            // Once all entries are handled, the group continues after the last one.
            #expect(try await group.acknowledge(page.entries).isHandled)
            try queue.redis.run("XGROUP", "DESTROY", queue.keys.results, group.name)
            _ = try await group.open(since: nil)
            #expect(try await group.take(10, waiting: nil).entries.isEmpty)
            try queue.redis.run("DEL", queue.keys.results)
        }
    }

    @Test("A group begins with the first entry if Redis was emptied, or its clock was set back.")
    func restarted() async throws {
        let group = try await newGroup()
        try add(2)
        let last = try await group.acknowledge(try await group.take(10, waiting: nil).entries)
        #expect(last.isHandled && last.waiting ?? 0 == 0)
        try queue.redis.run("DEL", queue.keys.results, queue.keys.resultsPositions)
        #expect(try await group.open(since: nil, after: last) == .restarted(lost: last))
        try add(1)
        #expect(ids(try await group.take(10, waiting: nil)) == ["0"])
        _ = try await group.acknowledge([])
        try queue.redis.run("DEL", queue.keys.results)
        try queue.redis.run("XADD", queue.keys.results, "5000-0", "id", "early")
        guard case .restarted = try await group.open(since: nil) else { Issue.record("continued"); return }
        #expect(ids(try await group.take(10, waiting: nil)) == ["early"])
    }

    @Test("delivers each entry to one consumer, until it is acknowledged or reclaimed")
    func consumers() async throws {
        let (a, b) = (try await newGroup(), group("g", "b"))
        try add(6)
        let page = try await a.take(4, waiting: nil)
        #expect(ids(page) == ["0", "1", "2", "3"])
        let taken = page.entries
        #expect(ids(try await b.take(10, waiting: nil)) == ["4", "5"])
        #expect(try await a.take(10, waiting: 1).entries.isEmpty)
        try await a.acknowledge([taken[0]])
        let pending = try await b.pending(of: "a", count: 10)
        #expect(pending.map(\.entry) == Array(taken.dropFirst()) && pending.allSatisfy { $0.deliveries == 1 })
        // No consumer takes over entries of an active consumer.
        #expect(try await b.reclaim(pending.map(\.entry), idle: 60_000).entries.isEmpty)
        #expect(try await b.pending(of: "a", count: 10).count == 3)
        #expect(ids(try await b.reclaim([pending[0].entry], idle: 0)) == ["1"])
        #expect(try await b.pending(of: "b", count: 10).map(\.deliveries) == [2, 1, 1])
        #expect(try await b.pending(after: pending[0].entry, count: 1).map(\.entry) == [pending[1].entry])
    }

    @Test("renewing keeps entries with their consumer; parking copies a result, which keeps its id")
    func parking() async throws {
        let group = try await newGroup()
        try add(3)
        let page = try await group.take(3, waiting: nil)
        let entries = page.entries
        try await eventually("they have been idle") { try await group.pending(idle: 500, count: 9).count == 3 }
        try await group.renew([entries[0]])
        #expect(!(try await group.pending(idle: 500, count: 9)).map(\.entry).contains(entries[0]))
        #expect(try await group.pending(count: 9).allSatisfy { $0.deliveries == 1 })
        for result in page.results { try await group.park(result) }
        let parked = try await group.parked(count: 2)
        #expect(parked.map(\.id) == page.results.prefix(2).map(\.id) && parked[1]["id"] == "1")
        #expect(try await group.parked(after: parked[1], count: 9).map(\.id) == [page.results[2].id])
        // A parked result is not parked again.
        try await group.park(parked[0])
        try await group.removeParked([parked[1], page.results[0]])
        #expect(try await group.parked(count: 9).map { $0["id"] } == ["0", "2"])
        #expect(try await self.group("other").parked(count: 9).isEmpty)
        try await group.leave()
        #expect(try await group.pending(count: 9).count == 3)
        try await group.acknowledge(entries)
        try await group.leave()
        #expect(try queue.redis.run("XINFO", "CONSUMERS", queue.keys.results, "g").elements?.isEmpty == true)
    }

    @Test("a parked result keeps all of its fields, also one of an entry that can't be read")
    func parkedFields() async throws {
        let group = try await newGroup()
        try queue.redis.run(
            "XADD", queue.keys.results, "*", "results",
            #"[{"outcome":"dead","status":400,"labels":{"a":"b"},"notifications":[{},{"id":"\u00fc"}]}]"#)
        try queue.redis.run("XADD", queue.keys.results, "*", "results", "[", "entry", "own")
        let results = try await group.take(9, waiting: nil).results
        #expect(results.count == 3)
        for result in results { try await group.park(result) }
        let parked = try await group.parked(count: 9)
        for (result, parked) in zip(results, parked) {
            #expect(parked.id == result.id)
            for name in ["id", "outcome", "status", "labels", "time", "results"] {
                #expect(parked[name] == result[name], "\(name)")
            }
        }
        #expect(parked.map { $0["id"] } == [nil, "ü", nil] && parked[2]["results"] == "[")
    }

    @Test("drops results that the stream has evicted in the meantime")
    func dropped() async throws {
        let group = try await newGroup()
        try add(3)
        let entries = try await group.take(3, waiting: nil).entries
        try queue.redis.run("XDEL", queue.keys.results, entries[1])
        #expect(ids(try await group.reclaim(entries, idle: 0)) == ["0", "2"])
        #expect(try await group.pending(count: 9).map(\.entry) == [entries[0], entries[2]])
    }

    @Test("a lost group is reported by its code")
    func lost() async throws {
        let group = try await newGroup()
        try queue.redis.run("DEL", queue.keys.results)
        let error = await #expect(throws: RedisError.self) { _ = try await group.take(1, waiting: nil) }
        guard case .server(let error) = error else { Issue.record("\(String(describing: error))"); return }
        #expect(error.prefix == "NOGROUP")
    }
}
