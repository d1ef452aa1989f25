import NIOCore
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("The overview of a queue", .queue)
struct QueueOverviewTests {
    private let queue = QueueScope.queue

    @Test("a reading of a queue of large jobs moves less than a megabyte")
    func bytes() async throws {
        try await OperatorScene.with { scene in
            let filling = String(repeating: "x", count: 68_000)
            let keys = try QueueKeys()
            for number in 0..<200 {
                let body = #"{"token":"ab","campaign":"c\#(number % 7)","payload":{},"pad":"\#(filling)"}"#
                try scene.push(body)
                for (set, cause) in [(keys.retry, "wait"), (keys.failed, "error")] {
                    let head = #"{"apns_worker":1,"attempt":1,"\#(cause)":{},"claim":"w:\#(number)","job":"#
                    try scene.run("ZADD", set, "9000000000000", head + body + "}")
                }
                let letter = #"{"v":1,"reason":"X","claim":"w:\#(number)"}"# + "\n" + body
                try scene.run("ZADD", keys.dead, "\(number)", letter)
            }
            func sent() throws -> Int {
                let info = try scene.run("INFO", "stats").text ?? ""
                return Int(try #require(info.firstMatch(of: /total_net_output_bytes:(\d+)/)).1) ?? 0
            }
            let client = try await scene.fleet.client(for: keys.jobs)
            let before = try sent()
            let overview = try await QueueOverview.read(client, keys)
            #expect(overview.postponed == nil && overview.due + overview.later == 400 && overview.dead == 200)
            #expect(overview.waiting == 200)
            _ = try await QueueGauges.read(client, keys)
            var unread = UnreadParts()
            _ = try await CampaignStatus.latest(100, in: [keys], scene.fleet, &unread)
            #expect(try sent() - before < 1_000_000)
        }
    }

    private func read(_ queue: TestQueue) async throws -> QueueOverview {
        try await QueueOverview.read(queue.client, queue.keys)
    }

    @Test("of an empty Redis is empty, and writes nothing")
    func empty() async throws {
        let overview = try await read(queue)
        #expect(
            overview.waiting + overview.due + overview.later + overview.claims + overview.dead + overview.deadBytes
                == 0)
        #expect(overview.oldest == nil && overview.pause == nil && overview.workers.isEmpty)
        #expect(overview.counters.isEmpty && overview.deadReasons.isEmpty)
        #expect(try queue.everything().isEmpty)
    }

    @Test("counts everything, and has the age of what should have been sent")
    func everything() async throws {
        let now = try await read(queue).now
        let job = #"{"token":"ab","payload":{"aps":{}},"enqueued_at":\#((now - 60_000) / 1000)}"#
        try queue.push([job, "b", "c"])
        _ = try await queue.worker("w").claim(1)
        try queue.push([job])
        try queue.redis.run("LPUSH", queue.keys.jobs, job)
        try queue.push(retry: "due", at: now - 90_000)
        try queue.redis.run("ZADD", queue.keys.failed, "\(now - 1000)", "due too")
        try queue.push(retry: "later", at: now + 3_600_000)
        for number in 0..<3 {
            let letter = #"{"v":1,"reason":"R\#(number % 2)","at":1}"# + "\nbody \(number)"
            try queue.redis.run("ZADD", queue.keys.dead, "\(number)", letter)
        }
        try queue.redis.run("ZADD", queue.keys.dead, "9", "no letter")
        try await QueuePause.set(queue.client, queue.keys, PauseRecord(reason: "moon", since: 5, by: "ana"))
        try await queue.worker("w").settle { $0.end(1, .delivered) }
        _ = try await queue.worker("w").claim(1, first: 5, join: false)

        let overview = try await read(queue)
        #expect(overview.waiting == 4 && overview.due == 2 && overview.later == 1 && overview.dead == 4)
        #expect(overview.claims == 0 && overview.workers.map(\.name) == ["w"])
        #expect((90_000..<150_000).contains(try #require(overview.overdue)))
        #expect((60_000..<120_000).contains(try #require(overview.oldestWaiting)))
        #expect(overview.oldest == overview.overdue)
        #expect(overview.pause == PauseRecord(reason: "moon", since: 5, by: "ana"))
        #expect(overview.counters["delivered"] == 1)
        #expect(overview.deadReasons == ["R0": 2, "R1": 1, "unreadable": 1] && overview.deadSampled == 4)
    }

