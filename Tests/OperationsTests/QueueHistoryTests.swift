import NIOCore
import PushJob
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("The history of a queue", .queue)
struct QueueHistoryTests {
    private let queue = QueueScope.queue

    /// A time in milliseconds since 1970: 2026-11-21T14:05:30Z.
    private static let time: Int64 = 1_795_269_930_000

    private static func setTime(_ time: Int64, _ queue: TestQueue) throws -> ClockSource {
        let clock = "\(queue.keys.jobs):clock"
        try queue.redis.run("SET", clock, "\(time)")
        return .key(clock)
    }

    private static func pairs(_ key: String, _ redis: RedisTestConnection) throws -> [String: String] {
        let flat = (try redis.run("HGETALL", key).elements ?? []).compactMap(\.text)
        return stride(from: 0, to: flat.count, by: 2).reduce(into: [:]) { $0[flat[$1]] = flat[$1 + 1] }
    }

    /// Returns the fields of the only minute of the queue.
    private static func minute(_ queue: TestQueue) throws -> [String: String] {
        let keys = (try queue.redis.run("KEYS", queue.keys.minutesPrefix + "*").elements ?? []).compactMap(\.text)
        try #require(keys.count <= 1, "\(keys)")
        return try keys.first.map { try pairs($0, queue.redis) } ?? [:]
    }

    private static func settle(_ claim: Int, _ worker: TestWorker, _ sums: MinuteCounts = .sample()) async throws {
        try await worker.settle { settlement in
            settlement.end(claim, .delivered)
            settlement.minute = sums
        }
    }

    // MARK: Writing

