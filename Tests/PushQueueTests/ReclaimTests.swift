import NIOCore
import QueueTestSupport
import TestSupport
import Testing

@testable import PushJob
@testable import PushQueue

@Suite("The reclaim script", .queue)
struct ReclaimTests {
    private let queue = QueueScope.queue

    @Test("claims return to the head of the list, in their order")
    func order() async throws {
        let jobs = (1...120).map { "job \($0)" }
        let worker = try await queue.worker("w", claiming: jobs)
        try queue.push(["newer"])
        try queue.endLease("w")
        #expect(try await queue.worker("x").reclaim("w") == [120, 0])
        let expected = (1...120).map {
            #"{"apns_worker":1,"reclaims":1,"origin":"w:\#(worker.id($0))","job":job \#($0)}"#
        }
        #expect(try queue.jobs() == expected + ["newer"])
        #expect(try queue.workers().isEmpty && queue.claims("w").isEmpty)
        #expect(try queue.stats() == ["reclaimed": 120])
    }

    @Test("a lane whose lease has not expired, or that is unknown, is left unchanged")
    func leaseNotEnded() async throws {
        _ = try await queue.worker("w", claiming: ["a"])
        try queue.redis.run("RPUSH", queue.keys.inbox, "waited")
        let before = try queue.everything()
        #expect(try await queue.worker("x").reclaim("w") == nil)
        #expect(try await queue.worker("x").reclaim("nobody") == nil)
        #expect(try queue.everything() == before)
        #expect(try queue.workers() == ["w"])
    }

    @Test("run twice, the second run does nothing, even while the jobs are claimed again")
    func twice() async throws {
        _ = try await queue.worker("w", claiming: ["a", "b"])
        try queue.endLease("w")
        #expect(try await queue.worker("x").reclaim("w") == [2, 0])
        _ = try await queue.worker("x").claim(1)
        let before = try queue.everything()
        #expect(try await queue.worker("x").reclaim("w") == nil)
        #expect(try queue.everything() == before)
    }

    @Test("of many concurrent calls, one has an effect")
    func race() async throws {
        _ = try await queue.worker("w", claiming: (1...50).map { "job \($0)" })
        try queue.endLease("w")
        let workers = (0..<20).map { queue.worker("x\($0)") }
        let counts = try await withThrowingTaskGroup(of: [Int]?.self) { group in
            for worker in workers { group.addTask { try await worker.reclaim("w") } }
            return try await group.reduce(into: [[Int]]()) { if let counts = $1 { $0.append(counts) } }
        }
        #expect(counts == [[50, 0]])
        #expect(try queue.jobs().count == 50)
    }

    @Test("a lane without claims is removed")
    func nothingHeld() async throws {
        _ = try await queue.worker("w").claim(0)
        try queue.endLease("w")
        #expect(try await queue.worker("x").reclaim("w") == [0, 0])
        #expect(try queue.workers().isEmpty)
        #expect(try queue.stats().isEmpty)
    }

