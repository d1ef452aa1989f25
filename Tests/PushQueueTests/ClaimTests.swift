import Foundation
import NIOCore
import PushQueue
import QueueTestSupport
import TestSupport
import Testing

@testable import PushJob

@Suite("The claim script", .queue)
struct ClaimTests {
    private let queue = QueueScope.queue

    @Test("an empty queue returns nothing, and the worker has its lease")
    func empty() async throws {
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

    @Test("a job that the blocking wait returned is the first")
    func inbox() async throws {
        try queue.push(["fresh"])
        try queue.push(retry: "again", at: 1)
        try queue.redis.run("RPUSH", queue.keys.inbox, "waited")
        let claimed = try await queue.worker("w").claim(1)
        #expect(claimed.texts == ["waited"])
        #expect(try queue.inbox().isEmpty)
        #expect(try await Set(queue.worker("w").claimTexts(2, first: 2)) == ["fresh", "again"])
    }

    @Test("retries wait until they are due, and the reply says for how long")
    func notYetDue() async throws {
        let now = try await queue.worker("w").claim(0).now
        try queue.push(retry: "later", at: now + 60_000)
        let claimed = try await queue.worker("w").claim(5)
        #expect(claimed.bodies.isEmpty)
        let due = try #require(claimed.nextDue)
        #expect(due > 50_000 && due <= 60_000)
        try queue.push(retry: "now", at: now)
        #expect(try await queue.worker("w").claim(0).nextDue == 0)
        #expect(try await queue.worker("w").claimTexts(5) == ["now"])
    }

    @Test("a repeated claim returns the same jobs, also in parts; after a later claim it returns none")
    func parts() async throws {
        let worker = queue.worker("w")
        try queue.push((0..<6).map { "job \($0)" })
        let whole = try await worker.claimTexts(5)
        #expect(whole.count == 5)
        #expect(try await worker.claimTexts(2) == Array(whole.prefix(2)))
        #expect(try await worker.claimTexts(2, first: 3) == Array(whole[2..<4]))
        #expect(try await worker.claimTexts(256, first: 5) == [whole[4]])
        let later = try await worker.claimTexts(5, first: 6)
        #expect(later.count == 1 && !whole.contains(later[0]))
        for first in 1...5 { #expect(try await worker.claimTexts(5, first: first).isEmpty) }
    }

    @Test("a count of 0 renews the lease and claims nothing")
    func renewal() async throws {
        try queue.push(["a"])
        try queue.redis.run("RPUSH", queue.keys.inbox, "waited")
        let before = try queue.everything()
        #expect(try await queue.worker("w").claim(0).bodies.isEmpty)
        #expect(try queue.everything() == before)
        try queue.endLease("w")
        let claimed = try await queue.worker("w").claim(0, join: false)
        #expect(!claimed.leaseLost && claimed.expiredWorker == nil)
        #expect(try await queue.worker("x").reclaim("w") == nil)
    }

    @Test("the lease of a lane that only renews is long while it has no claims, and short as soon as it has some")
    func idleLease() async throws {
        let limits = QueueLimits { $0.lease = 20_000 }
        let worker = queue.worker("w", limits)
        func left(at now: Int64) throws -> Int64 {
            Int64(try #require(try queue.redis.run("ZSCORE", queue.keys.workers, "w").number)) - now
        }
        var claimed = try await worker.claim(0)
        #expect(claimed.held == 0 && limits.idleLease == 600_000)
        #expect(try left(at: claimed.now) == 600_000)
        // The lease is short even if there was nothing to claim.
        claimed = try await worker.claim(5)
        #expect(claimed.held == 0)
        #expect(try left(at: claimed.now) == 20_000)
        try queue.push(["a", "b"])
        claimed = try await worker.claim(2)
        #expect(claimed.held == 0 && claimed.bodies.count == 2)
        claimed = try await worker.claim(0)
        #expect(claimed.held == 2)
        #expect(try left(at: claimed.now) == 20_000)
        try await worker.settle { $0.end(1, .delivered) }
        try await worker.settle { $0.end(2, .delivered) }
        claimed = try await worker.claim(0)
        #expect(claimed.held == 0)
        #expect(try left(at: claimed.now) == 600_000)
    }

    @Test("an idle poll reads few keys")
    func idlePoll() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            _ = try await queue.worker("w").claim(256)
            try queue.redis.run("CONFIG", "RESETSTAT")
            for _ in 0..<10 { #expect(try await queue.worker("w").claim(256).bodies.isEmpty) }
            let calls = try queue.redis.calls()
                .filter { !["config|resetstat", "config", "info", "evalsha", "eval"].contains($0.key) }
            #expect(calls.values.reduce(0, +) <= 150, "\(calls)")
        }
    }

    @Test("a paused queue returns no new jobs, but still those claimed before")
    func paused() async throws {
        let worker = queue.worker("w")
        try queue.push(["a", "b"])
        try queue.push(retry: "again", at: 1)
        #expect(try await worker.claim(1).bodies.count == 1)
        try queue.redis.run("RPUSH", queue.keys.inbox, "waited")
        try queue.redis.run("SET", queue.keys.paused, "maintenance")
        let before = try queue.everything()
        let claimed = try await worker.claim(5, first: 2)
        #expect(claimed.isPaused && !claimed.handsBack && claimed.bodies.isEmpty)
        #expect(try queue.everything() == before)
        for (value, handsBack) in [
            (#"{"v":1,"reason":"x","now":true}"#, true), (#"{"v":1,"reason":"\"now\":true"}"#, false),
        ] {
            try queue.redis.run("SET", queue.keys.paused, value)
            let claimed = try await worker.claim(5, first: 2)
            #expect(claimed.isPaused && claimed.handsBack == handsBack && claimed.bodies.isEmpty)
        }
        let repeated = try await worker.claim(1)
        #expect(!repeated.isPaused && repeated.bodies.count == 1)
        try queue.redis.run("DEL", queue.keys.paused)
        #expect(try await worker.claim(5, first: 2).bodies.count == 3)
    }

    @Test("executed late, after it was repeated and answered, it claims nothing, not even settled jobs")
    func late() async throws {
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
        #expect(try await worker.claim(3).bodies.isEmpty)
    }

    @Test("executed late, after the same claim had found nothing, it claims jobs that the next claim returns")
    func lateAfterNothing() async throws {
        let worker = queue.worker("w")
        #expect(try await worker.claim(3).bodies.isEmpty)
        try queue.push(["a", "b"])
        let late = try await worker.claim(3)
        let next = try await worker.claim(256)
        #expect(next.texts == ["a", "b"] && next.stamp == late.stamp)
        #expect(try queue.claims("w") == [1: "a", 2: "b"])
    }

    @Test(
        "executed after its lane was reclaimed or released, it ends no job that its lane has settled",
        arguments: [true, false])
    func lateAfterReclaim(isReleased: Bool) async throws {
        let worker = queue.worker("w")
        try queue.push(["a", "b", "c", "d", "e", "f"])
        // The lane has answers for a, b and c.
        let claimed = try await worker.claim(3)
        let settlement = worker.filled { settlement in for number in 1...3 { settlement.end(number, .delivered) } }
        if isReleased {
            try await worker.release()
        } else {
            try queue.endLease("w")
            try await queue.worker("x").reclaim("w")
        }
        #expect(try await queue.worker("x").claim(3).bodies.count == 3)
        // The network delivers the first claim once more.
        let late = try await worker.claim(3)
        #expect(late.stamp != claimed.stamp || late.bodies.isEmpty)
        let before = try queue.everything()
        #expect(try await worker.settle(settlement) == 3)
        #expect(try queue.everything() == before)
        #expect(try queue.jobs().count + queue.claims("x").count + queue.claims("w").count == 6)
    }

    @Test("executed again on an older state of Redis, it claims jobs that the first one's settlement does not end")
    func rollback() async throws {
        let worker = queue.worker("w")
        try queue.push(["a", "b", "c"])
        let claimed = try await worker.claim(3)
        let settlement = worker.filled { settlement in for number in 1...3 { settlement.end(number, .delivered) } }
        // A failover to a replica that has neither the claim nor the pushes, but other jobs.
        try queue.redis.run("DEL", queue.keys.claimed("w"), queue.keys.next("w"))
        try queue.push(["d", "e", "f"])
        let again = try await worker.claim(3)
        #expect(again.texts == ["d", "e", "f"] && again.stamp != claimed.stamp)
        #expect(try await worker.settle(settlement) == 3)
        #expect(try queue.claims("w") == [1: "d", 2: "e", 3: "f"])
    }

    @Test("repeated with the same number, it returns the same jobs and no others")
    func twice() async throws {
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
        // A claim that returned fewer jobs than its limit is repeated unchanged, although there are more jobs now.
        try queue.push(["new"])
        #expect(try await worker.claim(50, first: 106).texts == rest.texts)
        #expect(try queue.jobs() == ["new"])
    }

    @Test("a worker that lost its lease gets an error and no jobs")
    func leaseLost() async throws {
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

    @Test("the reply names a worker whose lease has ended, never the caller")
    func expired() async throws {
        for name in ["w", "x", "y"] { _ = try await queue.worker(name).claim(0) }
        #expect(try await queue.worker("w").claim(0).expiredWorker == nil)
        try queue.endLease("x")
        #expect(try await queue.worker("w").claim(0).expiredWorker == "x")
        #expect(try await queue.worker("x").claim(0).expiredWorker == nil)
    }

    @Test("a claim looks for expired leases if the lane joins, gives a heartbeat or only renews its lease")
    func looksAround() async throws {
        let worker = queue.worker("w")
        for hasExpired in [false, true] {
            if hasExpired {
                try await queue.worker("x").claim(0)
                try queue.endLease("x")
            }
            for (count, join, heartbeat) in [(5, true, nil), (0, false, nil), (5, false, .sample), (5, false, nil)]
                as [(Int, Bool, WorkerHeartbeat?)]
            {
                let claimed = try await worker.claim(count, join: join, heartbeat: heartbeat)
                let looks = count == 0 || join || heartbeat != nil
                #expect(claimed.hasLookedAround == looks)
                #expect(claimed.expiredWorker == (looks && hasExpired ? "x" : nil))
            }
        }
    }

    @Test("a job that is too large becomes a dead letter with its bytes unchanged, and the others are claimed")
    func tooLarge() async throws {
        let limits = QueueLimits { $0.maximumJobSize = 100 }
        let big = String(repeating: "x\u{0}\n", count: 40)
        let again = #"{"apns_worker":1,"attempt":2,"claim":"w:9","tokens":["aa","bb"],"job":"# + big + "}"
        try queue.push([big, "a", big, "b"])
        try queue.push(retry: again, at: 1)
        let claimed = try await queue.worker("w", limits).claim(10)
        #expect(claimed.texts == ["a", "b"])
        #expect(try queue.claims("w") == [1: "a", 2: "b"])
        let dead = try queue.dead()
        // Two equal jobs become two dead letters, and the wrappers are not part of their originals.
        #expect(dead.map(\.original.text) == [big, big, big])
        for letter in dead {
            #expect(letter.header.text.contains(#""reason":"JobTooLarge""#))
            #expect(letter.header.text.contains(#""size":120"#))
            #expect(try jsonObject(letter.header))
        }
        #expect(dead.count { $0.header.text.contains(#""tokens":["aa","bb"]"#) } == 1)
        #expect(try queue.stats() == ["dead": 4, "dead:JobTooLarge": 4])
    }

    @Test(
        "the notifications of a job that is too large are dead for its campaign, which then finishes",
        arguments: [
            (#"{"campaign":"spring","token":"aa""#, 1, true),
            (#"{"tokens":["aa", "bb","cc"],"campaign":"spring""#, 3, true),
            (
                #"{"apns_worker":1,"tokens":["bb","cc"],"job":{"x":{},"campaign":"spring","tokens":["aa","bb","cc"]"#,
                2, true
            ),
            (#"{"class":"P","args":[{"x":{},"campaign":"spring","tokens":["aa","bb"]}]"#, 2, true),
            (#"{"payload":{"campaign":"spring","tokens":["aa","bb"]},"token":"aa""#, 1, false),
            (#"{"campaign":7,"tokens":["aa","bb"]"#, 2, false), (#"["campaign","spring""#, 1, false),
        ], [ResultsKept.off, .all])
    func tooLargeOfCampaign(job: (String, Int, Bool), results: ResultsKept) async throws {
        let (start, tokens, isOfCampaign) = job
        let limits = QueueLimits { ($0.maximumJobSize, $0.results) = (200, results) }
        let filling = #","filling":"\#(String(repeating: "x", count: 200))"}"#
        try queue.push([start + filling + (start.contains("apns_worker") ? "}" : ""), "small"])
        try queue.redis.run("HSET", queue.keys.campaign("spring"), "total", "\(tokens)")
        #expect(try await queue.worker("w", limits).claim(9).texts == ["small"])
        for counter in ["dead", "dead:JobTooLarge"] {
            let number = try queue.redis.run("HGET", queue.keys.campaign("spring"), counter).text
            #expect(number == (isOfCampaign ? "\(tokens)" : nil), "\(counter)")
        }
        let entries = "\(try queue.redis.run("XRANGE", queue.keys.results, "-", "+"))"
        #expect(entries.contains("campaign_finished") == isOfCampaign, "\(entries)")
        #expect(try queue.stats() == ["dead": tokens, "dead:JobTooLarge": tokens])
    }

    @Test("a job that is too large goes back while a living worker of another configuration has not refused it")
    func tooLargeForSome() async throws {
        let limits = QueueLimits { $0.maximumJobSize = 100 }
        let (small, large) = (
            ConfigurationDigest(routing: ["a"], rules: ["100"]), ConfigurationDigest(routing: ["a"], rules: ["16M"])
        )
        let other = queue.worker("other")
        try await other.claim(0, configuration: large, heartbeat: .sample)
        let big = String(repeating: "x\u{0}\n", count: 40)
        let again =
            #"{"apns_worker":1,"attempt":2,"id":"i","reclaims":3,"enqueued":5,"reserved":true,"due":true,"#
            + #""requeues":1,"requeued":7,"tokens":["aa","bb"],"job":"# + big + "}"
        try queue.push([big, "a", big, again])
        let worker = queue.worker("w", limits)
        let claimed = try await worker.claim(10, configuration: small, heartbeat: .sample)
        #expect(claimed.texts == ["a"] && claimed.otherConfigurations == [large])
        #expect(try queue.dead().isEmpty)
        #expect(try queue.stats() == ["deferred": 4, "deferred:JobTooLarge": 4])
        let retries = try queue.redis.run("ZRANGE", queue.keys.retry, "0", "-1").elements ?? []
        #expect(retries.count == 3)
        // The pauses are random, so that the jobs do not return together: from half to all of a quarter of a job's age, at most 30 s.
        let now = claimed.now
        let dues = try queue.redis.run("ZRANGE", queue.keys.retry, "0", "-1", "WITHSCORES").elements ?? []
        let pauses = stride(from: 1, to: dues.count, by: 2).compactMap { dues[$0].text.flatMap(Int64.init) }.map {
            $0 - now
        }
        #expect(Set(pauses).count > 1 && pauses.allSatisfy { (500...30_000).contains($0) }, "\(pauses)")
        var isKept = false
        for body in retries.map({ ByteBuffer(bytes: $0.bytes) }) {
            let envelope = Envelope.read(body)
            #expect(envelope.originalBytes(in: body).text == big)
            #expect(envelope.deferral(in: body)?.reason == "JobTooLarge" && envelope.refusals(in: body) == small.text)
            #expect(envelope.error == nil)
            guard envelope.id != nil else { continue }
            isKept = true
            #expect(
                envelope.attempt == 2 && envelope.reclaims == 3 && envelope.enqueued == 5 && envelope.keepsReservation)
            #expect(envelope.isDue && envelope.requeues == 1 && envelope.requeued == 7)
            #expect(envelope.tokens(in: body).map { String(buffer: $0) } == ["aa", "bb"])
        }
        #expect(isKept)
        // A deferral keeps a failure, except for the member that no worker writes.
        let failed =
            #"{"apns_worker":1,"attempt":2,"error":{"reason":"a\"b","at":1795279247000,"status":503,"x":1e999},"job":"#
            + big + "}"
        try queue.push(retry: failed, at: 1)
        #expect(try await worker.claim(10, first: 2, configuration: small).bodies.isEmpty)
        let stored = try #require(queue.redis.run("ZRANGE", queue.keys.failed, "0", "-1").elements?.first)
        let deferred = ByteBuffer(bytes: stored.bytes)
        let envelope = Envelope.read(deferred)
        #expect(
            envelope.failure(in: deferred) == Envelope.Cause(reason: "a\"b", status: 503, at: 1_795_279_247_000))
        #expect(envelope.deferral(in: deferred)?.reason == "JobTooLarge")
        // Once a worker of the other configuration has refused the job, the verdict is final.
        let refused = #"{"apns_worker":1,"attempt":1,"refused":"\#(large.text)","job":"# + big + "}"
        try queue.push([refused])
        _ = try await worker.claim(10, first: 3, configuration: small)
        #expect(try queue.dead().count == 1)
    }

    @Test("a configuration counts as living for as long as the leases of its workers")
    func livingConfigurations() async throws {
        let limits = QueueLimits { $0.lease = 200 }
        let mine = ConfigurationDigest(routing: ["a"], rules: ["1"])
        let theirs = ConfigurationDigest(routing: ["b"], rules: ["1"])
        let worker = queue.worker("w")
        try queue.push((0..<9).map { "\($0)" })
        #expect(try await worker.claim(1, configuration: mine, heartbeat: .sample).otherConfigurations.isEmpty)
        let other = queue.worker("other", limits)
        // A lane that accepts no jobs publishes nothing.
        try await other.claim(0, heartbeat: .sample)
        #expect(try await worker.claim(1, first: 2, configuration: mine).otherConfigurations.isEmpty)
        try await other.claim(0, configuration: theirs, heartbeat: .sample)
        #expect(try await worker.claim(1, first: 3, configuration: mine).otherConfigurations == [theirs])
        // The repetition of a claim returns the same configurations.
        #expect(try await worker.claim(1, first: 3, configuration: mine).otherConfigurations == [theirs])
        // A configuration counts for longer than the lease: after an outage, the first worker must not decide alone.
        try await Task.sleep(for: .milliseconds(300))
        #expect(try await worker.claim(1, first: 4, configuration: mine).otherConfigurations == [theirs])
        try await Task.sleep(for: .milliseconds(800))
        try await worker.claim(0, configuration: mine, heartbeat: .sample)
        #expect(try await worker.claim(1, first: 5, configuration: mine).otherConfigurations.isEmpty)
        #expect(try queue.redis.run("HLEN", queue.keys.configurations).number == 1)
        #expect(try queue.redis.run("PTTL", queue.keys.configurations).number ?? 0 > 0)
    }

    @Test("hostile values of the configurations keep no job from being claimed")
    func hostileConfigurations() async throws {
        let mine = ConfigurationDigest(routing: ["a"], rules: ["1"])
        try queue.push(["a", "b"])
        try queue.redis.run("HSET", queue.keys.configurations, "x", "9e99", "y", "nonsense", "", "9e15")
        let claimed = try await queue.worker("w").claim(1, configuration: mine)
        #expect(claimed.texts == ["a"] && claimed.otherConfigurations.isEmpty)
        try queue.redis.run("DEL", queue.keys.configurations)
        try queue.redis.run("SET", queue.keys.configurations, "x")
        #expect(try await queue.worker("w").claim(1, first: 2, configuration: mine, heartbeat: .sample).texts == ["b"])
    }

    @Test("a job of exactly the maximum size is claimed")
    func exactSize() async throws {
        let limits = QueueLimits { $0.maximumJobSize = 10 }
        try queue.push(["0123456789", "0123456789a"])
        #expect(try await queue.worker("w", limits).claim(10).texts == ["0123456789"])
        #expect(try queue.dead().count == 1)
    }

    @Test("a claim stops at its maximum bytes, with at least one job of each kind, and the rest keeps its order")
    func byteBudget() async throws {
        let limits = QueueLimits { $0.maximumClaimSize = 25 }
        let fresh = (0..<6).map { "fresh-000\($0)" }
        let retries = (0..<6).map { "retry-000\($0)" }
        try queue.push(fresh)
        for (index, retry) in retries.enumerated() { try queue.push(retry: retry, at: Int64(index + 1)) }
        try queue.redis.run("RPUSH", queue.keys.inbox, "inbox")
        let claimed = try await queue.worker("w", limits).claim(12)
        // One of each: neither kind of job can starve the other.
        #expect(claimed.texts.first == "inbox")
        #expect(Set(claimed.texts) == ["inbox", "fresh-0000", "retry-0000"])
        #expect(claimed.nextDue == 0)
        #expect(try queue.jobs() == Array(fresh.dropFirst()))
        #expect(try queue.retries() == Array(retries.dropFirst()))
        #expect(try queue.redis.run("ZSCORE", queue.keys.retry, "retry-0003") == "4")
        #expect(try queue.claims("w").count == 3)
    }

    @Test(
        "jobs of any size are read once and never pushed back: a backlog of large jobs does not block Redis",
        arguments: [(350, 4000), (14_000, 600), (70_000, 200), (1_000_000, 12)])
    func largeJobs(size: Int, count: Int) async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            let body = String(repeating: "x", count: size)
            for start in stride(from: 0, to: count, by: 100) {
                try queue.redis.run(
                    (["RPUSH", queue.keys.jobs] + Array(repeating: body, count: min(100, count - start))).map {
                        Array($0.utf8)
                    })
            }
            try queue.redis.run("CONFIG", "RESETSTAT")
            let worker = queue.worker("w")
            var (first, claims) = (1, 0)
            while true {
                let claimed = try await worker.claim(256, first: first)
                if claimed.bodies.isEmpty { break }
                #expect((claimed.bodies.count - 1) * size < 1 << 20)
                claims += 1
                first += claimed.bodies.count
                try await worker.settle { settlement in
                    for number in first - claimed.bodies.count..<first { settlement.end(number, .delivered) }
                }
            }
            #expect(first == count + 1)
            let full = min(256, (1 << 20) / size + 1)
            #expect(claims <= count / max(1, full * 9 / 10) + 2, "\(claims) claims")
            let calls = try queue.redis.calls()
            #expect(calls["lpush"] == nil && calls["rpush"] == nil)
            // Half of the reads look at a portion's last job. A read for each of the hundreds of jobs of a full claim
            // would cost a third more.
            #expect((calls["lrange"] ?? 0) <= claims * 24)
        }
    }

    @Test("where a few jobs are much larger than those around them, a claim ends with the job that fills it")
    func mixedSizes() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            var random = SeededGenerator(seed: 13)
            var pushed: [Int] = []
            for _ in 0..<600 {
                let size = Int.random(in: 0..<20, using: &random) == 0 ? 700_000 : 300
                pushed.append(size)
                try queue.push([String(repeating: "x", count: size)])
            }
            try queue.redis.run("CONFIG", "RESETSTAT")
            let worker = queue.worker("w")
            var claimedSizes: [Int] = []
            var claims = 0
            while true {
                let claimed = try await worker.claim(256, first: claimedSizes.count + 1)
                if claimed.bodies.isEmpty { break }
                claims += 1
                let sizes = claimed.bodies.map(\.readableBytes)
                #expect(sizes.dropLast().reduce(0, +) < 1 << 20)
                claimedSizes += sizes
            }
            #expect(claimedSizes == pushed)
            #expect(claims <= pushed.reduce(0, +) >> 20 + 4, "\(claims) claims")
            #expect(try queue.redis.calls()["lpush"] == nil)
        }
    }

    @Test("a claim returns a job that is larger than a claim; once a lane has seen one, it reads none that it leaves")
    func largeJobsAmongSmall() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            // Each portion of up to 8 jobs would end with a small one.
            let period = [300] + Array(repeating: 1_100_000, count: 7)
            for size in Array(repeating: period, count: 3).joined() {
                try queue.push([String(repeating: "x", count: size)])
            }
            let worker = queue.worker("w")
            var first = 1
            while first < 9 {
                let claimed = try await worker.claim(256, first: first)
                try #require(!claimed.bodies.isEmpty)
                first += claimed.bodies.count
            }
            try queue.redis.run("CONFIG", "RESETSTAT")
            let start = first
            while case let claimed = try await worker.claim(256, first: first), !claimed.bodies.isEmpty {
                first += claimed.bodies.count
            }
            #expect(first == 25)
            // Each job is read by itself, and once.
            #expect(try queue.redis.calls()["lrange"] == first - start)
        }
    }

    @Test("bodies of any bytes are returned unchanged, thousands at once")
    func anyBytes() async throws {
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

@Suite("Claims while retries and fresh jobs wait", .queue)
struct ClaimFairnessTests {
    private let queue = QueueScope.queue

    @Test("over random mixes: half each while both wait, none lost or duplicated, fresh jobs in order")
    func randomMixes() async throws {
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

    @Test("claims of one job alternate between both")
    func oneAtATime() async throws {
        try queue.push((0..<5000).map { "fresh \($0)" })
        for job in 0..<5000 { try queue.push(retry: "due \(job)", at: 1) }
        var kinds: Set<String> = []
        for claim in 1...5000 where kinds.count < 2 {
            kinds.formUnion(try await queue.worker("w").claimTexts(1, first: claim).map { String($0.prefix(3)) })
        }
        #expect(kinds == ["fre", "due"])
    }

    @Test("large retries do not keep small fresh jobs out")
    func largeRetries() async throws {
        let limits = QueueLimits { $0.maximumClaimSize = 1000 }
        let piece = String(repeating: "p", count: 200)
        for job in 0..<200 { try queue.push(retry: piece + "\(job)", at: 1) }
        try queue.push((0..<50).map { "fresh \($0)" })
        var (fresh, first) = (0, 1)
        for _ in 0..<20 where fresh < 50 {
            fresh += try await queue.worker("w", limits).claimTexts(256, first: first).count { $0.hasPrefix("fresh") }
            first += 256
        }
        #expect(fresh == 50)
        #expect(try !queue.retries().isEmpty)
    }
}

func jsonObject(_ buffer: ByteBuffer) throws -> Bool {
    let object = try? JSONSerialization.jsonObject(with: Data(buffer.readableBytesView))
    return object is [String: Any]
}

extension WorkerHeartbeat {
    static var sample: WorkerHeartbeat { WorkerHeartbeat(WorkerReport(), uptime: 1) }
}
