import NIOCore
import Operations
import PushJob
import QueueTestSupport
import Testing

@testable import PushQueue

/// A bound of bytes for each call: its cost for Redis is some ms per MB that passes through Lua.
@Suite("The bytes that pass through Lua", .queue)
struct LuaBytesTests {
    private let queue = QueueScope.queue
    private static let mebibyte = 1 << 20

    /// Jobs of some sizes, in the order they are pushed.
    struct Mix: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let sizes: [Int]

        init(_ name: String, _ sizes: [Int]) { (testDescription, self.sizes) = (name, sizes) }

        static let all = [
            Mix("one large job among small ones", small(30) + [670_000] + small(30)),
            Mix("large jobs between small ones", small(257) + Array(repeating: 670_000, count: 62) + small(1)),
            Mix("large jobs behind some small ones", small(63) + Array(repeating: 670_000, count: 62) + small(1)),
            Mix("large jobs behind thousands of small ones", small(4000) + Array(repeating: 670_000, count: 62)),
            Mix("small and large jobs by turns", (0..<40).map { $0 % 2 == 0 ? 300 : 1 << 20 }),
            Mix("many jobs of 100 KB", Array(repeating: 100_000, count: 300)),
            Mix("one job of 15 MB among small ones", small(70) + [15_000_000] + small(70)),
        ]

