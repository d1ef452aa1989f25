import NIOCore
import PushQueue
import TestSupport
import Testing

@Suite("The claim script")
struct ClaimTests {
    @Test("an empty queue gives nothing, and the worker has its lease")
    func empty() async throws {
        try await withQueue { queue in
            let before = try #require(queue.redis.run("TIME").elements?.first?.number)
            let claimed = try await queue.worker("w").claim(10)
            let after = try #require(queue.redis.run("TIME").elements?.first?.number)
            #expect(claimed.bodies.isEmpty)
            #expect(!claimed.isPaused && !claimed.leaseLost)
            #expect(claimed.nextDue == nil && claimed.expiredWorker == nil)
            #expect(try queue.workers() == ["w"])
            #expect((before...after).contains(Int(claimed.now / 1000)))
            let lease = try #require(Double(queue.redis.run("ZSCORE", queue.keys.workers, "w").text ?? ""))
            #expect(Int64(lease) == claimed.now + 30_000)
        }
    }

    @Test("jobs come in their order, under consecutive numbers")
    func order() async throws {
        try await withQueue { queue in
            try queue.push(["a", "b", "c", "d"])
            let claimed = try await queue.worker("w").claim(3, first: 7)
            #expect(claimed.texts == ["a", "b", "c"])
            #expect(try queue.claims("w") == [7: "a", 8: "b", 9: "c"])
            #expect(try queue.jobs() == ["d"])
        }
    }

    @Test("a job that the blocking wait brought is the first")
    func inbox() async throws {
        try await withQueue { queue in
            try queue.push(["fresh"])
            try queue.push(retry: "again", at: 1)
            try queue.redis.run("RPUSH", queue.keys.inbox("w"), "waited")
            let claimed = try await queue.worker("w").claim(1)
            #expect(claimed.texts == ["waited"])
            #expect(try queue.inbox("w").isEmpty)
            #expect(try await Set(queue.worker("w").claimTexts(2, first: 2)) == ["fresh", "again"])
        }
    }

    @Test("retries wait until they are due, and the reply says for how long")
    func notYetDue() async throws {
        try await withQueue { queue in
            let now = try await queue.worker("w").claim(0).now
            try queue.push(retry: "later", at: now + 60_000)
            let claimed = try await queue.worker("w").claim(5)
            #expect(claimed.bodies.isEmpty)
            let due = try #require(claimed.nextDue)
            #expect(due > 50_000 && due <= 60_000)
            try queue.push(retry: "now", at: now)
            #expect(try await queue.worker("w").claim(0).nextDue == 0)
            #expect(try await queue.worker("w").claimTexts(5, first: 6) == ["now"])
        }
    }

    @Test("a count of 0 renews the lease and takes nothing")
    func renewal() async throws {
        try await withQueue { queue in
            try queue.push(["a"])
            try queue.redis.run("RPUSH", queue.keys.inbox("w"), "waited")
            let before = try queue.everything()
            #expect(try await queue.worker("w").claim(0).bodies.isEmpty)
            #expect(try queue.everything() == before)
            try queue.endLease("w")
            let claimed = try await queue.worker("w").claim(0, join: false)
            #expect(!claimed.leaseLost && claimed.expiredWorker == nil)
            #expect(try await queue.worker("x").reap("w") == nil)
        }
    }

    @Test("a paused queue gives nothing, but still what was claimed before")
    func paused() async throws {
        try await withQueue { queue in
            let worker = queue.worker("w")
            try queue.push(["a", "b"])
            try queue.push(retry: "again", at: 1)
            #expect(try await worker.claim(1).bodies.count == 1)
            try queue.redis.run("RPUSH", queue.keys.inbox("w"), "waited")
            try queue.redis.run("SET", queue.keys.paused, "maintenance")
            let before = try queue.everything()
            let claimed = try await worker.claim(5, first: 2)
            #expect(claimed.isPaused && claimed.bodies.isEmpty)
            #expect(try queue.everything() == before)
            let repeated = try await worker.claim(1)
            #expect(!repeated.isPaused && repeated.bodies.count == 1)
            try queue.redis.run("DEL", queue.keys.paused)
            #expect(try await worker.claim(5, first: 2).bodies.count == 3)
        }
    }

    @Test("passed on by the network after it was repeated and answered, it takes nothing, also of what is settled")
    func late() async throws {
        try await withQueue { queue in
            let worker = queue.worker("w")
            try queue.push(["a", "b", "c"])
            try await worker.claim(3)
            try await worker.settle { $0.end(1, .delivered) }
            try queue.push(["d"])
            // One of three is settled: the other two must not be overwritten.
            #expect(try await worker.claim(3).bodies.isEmpty)
            try await worker.settle { settlement in for number in 2...3 { settlement.end(number, .delivered) } }
            #expect(try await worker.claim(3).bodies.isEmpty)
            #expect(try queue.jobs() == ["d"] && queue.claims("w").isEmpty)
            #expect(try await worker.claimTexts(3, first: 4) == ["d"])
            // One that had brought nothing is no better.
            #expect(try await worker.claim(3, first: 7).bodies.isEmpty)
            try queue.push(["e"])
            #expect(try await worker.claim(3, first: 7).bodies.isEmpty)
            #expect(try await worker.claimTexts(3, first: 10) == ["e"])
            try await worker.release()
            #expect(try queue.everything().keys.allSatisfy { !$0.contains("next") })
        }
    }