    @Test("a settlement adds a lane's sums to the minute of Redis' clock, which expires after a day")
    func written() async throws {
        let clock = try Self.setTime(Self.time, queue)
        let worker = queue.worker("w", clock: clock)
        try queue.push(["a", "b", "c", "d"])
        _ = try await worker.claim(2)
        try queue.push(retry: "due", at: Self.time - 7000)
        try queue.push(retry: "later", at: Self.time + 7000)
        for number in 1...2 {
            try await Self.settle(number, worker)
        }
        let key = queue.keys.minute("2026-11-21T14:05")
        #expect(
            try Self.minute(queue) == [
                "delivered": "4", "retried:Shutdown": "6", "deferred:AppPaused": "8", "latency:128": "2",
                "answer:16": "2", "backlog": "3", "oldest": "7000",
            ])
        #expect((86_400...90_000).contains(try #require(queue.redis.run("TTL", key).number)))
        // The day's counters come from the settlements' claims, and not from the lane's sums.
        #expect(try queue.stats() == ["delivered": 2])
    }

    @Test("a settlement is complete although the key of the retries has another type")
    func wrongRetries() async throws {
        let worker = try await queue.worker("w", claiming: ["a"])
        try queue.redis.run("SET", queue.keys.retry, "x")
        try await Self.settle(1, worker)
        let minute = try Self.minute(queue)
        #expect(minute["delivered"] == "2" && minute["backlog"] == "0" && minute["oldest"] == "5000", "\(minute)")
        #expect(try queue.stats() == ["delivered": 1])
    }

    @Test("sums count once, however often their settlement is written, and not if all its claims were lost")
    func once() async throws {
        let worker = try await queue.worker("w", claiming: ["a", "b", "c"])
        let settlement = worker.filled { settlement in
            settlement.end(1, .delivered)
            settlement.minute = .sample()
        }
        for _ in 0..<3 { try await worker.settle(settlement) }
        #expect(try Self.minute(queue)["delivered"] == "2")
        // The settlement is counted, because one of its two claims still exists.
        try await worker.settle { settlement in
            settlement.end(1, .delivered)
            settlement.end(2, .delivered)
            settlement.minute = .sample()
        }
        #expect(try Self.minute(queue)["delivered"] == "4")
        try await worker.settle { settlement in
            settlement.retry(9)
            settlement.minute = .sample()
        }
        #expect(try Self.minute(queue)["delivered"] == "4")
        // A settlement without claims always counts.
        try await worker.settle { $0.minute = .sample(.dead) }
        #expect(try Self.minute(queue)["dead"] == "2")
    }

    @Test("jobs that scripts end themselves are in the minute, too")
    func scripts() async throws {
        let limits = QueueLimits { ($0.maximumJobSize, $0.maximumReclaims) = (100, 0) }
        try queue.push([String(repeating: "x", count: 200), "poison"])
        _ = try await queue.worker("w", limits).claim(2)
        #expect(try Self.minute(queue) == ["dead": "1"])
        try queue.endLease("w")
        try await queue.worker("v", limits).reclaim("w")
        #expect(try Self.minute(queue) == ["dead": "2"])
        try queue.push([#"{"token":"ab","payload":{}}"#])
        var changes = JobChanges(QueueJobs(queue.client, queue.keys), .discard, JobFilter())
        try await changes.run()
        #expect(try Self.minute(queue) == ["dead": "2", "cancelled": "1"])
    }

    @Test("reasons of any number and text keep a minute small, and none is lost")
    func hostileReasons() async throws {
        let clock = try Self.setTime(Self.time, queue)
        let worker = try await queue.worker("w", claiming: (0..<20).map { "job \($0)" }, clock: clock)
        for number in 1...20 {
            var counts = MinuteCounts.sample()
            for outcome in Outcome.allCases { counts.outcomes[outcome] = 1 }
            for milliseconds in Array(0..<100) + stride(from: 1000, to: 5_000_000, by: 1000) {
                counts.latencies.record(milliseconds)
                counts.answers.record(milliseconds)
            }
            counts.retries = Dictionary(uniqueKeysWithValues: (0..<100).map { ("Reason\(number)x\($0)", 1) })
            counts.deferrals = counts.retries
            try await Self.settle(number, worker, counts)
        }
        let fields = try Self.minute(queue)
        #expect(fields.count > 100 && fields.count <= 128, "\(fields.count) fields")
        for kind in ["retried", "deferred"] {
            let sum = fields.filter { $0.key.hasPrefix("\(kind):") }.reduce(0) { $0 + (Int($1.value) ?? 0) }
            #expect(sum == 2000)
        }
        let key = try #require(queue.redis.run("KEYS", queue.keys.minutesPrefix + "*").elements?.first?.text)
        #expect(try ["listpack", "ziplist"].contains(queue.redis.run("OBJECT", "ENCODING", key).text))
    }

    @Test("foreign data in the minute's key or fields does not prevent a settlement", arguments: [true, false])
    func hostileKey(isHash: Bool) async throws {
        let clock = try Self.setTime(Self.time, queue)
        let key = queue.keys.minute("2026-11-21T14:05")
        if isHash {
            try queue.redis.run(
                "HSET", key, "delivered", "x", "oldest", "y", "backlog", "-5", "latency:7", "1", "answer:x", "1",
                "retried:\u{1B}[2J", "1", "invalid_token", "9223372036854775807", "", "")
        } else {
            try queue.redis.run("SET", key, "x")
        }
        try queue.push(["a"])
        let worker = queue.worker("w", clock: clock)
        _ = try await worker.claim(1)
        try await Self.settle(1, worker, .sample(.invalidToken))
        #expect(try queue.stats() == ["delivered": 1] && queue.claims("w").isEmpty)
        let history = try await QueueHistory.read(.hour, until: Self.time, queue.client, queue.keys)
        let point = try #require(history.points.last)
        if isHash {
            #expect(
                point.counts.outcomes[.delivered] == 0 && point.counts.outcomes[.invalidToken] == 10_000_000_000_000)
            #expect(point.counts.retries == ["?[2J": 1, "Shutdown": 3] && point.counts.oldest == 5000)
        } else {
            #expect(point == QueueHistory.Point(at: point.at))
        }
    }

    @Test("a full Redis accepts sums with a settlement, which frees memory, but none without one")
    func fullRedis() async throws {
        try await withQueue(on: RedisServer(arguments: ["--maxmemory-policy", "noeviction"])) { queue in
            let worker = try await queue.worker("w", claiming: ["a", "b"])
            try queue.redis.run("CONFIG", "SET", "maxmemory", "100000")
            try await worker.settle { $0.minute = .sample() }
            #expect(try Self.minute(queue).isEmpty)
            try await Self.settle(1, worker)
            #expect(try Self.minute(queue)["delivered"] == "2")
        }
    }

    @Test("a settlement with sums costs a few more commands, and one without sums none")
    func cost() async throws {
        try await withQueue(on: RedisServer()) { queue in
            let worker = try await queue.worker("w", claiming: (0..<8).map { "job \($0)" })
            func calls(_ fill: (inout Settlement) -> Void) async throws -> Int {
                try queue.redis.run("CONFIG", "RESETSTAT")
                try await worker.settle(fill)
                return try queue.redis.calls().filter {
                    !["evalsha", "eval", "script|load", "config|resetstat"].contains($0.key)
                }.values.reduce(0, +)
            }
            _ = try await calls { $0.end(1, .delivered) }
            let plain = try await calls { $0.end(2, .delivered) }
            let first = try await calls {
                $0.end(3, .delivered)
                $0.minute = .sample()
            }
            let later = try await calls {
                $0.end(4, .delivered)
                $0.minute = .sample()
            }
            // One call for each of the five fields, and HLEN, HEXISTS, HGET, EXPIRE; one more for each new reason.
            #expect(later <= plain + 5 + 6 && first <= later + 10)
        }
    }

    // MARK: Reading

    @Test("minutes and days are read in steps without gaps, with their values")
    func read() async throws {
        let (client, keys) = (queue.client, queue.keys)
        let empty = try await QueueHistory.read(.hour, client, keys)
        #expect(empty.points.count == 60 && empty.points.allSatisfy { $0 == QueueHistory.Point(at: $0.at) })
        let now = try #require(queue.redis.run("TIME").elements?.first?.text.flatMap { Int64($0) }) * 1000
        #expect((0..<120_000).contains(now - empty.points[59].at))

        try queue.push((0..<6).map { "job \($0)" })
        for (number, minutesAgo) in [0, 1, 1, 13, 70].enumerated() {
            let clock = try Self.setTime(Self.time - Int64(minutesAgo) * 60_000, queue)
            let worker = queue.worker("w\(number)", clock: clock)
            _ = try await worker.claim(1)
            try await Self.settle(1, worker)
        }
        let hour = try await QueueHistory.read(.hour, until: Self.time, client, keys)
        #expect(hour.points.map(\.at) == (0..<60).map { Self.time - 30_000 - 59 * 60_000 + $0 * 60_000 })
        #expect(
            hour.points.map { $0.counts.outcomes[.delivered] }.enumerated().filter { $1 > 0 }.map { [$0, $1] } == [
                [46, 2], [58, 4], [59, 2],
            ])
        #expect(
            hour.points[58].counts.retries == ["Shutdown": 6] && hour.points[58].counts.deferrals == ["AppPaused": 8])
        #expect(hour.points[59].backlog == 5 && hour.points[59].counts.oldest == 5000)
        #expect((96...128).contains(try #require(hour.points[59].latency?.p50)))
        #expect((12...16).contains(try #require(hour.points[59].answer?.p99)))
        #expect(hour.points[0].latency == nil && hour.points[0].backlog == nil && hour.points[0].counts.oldest == nil)

        #expect(hour.points.map(\.isRecorded).enumerated().filter { $1 }.map { $0.offset } == [46, 58, 59])

        // Pairs of a point's index and its delivered notifications, which ended 70, 13, 1 (two) and 0 minutes ago.
        let sums: [(QueueHistory.Span, [[Int]])] = [
            (.quarter, [[1, 2], [13, 4], [14, 2]]), (.sixHours, [[57, 2], [68, 2], [70, 4], [71, 2]]),
            (.day, [[67, 2], [70, 2], [71, 6]]),
        ]
        for (span, expected) in sums {
            let points = try await QueueHistory.read(span, until: Self.time, client, keys).points
            #expect(points.count == span.count && points.allSatisfy { $0.at % span.step == 0 }, "\(span)")
            let delivered = points.map { $0.counts.outcomes[.delivered] }
            #expect(delivered.enumerated().filter { $1 > 0 }.map { [$0, $1] } == expected, "\(span)")
            #expect(points.last?.backlog == 5 && points.last?.isRecorded == true && !points[0].isRecorded, "\(span)")
        }

        let days = try await QueueHistory.read(.days, until: Self.time, client, keys)
        #expect(days.points.count == 40 && days.points[39].counts.outcomes[.delivered] == 5)
        #expect(days.points[38] == QueueHistory.Point(at: days.points[39].at - 86_400_000))
        let week = try await QueueHistory.read(.week, until: Self.time, client, keys)
        #expect(week.points == Array(days.points.suffix(7)))
    }

    @Test("a day's counters of any size and text are read within bounds")
    func days() async throws {
        let today = queue.keys.stats("2026-11-21")
        try queue.redis.run(
            "HSET", today, "delivered", "7", "dead", "2", "dead:BadPayload", "2", "retried", "5", "retried:Shutdown",
            "5", "reclaimed", "9")
        for number in 0..<300 { try queue.redis.run("HSET", today, "deferred:R\(number)", "1") }
        let yesterday = queue.keys.stats("2026-11-20")
        for number in 0..<2001 { try queue.redis.run("HSET", yesterday, "retried:R\(number)", "1") }
        try queue.redis.run("HSET", yesterday, "delivered", "8")
        try queue.redis.run("SET", queue.keys.stats("2026-11-19"), "x")
        let points = try await QueueHistory.read(.days, until: Self.time, queue.client, queue.keys).points
        #expect(points[39].counts.outcomes[.delivered] == 7 && points[39].counts.outcomes[.dead] == 2)
        #expect(points[39].counts.retries == ["Shutdown": 5])
        #expect(points[39].counts.deferrals.count == 101 && points[39].counts.deferrals.values.reduce(0, +) == 300)
        #expect(
            points[38].counts.outcomes[.delivered] == 8 && points[38].counts.retries.isEmpty && points[38].isRecorded)
        #expect(points[37] == QueueHistory.Point(at: points[37].at))
    }

    @Test("names of minutes match the script's, on any day")
    func names() async throws {
        let times: [Int64] = [
            0, 951_782_399_999, 951_782_400_000, 951_868_799_000, 1_709_164_799_000, 1_709_251_199_000,
            1_767_225_599_999, 1_767_225_600_000, Self.time, 4_107_542_400_000, 253_402_300_799_000,
        ]
        for time in times {
            let worker = queue.worker("w", clock: try Self.setTime(time, queue))
            try await worker.settle { $0.minute = .sample() }
            let key = try #require(queue.redis.run("KEYS", queue.keys.minutesPrefix + "*").elements?.first?.text)
            #expect(key == queue.keys.minute(QueueHistory.name(ofMinute: time)))
            try queue.redis.run("DEL", key)
        }
    }

    @Test("histories of several queues add up by time")
    func sum() {
        func history(_ first: Int64, _ delivered: [Int]) -> QueueHistory {
            QueueHistory(
                span: .hour,
                points: delivered.enumerated().map { index, count in
                    var point = QueueHistory.Point(at: (first + Int64(index)) * 60_000)
                    point.counts.outcomes[.delivered] = count
                    point.backlog = count == 0 ? nil : count
                    return point
                })
        }
        let sum = QueueHistory.sum(of: [history(5, [1, 2, 3]), history(6, [10, 0, 30]), history(5, [0, 0, 7])])
        #expect(sum?.points.map { $0.counts.outcomes[.delivered] } == [12, 10, 30])
        #expect(sum?.points.map(\.at) == [360_000, 420_000, 480_000])
        #expect(sum?.points.map(\.backlog) == [12, 10, 30])
        #expect(QueueHistory.sum(of: []) == nil)
    }

    @Test(
        "1,440 minutes of a queue take about a megabyte, or two with all outcomes, many reasons and any latency",
        arguments: [false, true])
    func memory(isFull: Bool) async throws {
        try await withQueue(on: RedisServer()) { queue in
            let minutes = Self.minutes(isFull: isFull)
            let before = try queue.redis.usedMemory()
            for minute in 0..<1440 {
                let worker = queue.worker("w", clock: try Self.setTime(Self.time - Int64(minute) * 60_000, queue))
                try await worker.settle { $0.minute = minutes[minute % minutes.count] }
            }
            let bytes = try queue.redis.usedMemory() - before
            #expect(try await QueueHistory.read(.day, until: Self.time, queue.client, queue.keys).points.count == 72)
            // Redis 8 takes a little more than 7, and both count the memory of Lua, which varies by a hundred kilobytes.
            #expect(bytes < (isFull ? 2_500_000 : 1_650_000))
        }
    }

    /// Returns the counts of a few minutes with 5,000 answers each.
    private static func minutes(isFull: Bool) -> [MinuteCounts] {
        var generator = SeededGenerator(seed: 1)
        return (0..<20).map { _ in
            var counts = MinuteCounts()
            for _ in 0..<5000 {
                let answer = Int.random(in: 40...(isFull ? 600 : 160), using: &generator)
                counts.answers.record(answer)
                let wait = 1 << Int.random(in: 0...(isFull ? 16 : 5), using: &generator)
                counts.latencies.record(answer + wait)
            }
            for outcome in isFull ? Outcome.allCases : [.delivered, .invalidToken, .suppressed] {
                counts.outcomes[outcome] = .random(in: 1...100_000, using: &generator)
            }
            counts.retries = ["InternalServerError": 7, "ConnectionLost": 2]
            counts.oldest = 1234
            if isFull {
                counts.retries.merge(["TooManyRequests": 12, "NoAnswer": 3, "HTTP502": 9]) { $1 }
                counts.deferrals = ["AppPaused": 500, "RateLimited": 30_000, "Throttled": 2]
            }
            return counts
        }
    }

    @Test("the queues of a Cluster have their minutes with their other keys")
    func cluster() async throws {
        let cluster = try await RedisCluster()
        for name in ["a", "b", "c"] {
            let keys = try QueueKeys(queue: name)
            try await withRedis(cluster.url, key: keys.jobs) { client in
                _ = try await client.call(RedisCommand("RPUSH", keys.jobs, "a", "b"))
                let worker = TestWorker("w", client: client, keys: keys, limits: QueueLimits())
                _ = try await worker.claim(1)
                try await Self.settle(1, worker)
                let points = try await QueueHistory.read(.day, client, keys).points
                #expect(points.map { $0.counts.outcomes[.delivered] }.reduce(0, +) == 2)
                #expect(points.compactMap(\.backlog) == [1])
            }
        }
    }
}