    static let bodies: [(body: String, original: String)] = [
        (#"{"token":"ab","payload":{}}"#, #"{"token":"ab","payload":{}}"#),
        ("", ""), ("}", "}"), ("not JSON \u{0}\n", "not JSON \u{0}\n"), (#"{"apns_worker":1,"#, #"{"apns_worker":1,"#),
        (#"{"apns_worker":1,"attempt":2,"claim":"a:1","job":{"token":"ab"}}"#, #"{"token":"ab"}"#),
        (#"{"apns_worker":1,"attempt":2,"claim":"a:1","job":garbage "job":}}"#, #"garbage "job":}"#),
        (#"{"apns_worker":1,"attempt":2,"reclaims":1,"enqueued":5,"job":{}}"#, "{}"),
        (#"{"apns_worker":1,"attempt":7,"id":"payload","job":{}}"#, "{}"),
        (#"{"apns_worker":1,"attempt":7,"id":"token","error":{"reason":"token"},"job":{}}"#, "{}"),
        (#"{"apns_worker":1,"attempt":7,"id":"\"job\":","tokens":["job","payload"],"job":{}}"#, "{}"),
        (#"{"apns_worker":1,"reserved":true,"attempt":2,"job":{}}"#, "{}"),
        (#"{"apns_worker":1,"reserved":true,"job":{}}"#, "{}"),
        (#"{"apns_worker":1,"id":"x","attempt":2,"job":{}}"#, "{}"), (#"{"apns_worker":1,"job":}"#, ""),
        // Producers' own jobs that begin like a wrapper.
        (#"{"v":1,"attempt":2,"token":"ab","payload":{}}"#, #"{"v":1,"attempt":2,"token":"ab","payload":{}}"#),
        (#"{"v":1,"reclaims":9,"payload":{"job":1},"job":2}"#, #"{"v":1,"reclaims":9,"payload":{"job":1},"job":2}"#),
        (#"{"v":1,"tokens":["ab"],"job":"campaign-7"}"#, #"{"v":1,"tokens":["ab"],"job":"campaign-7"}"#),
        (#"{"apns_worker":1,"attempt":x,"job":{}}"#, #"{"apns_worker":1,"attempt":x,"job":{}}"#),
        (#"{"apns_worker":1,"reserved":1,"job":{}}"#, #"{"apns_worker":1,"reserved":1,"job":{}}"#),
        (#"{"apns_worker":1,"attempt":0,"job":{}}"#, #"{"apns_worker":1,"attempt":0,"job":{}}"#),
        (#"{"apns_worker":1,"attempt":1,"job":{}} "#, #"{"apns_worker":1,"attempt":1,"job":{}} "#),
        // White space between the members of a head.
        (#"{"apns_worker":1, "reclaims":1,"job":{}}"#, #"{"apns_worker":1, "reclaims":1,"job":{}}"#),
        (#"{"apns_worker":1,"attempt": 2,"job":{}}"#, #"{"apns_worker":1,"attempt": 2,"job":{}}"#),
        (#"{"apns_worker":1,"id":"a b\" c","job":{ }}"#, "{ }"),
        (#"{"apns_worker":1,"attempt":2,"error":{ "reason": "x y" },"job": {}}"#, " {}"),
    ]

    @Test(
        "reclaims are counted up to the limit, then the job is poison, with its bytes unchanged",
        arguments: bodies.indices)
    func poison(index: Int) async throws {
        let (body, original) = Self.bodies[index]
        let limits = QueueLimits { $0.maximumReclaims = 3 }
        let before = Envelope.read(ByteBuffer(string: body))
        #expect(ByteBuffer(string: body).slice(before.original).text == Self.readable(body, original))
        try queue.push([body])
        let reclaimsLeft = 3 - before.reclaims
        var firstClaim = ""
        for reclaim in 1...reclaimsLeft {
            let dying = queue.worker("w\(reclaim)", limits)
            #expect(try await dying.claim(1).bodies.count == 1)
            try queue.endLease(dying.name)
            #expect(try await queue.worker("x", limits).reclaim(dying.name) == [1, 0])
            // A job that had failed waits among the failed jobs.
            let back = ByteBuffer(string: try #require((before.error == nil ? queue.jobs() : queue.retries()).first))
            let envelope = Envelope.read(back)
            #expect(envelope.isWrapped)
            #expect(envelope.reclaims == before.reclaims + reclaim)
            #expect(back.slice(envelope.original).text == original)
            #expect(envelope.attempt == before.attempt)
            #expect(envelope.enqueued == before.enqueued)
            #expect(envelope.overridesTokens == before.overridesTokens)
            #expect(envelope.keepsReservation == before.keepsReservation)
            #expect((envelope.id == nil) == (before.id == nil))
            // The origin is the first claim, however often the job is reclaimed.
            if reclaim == 1 { firstClaim = "\(dying.id(1))" }
            #expect(back.text.contains(#","origin":"w1:\#(firstClaim)""#) == (before.origin == nil))
        }
        _ = try await queue.worker("last", limits).claim(1)
        try queue.endLease("last")
        #expect(try await queue.worker("x", limits).reclaim("last") == [0, 1])
        let letter = try #require(queue.dead().first)
        #expect(letter.original.text == original)
        #expect(letter.header.text.contains(#""reason":"Poison""#))
        #expect(letter.header.text.contains(#""detail":"reclaimed 4 times from lanes whose lease had expired""#))
        #expect(try jsonObject(letter.header))
        #expect(try queue.jobs().isEmpty && queue.workers().isEmpty)
        let tokens = before.overridesTokens ? 2 : 1
        #expect(letter.header.text.contains(#""tokens":["job","payload"]"#) == before.overridesTokens)
        #expect(try queue.stats() == ["reclaimed": reclaimsLeft, "dead": tokens, "dead:Poison": tokens])
    }

    static let ofCampaigns: [(body: String, tokens: Int?)] = [
        (#"{"campaign":"spring","token":"aa"}"#, 1), (#"{"tokens":["aa","bb","cc"],"campaign":"spring"}"#, 3),
        (#"{"apns_worker":1,"tokens":["bb","cc"],"job":{"campaign":"spring","tokens":["aa","bb","cc"]}}"#, 2),
        // Sidekiq's format, with an object or its JSON, and ActiveJob's with a symbol.
        (#"{"class":"Push","args":[{"campaign":"spring","token":"aa"}]}"#, 1),
        (#"{"class":"Push","args":["{\"campaign\":\"spring\",\"tokens\":[\"aa\",\"bb\"]}"]}"#, 2),
        (
            #"{"class":"W","args":[{"arguments":[{"token":"aa","campaign":{"_aj_serialized":"S","value":"spring"}}]}]}"#,
            1
        ),
        (#"{"token":"aa","args":[{"campaign":"autumn"}],"campaign":"spring"}"#, 1),
        // The search does not depend on valid JSON.
        (#"{"campaign":"spring""#, 1),
        // Jobs without a campaign, as a worker reads them.
        (#"{"campaign":7,"token":"aa"}"#, nil), (#"{"campaign":"","token":"aa"}"#, nil),
        (#"{"payload":{"campaign":"spring"},"token":"aa"}"#, nil), ("[1]", nil),
        (#"{"campaign":"\#(String(repeating: "x", count: 101))","token":"aa"}"#, nil), (#"{"args":[1]}"#, nil),
        (String(repeating: #"{"args":["#, count: 2000), nil), (#"{"campaign":"\ud800","token":"aa"}"#, nil),
    ]

    @Test(
        "the notifications of a poison job are dead for its campaign, which then finishes",
        arguments: ofCampaigns.indices, [ResultsKept.off, .all])
    func campaign(index: Int, results: ResultsKept) async throws {
        let (body, tokens) = Self.ofCampaigns[index]
        let limits = QueueLimits { ($0.maximumReclaims, $0.results) = (0, results) }
        try queue.push([body])
        try queue.redis.run("HSET", queue.keys.campaign("spring"), "total", "\(tokens ?? 1)")
        _ = try await queue.worker("dying", limits).claim(1)
        try queue.endLease("dying")
        let worker = queue.worker("x", limits)
        #expect(try await worker.reclaim("dying") == [0, 1])
        let number = tokens.map { "\($0)" }
        for counter in ["dead", "dead:Poison"] {
            #expect(try queue.redis.run("HGET", queue.keys.campaign("spring"), counter).text == number, "\(counter)")
        }
        #expect(try queue.redis.run("ZCARD", queue.keys.campaigns).number == (tokens == nil ? 0 : 1))
        let entries = "\(try queue.redis.run("XRANGE", queue.keys.results, "-", "+"))"
        #expect(entries.contains("campaign_finished") == (tokens != nil), "\(entries)")
        if let tokens { #expect(try queue.stats() == ["dead": tokens, "dead:Poison": tokens]) }
    }

    /// Returns the original that the worker's reader finds: the whole body if it is not a wrapper.
    private static func readable(_ body: String, _ original: String) -> String {
        Envelope.read(ByteBuffer(string: body)).isWrapped ? original : body
    }

    @Test("a job's wrapper is read unchanged after a reclaim")
    func randomWrappers() async throws {
        var random = SeededGenerator(seed: 77)
        let texts = ["payload", "token", "job", #""job":"#, "é\u{0}\n\\", #","reclaims":7,"#, "x", "{}}", "]"]
        // An id must not have control characters.
        let ids = texts.filter { !$0.contains("\u{0}") }
        let originals = [
            "{}", #"{"payload":{},"token":"ab"}"#, "", "}", #""job":{"#, "\u{0}\u{1}", #"{"apns_worker":1,"job":{}}"#,
        ]
        var bodies: [ByteBuffer] = []
        for number in 0..<500 {
            var writer = EnvelopeWriter(attempt: .random(in: 1...100, using: &random))
            let pick = { (random: inout SeededGenerator) in ByteBuffer(string: texts.randomElement(using: &random)!) }
            if Bool.random(using: &random) { writer.write(id: ByteBuffer(string: ids.randomElement(using: &random)!)) }
            if Bool.random(using: &random) { writer.write(origin: pick(&random)) }
            if Bool.random(using: &random) { writer.write(reclaims: .random(in: 0...4, using: &random)) }
            if Bool.random(using: &random) { writer.write(tokens: [pick(&random), pick(&random)]) }
            if Bool.random(using: &random) {
                writer.write(errorStatus: 503, reason: texts.randomElement(using: &random)!, at: 5)
            }
            if Bool.random(using: &random) { writer.write(claim: pick(&random)) }
            if Bool.random(using: &random) { writer.write(enqueued: 1_700_000_000_000) }
            if Bool.random(using: &random) { writer.write(reserved: true) }
            writer.write(requeued: Int64(number))
            bodies.append(ByteBuffer(string: writer.head().text + originals.randomElement(using: &random)! + "}"))
        }
        _ = try await queue.worker("w", claiming: bodies.map(\.text))
        try queue.endLease("w")
        #expect(try await queue.worker("x").reclaim("w") == [500, 0])
        func number(_ body: String) -> Int? { Envelope.read(ByteBuffer(string: body)).requeued.map { Int($0) } }
        let (jobs, failed) = (try queue.jobs(), try queue.retries())
        #expect(jobs.compactMap(number) == bodies.indices.filter { Envelope.read(bodies[$0]).error == nil })
        #expect(jobs.count + failed.count == 500)
        for text in jobs + failed {
            let after = ByteBuffer(string: text)
            let before = bodies[try #require(number(text))]
            let (old, new) = (Envelope.read(before), Envelope.read(after))
            #expect(old.isWrapped && new.isWrapped)
            #expect(new.reclaims == old.reclaims + 1)
            #expect(after.slice(new.original) == before.slice(old.original))
            #expect(new.attempt == old.attempt && new.enqueued == old.enqueued)
            #expect(after.slice(new.id) == before.slice(old.id))
            // A job without an origin gets one from its first claim.
            if old.origin != nil {
                #expect(after.slice(new.origin) == before.slice(old.origin))
            } else {
                #expect(new.origin != nil)
            }
            #expect(after.slice(new.claim) == before.slice(old.claim))
            #expect(after.slice(new.error) == before.slice(old.error))
            #expect(new.overridesTokens == old.overridesTokens && new.keepsReservation == old.keepsReservation)
        }
    }

    @Test("a claim that can't be read becomes a dead letter with its bytes unchanged, and the others are returned")
    func unreadableClaim() async throws {
        _ = try await queue.worker("w", claiming: ["a", "b"])
        for field in ["x", "", "1", "-1.a", "1.", "1e999.a", "nan.a", "\u{0}\"\n"] {
            try queue.redis.run("HSET", queue.keys.claimed("w"), field, "by hand \(field)")
        }
        try queue.endLease("w")
        #expect(try await queue.worker("x").reclaim("w") == [2, 8])
        #expect(try queue.jobs().map { $0.suffix(2) } == ["a}", "b}"])
        let letters = try queue.dead()
        #expect(letters.count == 8)
        #expect(letters.allSatisfy { $0.original.text.hasPrefix("by hand ") })
        for letter in letters {
            #expect(letter.header.text.contains(#""reason":"UnreadableClaim""#))
            #expect(try jsonObject(letter.header))
        }
        #expect(try queue.workers().isEmpty && !queue.redis.run("EXISTS", queue.keys.claimed("w")).isTrue)
    }

    @Test("a lane whose claims have the wrong type is skipped for an hour, so that others are reclaimed")
    func noHash() async throws {
        let now = try await queue.worker("w").claim(0).now
        try queue.redis.run("SET", queue.keys.claimed("w"), "something else")
        try queue.endLease("w")
        await #expect(throws: QueueFailure.self) { try await queue.worker("x").reclaim("w") }
        let lease = try #require(Double(queue.redis.run("ZSCORE", queue.keys.workers, "w").text ?? ""))
        #expect(Int64(lease) - now > 3_500_000)
        #expect(try await queue.worker("x").claim(0).expiredWorker == nil)
    }

    @Test("a call returns a megabyte of claims and removes them in the same step, so that no job is duplicated")
    func portions() async throws {
        let limits = QueueLimits { $0.maximumClaimSize = 64 << 20 }
        let filling = String(repeating: "x", count: 70_000)
        _ = try await queue.worker("w", claiming: (100..<160).map { "\($0)\(filling)" }, limits)
        try queue.endLease("w")
        var left = 60
        while let counts = try await queue.worker("x").reclaimed("w") {
            #expect(counts.reclaimed == min(14, left))
            left -= counts.reclaimed
            #expect(counts.left == left)
            #expect(try queue.claims("w").count == left && queue.jobs().count == 60 - left)
        }
        #expect(left == 0)
        let order = try queue.jobs().map { job in
            job.firstRange(of: #""job":"#).map { job[$0.upperBound...].prefix(3) } ?? ""
        }
        #expect(order == (100..<160).map { "\($0)" })
    }

    @Test("thousands of claims at once")
    func thousands() async throws {
        _ = try await queue.worker("w", claiming: (1...10_000).map { "job \($0)" })
        try queue.endLease("w")
        #expect(try await queue.worker("x").reclaim("w") == [10_000, 0])
        let jobs = try queue.jobs()
        #expect(jobs.count == 10_000)
        #expect(jobs[9999].hasSuffix(#""job":job 10000}"#))
    }
}

extension RedisValue { fileprivate var isTrue: Bool { number == 1 } }

extension ByteBuffer {
    fileprivate func slice(_ range: Range<Int>) -> ByteBuffer {
        getSlice(at: readerIndex + range.lowerBound, length: range.count) ?? ByteBuffer()
    }

    fileprivate func slice(_ field: JobField?) -> ByteBuffer? { field.map { slice($0.offset..<$0.offset + $0.length) } }
}
