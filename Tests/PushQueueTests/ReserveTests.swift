import NIOCore
import QueueTestSupport
import TestSupport
import Testing

@testable import PushJob
@testable import PushQueue

@Suite("The reserve script", .queue)
struct ReserveTests {
    private let queue = QueueScope.queue

    private static func job(_ id: String, for duration: String = "1h", _ members: String = "") -> String {
        #"{"id":"\#(id)","unique_for":"\#(duration)",\#(members)"token":"ab","payload":{}}"#
    }

    /// Returns the reservation that a worker makes for a claimed body.
    private static func reservation(_ claim: Int, _ body: String, _ worker: TestWorker? = nil) throws -> Reservation {
        let id = worker?.id(claim) ?? ClaimID(number: claim, stamp: "x")
        return try #require(Reservation(of: JobDecoder.decode(ByteBuffer(string: body)), claim: id))
    }

    @Test("a job without unique_for needs no reservation, nor does one that has it")
    func unasked() throws {
        let plain = try JobDecoder.decode(ByteBuffer(string: #"{"id":"x","token":"ab","payload":{}}"#))
        #expect(Reservation(of: plain, claim: .none) == nil)
        let reserved = try JobDecoder.decode(Self.reservation(1, Self.job("x")).body)
        #expect(reserved.envelope.isReserved)
        #expect(reserved.uniqueFor == 3_600_000)
        #expect(Reservation(of: reserved, claim: .none) == nil)
    }

    @Test("of the jobs with one id, the first is reserved and the others end as duplicates")
    func firstWins() async throws {
        let jobs = [Self.job("x"), Self.job("y"), Self.job("x", for: "2h"), Self.job(#"\u0078"#)]
        let worker = try await queue.worker("w", claiming: jobs)
        let reservations = try jobs.enumerated().map { try Self.reservation($0.offset + 1, $0.element, worker) }
        #expect(try await worker.reserve(reservations) == [.granted, .granted, .duplicate, .duplicate])
        #expect(try queue.claims("w") == [1: reservations[0].body.text, 2: reservations[1].body.text])
        #expect(try queue.claims("w")[1] == #"{"apns_worker":1,"reserved":true,"job":\#(jobs[0])}"#)
        #expect(try queue.stats() == ["dropped": 2, "dropped:Duplicate": 2])
        let key = queue.keys.unique(ByteBuffer(string: "x")).text
        #expect(try queue.redis.run("GET", key).text == "w:\(reservations[0].claim)")
        let left = try #require(queue.redis.run("PTTL", key).number)
        #expect(left > 3_500_000 && left <= 3_600_000)
    }

    @Test("a job that is claimed later by another worker is a duplicate until the reservation ends")
    func later() async throws {
        let job = Self.job("x")
        let first = try await queue.worker("w", claiming: [job])
        #expect(try await first.reserve([Self.reservation(1, job, first)]) == [.granted])
        // A settled job has been sent once, whatever its outcome.
        try await first.settle { $0.end(1, .delivered) }
        let second = try await queue.worker("x", claiming: [job])
        #expect(try await second.reserve([Self.reservation(1, job, second)]) == [.duplicate])
        try queue.redis.run("PEXPIRE", queue.keys.unique(ByteBuffer(string: "x")).text, "0")
        let third = try await queue.worker("y", claiming: [job])
        #expect(try await third.reserve([Self.reservation(1, job, third)]) == [.granted])
        #expect(try queue.stats() == ["delivered": 1, "dropped": 1, "dropped:Duplicate": 1])
    }

    @Test("a duplicate counts as dropped for its campaign, which then finishes")
    func campaign() async throws {
        let sale = #""campaign":"sale","#
        let fanOut = #"{"id":"x","unique_for":"1h","campaign":"sale","tokens":["aa","bb","cc"],"payload":{}}"#
        let jobs = [
            Self.job("x", for: "1h", sale), fanOut, Self.job("x"), Self.job("x", for: "1h", #""campaign":"other","#),
        ]
        let worker = try await queue.worker("w", claiming: jobs)
        try queue.redis.run("HSET", queue.keys.campaign("sale"), "total", "4")
        let reservations = try jobs.enumerated().map { try Self.reservation($0.offset + 1, $0.element, worker) }
        #expect(try await worker.reserve(reservations) == [.granted, .duplicate, .duplicate, .duplicate])
        for (campaign, number) in [("sale", "3"), ("other", "1")] {
            for counter in ["dropped", "dropped:Duplicate"] {
                #expect(try queue.redis.run("HGET", queue.keys.campaign(campaign), counter).text == number)
            }
        }
        #expect(try queue.redis.run("ZCARD", queue.keys.campaigns).number == 2)
        #expect(try queue.redis.run("XLEN", queue.keys.results).number == 0)
        // A repetition finds the claims settled.
        #expect(try await worker.reserve(reservations) == [.granted, .lost, .lost, .lost])
        #expect(try queue.redis.run("HGET", queue.keys.campaign("sale"), "dropped").text == "3")

        try await worker.settle {
            $0.use(campaign: ByteBuffer(string: "sale"))
            $0.end(1, .delivered)
        }
        let entries = "\(try queue.redis.run("XRANGE", queue.keys.results, "-", "+"))"
        #expect(entries.contains("campaign_finished"), "\(entries)")
        #expect(try queue.stats() == ["delivered": 1, "dropped": 5, "dropped:Duplicate": 5])
    }

    @Test("a duplicate that is the last of its campaign finishes it")
    func lastOfCampaign() async throws {
        let job = Self.job("x", for: "1h", #""campaign":"sale","#)
        let first = try await queue.worker("w", claiming: [Self.job("x")])
        #expect(try await first.reserve([Self.reservation(1, Self.job("x"), first)]) == [.granted])
        try queue.redis.run("HSET", queue.keys.campaign("sale"), "total", "1")
        let second = try await queue.worker("x", claiming: [job])
        #expect(try await second.reserve([Self.reservation(1, job, second)]) == [.duplicate])
        let entries = "\(try queue.redis.run("XRANGE", queue.keys.results, "-", "+"))"
        #expect(entries.contains("campaign_finished"), "\(entries)")
    }

    @Test("run twice, the second run grants what the first has granted, and changes nothing")
    func twice() async throws {
        let jobs = [
            Self.job("x"), #"{"apns_worker":1,"attempt":2,"claim":"a:1","job":\#(Self.job("y"))}"#, Self.job("x"),
        ]
        let worker = try await queue.worker("w", claiming: jobs)
        let reservations = try jobs.enumerated().map { try Self.reservation($0.offset + 1, $0.element, worker) }
        #expect(try await worker.reserve(reservations) == [.granted, .granted, .duplicate])
        let before = try queue.everything()
        #expect(try await worker.reserve(reservations) == [.granted, .granted, .lost])
        #expect(try queue.everything() == before)
        #expect(try queue.stats() == ["dropped": 1, "dropped:Duplicate": 1])
    }

    @Test("a claim that was reclaimed or settled before is unchanged, and its ID stays free")
    func lost() async throws {
        let jobs = [Self.job("x"), Self.job("y")]
        let worker = try await queue.worker("w", claiming: jobs)
        try await worker.settle { $0.end(1, .delivered) }
        try queue.endLease("w")
        #expect(try await queue.worker("x").reclaim("w") == [1, 0])
        let before = try queue.everything()
        let reservations = try jobs.enumerated().map { try Self.reservation($0.offset + 1, $0.element, worker) }
        #expect(try await worker.reserve(reservations) == [.lost, .lost])
        #expect(try queue.everything() == before)
    }

    @Test("the reservation stays with the job through a reclaim, a release, a retry and a split")
    func travels() async throws {
        let original = #"{"id":"x","unique_for":"1h","tokens":["aa","bb"],"payload":{}}"#
        var worker = try await queue.worker("w1", claiming: [original])
        let first = "w1:\(worker.id(1))"
        #expect(try await worker.reserve([Self.reservation(1, original, worker)]) == [.granted])

        try queue.endLease("w1")
        worker = queue.worker("w2")
        #expect(try await worker.reclaim("w1") == [1, 0])
        #expect(try await self.claimReserved(worker).envelope.reclaims == 1)

        #expect(try await worker.release() == 1)
        worker = queue.worker("w3")
        let job = try await claimReserved(worker)
        try await worker.settle {
            var writer = EnvelopeWriter(attempt: 2)
            writer.write(reserved: job.envelope.isReserved)
            $0.postpone(
                1, .retried, due: .after(milliseconds: 0), head: writer.head(), reason: nil, original: job.original)
        }
        let retried = try await claimReserved(worker, first: 2)
        #expect(retried.originalBytes.text == original)
        try await worker.settle {
            var writer = EnvelopeWriter(attempt: 2)
            writer.write(reserved: retried.envelope.isReserved)
            $0.split(
                2, prefix: writer.prefix(), pieces: retried.tokenPieces(of: 1), cut: retried.tokensMember,
                original: retried.original)
        }
        for claim in 3...4 {
            let piece = try await claimReserved(worker, first: claim)
            #expect(piece.tokenCount == 1)
            #expect(piece.originalBytes.text == #"{"id":"x","unique_for":"1h","payload":{}}"#)
        }
        #expect(try queue.redis.run("GET", queue.keys.unique(ByteBuffer(string: "x")).text).text == first)
    }

    private func claimReserved(_ worker: TestWorker, first: Int = 1) async throws -> Job {
        let job = try JobDecoder.decode(try #require(await worker.claim(1, first: first).bodies.first))
        #expect(job.envelope.isReserved && job.uniqueFor == 3_600_000)
        #expect(Reservation(of: job, claim: worker.id(first)) == nil)
        return job
    }

    @Test(
        "a wrapper keeps all its fields, and the original all its bytes",
        arguments: [
            #"{"apns_worker":1,"job":"#, #"{"apns_worker":1,"attempt":7,"id":"made","reclaims":2,"enqueued":5,"job":"#,
            #"{"apns_worker":1,"tokens":["cd","ef"],"error":{"reason":"\"job\":","at":1},"origin":"w:1","later":[1],"job":"#,
        ])
    func wrapped(head: String) async throws {
        let original = " " + Self.job("x", "\"é\\u0000\": [\"\\\"job\\\":\"],\n") + "\t"
        let body = head + original + "}"
        let worker = try await queue.worker("w", claiming: [body])
        #expect(try await worker.reserve([Self.reservation(1, body, worker)]) == [.granted])
        let held = try #require(queue.claims("w")[1])
        #expect(held == #"{"apns_worker":1,"reserved":true,"# + head.dropFirst(17) + original + "}")
        let (before, after) = (Envelope.read(ByteBuffer(string: body)), Envelope.read(ByteBuffer(string: held)))
        #expect(after.isReserved && !before.isReserved)
        #expect(after.attempt == before.attempt && after.reclaims == before.reclaims)
        #expect(after.enqueued == before.enqueued && after.overridesTokens == before.overridesTokens)
        #expect(try JobDecoder.decode(ByteBuffer(string: held)).originalBytes.text == original)
    }

    @Test("an ID of any bytes makes a distinct key after the prefix")
    func hostileIDs() async throws {
        let texts = [
            "x", "{}", "{other}:jobs", "}", "*", "?", "a\nb", "a\r\nDEL x\r\n", "\0", "\0\0", "é", "é\0", "' OR 1",
            "../jobs", ":", "jobs", "%s%n", String(repeating: "x", count: 255), String(repeating: "x", count: 254),
        ]
        let ids = texts.map { Array($0.utf8) } + [[], [0xFF], [0xFF, 0xFE], [0xC3], Array(0...254)]
        let worker = try await queue.worker("w", claiming: Array(repeating: "body", count: ids.count * 2))
        func reservations(from first: Int) -> [Reservation] {
            ids.enumerated().map { .bare(worker.id(first + $0.offset), "body", id: ByteBuffer(bytes: $0.element)) }
        }
        let granted = try await worker.reserve(reservations(from: 1))
        #expect(granted == ids.map { _ in .granted })
        let refused = try await worker.reserve(reservations(from: ids.count + 1))
        #expect(refused == ids.map { _ in .duplicate })
        let prefix = queue.keys.unique(ByteBuffer()).text
        let keys = try #require(queue.redis.run("KEYS", prefix + "*").elements)
        #expect(Set(keys.map(\.bytes)) == Set(ids.map { Array(prefix.utf8) + $0 }))
        #expect(try queue.stats() == ["dropped": ids.count, "dropped:Duplicate": ids.count])
    }

    @Test(
        "an original of any bytes is unchanged",
        arguments: ["", "}", "\0\n", #"{"apns_worker":1,"reserved":true,"job":x}"#])
    func hostileOriginals(original: String) async throws {
        let worker = try await queue.worker("w", claiming: [#"{"apns_worker":1,"attempt":2,"job":\#(original)}"#])
        let body = ByteBuffer(string: try #require(queue.claims("w")[1]))
        let reservation = Reservation(
            claim: worker.id(1), id: ByteBuffer(string: "x"), milliseconds: 1000, claimed: body,
            envelope: Envelope.read(body))
        #expect(try await worker.reserve([reservation]) == [.granted])
        let held = try #require(queue.claims("w")[1])
        #expect(held == reservation.body.text)
        #expect(held == #"{"apns_worker":1,"reserved":true,"attempt":2,"job":\#(original)}"#)
    }

    @Test("thousands at once, and none")
    func sizes() async throws {
        let count = 5000
        let worker = try await queue.worker("w", claiming: Array(repeating: "body", count: count))
        #expect(try await worker.reserve([]) == [])
        let results = try await worker.reserve((1...count).map { .bare(worker.id($0), "body", id: "id \($0 % 4000)") })
        #expect(results.count { $0 == .granted } == 4000)
        #expect(results[4000...].allSatisfy { $0 == .duplicate })
        #expect(try queue.claims("w").count == 4000)
        #expect(try queue.stats() == ["dropped": 1000, "dropped:Duplicate": 1000])
    }

    @Test("of many workers that request one ID at once, one gets it")
    func race() async throws {
        let job = Self.job("x")
        var workers: [TestWorker] = []
        for number in 0..<20 { workers.append(try await queue.worker("w\(number)", claiming: [job])) }
        let results = try await withThrowingTaskGroup(of: [ReservationResult].self) { group in
            for worker in workers { group.addTask { try await worker.reserve([Self.reservation(1, job, worker)]) } }
            return try await group.reduce([], +)
        }
        #expect(results.count { $0 == .granted } == 1)
        #expect(results.count { $0 == .duplicate } == 19)
        #expect(try queue.redis.run("KEYS", queue.keys.claimed("*")).elements?.count == 1)
    }
}