        private static func small(_ count: Int) -> [Int] { Array(repeating: 300, count: count) }
    }

    @Test("a queue whose jobs become large in no order surprises one claim")
    func surprise() async throws {
        let meter = LuaMeter(queue)
        // None of the large jobs is where a portion is probed.
        let sizes = (0..<1024).map { $0 >= 256 && [5, 20, 40, 50].contains($0 % 64) ? 670_000 : 300 }
        try queue.push(sizes.enumerated().map { body($1, $0) })
        let worker = queue.worker("w", over: meter)
        var claimed = 0
        while claimed < sizes.count { claimed += try await worker.claim(256, first: claimed + 1).bodies.count }
        let calls = try meter.take(queue)
        #expect(calls.count { $0 > 2 * (Self.mebibyte + 670_000) + 3 * 670_000 } <= 1, "\(calls)")
        #expect(calls.max() ?? 0 <= 2 * (Self.mebibyte + 670_000) + 5 * 670_000, "\(calls)")
    }

    private func body(_ size: Int, _ number: Int) -> String {
        let head = #"{"id":"\#(number)","token":"\#(String(repeating: "ab", count: 32))","payload":{},"pad":""#
        return head + String(repeating: "x", count: max(0, size - head.utf8.count - 2)) + #""}"#
    }

    /// - Parameter copies: how often a call may pass its jobs through Lua.
    private func check(_ meter: LuaMeter, largest: Int, copies: Int) throws {
        let calls = try meter.take(queue)
        let bound = copies * (Self.mebibyte + largest) + 2 * largest + 262_144
        let worst = calls.max() ?? 0
        print("bytes through Lua: \(worst) of \(bound) in \(calls.count) calls")
        #expect(!calls.isEmpty)
        #expect(worst <= bound)
    }

    @Test("a claim reads little more than it takes", arguments: Mix.all)
    func claim(_ mix: Mix) async throws {
        let meter = LuaMeter(queue)
        try queue.push(mix.sizes.enumerated().map { body($1, $0) })
        let worker = queue.worker("w", over: meter)
        var (first, sizes) = (1, [Int]())
        while sizes.count < mix.sizes.count {
            let bodies = try await worker.claim(256, first: first).bodies
            try #require(!bodies.isEmpty)
            first += bodies.count
            sizes += bodies.map(\.readableBytes)
        }
        #expect(sizes == mix.sizes)
        try check(meter, largest: mix.sizes.max() ?? 0, copies: 2)
    }

    @Test("a claim of sorted, due or failed jobs reads little more than it takes", arguments: Mix.all.dropLast(3))
    func claimElsewhere(_ mix: Mix) async throws {
        let meter = LuaMeter(queue)
        let sizes = mix.sizes.prefix(200)
        try queue.push(sizes.enumerated().map { body($1, $0) })
        for (number, size) in sizes.enumerated() {
            let error = number % 2 == 0 ? #""error":{},"# : ""
            let wrapped = #"{"apns_worker":1,"attempt":1,\#(error)"claim":"a:\#(number)","job":\#(body(size, number))}"#
            try queue.push(retry: wrapped, at: 1)
        }
        let worker = queue.worker("w", over: meter)
        var claimed = 0
        while claimed < 2 * sizes.count {
            let bodies = try await worker.claim(256, first: claimed + 1, sort: true).bodies
            try #require(!bodies.isEmpty)
            claimed += bodies.count
        }
        // Sorted jobs pass through Lua once more.
        try check(meter, largest: sizes.max() ?? 0, copies: 5)
    }

    @Test("a release moves claims and the inbox in portions", arguments: Mix.all)
    func release(_ mix: Mix) async throws {
        let meter = LuaMeter(queue)
        let bodies = mix.sizes.enumerated().map { body($1, $0) }
        try queue.push(bodies)
        let worker = queue.worker("w", over: meter)
        var claimed = 0
        while claimed < bodies.count / 2 {
            claimed += try await worker.claim(bodies.count / 2 - claimed, first: claimed + 1).bodies.count
        }
        for _ in claimed..<bodies.count {
            try queue.redis.run("LMOVE", queue.keys.jobs, queue.keys.inbox, "LEFT", "RIGHT")
        }
        _ = try meter.take(queue)
        #expect(try await worker.release() == claimed)
        #expect(try queue.jobs() == bodies)
        try check(meter, largest: mix.sizes.max() ?? 0, copies: 2)
    }

    @Test("a reclaim moves claims in portions, and decodes no poison", arguments: Mix.all, [0, 5])
    func reclaim(_ mix: Mix, maximum: Int) async throws {
        let meter = LuaMeter(queue)
        let limits = QueueLimits { $0.maximumReclaims = maximum }
        let bodies = mix.sizes.prefix(400).enumerated().map { body($1, $0) }
        try queue.push(bodies)
        let worker = queue.worker("w", limits)
        var claimed = 0
        while claimed < bodies.count { claimed += try await worker.claim(256, first: claimed + 1).bodies.count }
        try queue.endLease("w")
        let other = queue.worker("x", limits, over: meter)
        #expect(try await other.reclaim("w") == (maximum == 0 ? [0, bodies.count] : [bodies.count, 0]))
        try check(meter, largest: mix.sizes.max() ?? 0, copies: 2)
    }

    @Test("a split writes a bounded number of pieces")
    func split() async throws {
        let meter = LuaMeter(queue)
        let tokens = (0..<40_000).map { #""\#(String(format: "%064x", $0))""# }.joined(separator: ",")
        let original = #"{"tokens":[\#(tokens)],"payload":{},"pad":"\#(String(repeating: "x", count: 1 << 20))"}"#
        try queue.push([original])
        let worker = queue.worker("w", over: meter)
        let job = try JobDecoder.decode(try #require(await worker.claim(1).bodies.first))
        _ = try meter.take(queue)
        try await worker.settle {
            $0.split(
                1, prefix: EnvelopeWriter(attempt: 1).prefix(), pieces: job.tokenPieces(of: 1000),
                cut: job.tokensMember,
                original: job.original)
        }
        let pieces = try queue.retries().map { try JobDecoder.decode(ByteBuffer(string: $0)) }
        #expect(pieces.flatMap { piece in piece.tokens.map { $0.map(piece.text) } ?? [] }.count == 40_000)
        try check(meter, largest: original.utf8.count, copies: 3)
    }

    @Test("the gauges read little more than the head", arguments: Mix.all)
    func gauges(_ mix: Mix) async throws {
        let meter = LuaMeter(queue)
        for (number, size) in mix.sizes.prefix(100).reversed().enumerated() {
            try queue.redis.run("ZADD", queue.keys.sorted, "\(number)", body(size, number))
        }
        let keys = queue.keys
        _ = try meter.run(
            .gauges, QueueGauges.keyNames(keys), [keys.claimed(""), "65536", "LEFT", "0"], queue)
        try check(meter, largest: mix.sizes.max() ?? 0, copies: 1)
    }

    @Test("a requeue moves dead letters in portions", arguments: Mix.all)
    func requeue(_ mix: Mix) async throws {
        let meter = LuaMeter(queue)
        let (keys, sizes) = (queue.keys, mix.sizes.prefix(300))
        for (number, size) in sizes.enumerated() {
            let letter = #"{"v":1,"reason":"X","at":1,"claim":"w:\#(number + 1).a"}"# + "\n" + body(size, number)
            try queue.redis.run("ZADD", keys.dead, "\(number)", letter)
        }
        let script = try #require(QueueScript.ofOperators.first { $0.description == "pageDeadLetters" })
        // The first filter reads the jobs, because the lines have no campaign, and chooses none. The second chooses all, which are
        // read, pushed and removed.
        for (filter, copies) in [(["campaign", "none"], 2), (["reason", "X"], 3)] {
            var cursor = "start"
            while cursor != "end" {
                let reply = try meter.run(
                    script, [keys.dead, keys.jobs, keys.statsPrefix, keys.deadBytes],
                    ["requeue", cursor, "1000", "1000"] + filter, queue)
                cursor = try #require(reply.elements?[1].text)
            }
            try check(meter, largest: mix.sizes.max() ?? 0, copies: copies)
        }
        #expect(try queue.jobs().count == sizes.count)
    }

    @Test("an operator's change of the list passes jobs in portions", arguments: Mix.all)
    func change(_ mix: Mix) async throws {
        let meter = LuaMeter(queue)
        let (keys, bodies) = (queue.keys, mix.sizes.prefix(500).enumerated().map { body($1, $0) })
        try queue.push(bodies)
        let script = try #require(QueueScript.ofOperators.first { $0.description == "changeJobs" })
        let names = [
            keys.jobs, keys.inbox, keys.retry, keys.failed, keys.sorted, keys.cancelled, keys.cancelledBytes,
            keys.statsPrefix, keys.results, keys.campaigns, keys.campaignPrefix, keys.minutesPrefix,
        ]
        func arguments(_ action: String) -> [String] {
            [action, "list", "LEFT", "LEFT", "500", "stamp", "9", "9", "9", "9", "", "Cancelled"]
        }
        while try queue.redis.run("LLEN", keys.jobs).number != 0 {
            _ = try meter.run(script, names, arguments("remove"), queue)
        }
        #expect(try queue.inbox() == bodies)
        while try queue.redis.run("LLEN", keys.inbox).number != 0 {
            _ = try meter.run(script, names, arguments("restore"), queue)
        }
        #expect(try queue.jobs() == bodies)
        try check(meter, largest: mix.sizes.max() ?? 0, copies: 2)
    }
}
