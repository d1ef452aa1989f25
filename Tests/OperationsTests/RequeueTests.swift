import NIOCore
import PushJob
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("Requeueing dead letters", .queue)
struct RequeueTests {
    private let queue = QueueScope.queue

    private static let plain = DeadLetters.Action.requeue(first: false, keepsAttempts: false)

    @Test("the producer's bytes are returned unchanged, whatever they are")
    func bytes() async throws {
        let originals: [[UInt8]] = [
            Array(#"{"token":"ab","payload":{"aps":{"alert":"é\n"}}}"#.utf8), [], [0x0A, 0x0A],
            [0xFF, 0x00, 0x7D, 0x0A, 0x80], Array(#"{"apns_worker":1,"job":{"token":"ab"}}"#.utf8),
            Array("%s %d }}".utf8), Array(repeating: 0x78, count: 2_000_000),
        ]
        for (number, original) in originals.enumerated() {
            try queue.bury(
                Array(#"{"v":1,"reason":"X","claim":"w:\#(number)"}"#.utf8) + [0x0A] + original, at: Int64(number))
        }
        #expect(try await queue.sweep(Self.plain, .init()).tally == originals.count)
        let jobs = try queue.bodies()
        #expect(jobs.map { Array($0.readableBytesView[Envelope.read($0).original]) } == originals)
        #expect(jobs.map { Envelope.read($0).isWrapped }.allSatisfy { $0 })
        #expect(try queue.dead().isEmpty)
        #expect(try queue.stats() == ["requeued": originals.count])
    }

    @Test("a job continues where it stopped: with the tokens that had failed, its reservation, its ID and its time")
    func wrapper() async throws {
        let original = #"{"token":"ab","unique_for":"1h","id":"i/\"d","payload":{}}"#
        try queue.bury(
            #"{"v":1,"reason":"X","at":9,"claim":"w:7.a1:letter","attempts":3,"id":"i/\"d","enqueued":1700000000123,"#
                + #""requeues":4,"tokens":["ab/\"","CD"]}"# + "\n" + original, at: 1)
        #expect(try await queue.sweep(Self.plain, .init()).tally == 1)
        let body = try #require(queue.bodies().first)
        let job = try JobDecoder.decode(body)
        #expect(job.envelope.attempt == 1 && job.envelope.requeues == 5 && !job.envelope.keepsReservation)
        #expect(job.enqueuedAt == 1_700_000_000_123)
        #expect(job.id.map(job.text)?.text == #"i/"d"#)
        #expect(job.envelope.tokens(in: body).map(\.text) == [#"ab/""#, "CD"])
        // With its origin, the job keeps its reservation.
        #expect(job.envelope.origin.map(job.text)?.text == "w:7.a1")
        #expect(body.text.hasSuffix(#","job":\#(original)}"#))
    }

    @Test(
        "a job without an ID keeps the identity from which its apns-ids are derived",
        arguments: [
            (#""claim":"a:b:7.a1""#, "a:b:7.a1"), (#""claim":"w:7.a1:letter""#, "w:7.a1"),
            (#""claim":"w:7.a1:big""#, "w:7.a1"),
            (#""claim":"w:7.a1","origin":"first:1""#, "first:1"), (#""claim":"strange""#, nil), (#""claim":7"#, nil),
            (#""claim":"w:7.a1","id":"\u0001""#, "w:7.a1"),
        ])
    func origin(members: String, expected: String?) async throws {
        try queue.bury("{\"reason\":\"X\",\(members)}\n{\"token\":\"ab\",\"payload\":{}}", at: 1)
        _ = try await queue.sweep(Self.plain, .init())
        let job = try JobDecoder.decode(try #require(queue.bodies().first))
        #expect(job.envelope.isWrapped && job.envelope.id == nil)
        #expect(job.envelope.origin.map(job.text)?.text == expected)
    }

    @Test(
        "attempts start again or continue, and no value in a dead letter makes an unreadable wrapper",
        arguments: [
            (#""attempts":3"#, 4), (#""attempts":0"#, 1), (#""attempts":2147483647"#, 2_147_483_647),
            (#""attempts":-5"#, 1),
            (#""attempts":1.5"#, 1), (#""attempts":"3""#, 1), (#""attempts":null"#, 1), (#""attempts":1e300"#, 1),
            (#""attempts":3,"requeues":2147483647"#, 4), (#""attempts":3,"requeues":"x","enqueued":-1"#, 4),
            (#""attempts":3,"enqueued":1e17,"id":7,"origin":[]"#, 4),
        ])
    func attempts(members: String, kept: Int) async throws {
        for (keeps, expected) in [(true, kept), (false, 1)] {
            try await withQueue { queue in
                try queue.bury("{\"reason\":\"X\",\(members)}\n{\"token\":\"ab\",\"payload\":{}}", at: 1)
                _ = try await queue.sweep(.requeue(first: false, keepsAttempts: keeps), .init())
                let job = try JobDecoder.decode(try #require(queue.bodies().first))
                #expect(job.envelope.isWrapped && job.envelope.attempt == expected)
            }
        }
    }

    @Test("the oldest are first, at the end of the list or at its head")
    func order() async throws {
        for number in 0..<5 { try queue.bury(.numbered(number), at: 5000 + Int64(number)) }
        try queue.push(["waits"])
        let page = try await queue.letters.page(Self.plain, .init(), after: nil, limit: 2)
        #expect(page.chosen == 2)
        let first = try await queue.letters.page(
            .requeue(first: true, keepsAttempts: false), .init(), after: nil, limit: 2)
        #expect(first.chosen == 2)
        let ids = try queue.bodies().map { Envelope.read($0).id == nil ? $0.text : try id(of: $0) }
        #expect(ids == ["job-2", "job-3", "waits", "job-0", "job-1"])
        #expect(try queue.dead().map(\.original.text).count == 1)
    }

    @Test("for a list whose head is its right end, such as Sidekiq's, the ends are swapped")
    func rightHead() async throws {
        let keys = try QueueKeys(prefix: "other", queue: queue.keys.queue, list: queue.keys.jobs, head: .right)
        for number in 0..<4 {
            let letter = String.numbered(number)
            try queue.redis.run("ZADD", keys.dead, "\(5000 + number)", letter)
        }
        try queue.push(["waits"])
        let letters = DeadLetters(queue.client, keys)
        _ = try await letters.page(Self.plain, .init(), after: nil, limit: 2)
        _ = try await letters.page(.requeue(first: true, keepsAttempts: false), .init(), after: nil, limit: 2)
        let fromTheHead = try queue.bodies().reversed().map { Envelope.read($0).id == nil ? $0.text : try id(of: $0) }
        #expect(fromTheHead == ["job-2", "job-3", "waits", "job-0", "job-1"])
    }

    private func id(of body: ByteBuffer) throws -> String {
        let job = try JobDecoder.decode(body)
        return job.id.map { job.text($0).text } ?? ""
    }

    @Test("a worker's dead letters are requeued and settled normally, including pieces of a job")
    func roundTrip() async throws {
        let limits = QueueLimits { $0.maximumReclaims = 0 }
        let piece =
            #"{"apns_worker":1,"attempt":2,"id":"big","enqueued":1700000000123,"requeues":2,"tokens":["ab","cd"],"job":{"payload":{}}}"#
        try queue.push([piece])
        _ = try await queue.worker("w", limits).claim(1)
        try queue.endLease("w")
        #expect(try await queue.worker("x", limits).reclaim("w") == [0, 1])
        #expect(try await queue.sweep(Self.plain, .init()).tally == 1)
        let worker = queue.worker("y", limits)
        let body = try #require(try await worker.claim(1).bodies.first)
        let job = try JobDecoder.decode(body)
        #expect(job.envelope.tokens(in: body).map(\.text) == ["ab", "cd"])
        #expect(job.enqueuedAt == 1_700_000_000_123 && job.envelope.requeues == 3)
        #expect(try id(of: body) == "big")
        try await worker.settle { $0.end(1, .delivered) }
        #expect(try queue.jobs().isEmpty && queue.dead().isEmpty && queue.claims("y").isEmpty)
    }

    @Test("several at once move each dead letter once")
    func concurrently() async throws {
        for number in 0..<2000 { try queue.bury(.numbered(number), at: 5000) }
        let letters = queue.letters
        let moved = try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    var (cursor, sum): (String?, Int) = (nil, 0)
                    repeat {
                        let page = try await letters.page(Self.plain, .init(), after: cursor, limit: 20)
                        sum += page.chosen
                        cursor = page.cursor
                    } while cursor != nil
                    return sum
                }
            }
            return try await group.reduce(0, +)
        }
        #expect(moved == 2000)
        #expect(try Set(queue.bodies().map(id)).count == 2000)
        #expect(try queue.bodies().count == 2000 && queue.dead().isEmpty)
    }

    @Test("a job that becomes a dead letter after the first page stays one, so that the command ends")
    func comingBack() async throws {
        for number in 0..<120 { try queue.bury(.numbered(number), at: 5000) }
        let first = try await queue.letters.page(Self.plain, .init(), after: nil, limit: .max)
        let now = try #require(queue.redis.run("TIME").elements?.first?.number)
        try queue.bury(.numbered(120), at: Int64(now) * 1000 + 5000)
        let second = try await queue.letters.page(Self.plain, .init(), after: first.cursor, limit: .max)
        #expect(first.chosen + second.chosen == 120 && second.cursor == nil)
        #expect(try queue.dead().map(\.original.text) == [#"{"id":"job-120","token":"ab","payload":{}}"#])
    }

    @Test("a page that was done, but whose answer was lost, is not done again")
    func repeated() async throws {
        for number in 0..<300 { try queue.bury(.numbered(number), at: 5000) }
        for _ in 0..<3 { _ = try await queue.letters.page(Self.plain, .init(), after: nil, limit: .max) }
        #expect(try Set(queue.bodies().map(id)).count == 300)
        #expect(try queue.bodies().count == 300)
    }
}

@Suite("The rate at which dead letters are requeued")
struct RequeuePaceTests {
    @Test("is a number per second, in ten portions or one by one", arguments: [1, 3, 7, 10, 99, 1000, 123_457])
    func rate(perSecond: Int) {
        var pace = RequeuePace(perSecond: perSecond)
        var (now, moved) = (NIODeadline.uptimeNanoseconds(5_000_000_000), 0)
        let start = now
        while now - start < .seconds(20) {
            let (letters, wait) = pace.portion(at: now)
            #expect(letters == max(1, perSecond / 10))
            if wait > .zero {
                now = now + wait
            } else {
                moved += letters
                pace.moved(letters, at: now)
            }
        }
        let portion = max(1, perSecond / 10)
        #expect(abs(moved - 20 * perSecond) <= 2 * portion)
    }

    @Test("a pause is not followed by a burst, and a page of few dead letters does not cost the rate of a full one")
    func pauses() {
        var pace = RequeuePace(perSecond: 100)
        var now = NIODeadline.uptimeNanoseconds(5_000_000_000)
        pace.moved(10, at: now)
        now = now + .seconds(60)
        var atOnce = 0
        while pace.portion(at: now).wait <= .zero {
            pace.moved(10, at: now)
            atOnce += 10
        }
        #expect(atOnce <= 20)
        let before = pace.portion(at: now).wait
        pace.moved(1, at: now)
        #expect(pace.portion(at: now).wait - before == .milliseconds(10))
        pace.moved(0, at: now)
        #expect(pace.portion(at: now).wait - before == .milliseconds(10))
    }

    @Test("without a rate there is no limit and no wait")
    func unlimited() {
        var pace = RequeuePace(perSecond: nil)
        pace.moved(1_000_000, at: .uptimeNanoseconds(1))
        #expect(pace.portion(at: .uptimeNanoseconds(1)).letters == .max)
        #expect(pace.portion(at: .uptimeNanoseconds(1)).wait == .zero)
    }
}

extension TestQueue {
    func bodies() throws -> [ByteBuffer] {
        try (redis.run("LRANGE", keys.jobs, "0", "-1").elements ?? []).map { ByteBuffer(bytes: $0.bytes) }
    }
}
