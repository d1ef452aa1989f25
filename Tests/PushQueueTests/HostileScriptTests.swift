import NIOCore
import Operations
import QueueTestSupport
import TestSupport
import Testing

@testable import PushQueue

/// Jobs, wrappers and keys that any producer, or an operator with `redis-cli`, could write. Even if a script fails, the number of jobs
/// stays the same.
@Suite("Scripts with hostile data")
struct HostileScriptTests {
    /// Texts that JSON parsers read differently, and JSON numbers that Lua changes.
    private static let values: [[UInt8]] =
        JSONCase.all.map(\.bytes)
        + [
            "1e999", "-1e999", "[1e999]", "nan", "[nan]", "NaN", "Infinity", "-Infinity", "0x10", "1e308", "0.5", "-1",
            "-0", "9007199254740993", "2147483647", "2147483648", "[]", "{}", "null", "true", "\"\"", "\"\\u0000\"",
            "[\"a\"]", "[\"a\",1]", "[[\"a\"]]", "[\"a\",null]", "{\"1\":\"a\"}", "{\"1\":\"a\",\"3\":\"b\"}",
            "\"job\":", "\"\\\"job\\\":\"", String(repeating: "[", count: 2000),
            "[" + String(repeating: "\"a\",", count: 3000) + "\"a\"]",
        ].map { Array($0.utf8) }

    private static let members = [
        "attempt", "reclaims", "requeues", "enqueued", "reserved", "id", "origin", "claim", "error", "tokens", "other",
    ]

