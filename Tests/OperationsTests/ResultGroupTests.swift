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
        _ = try await group.create(since: nil)
        return group
    }

    private func add(_ count: Int) throws {
        for number in 0..<count { try queue.redis.run("XADD", queue.keys.results, "*", "id", "\(number)") }
    }

    private func ids(_ results: [StoredResult]) -> [String] { results.map { $0["id"] ?? "" } }

    @Test("is created once, from now on or from a time, even if the stream does not exist")
    func creation() async throws {
        let now = group("now")
        #expect(try await now.create(since: nil))
        #expect(try await !now.create(since: nil))
        try queue.redis.run("XADD", queue.keys.results, "5000-0", "id", "a")
        try queue.redis.run("XADD", queue.keys.results, "5000-1", "id", "b")
        try queue.redis.run("XADD", queue.keys.results, "5001-0", "id", "c")
        #expect(ids(try await now.take(10, waiting: nil)) == ["a", "b", "c"])
        let since = group("since")
        #expect(try await since.create(since: 5000))
        #expect(ids(try await since.take(10, waiting: nil)) == ["a", "b", "c"])
        let later = group("later")
        #expect(try await later.create(since: 5001))
        #expect(ids(try await later.take(10, waiting: 1)) == ["c"])
        let all = group("all")
        #expect(try await all.create(since: 0))
        #expect(try await all.take(2, waiting: nil).count == 2)
    }

    @Test("delivers each result to one consumer, until it is acknowledged or reclaimed")
    func consumers() async throws {
        let (a, b) = (try await newGroup(), group("g", "b"))
        try add(6)
        let taken = try await a.take(4, waiting: nil)
        #expect(ids(taken) == ["0", "1", "2", "3"])
        #expect(ids(try await b.take(10, waiting: nil)) == ["4", "5"])
        #expect(try await a.take(10, waiting: 1).isEmpty)
        try await a.acknowledge([taken[0].entry])
        let pending = try await b.pending(of: "a", count: 10)
        #expect(pending.map(\.entry) == taken.dropFirst().map(\.entry) && pending.allSatisfy { $0.deliveries == 1 })
        // No consumer takes over from one that is active.
        #expect(try await b.reclaim(pending.map(\.entry), idle: 60_000).isEmpty)
        #expect(try await b.pending(of: "a", count: 10).count == 3)
        #expect(ids(try await b.reclaim([pending[0].entry], idle: 0)) == ["1"])
        #expect(try await b.pending(of: "b", count: 10).map(\.deliveries) == [2, 1, 1])
        #expect(try await b.pending(after: pending[0].entry, count: 1).map(\.entry) == [pending[1].entry])
    }

    @Test("renewing keeps results with their consumer; parking assigns them to none")
    func parking() async throws {
        let group = try await newGroup()
        try add(3)
        let entries = try await group.take(3, waiting: nil).map(\.entry)
        try await eventually("they have been idle") { try await group.pending(idle: 20, count: 9).count == 3 }
        try await group.renew([entries[0]])
        #expect(!(try await group.pending(idle: 20, count: 9)).map(\.entry).contains(entries[0]))
        #expect(try await group.pending(count: 9).allSatisfy { $0.deliveries == 1 })
        try await group.park([entries[1]])
        #expect(try await group.pending(of: ResultGroup.parked, count: 9).map(\.entry) == [entries[1]])
        try await group.leave()
        #expect(try await group.pending(count: 9).count == 3)
        try await group.acknowledge([entries[0], entries[2]])
        try await group.leave()
        let consumers = try queue.redis.run("XINFO", "CONSUMERS", queue.keys.results, "g").elements ?? []
        #expect(consumers.compactMap { $0.elements?[1].text } == [ResultGroup.parked])
    }

    @Test("drops results that the stream has evicted in the meantime")
    func dropped() async throws {
        let group = try await newGroup()
        try add(3)
        let entries = try await group.take(3, waiting: nil).map(\.entry)
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
