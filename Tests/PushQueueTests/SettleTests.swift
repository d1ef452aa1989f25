import NIOCore
import PushJob
import QueueTestSupport
import TestSupport
import Testing

@testable import PushQueue

@Suite("The settle script", .queue)
struct SettleTests {
    private let queue = QueueScope.queue

    @Test("a finished job is removed, and counted by its outcome", arguments: Outcome.allCases)
    func endings(ending: Outcome) async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b"])
        #expect(try await worker.settle { $0.end(1, ending) } == 0)
        #expect(try queue.claims("w") == [2: "b"])
        #expect(try queue.stats() == [ending.rawValue: 1])
    }

    @Test("a retry waits for its delay, with the original's bytes in the new wrapper")
    func retryAfter() async throws {
        let original = "{\"id\":\"x\",\u{0}\n not JSON"
        let worker = try await queue.worker("w", claiming: [original])
        try await worker.settle {
            $0.postpone(
                1, .retried, due: .after(milliseconds: 60_000), head: EnvelopeWriter(attempt: 2).head(),
                reason: "Shutdown", original: 0..<original.utf8.count)
        }
        #expect(try queue.retries() == [#"{"apns_worker":1,"attempt":2,"job":\#(original)}"#])
        let due = try #require(await worker.claim(0).nextDue)
        #expect(due > 50_000 && due <= 60_000)
        #expect(try queue.claims("w").isEmpty)
        #expect(try queue.stats() == ["retried": 1, "retried:Shutdown": 1])
    }

    @Test("a retry at a time has that time, and needs no reason")
    func retryAt() async throws {
        let worker = try await queue.worker("w", claiming: ["body"])
        try await worker.settle {
            $0.postpone(
                1, .scheduled, due: .at(milliseconds: 1_792_800_000_123), head: EnvelopeWriter().head(),
                reason: nil, original: 0..<4)
        }
        let member = #"{"apns_worker":1,"attempt":1,"job":body}"#
        #expect(try queue.redis.run("ZSCORE", queue.keys.retry, member) == "1792800000123")
        #expect(try queue.stats() == ["scheduled": 1])
    }

    @Test("wrappers never nest, however often a job is tried")
    func wrappersDoNotNest() async throws {
        let original = #"{"token":"ab","payload":{"job":"}"}}"#
        let worker = try await queue.worker("w", claiming: [original])
        for attempt in 2...6 {
            let first = attempt - 1
            let body = try #require(queue.claims("w")[first])
            let range = Envelope.read(ByteBuffer(string: body)).original
            try await worker.settle {
                $0.postpone(
                    first, .retried, due: .after(milliseconds: -5), head: EnvelopeWriter(attempt: attempt).head(),
                    reason: nil, original: range)
            }
            let bodies = try await worker.claim(1, first: first + 1).texts
            #expect(bodies == [#"{"apns_worker":1,"attempt":\#(attempt),"job":\#(original)}"#])
        }
    }

    @Test("a dead letter has its details, and the original's bytes")
    func dead() async throws {
        let original = "\u{0}\u{1}\n{\"apns_worker\":1,"
        let wrapped = #"{"apns_worker":1,"attempt":3,"claim":"v:4","job":\#(original)}"#
        let worker = try await queue.worker("w", claiming: [wrapped])
        let range = Envelope.read(ByteBuffer(string: wrapped)).original
        try await worker.settle {
            $0.bury(
                1, reason: "BadTopic", attempts: 3,
                members: DeadLetter.members(detail: "a \"detail\"\n%s %d", status: 400), original: range)
        }
        let letter = try #require(queue.dead().first)
        #expect(letter.original.text == original)
        #expect(letter.header.text.hasPrefix(#"{"v":1,"reason":"BadTopic","at":"#))
        #expect(
            letter.header.text.hasSuffix(
                #""claim":"w:\#(worker.id(1))","size":\#(original.utf8.count),"attempts":3,"status":400,"#
                    + #""detail":"a \"detail\"\n%s %d"}"#))
        #expect(try jsonObject(letter.header))
        #expect(try queue.claims("w").isEmpty)
        #expect(try queue.stats() == ["dead": 1, "dead:BadTopic": 1])
    }

    @Test("equal jobs become as many dead letters")
    func equalLetters() async throws {
        let worker = try await queue.worker("w", claiming: Array(repeating: "same", count: 50))
        try await worker.settle { settlement in for claim in 1...50 { settlement.bury(claim, reason: "X") } }
        #expect(try queue.dead().map(\.original.text) == Array(repeating: "same", count: 50))
    }

    @Test("a dead letter for a part of a job leaves the rest to be settled", arguments: [true, false])
    func letter(isRetried: Bool) async throws {
        let worker = try await queue.worker("w", claiming: ["other", "fan-out"])
        let lost = try await worker.settle {
            // Ends without results are written first; this one must follow its dead letter.
            $0.end(1, .delivered)
            $0.bury(
                2, reason: "BadTopic", attempts: 1, members: DeadLetter.members(tokens: [ByteBuffer(string: "ab")]),
                original: 0..<7, settles: false)
            if isRetried { $0.retry(2) } else { $0.endMixed(2) }
            $0.addCount("delivered", 10)
            $0.addCount("dead", 1)
            #expect($0.count == 2)
        }
        #expect(lost == 0)
        let letters = try queue.dead()
        #expect(letters.map(\.original.text) == ["fan-out"])
        #expect(letters.first?.header.text.contains(#""tokens":["ab"]"#) == true)
        #expect(try queue.retries().count == (isRetried ? 1 : 0))
        #expect(try queue.claims("w").isEmpty)
        #expect(try queue.stats() == ["delivered": 11, "dead": 1, isRetried ? "retried" : "mixed": 1])
    }

    @Test("counts belong to the settlement before them, and are skipped if its claim is not found")
    func counts() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b"])
        let lost = try await worker.settle {
            $0.endMixed(1)
            $0.addCount("delivered", 3)
            $0.endMixed(99)
            $0.addCount("delivered", 100)
            $0.end(98, .delivered)
            $0.end(2, .delivered, notifications: 5)
            $0.addCount("invalid_token", 2)
            $0.end(97, .delivered, notifications: 1000)
        }
        #expect(lost == 3)
        #expect(try queue.stats() == ["mixed": 1, "delivered": 8, "invalid_token": 2])
    }

    @Test("a settlement that is run again adds its sums to the minute once")
    func minuteOnce() async throws {
        let worker = try await queue.worker("w", claiming: ["a"])
        let batch = worker.filled {
            $0.end(1, .delivered)
            var sums = MinuteCounts()
            sums.outcomes[.delivered] = 1
            $0.minute = sums
        }
        #expect(try await worker.settle(batch) == 0)
        #expect(try await worker.settle(batch) == 1)
        var delivered = 0
        for key in try queue.redis.run("KEYS", queue.keys.minutesPrefix + "*").elements ?? [] {
            delivered += try queue.redis.run("HGET", key.text ?? "", "delivered").text.flatMap { Int($0) } ?? 0
        }
        #expect(delivered == 1)
    }

    @Test("a guard compares failures with what was sent: suppressed notifications do not hide them", arguments: [4, 6])
    func guardWithSuppressed(failed: Int) async throws {
        try queue.redis.run(
            "HSET", queue.keys.campaign("spring"), "guard", #"{"rules":[["dead",50]],"min":10,"base":{"ended":0}}"#)
        let worker = try await queue.worker("w", claiming: ["a"])
        let settled = try await worker.settled(
            worker.filled {
                $0.use(campaign: ByteBuffer(string: "spring"))
                $0.endMixed(1)
                $0.addCount("dead", failed)
                $0.addCount("delivered", 10 - failed)
                $0.addCount("suppressed", 90)
            })
        #expect(settled.stopped.map(\.campaign) == (failed > 5 ? ["spring"] : []))
    }

    @Test("Notifications of a job that wait for different times return as jobs of their own, and its claim ends once")
    func parts() async throws {
        let worker = try await queue.worker("w", claiming: ["fan-out"])
        func head(_ token: String) -> ByteBuffer {
            var writer = EnvelopeWriter(attempt: 2)
            writer.write(tokens: [ByteBuffer(string: token)])
            return writer.head()
        }
        let batch = worker.filled {
            $0.postponePart(of: worker.id(1), afterMilliseconds: 60_000, head: head("aa"), original: 0..<7)
            $0.addCount("retried", 1)
            $0.postpone(
                worker.id(1), .retried, due: .after(milliseconds: 0), head: head("bb"), reason: "Shutdown",
                original: 0..<7)
            #expect($0.count == 1)
        }
        #expect(try await worker.settle(batch) == 0)
        let jobs = ["bb", "aa"].map { #"{"apns_worker":1,"attempt":2,"tokens":["\#($0)"],"job":fan-out}"# }
        #expect(try queue.retries() == jobs && queue.claims("w").isEmpty)
        #expect(try queue.stats() == ["retried": 2, "retried:Shutdown": 1])
        let before = try queue.everything()
        #expect(try await worker.settle(batch) == 1)
        #expect(try queue.everything() == before)
    }

    @Test("A claim of which some notifications have ended is replaced by one of the others")
    func keep() async throws {
        let worker = try await queue.worker("w", claiming: ["xfan-outx"])
        let (first, second) = (worker.id(1).rest(afterPart: 1), worker.id(1).rest(afterPart: 2))
        let batch = worker.filled {
            $0.keep(worker.id(1), as: first, head: ByteBuffer(string: "<"), original: 1..<8)
            $0.addCount("delivered", 3)
            #expect($0.claims == [worker.id(1)])
        }
        #expect(try await worker.settle(batch) == 0)
        #expect(
            try queue.redis.run("HGETALL", queue.keys.claimed("w")).elements?.map(\.text) == ["\(first)", "<fan-out}"])
        let before = try queue.everything()
        #expect(try await worker.settle(batch) == 1)
        #expect(try queue.everything() == before && queue.stats() == ["delivered": 3])
        // Offsets count from the beginning of the new job.
        #expect(
            try await worker.settle { $0.keep(first, as: second, head: ByteBuffer(string: "<<"), original: 1..<8) }
                == 0)
        #expect(try queue.claims("w") == [1: "<<fan-out}"])
        #expect(try await worker.settle { $0.endMixed(second) } == 0)
        #expect(try queue.claims("w").isEmpty && queue.stats() == ["delivered": 3, "mixed": 1])
    }

    @Test("A batch can end a claim that it has made itself")
    func endOfKept() async throws {
        let worker = try await queue.worker("w", claiming: ["xfan-outx", "plain"])
        let rest = worker.id(1).rest(afterPart: 1)
        let batch = worker.filled {
            $0.keep(worker.id(1), as: rest, head: ByteBuffer(string: "<"), original: 1..<8)
            $0.addCount("delivered", 3)
            $0.end(worker.id(2), .delivered)
            $0.end(rest, .delivered)
        }
        #expect(batch.count == 3)
        #expect(try await worker.settle(batch) == 0)
        #expect(try queue.claims("w").isEmpty && queue.stats() == ["delivered": 5])
    }

    @Test("The rest of a job is released and reclaimed like any job", arguments: [true, false])
    func restOfJob(isReleased: Bool) async throws {
        let worker = try await queue.worker("w", claiming: [#"{"tokens":["aa","bb"],"payload":{}}"#])
        var writer = EnvelopeWriter()
        writer.write(origin: ByteBuffer(string: "w:1"))
        writer.write(tokens: [ByteBuffer(string: "bb")])
        let rest = worker.id(1).rest(afterPart: 1)
        let head = writer.head()
        #expect(try await worker.settle { $0.keep(worker.id(1), as: rest, head: head, original: 0..<35) } == 0)
        if isReleased {
            try await worker.release()
        } else {
            try queue.endLease("w")
            #expect(try await queue.worker("x").reclaim("w") == [1, 0])
        }
        let body = try #require(queue.jobs().first)
        let job = try JobDecoder.decode(ByteBuffer(string: body))
        #expect(job.tokens.map { $0.map { String(buffer: job.text($0)) } } == ["bb"])
        #expect(job.envelope.reclaims == (isReleased ? 0 : 1) && job.envelope.origin != nil)
    }

    @Test("a split job is replaced by pieces that carry all but its list of tokens")
    func split() async throws {
        let body = #"{"id":"s","tokens":["aa","bb","cc","dd","ee"],"payload":{}}"#
        let worker = try await queue.worker("w", claiming: [body])
        let job = try JobDecoder.decode(ByteBuffer(string: body))
        let batch = worker.filled {
            $0.split(
                1, prefix: EnvelopeWriter().prefix(), pieces: job.tokenPieces(of: 2), cut: job.tokensMember,
                original: job.original)
            $0.addCount("seen", 1)
        }
        #expect(try await worker.settle(batch) == 0)
        let rest = #"{"id":"s","payload":{}}"#
        #expect(
            try queue.retries() == [
                #"{"apns_worker":1,"attempt":1,"claim":"w:\#(worker.id(1))/1","tokens":["aa","bb"],"job":\#(rest)}"#,
                #"{"apns_worker":1,"attempt":1,"claim":"w:\#(worker.id(1))/2","tokens":["cc","dd"],"job":\#(rest)}"#,
                #"{"apns_worker":1,"attempt":1,"claim":"w:\#(worker.id(1))/3","tokens":["ee"],"job":\#(rest)}"#,
            ])
        #expect(try await worker.claim(0).nextDue == 0)
        let before = try queue.everything()
        #expect(try await worker.settle(batch) == 1)
        #expect(try queue.everything() == before)
        #expect(try queue.stats() == ["split": 1, "seen": 1])
    }

    @Test("run twice, the second run changes nothing")
    func twice() async throws {
        let worker = try await queue.worker("w", claiming: (1...8).map { "job \($0)" })
        let batch = Self.mixture(worker)
        #expect(try await worker.settle(batch) == 0)
        let before = try queue.everything()
        #expect(try await worker.settle(batch) == batch.count)
        #expect(try queue.everything() == before)
        #expect(try Set(queue.claims("w").keys) == [7, 8])
    }

    @Test("claims that others have reclaimed are unchanged")
    func takenOver() async throws {
        let worker = try await queue.worker("w", claiming: (1...8).map { "job \($0)" })
        try queue.endLease("w")
        #expect(try await queue.worker("x").reclaim("w") == [8, 0])
        _ = try await queue.worker("x").claim(4)
        let before = try queue.everything()
        #expect(try await worker.settle(Self.mixture(worker)) == 6)
        #expect(try queue.everything() == before)
    }

    @Test("a batch of owned and lost claims settles the owned ones")
    func mixed() async throws {
        let worker = try await queue.worker("w", claiming: (1...8).map { "job \($0)" })
        try await worker.settle { settlement in for claim in [1, 3, 5] { settlement.end(claim, .delivered) } }
        #expect(try await worker.settle(Self.mixture(worker)) == 3)
        #expect(try Set(queue.claims("w").keys) == [7, 8])
        #expect(try queue.retries().count + queue.dead().count == 2)
    }

    /// Returns one action of each kind, for the claims 1 to 6.
    private static func mixture(_ worker: TestWorker) -> Settlement {
        worker.filled {
            $0.end(1, .delivered)
            $0.end(2, .expired)
            $0.retry(3)
            $0.retry(4)
            $0.addCount("extra", 3)
            $0.bury(5, reason: "First")
            $0.bury(6, reason: "Part", attempts: 1, members: ByteBuffer(), original: 0..<5, settles: false)
            $0.endMixed(6)
        }
    }

    @Test("thousands of claims in one batch")
    func thousands() async throws {
        let worker = try await queue.worker("w", claiming: (1...20_000).map { "job \($0)" })
        let lost = try await worker.settle { settlement in
            for claim in 1...12_000 { settlement.end(claim, .delivered) }
            for claim in 12_001...16_000 { settlement.retry(claim) }
            for claim in 16_001...18_000 { settlement.bury(claim, reason: "X") }
            for claim in 30_000..<33_000 { settlement.end(claim, .invalidToken) }
        }
        #expect(lost == 3000)
        #expect(try queue.claims("w").count == 2000)
        #expect(try queue.retries().count == 4000)
        #expect(try queue.stats() == ["delivered": 12_000, "retried": 4000, "dead": 2000, "dead:X": 2000])
    }

    @Test("an unknown action is refused by its name")
    func unknownAction() async throws {
        let worker = try await queue.worker("w", claiming: ["a"])
        let reply = try queue.eval(
            .settle,
            [
                queue.keys.claimed("w"), queue.keys.retry, queue.keys.dead, queue.keys.deadBytes,
                queue.keys.statsPrefix, queue.keys.results, queue.keys.campaigns, queue.keys.campaignPrefix,
                queue.keys.cancelled, queue.keys.cancelledBytes, queue.keys.jobCommands, queue.keys.failed,
                queue.keys.deliveries,
            ], ["w", "100", "100000", "1000000", "0", "0", "explode", "1"])
        #expect(reply == .error("ERR settle: unknown action explode"))
        #expect(try queue.claims("w") == [1: "a"])
        #expect(try await worker.settle(Settlement()) == 0)
    }

    @Test("counters are kept for forty days")
    func countersExpire() async throws {
        let worker = try await queue.worker("w", claiming: ["a"])
        try await worker.settle { $0.end(1, .delivered) }
        let key = try #require(queue.redis.run("KEYS", queue.keys.statsPrefix + "*").elements?.first?.text)
        let seconds = try #require(queue.redis.run("TTL", key).number)
        #expect(seconds > 39 * 86400 && seconds <= 40 * 86400)
        let date = try #require(key.split(separator: ":").last)
        #expect(date.count == 10 && key == queue.keys.stats(String(date)))
    }
}