    @Test("repeated with the same number, it gives the same jobs and takes no others")
    func twice() async throws {
        try await withQueue { queue in
            let worker = queue.worker("w")
            try queue.push((0..<10).map { "job \($0)" })
            for retry in 0..<3 { try queue.push(retry: "retry \(retry)", at: 1) }
            let first = try await worker.claim(6, first: 100)
            let before = try queue.everything()
            let second = try await worker.claim(6, first: 100)
            #expect(first.texts == second.texts && first.bodies.count == 6)
            #expect(try queue.everything() == before)
            let rest = try await worker.claim(50, first: 106)
            #expect(rest.bodies.count == 7)
            // A claim that brought less than it asked for is repeated as it was, though there is more now.
            try queue.push(["new"])
            #expect(try await worker.claim(50, first: 106).texts == rest.texts)
            #expect(try queue.jobs() == ["new"])
        }
    }

    @Test("a worker whose lease was taken gets nothing and is told so")
    func leaseLost() async throws {
        try await withQueue { queue in
            try queue.push(["a"])
            for count in [0, 5] {
                let claimed = try await queue.worker("w").claim(count, join: false)
                #expect(claimed.leaseLost && !claimed.isPaused)
            }
            #expect(try queue.workers().isEmpty)
            #expect(try queue.jobs() == ["a"])
            try queue.redis.run("SET", queue.keys.paused, "why")
            #expect(try await queue.worker("w").claim(5, join: false).leaseLost)
        }
    }

    @Test("the reply names a worker whose lease has ended, never the caller")
    func expired() async throws {
        try await withQueue { queue in
            for name in ["w", "x", "y"] { _ = try await queue.worker(name).claim(0) }
            #expect(try await queue.worker("w").claim(0).expiredWorker == nil)
            try queue.endLease("x")
            #expect(try await queue.worker("w").claim(0).expiredWorker == "x")
            #expect(try await queue.worker("x").claim(0).expiredWorker == nil)
        }
    }

    @Test("a job that is too large becomes a dead letter with its bytes untouched, and the others go on")
    func tooLarge() async throws {
        try await withQueue { queue in
            var limits = QueueLimits()
            limits.maximumJobSize = 100
            let big = String(repeating: "x\u{0}\n", count: 40)
            let again = #"{"v":1,"attempt":2,"claim":"w:9","tokens":["aa","bb"],"job":"# + big + "}"
            try queue.push([big, "a", big, "b"])
            try queue.push(retry: again, at: 1)
            let claimed = try await queue.worker("w", limits).claim(10)
            #expect(claimed.texts == ["a", "b"])
            #expect(try queue.claims("w") == [1: "a", 2: "b"])
            let dead = try queue.dead()
            // Two equal jobs are two letters, and a wrapper does not go with its original.
            #expect(dead.map(\.original.text) == [big, big, big])
            for letter in dead {
                #expect(letter.header.text.contains(#""reason":"JobTooLarge""#))
                #expect(letter.header.text.contains(#""size":120"#))
                #expect(try jsonObject(letter.header))
            }
            #expect(dead.count { $0.header.text.contains(#""tokens":["aa","bb"]"#) } == 1)
            #expect(try queue.stats() == ["dead": 4, "dead:JobTooLarge": 4])
        }
    }

    @Test("the limit of a job's size is the last that is let through")
    func exactSize() async throws {
        try await withQueue { queue in
            var limits = QueueLimits()
            limits.maximumJobSize = 10
            try queue.push(["0123456789", "0123456789a"])
            #expect(try await queue.worker("w", limits).claim(10).texts == ["0123456789"])
            #expect(try queue.dead().count == 1)
        }
    }

    @Test("what is beyond the claim's bytes goes back where it was, in its order")
    func byteBudget() async throws {
        try await withQueue { queue in
            var limits = QueueLimits()
            limits.maximumClaimSize = 25
            let fresh = (0..<6).map { "fresh-000\($0)" }
            let retries = (0..<6).map { "retry-000\($0)" }
            try queue.push(fresh)
            for (index, retry) in retries.enumerated() { try queue.push(retry: retry, at: Int64(index + 1)) }
            try queue.redis.run("RPUSH", queue.keys.inbox("w"), "inbox")
            let claimed = try await queue.worker("w", limits).claim(12)
            // One each: neither kind of job can keep the other out.
            #expect(claimed.texts.first == "inbox")
            #expect(Set(claimed.texts) == ["inbox", "fresh-0000", "retry-0000"])
            #expect(claimed.nextDue == 0)
            #expect(try queue.jobs() == Array(fresh.dropFirst()))
            #expect(try queue.retries() == Array(retries.dropFirst()))
            #expect(try queue.redis.run("ZSCORE", queue.keys.retry, "retry-0003") == "4")
            #expect(try queue.claims("w").count == 3)
        }
    }