@Suite("Latencies in buckets")
struct LatencyCountsTests {
    @Test("the bounds ascend, two for each doubling, and each time is in the bucket below the next bound")
    func bounds() {
        #expect(LatencyCounts.bounds.prefix(14) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128])
        #expect(LatencyCounts.bounds.last == 4_194_304 && LatencyCounts.bounds.contains(MinuteCounts.longestAnswer))
        for time in Array(0..<3000) + [4_194_303, 4_194_304, 1 << 40, Int.max] {
            var counts = LatencyCounts()
            counts.record(time)
            #expect(counts.buckets.map(\.bound) == [LatencyCounts.bounds.first { $0 > time } ?? 4_194_304])
        }
        var counts = LatencyCounts()
        counts.record(-5)
        #expect(counts.buckets.map(\.bound) == [1] && counts.percentile(0.5) == 0.5)
    }

    @Test("percentiles of a known distribution are off by less than half", arguments: [10, 200, 30_000])
    func distribution(median: Int) throws {
        var generator = SeededGenerator(seed: UInt64(median))
        var counts = LatencyCounts()
        var times: [Int] = []
        for _ in 0..<20_000 {
            // The latencies have a long tail, like real ones.
            let factor = Double.random(in: 0.5...1.5, using: &generator)
            let isSlow = Int.random(in: 0..<50, using: &generator) == 0
            times.append(Int(Double(median) * factor * (isSlow ? 8 : 1)))
            counts.record(times[times.count - 1])
        }
        times.sort()
        for share in [0.1, 0.5, 0.9, 0.99] {
            let exact = Double(times[Int(Double(times.count - 1) * share)])
            let estimate = try #require(counts.percentile(share))
            #expect(abs(estimate - exact) < exact * 0.34, "\(share) of \(median): \(estimate), and not \(exact)")
        }
        #expect(LatencyCounts().percentile(0.5) == nil)
    }

    @Test("buckets add up, and longer times are in the last")
    func sums() {
        var (long, short) = (LatencyCounts(), LatencyCounts(upTo: 8))
        for time in [0, 5, 9, 1000] { long.record(time) }
        short += long
        #expect(short.buckets.map(\.bound) == [1, 6, 8] && short.count == 4)
        short.add(1, below: 7)
        #expect(short.count == 4)
    }
}
