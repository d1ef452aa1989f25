import NIOCore
import PushQueue
import QueueTestSupport
import TestSupport
import Testing

@Suite("Queue connections, when Redis has changed")
struct QueueConnectionTests {
    @Test("a server that lost the scripts gets them again")
    func scriptFlush() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            let worker = queue.worker("w")
            var first = 1
            // The server knows the scripts in the second round only; before the last two it has forgotten them.
            for _ in 0..<4 {
                try queue.push(["a", "b", "c"])
                #expect(try await worker.claim(3, first: first).bodies.count == 3)
                #expect(try await worker.settle { $0.end(first, .delivered) } == 0)
                #expect(try await worker.reserve([.bare(worker, first + 1, id: "\(first)")]) == [.granted])
                #expect(try await queue.worker("x").reclaim("w") == nil)
                #expect(try await worker.release() == 2)
                try queue.redis.run("DEL", queue.keys.jobs)
                first += 3
                if first > 6 { #expect(try queue.redis.run("SCRIPT", "FLUSH") == .status("OK")) }
            }
            #expect(try queue.stats() == ["delivered": 4])
        }
    }

    @Test("commands that were sent together all recover, and each is run once")
    func scriptFlushWhilePipelined() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            let worker = try await queue.worker("w", claiming: (1...100).map { "job \($0)" })
            try await worker.settle { $0.end(100, .delivered) }
            try queue.redis.run("SCRIPT", "FLUSH")
            let lost = try await withThrowingTaskGroup(of: Int.self) { group in
                for claim in 1...99 { group.addTask { try await worker.settle { $0.end(claim, .delivered) } } }
                return try await group.reduce(0, +)
            }
            #expect(lost == 0)
            #expect(try queue.stats() == ["delivered": 100])
        }
    }

    @Test("scripts are sent once, and called by their digest then")
    func digests() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            let worker = queue.worker("w")
            for _ in 0..<50 { _ = try await worker.claim(0) }
            let calls = try queue.redis.calls()
            #expect(calls["eval"] == 1 && calls["evalsha"] == 49)
        }
    }

    /// Returns the keys that a script reads or writes, and whose type it checks.
    private func keys(_ script: QueueScript, _ queue: TestQueue) throws -> [String] {
        let keys = queue.keys
        let stats = try #require(queue.redis.run("KEYS", keys.statsPrefix + "*").elements?.first?.text)
        return switch script {
        case .claim:
            [
                keys.jobs, keys.retry, keys.failed, keys.claimed("w"), keys.inbox, keys.workers, keys.dead,
                keys.results, stats,
            ]
        case .reserve: [keys.claimed("w"), keys.unique(ByteBuffer(string: "x")).text]
        case .settle: [keys.claimed("w"), keys.retry, keys.failed, keys.dead, keys.cancelled, keys.results, stats]
        case .reclaim: [keys.workers, keys.claimed("w"), keys.jobs, keys.failed, keys.dead, keys.results, stats]
        case .release: [keys.workers, keys.claimed("w"), keys.inbox, keys.jobs, keys.failed]
        // Other tests cover the keys of the other scripts.
        default: []
        }
    }

    @Test(
        "a key of the wrong type is named, and nothing is changed, lost or duplicated",
        arguments: [QueueScript.claim, .reserve, .settle, .reclaim, .release])
    func wrongType(script: QueueScript) async throws {
        try await withQueue { queue in
            let limits = QueueLimits { ($0.maximumJobSize, $0.maximumReclaims, $0.results) = (20, 0, .all) }
            let worker = try await queue.worker("w", claiming: ["job 1", "job 2", "job 3", "job 4"], limits)
            try await worker.settle { $0.end(4, .delivered, results: .sample) }
            try queue.push(["fresh", "much too large to be claimed by this worker"])
            for set in queue.keys.postponed { try queue.redis.run("ZADD", set, "1", "due") }
            try queue.redis.run("RPUSH", queue.keys.inbox, "waited")
            for key in [queue.keys.dead, queue.keys.cancelled] { try queue.redis.run("ZADD", key, "1", "{}\nolder") }
            if script == .reclaim { try queue.endLease("w") }
            if script == .reserve {
                #expect(try await worker.reserve([.bare(worker, 1, id: "x")]) == [.granted])
            }
            for key in try keys(script, queue) {
                #expect(try queue.redis.run("RENAME", key, key + ":away") == .status("OK"))
                // A key that holds a string is replaced by another type.
                let kind = key.contains(":unique:") ? "list" : "string"
                try queue.redis.run(kind == "list" ? "RPUSH" : "SET", key, "something else")
                let before = try queue.everything()
                let failure = await #expect(throws: QueueFailure.self) {
                    switch script {
                    // A claim that does not look around would lose the large job.
                    case .claim: _ = try await worker.claim(10, first: 5, join: false)
                    case .reserve:
                        // The second reservation finds the wrong type, after the first could have been granted.
                        _ = try await worker.reserve([
                            .bare(worker, 2, id: "new"), .bare(worker, 3, id: "x"),
                        ])
                    case .settle:
                        try await worker.settle {
                            $0.end(1, .delivered)
                            $0.retry(2)
                            $0.bury(3, reason: "X")
                        }
                    case .reclaim: try await queue.worker("x", limits).reclaim("w")
                    default: try await worker.release()
                    }
                }
                let text = failure?.description ?? ""
                if script == .claim {
                    await #expect(throws: QueueFailure.self) { _ = try await worker.claim(10, first: 5) }
                }
                #expect(text.contains("WRONGTYPE \(key) holds a \(kind)"), "\(text)")
                #expect(text.ranges(of: "rename or delete that key").count == 1, "\(text)")
                #expect(try queue.everything() == before, "\(key)")
                // A lane that can't be reclaimed is not tried again for an hour.
                if script == .reclaim, key == queue.keys.claimed("w") { try queue.endLease("w") }
                #expect(try queue.redis.run("RENAME", key + ":away", key) == .status("OK"))
            }
        }
    }

    @Test("a lease is renewed even while the list of jobs is not one")
    func renewalDespiteWrongType() async throws {
        try await withQueue { queue in
            try queue.redis.run("SET", queue.keys.jobs, "something else")
            _ = try await queue.worker("w").claim(0)
            #expect(try queue.workers() == ["w"])
        }
    }

    @Test("on a server whose memory is full, settlements work, and producers are refused")
    func outOfMemory() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            let limits = QueueLimits { ($0.maximumJobSize, $0.maximumReclaims) = (100, 0) }
            let worker = try await queue.worker("w", claiming: (1...8).map { "job \($0)" }, limits)
            try queue.push(["fresh", String(repeating: "x", count: 200)])
            try queue.push(retry: "due", at: 1)
            _ = try await queue.worker("gone", limits).claim(0)
            try queue.endLease("gone")
            try queue.redis.run("CONFIG", "SET", "maxmemory", "1")
            #expect(try queue.redis.run("RPUSH", queue.keys.jobs, "one more").text?.hasPrefix("OOM") == true)
            // Renewal, claims with retries and a job that is too large, reservations, all kinds of settlements.
            _ = try await worker.claim(0)
            #expect(try await Set(worker.claim(5, first: 9).texts) == ["fresh", "due"])
            #expect(try await worker.reserve([.bare(worker, 1, id: "x")]) == [.granted])
            let lost = try await worker.settle {
                $0.bury(6, reason: "Part", attempts: 1, members: ByteBuffer(), original: 0..<5, settles: false)
                $0.endMixed(6)
            }
            #expect(lost == 0)
            #expect(try await worker.settle { $0.retry(2) } == 0)
            #expect(try await worker.settle { $0.bury(3, reason: "X") } == 0)
            #expect(try await worker.settle { $0.end(4, .delivered, results: .sample) } == 0)
            #expect(try await worker.settle { $0.end(5, .delivered) } == 0)
            #expect(try await queue.worker("other", limits).reclaim("gone") == [0, 0])
            try queue.redis.run("CONFIG", "SET", "maxmemory", "0")
            try queue.endLease("w")
            try queue.redis.run("CONFIG", "SET", "maxmemory", "1")
            let counts = try await queue.worker("other", limits).reclaim("w")
            #expect(counts == [0, 5])
            let last = queue.worker("last", limits)
            #expect(try await last.claim(5).bodies.count == 1)
            #expect(try await last.release() == 1)
            try queue.redis.run("CONFIG", "SET", "maxmemory", "0")
            #expect(try queue.jobs().isEmpty && queue.retries().count == 1 && queue.dead().count == 8)
        }
    }
}