    @Test("a killed process lives no longer than the lease of its lane that polls, or of one that has jobs")
    func killed() async throws {
        func heartbeat(_ lane: Int) -> WorkerHeartbeat {
            var report = WorkerReport()
            (report.process, report.lane, report.lanes) = ("host.1.ab", lane, 3)
            return WorkerHeartbeat(report, uptime: 1)
        }
        try queue.push(["a"])
        for lane in 0..<3 {
            let claimed = try await queue.worker("host.1.ab.\(lane)").claim(
                lane == 2 ? 1 : 0, heartbeat: heartbeat(lane))
            #expect(claimed.bodies.count == (lane == 2 ? 1 : 0))
        }
        _ = try await queue.worker("other").claim(0)
        func living() async throws -> [String] { try await read(queue).workers.filter(\.isLiving).map(\.name).sorted() }
        #expect(try await living() == ["host.1.ab.0", "host.1.ab.1", "host.1.ab.2", "other"])
        try queue.endLease("host.1.ab.0")
        #expect(try await living() == ["host.1.ab.2", "other"])
        try queue.endLease("host.1.ab.2")
        #expect(try await living() == ["other"])
    }

    @Test("reads a limited number of dead letters and of their bytes")
    func sample() async throws {
        let letters = (0..<3000).flatMap { ["\($0)", #"{"v":1,"reason":"R","at":1}"# + "\n\($0)"] }
        try queue.redis.run((["ZADD", queue.keys.dead] + letters).map { Array($0.utf8) })
        let many = try await read(queue)
        #expect(many.dead == 3000 && many.deadSampled == 200 && many.deadReasons == ["R": 200])
        let large = #"{"v":1,"reason":"Large","at":1}"# + "\n" + String(repeating: "x", count: 3 << 20)
        for number in 0..<4 { try queue.redis.run("ZADD", queue.keys.dead, "\(9000 + number)", large + "\(number)") }
        let few = try await read(queue)
        #expect(few.dead == 3004 && few.deadReasons == ["Large": 1])
    }

    @Test("names a key of the wrong type", arguments: ["jobs", "retry", "failed", "workers", "dead"])
    func wrongType(name: String) async throws {
        let key = queue.keys.jobs.dropLast(4) + name
        try queue.redis.run("SET", String(key), "x")
        let error = await #expect(throws: RedisError.self) { try await read(queue) }
        #expect("\(error as Any)".contains("WRONGTYPE \(key) holds a string"))
    }

    @Test("shows any value in place of a pause's reason")
    func pause() async throws {
        try queue.redis.run("SET", queue.keys.paused, "by \u{1B}[31mhand")
        #expect(try await read(queue).pause?.reason == "by [31mhand")
        try queue.redis.run("DEL", queue.keys.paused)
        try queue.redis.run("RPUSH", queue.keys.paused, "x")
        #expect(try await read(queue).pause?.reason == "a list instead of a reason")
    }

    @Test("tolerates any scores, names and counters")
    func hostile() async throws {
        for (score, name) in [("inf", "a"), ("-inf", "b\u{1B}[2J"), ("1e300", String(repeating: "c", count: 5000))] {
            try queue.redis.run("ZADD", queue.keys.workers, score, name)
            try queue.redis.run("ZADD", queue.keys.retry, score, name)
            try queue.redis.run("HSET", queue.keys.workerInfo, name, "garbage \u{1B}")
        }
        let day = try await read(queue)
        #expect(day.due == 1 && day.later == 2)
        #expect(Set(day.workers.map(\.name)) == ["a", "b[2J", String(repeating: "c", count: 200)])
        #expect(day.workers.allSatisfy { $0.report == nil })
    }
}
