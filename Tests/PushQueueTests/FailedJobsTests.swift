import NIOCore
import QueueTestSupport
import TestSupport
import Testing

@testable import PushJob
@testable import PushQueue

@Suite("Jobs that failed wait by themselves", .queue)
struct FailedJobsTests {
    private let queue = QueueScope.queue

    private static func failed(_ name: String) -> String {
        #"{"apns_worker":1,"attempt":2,"error":{"reason":"Shutdown","at":5},"claim":"\#(name)","job":\#(name)}"#
    }

    /// The numbers of a claim's jobs: from the list, due ones that have not failed, and failed ones.
    private struct Kinds {
        var fresh = 0, due = 0, failed = 0
        var others: Int { fresh + due }

        init(_ jobs: [String]) {
            for job in jobs {
                if job.contains(#""error""#) {
                    failed += 1
                } else if job.hasPrefix("due") {
                    due += 1
                } else {
                    fresh += 1
                }
            }
        }
    }

    // MARK: Settlements

    @Test("A settlement puts a job by its wrapper: a failure among the failed jobs, another deferral not.")
    func places() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b", "c"])
        try await worker.settle {
            for (number, kind) in [(1, Postponement.retried), (2, .deferred), (3, .deferred)] {
                var writer = EnvelopeWriter()
                if number != 2 { writer.write(errorStatus: 503, reason: "Shutdown", at: 1) }
                if kind == .deferred { writer.write(waitStatus: nil, reason: "AppPaused", at: 2) }
                $0.postpone(
                    number, kind, due: .after(milliseconds: 60_000), head: writer.head(), reason: "X",
                    original: 0..<1)
            }
        }
        #expect(
            try queue.texts("ZRANGE", queue.keys.failed, "0", "-1").sorted() == [
                #"{"apns_worker":1,"attempt":1,"error":{"status":503,"reason":"Shutdown","at":1},"job":a}"#,
                #"{"apns_worker":1,"attempt":1,"error":{"status":503,"reason":"Shutdown","at":1},"#
                    + #""wait":{"reason":"AppPaused","at":2},"job":c}"#,
            ])
        #expect(
            try queue.texts("ZRANGE", queue.keys.retry, "0", "-1") == [
                #"{"apns_worker":1,"attempt":1,"wait":{"reason":"AppPaused","at":2},"job":b}"#
            ])
        let due = try #require(try await worker.claim(0).nextDue)
        #expect(due > 50_000 && due <= 60_000)
    }

    @Test("The pieces of a job that failed have failed, and those of another have not.", arguments: [false, true])
    func pieces(hasFailed: Bool) async throws {
        let body = #"{"tokens":["aa","bb","cc"],"payload":{}}"#
        let worker = try await queue.worker("w", claiming: [body])
        let job = try JobDecoder.decode(ByteBuffer(string: body))
        try await worker.settle {
            var writer = EnvelopeWriter()
            writer.write(id: ByteBuffer(string: #"an "error":{ in an id"#))
            if hasFailed { writer.write(errorStatus: nil, reason: "NoAnswer", at: 1) }
            $0.split(
                1, prefix: writer.prefix(), pieces: job.tokenPieces(of: 1), cut: job.tokensMember,
                original: job.original)
        }
        #expect(try queue.redis.run("ZCARD", queue.keys.failed).number == (hasFailed ? 3 : 0))
        #expect(try queue.redis.run("ZCARD", queue.keys.retry).number == (hasFailed ? 0 : 3))
    }

    // MARK: Claims

    @Test("Over random mixes they get at most an eighth of a claim while others are due, and all that these leave.")
    func shares() async throws {
        var random = SeededGenerator(seed: 2026)
        for mix in 0..<100 {
            let worker = queue.worker("w\(mix)")
            let now = try await worker.claim(0).now
            var left = Kinds([])
            left.fresh = .random(in: 0...60, using: &random) * .random(in: 0...1, using: &random)
            left.due = .random(in: 0...60, using: &random) * .random(in: 0...1, using: &random)
            left.failed = .random(in: 0...60, using: &random)
            try queue.push((0..<left.fresh).map { "fresh \($0)" })
            for job in 0..<left.due { try queue.push(retry: "due \(job)", at: now - 5) }
            for job in 0..<left.failed { try queue.push(retry: Self.failed("\(job)"), at: now - 5) }
            try queue.push(retry: Self.failed("later"), at: now + 600_000)
            let pushed = left.others + left.failed
            var (claimed, first): (Set<String>, Int) = ([], 1)
            while left.others + left.failed > 0 {
                let count = Int.random(in: 1...40, using: &random)
                let jobs = try await worker.claim(count, first: first).texts
                first += count
                claimed.formUnion(jobs)
                let got = Kinds(jobs)
                #expect(jobs.count == min(count, left.others + left.failed), "mix \(mix)")
                // The remainder of the division by eight goes to either kind of job, by chance.
                let most = max((count + 7) / 8, count - left.others)
                #expect(got.failed <= most && got.failed >= min(left.failed, max(count / 8, count - left.others)))
                // The other places are divided as without failed jobs.
                let rest = jobs.count - got.failed
                #expect(got.fresh >= min(left.fresh, rest / 2) && got.due >= min(left.due, rest / 2), "mix \(mix)")
                left.fresh -= got.fresh
                left.due -= got.due
                left.failed -= got.failed
                guard !jobs.isEmpty else { break }
            }
            #expect(claimed.count == pushed, "mix \(mix)")
            #expect(try queue.retries() == [Self.failed("later")])
            try queue.redis.run("DEL", queue.keys.failed)
        }
    }

    @Test("Of claims of one job, about one in eight is a failed one.")
    func oneAtATime() async throws {
        let worker = queue.worker("w")
        try queue.push((0..<600).map { "fresh \($0)" })
        for job in 0..<600 { try queue.push(retry: Self.failed("\(job)"), at: 1) }
        var jobs: [String] = []
        for first in 1...600 { jobs += try await worker.claim(1, first: first).texts }
        let got = Kinds(jobs)
        // By chance: 75 of 600, with a standard deviation of 8.
        #expect(got.failed > 30 && got.failed < 130 && got.fresh == 600 - got.failed, "\(got)")
    }

    @Test(
        "Large failed jobs do not keep small others out, nor large others small failed ones.",
        arguments: [true, false])
    func bytes(areFailedLarge: Bool) async throws {
        let limits = QueueLimits { $0.maximumClaimSize = 2000 }
        let large = String(repeating: "x", count: 500)
        for job in 0..<200 { try queue.push(retry: Self.failed("\(job)\(areFailedLarge ? large : "")"), at: 1) }
        try queue.push((0..<200).map { "fresh \($0)\(areFailedLarge ? "" : large)" })
        let worker = queue.worker("w", limits)
        var (got, first) = (Kinds([]), 1)
        for _ in 0..<40 {
            let claim = Kinds(try await worker.claim(100, first: first).texts)
            got.fresh += claim.fresh
            got.failed += claim.failed
            first += 100
            if got.fresh == 200 { break }
        }
        if areFailedLarge {
            #expect(got.fresh == 200 && got.failed < 20, "\(got)")
        } else {
            #expect(got.failed > 0 && got.fresh > 100, "\(got)")
        }
    }

    @Test("A claim costs a queue without failed jobs one command more than without that key.")
    func cost() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            try queue.push(["a", "b"])
            try queue.push(retry: "later", at: 4_000_000_000_000)
            let worker = queue.worker("w")
            _ = try await worker.claim(0)
            // While jobs are left in the list, with the last of them, and without jobs.
            for (first, count) in [(1, 1), (2, 1), (3, 0)] {
                try queue.redis.run("CONFIG", "RESETSTAT")
                _ = try await worker.claim(count, first: first, join: false)
                let calls = try queue.redis.calls()
                // One range is that of the failed jobs, the other that of `retry`. Only a claim of no jobs looks for leases.
                #expect(calls["zrange"] == 2 && calls["zcount"] == (count == 0 ? 1 : nil), "\(calls)")
            }
        }
    }

    // MARK: Claims that go back

    @Test(
        "Claims that failed go back among the failed jobs, and the others to the list in their order.",
        arguments: [true, false])
    func goBack(isReclaimed: Bool) async throws {
        let jobs = (0..<40).map { $0.isMultiple(of: 3) ? Self.failed("\($0)") : "\($0)" }
        // Two equal wrappers, as another client may write them, must not become one job.
        let worker = try await queue.worker("w", claiming: jobs + [Self.failed("0")])
        if isReclaimed {
            try queue.endLease("w")
            #expect(try await queue.worker("x").reclaim("w") == [41, 0])
        } else {
            #expect(try await worker.release() == 41)
        }
        func originals(_ bodies: [String]) -> [String] {
            bodies.map { text in
                let body = ByteBuffer(string: text)
                return Envelope.read(body).originalBytes(in: body).text
            }
        }
        let back = originals(try queue.jobs())
        #expect(back.filter { $0 != "0" } == (0..<40).filter { !$0.isMultiple(of: 3) }.map { "\($0)" })
        // A reclaim gives each job an origin, so they differ.
        #expect(back.count { $0 == "0" } == (isReclaimed ? 0 : 1))
        let failed = originals(try queue.texts("ZRANGE", queue.keys.failed, "0", "-1"))
        #expect(
            Set(failed) == Set((0..<40).filter { $0.isMultiple(of: 3) }.map { "\($0)" })
                && failed.count == (isReclaimed ? 15 : 14))
        // All are due at once.
        #expect(try await queue.worker("y").claim(100).bodies.count == 41)
        #expect(try queue.retries().isEmpty && queue.jobs().isEmpty)
    }
}
