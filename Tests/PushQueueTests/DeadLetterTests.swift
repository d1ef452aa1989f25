import NIOCore
import QueueTestSupport
import Testing

@testable import PushJob
@testable import PushQueue

@Suite("Dead letters", .queue)
struct DeadLetterTests {
    private let queue = QueueScope.queue

    @Test("a member has a header line and the original, whatever its bytes")
    func parsing() throws {
        for original in ["", "\n", "\n\n{\"a\":1}\n", "\u{0}\u{1}", "plain"] {
            var member = ByteBuffer(string: "###{\"v\":1}\n" + original)
            member.moveReaderIndex(forwardBy: 3)
            let letter = try #require(DeadLetter(member: member))
            #expect(letter.header.text == "{\"v\":1}")
            #expect(letter.original.text == original)
        }
        #expect(DeadLetter(member: ByteBuffer(string: "no line feed")) == nil)
        #expect(DeadLetter(member: ByteBuffer()) == nil)
    }

    @Test("the header is JSON, whatever the texts")
    func members() throws {
        #expect(DeadLetter.members().readableBytes == 0)
        let hostile = "\"\\\n\u{0}\u{7F}é"
        let job = try JobDecoder.decode(
            ByteBuffer(string: #"{"id":"i\"d","app":"a\u0022pp","token":"ab","payload":{}}"#))
        let members = DeadLetter.members(
            job: job, detail: hostile, status: 400, error: hostile,
            tokens: [ByteBuffer(string: "ab"), ByteBuffer(bytes: [0xFF, 0x22])])
        var object = ByteBuffer(string: #"{"v":1"#)
        object.writeImmutableBuffer(members)
        object.writeString("}")
        #expect(try jsonObject(object))
        #expect(members.text.hasPrefix(#","id":"i\"d","app":"a\"pp","status":400,"error":"\"\\\n"#))
        #expect(members.text.contains(#","tokens":["ab",""#))
    }

    @Test("its header has the campaign and the labels of the job, and is one line whatever white space they contain")
    func labels() throws {
        let labels = "{\n  \"us er\" : \"47\\\"  11\\\\\" ,\r\n\t\"b\":\"c\" }"
        let job = try JobDecoder.decode(
            ByteBuffer(string: #"{"campaign":"spring \u0022sale\u0022","token":"ab","payload":{},"labels":\#(labels)}"#)
        )
        let members = DeadLetter.members(job: job).text
        #expect(members == #","campaign":"spring \"sale\"","labels":{"us er":"47\"  11\\","b":"c"}"#)
    }

    @Test("beyond the maximum number, the oldest are evicted and counted")
    func trimByCount() async throws {
        let limits = QueueLimits { $0.maximumDeadLetters = 3 }
        let worker = try await queue.worker("w", claiming: ["job1", "job2", "job3", "job4", "job5"], limits)
        try queue.redis.run("ZADD", queue.keys.dead, "\(Int64.max / 10_000_000)", "{}\noldest")
        let now = try await worker.claim(0).now
        try queue.redis.run("ZADD", queue.keys.dead, "\(now - 5000)", "{}\nolder", "\(now - 4000)", "{}\nold")
        try queue.redis.run("ZREM", queue.keys.dead, "{}\noldest")
        try await worker.settle { $0.bury(1, reason: "X") }
        #expect(try queue.dead().map(\.original.text) == ["older", "old", "job1"])
        try await worker.settle { $0.bury(2, reason: "X") }
        #expect(try queue.dead().map(\.original.text) == ["old", "job1", "job2"])
        // Dead letters that are evicted at once count as dead, too.
        let last = worker.filled { settlement in for claim in 3...5 { settlement.bury(claim, reason: "X") } }
        #expect(try await worker.settled(last) == QueueConnection.Settled(lost: 0, evicted: 3))
        #expect(try await worker.settled(last) == QueueConnection.Settled(lost: 3, evicted: 0))
        #expect(try queue.dead().map(\.original.text) == ["job3", "job4", "job5"])
        #expect(try queue.stats() == ["dead": 5, "dead:X": 5, "dead_evicted": 4])
    }

    @Test("those beyond the maximum age are evicted and counted")
    func trimByAge() async throws {
        let limits = QueueLimits { $0.maximumDeadLetterAge = 60_000 }
        let worker = try await queue.worker("w", claiming: ["job1", "job2"], limits)
        let now = try await worker.claim(0).now
        try queue.redis.run("ZADD", queue.keys.dead, "\(now - 61_000)", "{}\nancient", "\(now - 30_000)", "{}\nrecent")
        try await worker.settle { $0.end(2, .delivered) }
        #expect(try queue.dead().count == 2)
        try await worker.settle { $0.bury(1, reason: "X") }
        #expect(try queue.dead().map(\.original.text) == ["recent", "job1"])
        #expect(try queue.stats()["dead_evicted"] == 1)
    }

    @Test("beyond the maximum size, the oldest are evicted and counted")
    func trimByBytes() async throws {
        let limits = QueueLimits { $0.maximumDeadLetterBytes = 3000 }
        let jobs = (1...6).map { "job \($0) " + String(repeating: "x", count: 1000) }
        let worker = try await queue.worker("w", claiming: jobs, limits)
        func bury(_ claims: ClosedRange<Int>) -> Settlement {
            worker.filled { settlement in
                for claim in claims {
                    settlement.bury(
                        claim, reason: "X", attempts: 1, members: DeadLetter.members(),
                        original: 0..<jobs[0].utf8.count)
                }
            }
        }
        for claim in 1...3 { try await worker.settle(bury(claim...claim)) }
        #expect(try queue.dead().map { String($0.original.text.prefix(5)) } == ["job 2", "job 3"])
        #expect(try await worker.settled(bury(4...6)) == QueueConnection.Settled(lost: 0, evicted: 3))
        #expect(try queue.dead().map { String($0.original.text.prefix(5)) } == ["job 5", "job 6"])
        #expect(try queue.stats() == ["dead": 6, "dead:X": 6, "dead_evicted": 4])
        let members = try queue.redis.run("ZRANGE", queue.keys.dead, "0", "-1").elements ?? []
        let bytes = members.reduce(0) { $0 + $1.bytes.count }
        let counted = try queue.redis.run("GET", queue.keys.deadBytes).number
        #expect(counted == bytes && bytes <= 3000)
    }

    @Test("a lowered limit is reached step by step: no call evicts more than a thousand")
    func trimInSteps() async throws {
        var limits = QueueLimits()
        limits.maximumDeadLetterBytes = 1000
        limits.maximumDeadLetterAge = 100 * 365 * 86_400_000
        let worker = try await queue.worker("w", claiming: (1...4).map { "job \($0)" }, limits)
        let fill = """
            for i = 1, 2500 do redis.call('ZADD', KEYS[1], i, string.format('{}\\n%06d', i)) end
            redis.call('SET', KEYS[2], 2500 * 9)
            """
        try queue.redis.run("EVAL", fill, "2", queue.keys.dead, queue.keys.deadBytes)
        var left: [Int] = []
        for claim in 1...4 {
            try await worker.settle { $0.bury(claim, reason: "X") }
            left.append(try queue.redis.run("ZCARD", queue.keys.dead).number ?? 0)
        }
        #expect(left[0] == 1501 && left[1] == 502)
        #expect(left[2] < 100)
        #expect(try queue.redis.run("GET", queue.keys.deadBytes).number ?? .max <= 1000)
    }

    @Test("claims and reclaims respect the limits too")
    func trimElsewhere() async throws {
        let limits = QueueLimits { ($0.maximumDeadLetters, $0.maximumJobSize, $0.maximumReclaims) = (1, 5, 0) }
        try queue.push(["larger", "largest", "job1", "job2"])
        let worker = queue.worker("w", limits)
        let claimed = try await worker.claim(10)
        #expect(claimed.texts == ["job1", "job2"] && claimed.evicted == 1)
        #expect(try await worker.claim(10).evicted == 0)
        #expect(try queue.dead().map(\.original.text).count == 1)
        #expect(try queue.stats()["dead_evicted"] == 1)
        try queue.endLease("w")
        let reclaimer = queue.worker("x", limits)
        #expect(
            try await reclaimer.reclaimed("w")
                == QueueConnection.Reclaimed(reclaimed: 0, poisoned: 2, evicted: 2, left: 0))
        #expect(try await reclaimer.reclaimed("w") == nil)
        #expect(try queue.dead().count == 1)
        #expect(try queue.stats() == ["dead": 4, "dead:JobTooLarge": 2, "dead:Poison": 2, "dead_evicted": 3])
    }
}