    @Test("at least one job comes, however large it is")
    func atLeastOne() async throws {
        try await withQueue { queue in
            var limits = QueueLimits()
            limits.maximumClaimSize = 1
            try queue.push(["aaaa", "bbbb"])
            #expect(try await queue.worker("w", limits).claim(5).texts == ["aaaa"])
            #expect(try await queue.worker("w", limits).claim(5, first: 6).texts == ["bbbb"])
        }
    }

    @Test("bodies of any bytes come through, and thousands at once")
    func anyBytes() async throws {
        try await withQueue { queue in
            var random = SeededGenerator(seed: 5)
            var bodies = (0..<4000).map { _ in
                (0..<Int.random(in: 0...40, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random) }
            }
            bodies.append(Array(0...255))
            bodies.append([])
            try queue.redis.run([Array("RPUSH".utf8), Array(queue.keys.jobs.utf8)] + bodies)
            let claimed = try await queue.worker("w").claim(10_000)
            #expect(claimed.bodies.map { Array($0.readableBytesView) } == bodies)
            #expect(try await queue.worker("w").claim(10_000).bodies == claimed.bodies)
            #expect(try queue.redis.run("HLEN", queue.keys.claimed("w")).number == bodies.count)
        }
    }
}

@Suite("What a claim takes while retries and fresh jobs wait")
struct ClaimFairnessTests {
    @Test("over random mixes: half each while both wait, nothing lost, nothing doubled, fresh jobs in their order")
    func randomMixes() async throws {
        try await withQueue { queue in
            var random = SeededGenerator(seed: 2026)
            for mix in 0..<100 {
                let worker = queue.worker("w\(mix)")
                let now = try await worker.claim(0).now
                let fresh = (0..<Int.random(in: 0...40, using: &random)).map { "fresh \($0)" }
                let due = (0..<Int.random(in: 0...40, using: &random)).map { "due \($0)" }
                try queue.push(fresh)
                for job in due { try queue.push(retry: job, at: now - .random(in: 0...5, using: &random)) }
                try queue.push(retry: "later", at: now + 600_000)
                var (freshLeft, dueLeft, first) = (fresh.count, due.count, 1)
                var taken: [String] = []
                while freshLeft + dueLeft > 0 {
                    let count = Int.random(in: 1...20, using: &random)
                    let claimed = try await worker.claimTexts(count, first: first)
                    first += count
                    taken += claimed
                    let isFresh = claimed.count { $0.hasPrefix("fresh") }
                    #expect(claimed.count == min(count, freshLeft + dueLeft))
                    #expect(isFresh >= min(freshLeft, count / 2), "mix \(mix)")
                    #expect(claimed.count - isFresh >= min(dueLeft, count / 2), "mix \(mix)")
                    freshLeft -= isFresh
                    dueLeft -= claimed.count - isFresh
                    guard !claimed.isEmpty else { break }
                }
                #expect(taken.filter { $0.hasPrefix("fresh") } == fresh, "mix \(mix)")
                #expect(taken.filter { !$0.hasPrefix("fresh") }.sorted() == due.sorted(), "mix \(mix)")
                #expect(try queue.retries() == ["later"])
                try queue.redis.run("DEL", queue.keys.retry)
            }
        }
    }

    @Test("claims of one job take of both")
    func oneAtATime() async throws {
        try await withQueue { queue in
            try queue.push((0..<5000).map { "fresh \($0)" })
            for job in 0..<5000 { try queue.push(retry: "due \(job)", at: 1) }
            var kinds: Set<String> = []
            for claim in 1...5000 where kinds.count < 2 {
                kinds.formUnion(try await queue.worker("w").claimTexts(1, first: claim).map { String($0.prefix(3)) })
            }
            #expect(kinds == ["fre", "due"])
        }
    }

    @Test("large retries do not keep small fresh jobs out")
    func largeRetries() async throws {
        try await withQueue { queue in
            var limits = QueueLimits()
            limits.maximumClaimSize = 1000
            let piece = String(repeating: "p", count: 200)
            for job in 0..<200 { try queue.push(retry: piece + "\(job)", at: 1) }
            try queue.push((0..<50).map { "fresh \($0)" })
            var (fresh, first) = (0, 1)
            for _ in 0..<20 where fresh < 50 {
                fresh += try await queue.worker("w", limits).claimTexts(256, first: first)
                    .count { $0.hasPrefix("fresh") }
                first += 256
            }
            #expect(fresh == 50)
            #expect(try !queue.retries().isEmpty)
        }
    }
}

extension TestWorker {
    func claimTexts(_ count: Int, first: Int = 1) async throws -> [String] {
        try await claim(count, first: first).texts
    }
}

/// Whether a buffer is one JSON object and nothing else.
func jsonObject(_ buffer: ByteBuffer) throws -> Bool {
    let bytes = Array(buffer.readableBytesView)
    return bytes.jsonError == nil && bytes.first == UInt8(ascii: "{")
}
