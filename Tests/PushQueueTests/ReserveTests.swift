import NIOCore
import PushJob
import PushQueue
import QueueTestSupport
import Testing

@Suite("The reserve script", .queue)
struct ReserveTests {
    private let queue = QueueScope.queue

    private static func job(_ id: String, for duration: String = "1h", _ members: String = "") -> String {
        #"{"id":"\#(id)","unique_for":"\#(duration)",\#(members)"token":"ab","payload":{}}"#
    }

    /// Returns the reservation that a worker makes for a claimed body.
    private static func reservation(_ number: Int, _ body: String, _ worker: TestWorker) throws -> Reservation {
        let job = try JobDecoder.decode(ByteBuffer(string: body))
        let origin = job.envelope.origin.map(job.text) ?? worker.origin(number)
        return try #require(Reservation(of: job, claim: worker.id(number), origin: origin))
    }

    private func key(_ id: String) -> String { queue.keys.unique(ByteBuffer(string: id)).text }

    @Test("a job without unique_for needs no reservation")
    func unasked() throws {
        let plain = try JobDecoder.decode(ByteBuffer(string: #"{"id":"x","token":"ab","payload":{}}"#))
        #expect(Reservation(of: plain, claim: .none, origin: ByteBuffer()) == nil)
    }

    @Test("of the jobs with one ID, the first is reserved and the others are duplicates")
    func firstWins() async throws {
        let jobs = [Self.job("x"), Self.job("y"), Self.job("x", for: "2h"), Self.job(#"\u0078"#)]
        let worker = try await queue.worker("w", claiming: jobs)
        let reservations = try jobs.enumerated().map { try Self.reservation($0.offset + 1, $0.element, worker) }
        #expect(try await worker.reserve(reservations) == [.granted, .granted, .duplicate, .duplicate])
        #expect(try queue.claims("w").sorted { $0.key < $1.key }.map(\.value) == jobs)
        #expect(try queue.redis.run("GET", key("x")).text == "w:\(reservations[0].claim)")
        let left = try #require(queue.redis.run("PTTL", key("x")).number)
        #expect(left > 3_500_000 && left <= 3_600_000)
    }

    @Test("a job that is claimed later by another worker is a duplicate until the reservation ends")
    func later() async throws {
        let job = Self.job("x")
        let first = try await queue.worker("w", claiming: [job])
        #expect(try await first.reserve([Self.reservation(1, job, first)]) == [.granted])
        try await first.settle { $0.end(1, .delivered) }
        let second = try await queue.worker("x", claiming: [job])
        #expect(try await second.reserve([Self.reservation(1, job, second)]) == [.duplicate])
        try queue.redis.run("PEXPIRE", key("x"), "0")
        let third = try await queue.worker("y", claiming: [job])
        #expect(try await third.reserve([Self.reservation(1, job, third)]) == [.granted])
    }

    @Test("run twice, the second run has the same results, and changes nothing")
    func twice() async throws {
        let jobs = [
            Self.job("x"), #"{"apns_worker":1,"attempt":2,"claim":"a:1","job":\#(Self.job("y"))}"#, Self.job("x"),
        ]
        let worker = try await queue.worker("w", claiming: jobs)
        let reservations = try jobs.enumerated().map { try Self.reservation($0.offset + 1, $0.element, worker) }
        #expect(try await worker.reserve(reservations) == [.granted, .granted, .duplicate])
        let before = try queue.everything()
        #expect(try await worker.reserve(reservations) == [.granted, .granted, .duplicate])
        #expect(try queue.everything() == before)
    }

    @Test("a claim that was reclaimed or settled before reserves nothing")
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

    @Test("a reservation is granted again to the job after a reclaim, a retry and a split, and to no other")
    func travels() async throws {
        let original = #"{"id":"x","unique_for":"1h","tokens":["aa","bb"],"payload":{}}"#
        let first = try await queue.worker("w1", claiming: [original])
        let origin = "w1:\(first.id(1))"
        #expect(try await first.reserve([Self.reservation(1, original, first)]) == [.granted])

        try queue.endLease("w1")
        let worker = queue.worker("w2")
        #expect(try await worker.reclaim("w1") == [1, 0])
        let reclaimed = try await claimReserved(worker, 1, origin)
        #expect(reclaimed.envelope.reclaims == 1)
        try await worker.settle {
            var writer = EnvelopeWriter(attempt: 2)
            writer.write(origin: reclaimed.envelope.origin.map(reclaimed.text) ?? ByteBuffer())
            $0.postpone(
                1, .retried, due: .after(milliseconds: 0), head: writer.head(), reason: nil,
                original: reclaimed.original)
        }
        let retried = try await claimReserved(worker, 2, origin)
        #expect(retried.envelope.originalBytes(in: retried.body).text == original)
        try await worker.settle {
            var writer = EnvelopeWriter(attempt: 2)
            writer.write(origin: retried.envelope.origin.map(retried.text) ?? ByteBuffer())
            $0.split(
                2, prefix: writer.prefix(), pieces: retried.tokenPieces(of: 1), cut: retried.tokensMember,
                original: retried.original)
        }
        for claim in 3...4 {
            let piece = try await claimReserved(worker, claim, origin)
            #expect(piece.tokenCount == 1)
            #expect(piece.envelope.originalBytes(in: piece.body).text == #"{"id":"x","unique_for":"1h","payload":{}}"#)
        }
        let other = try await queue.worker("w3", claiming: [original])
        #expect(try await other.reserve([Self.reservation(1, original, other)]) == [.duplicate])
    }

    private func claimReserved(_ worker: TestWorker, _ number: Int, _ origin: String) async throws -> Job {
        let body = try #require(await worker.claim(1, first: number).bodies.first)
        #expect(try await worker.reserve([Self.reservation(number, body.text, worker)]) == [.granted])
        #expect(try queue.redis.run("GET", key("x")).text == origin)
        return try JobDecoder.decode(body)
    }

    @Test("A released job keeps its first claim, and so its reservation, also if its lane had forgotten it.")
    func release() async throws {
        let plain = #"{"token":"ab","alert":"x"}"#
        let worker = try await queue.worker("w", claiming: [Self.job("x"), plain])
        #expect(try await worker.reserve([Self.reservation(1, Self.job("x"), worker)]) == [.granted])
        let origin = try #require(try queue.redis.run("GET", key("x")).text)
        #expect(try await worker.release() == 2)
        #expect(try queue.jobs() == [#"{"apns_worker":1,"origin":"\#(origin)","job":\#(Self.job("x"))}"#, plain])
        let other = queue.worker("other")
        _ = try await claimReserved(other, 1, origin)
        // Its next release does not wrap it again.
        #expect(try await other.release() == 1)
        #expect(try queue.jobs().first == #"{"apns_worker":1,"origin":"\#(origin)","job":\#(Self.job("x"))}"#)
    }

    @Test("a settlement ends the reservation of a job that was not sent, if it is the job's own")
    func free() async throws {
        let ids = ["a", "b", "c", "d"]
        let worker = try await queue.worker("w", claiming: ids.map { Self.job($0) })
        let reservations = ids.enumerated().map { Reservation.bare(worker, $0.offset + 1, id: $0.element) }
        #expect(try await worker.reserve(reservations) == ids.map { _ in .granted })
        try queue.redis.run("SET", key("b"), "another:1.a")
        try await worker.settle { $0.end(3, .delivered) }
        let settlement = worker.filled { settlement in
            for (index, reservation) in reservations.enumerated() {
                settlement.free(reservation, of: reservation.claim, ifExhausted: index == 3)
                settlement.end(index + 1, .expired, notifications: 1)
            }
        }
        #expect(try await worker.settle(settlement) == 1)
        // The second reservation is another job's, the third job was settled before, and the fourth had attempts left.
        #expect(try ids.map { try queue.redis.run("EXISTS", key($0)).number } == [0, 1, 1, 1])
        let before = try queue.everything()
        #expect(try await worker.settle(settlement) == 4)
        #expect(try queue.everything() == before)
    }

    @Test("a failure that spends the last attempt ends the reservation")
    func exhausted() async throws {
        let worker = try await queue.worker("w", claiming: ["job 1", "job 2"])
        let reservations = (1...2).map { Reservation.bare(worker, $0, id: "\($0)") }
        #expect(try await worker.reserve(reservations) == [.granted, .granted])
        let head = #"{"apns_worker":1,"attempt":1,"error":{"reason":"X","at":1},"job":"#
        // The second job fails for the first time, which spends no attempt.
        let failed = #"{"apns_worker":1,"attempt":9,"error":{"reason":"X","at":1,"first":1,"seen":[0,0]},"job":j}"#
        try queue.redis.run("HSET", queue.keys.claimed("w"), "\(worker.id(1))", failed)
        try await worker.settle {
            for (number, original) in [(1, 88..<89), (2, 0..<5)] {
                $0.fail(
                    worker.id(number),
                    .init(
                        rule: .judged(.own, maximum: 9, expires: false), reason: "X", delay: 0,
                        head: ByteBuffer(string: head), group: DeliveryGroup(app: "a", pushType: "alert"),
                        original: original), settles: true)
                $0.free(reservations[number - 1], of: worker.id(number), ifExhausted: true)
            }
        }
        #expect(try queue.dead().count == 1 && queue.retries().count == 1)
        #expect(try (1...2).map { try queue.redis.run("EXISTS", key("\($0)")).number } == [0, 1])
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
            ids.enumerated().map { .bare(worker, first + $0.offset, id: ByteBuffer(bytes: $0.element)) }
        }
        #expect(try await worker.reserve(reservations(from: 1)) == ids.map { _ in .granted })
        #expect(try await worker.reserve(reservations(from: ids.count + 1)) == ids.map { _ in .duplicate })
        let prefix = queue.keys.unique(ByteBuffer()).text
        let keys = try #require(queue.redis.run("KEYS", prefix + "*").elements)
        #expect(Set(keys.map(\.bytes)) == Set(ids.map { Array(prefix.utf8) + $0 }))
    }

    @Test("thousands at once, and none")
    func sizes() async throws {
        let count = 5000
        let worker = try await queue.worker("w", claiming: Array(repeating: "body", count: count))
        #expect(try await worker.reserve([]) == [])
        let results = try await worker.reserve((1...count).map { .bare(worker, $0, id: "id \($0 % 4000)") })
        #expect(results.count { $0 == .granted } == 4000)
        #expect(results[4000...].allSatisfy { $0 == .duplicate })
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
    }
}