    /// Returns bodies with a value as a job, an original, a member of a wrapper, and a wrapper's head.
    private static func bodies(of value: [UInt8]) -> [[UInt8]] {
        func body(_ before: String, _ after: String) -> [UInt8] { Array(before.utf8) + value + Array(after.utf8) }
        let mark = #"{"apns_worker":1,"#
        return [value, body(mark, ""), body(mark, #","job":x}"#), body(mark + #""job":"#, "}")]
            + members.map { body(mark + "\"\($0)\":", ",\"job\":{}}") }
            + members.map { body(mark + "\"reclaims\":5,\"\($0)\":", ",\"tokens\":[\"ab\"],\"job\":{}}") }
    }

    @Test("as jobs and as wrappers", arguments: [20, 1 << 20])
    func jobs(maximumJobSize: Int) async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            var random = SeededGenerator(seed: 20)
            var bodies = Self.values.flatMap(Self.bodies)
            for _ in 0..<500 {
                let bytes = (0..<Int.random(in: 0...80, using: &random)).map { _ in
                    UInt8.random(in: 0...255, using: &random)
                }
                let start = Int.random(in: 0...17, using: &random)
                bodies += [bytes, Array(#"{"apns_worker":1,"#.utf8.prefix(start)) + bytes + Array("}".utf8)]
            }
            for start in stride(from: 0, to: bodies.count, by: 200) {
                let some = Array(bodies[start..<min(bodies.count, start + 200)])
                try queue.redis.run([Array("RPUSH".utf8), Array(queue.keys.jobs.utf8)] + some)
                try await Self.walk(queue, maximumJobSize, expecting: some.count)
                try queue.redis.run("FLUSHALL")
            }
        }
    }

    /// Moves jobs through claims and reclaims to the dead letters, and back again.
    private static func walk(_ queue: TestQueue, _ maximumJobSize: Int, expecting count: Int) async throws {
        let limits = QueueLimits { ($0.maximumJobSize, $0.maximumReclaims, $0.results) = (maximumJobSize, 3, .all) }
        for round in 0..<5 {
            let worker = queue.worker("w\(round)", limits)
            var first = 1
            while true {
                let claimed = try await worker.claim(150, first: first, sort: round > 1)
                try #require(try self.count(queue) == count)
                if claimed.bodies.isEmpty, claimed.nextDue != 0 { break }
                first += claimed.bodies.count
            }
            try queue.endLease(worker.name)
            try await queue.worker("x", limits).reclaim(worker.name)
            try #require(try self.count(queue) == count)
        }
        let left = try queue.jobs()
        #expect(left == [])
        #expect(try queue.dead().count == count)
        for letter in try queue.dead() { #expect(try jsonObject(letter.header), "\(letter.header.text)") }
        let letters = DeadLetters(queue.client, queue.keys)
        var cursor: String?
        repeat {
            let page = try await letters.page(
                .requeue(first: false, keepsAttempts: true), DeadLetterFilter(), after: cursor, limit: 1000)
            cursor = page.cursor
        } while cursor != nil
        try #require(try self.count(queue) == count)
        #expect(try queue.dead().isEmpty && queue.redis.run("EXISTS", queue.keys.deadBytes).number == 0)
    }

    private static func count(_ queue: TestQueue) throws -> Int {
        let keys = queue.keys
        var sum = 0
        for (command, key) in [
            ("LLEN", keys.jobs), ("LLEN", keys.inbox), ("ZCARD", keys.retry), ("ZCARD", keys.failed),
            ("ZCARD", keys.sorted), ("ZCARD", keys.dead),
        ] {
            sum += try queue.redis.run(command, key).number ?? 0
        }
        for key in try queue.redis.run("KEYS", keys.claimed("*")).elements?.compactMap(\.text) ?? [] {
            sum += try queue.redis.run("HLEN", key).number ?? 0
        }
        return sum
    }

    /// Commands that store unexpected values under each key, which is `K` in them.
    private static let hostilities: [(key: @Sendable (QueueKeys) -> String, commands: [[String]])] = [
        (
            { $0.next("w") },
            ["", "x y z", "1e999 1 a", "99999999999999999999 5 a", "nan nan nan"].map { ["SET", "K", $0] }
        ),
        (
            { $0.deadBytes },
            ["x", "-5", "1e999", "9223372036854775807"].map { ["SET", "K", $0] } + [["RPUSH", "K", "x"]]
        ),
        ({ $0.retry }, [("-inf", "a"), ("+inf", "b"), ("1e300", "c"), ("0.5", "")].map { ["ZADD", "K", $0, $1] }),
        ({ $0.failed }, [("-inf", "a"), ("+inf", "b"), ("1e300", "c"), ("0.5", "")].map { ["ZADD", "K", $0, $1] }),
        ({ $0.sorted }, [("-inf", "a"), ("+inf", "b"), ("1e300", "c"), ("0.5", "")].map { ["ZADD", "K", $0, $1] }),
        (
            { $0.shares },
            [
                ["SET", "K", "x"], ["HSET", "K", "number", "nan", "time", "inf", "by:", "-inf"],
                ["HSET", "K", "x", "y"],
            ]
        ),
        ({ $0.workers }, [("-inf", ""), ("+inf", "\"\n"), ("1", "w:*")].map { ["ZADD", "K", $0, $1] }),
        (
            { $0.dead },
            [("+inf", "x"), ("1e300", "{\"v\":1}\n"), ("1e15", "{\"reason\":\"a\",\"tokens\":[1e999]}\nx")]
                .map { ["ZADD", "K", $0, $1] }
        ),
        ({ $0.workerInfo }, [["SET", "K", "x"], ["HSET", "K", "w", "\u{0}"]]),
        ({ $0.order("p") }, [["RPUSH", "K", "x"], ["SET", "K", "\u{0}"]]),
        ({ $0.results }, [["XADD", "K", "18446744073709551615-18446744073709551615", "a", "b"]]),
        ({ $0.gauges }, [["SET", "K", "x"], ["RPUSH", "K", "x"]]),
        ({ $0.claimed("w") }, [["HSET", "K", "x", "y", "1.a", "z", "99999999999999999999.b", "", "", "e"]]),
    ]

    @Test("as the values of each key", arguments: hostilities.indices)
    func keys(index: Int) async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            var limits = QueueLimits()
            limits.maximumJobSize = 100
            limits.maximumReclaims = 0
            limits.results = .all
            limits.maximumDeadLetters = 100
            let (name, commands) = Self.hostilities[index]
            let key = name(queue.keys)
            for command in commands {
                let worker = try await queue.worker("w", claiming: (1...6).map { "job \($0)" }, limits)
                try queue.push(["fresh", String(repeating: "x", count: 200)])
                try queue.push(retry: "due", at: 1)
                try queue.redis.run("HSET", queue.keys.stats("2026-11-22"), "dead", "x", "delivered", "x")
                try queue.redis.run("DEL", key)
                let kept = try Self.count(queue)
                try queue.redis.run(command.map { Array(($0 == "K" ? key : $0).utf8) })
                let added = try Self.count(queue) - kept
                var report = WorkerReport()
                report.process = "p"
                let heartbeat = WorkerHeartbeat(report, uptime: 1)
                func attempt(ending ended: Int = 0, _ body: () async throws -> Void) async throws {
                    let before = try Self.count(queue)
                    do {
                        try await body()
                        #expect(try Self.count(queue) == before - ended, "\(command)")
                    } catch is QueueFailure {
                        // A script that fails has changed nothing.
                        #expect(try Self.count(queue) == before, "\(command)")
                    }
                }
                try await attempt { _ = try await worker.claim(0, heartbeat: heartbeat) }
                try await attempt { _ = try await worker.claim(3, first: 7, heartbeat: heartbeat) }
                try await attempt { _ = try await queue.worker("v", limits).claim(9) }
                // If the key of the claims was replaced, claim 1 may not exist.
                let isOurs = !key.contains(":claimed:")
                try await attempt(ending: isOurs ? 1 : 0) {
                    try await worker.settle { $0.end(1, .delivered, results: .sample) }
                }
                try await attempt { try await worker.settle { $0.bury(2, reason: "X") } }
                try await attempt { try await worker.settle { $0.retry(3) } }
                try await attempt { _ = try await worker.reserve([.bare(worker, 4, id: "x")]) }
                try await attempt { try await queue.worker("v", limits).release() }
                try queue.endLease("w")
                try await attempt { try await queue.worker("v", limits).reclaim("w") }
                #expect(added >= 0)
                try queue.redis.run("FLUSHALL")
            }
        }
    }
}
