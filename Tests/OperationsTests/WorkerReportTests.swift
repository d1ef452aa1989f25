import Foundation
import NIOCore
import PushQueue
import QueueTestSupport
import TestSupport
import Testing

@testable import Operations

@Suite("Workers' reports")
struct WorkerReportTests {
    static func report(_ process: String = "host.7.ab", state: WorkerReport.State = .running) -> WorkerReport {
        var app = WorkerReport.App()
        app.name = "shop"
        app.endpoint = "api.push.apple.com:443"
        (app.usable, app.connecting, app.streams, app.streamLimit) = (2, 1, 30, 2000)
        var other = WorkerReport.App()
        other.state = .refused
        (other.topics, other.keyID) = (["com.example.other", "com.example.third"], "ABC123DEFG")
        (other.name, other.isDormant, other.pause, other.failure) = ("other", true, "Bad \"key\"\n", "refused")
        var report = WorkerReport()
        (report.process, report.host, report.processIdentifier, report.version) = (process, "host", 7, "1.2.3")
        (report.lane, report.lanes, report.state) = (1, 4, state)
        (report.inFlight, report.done, report.delivered, report.rate) = (30, 1000, 990, 12.5)
        report.obstacles = [
            .init(.redisRefuses, "Redis \"refuses\" claims\n"),
            .init(.nothingSent, "the app other is paused: x", app: "other"),
        ]
        (report.redis, report.apps, report.moreApps) = ("single", [app, other], 0)
        return report
    }

    private func read(_ json: String) -> WorkerReport? { WorkerReport(ByteBuffer(string: json)) }

    @Test("is read as it was written, with the time of Redis, and is printable")
    func roundTrip() async throws {
        try await withQueue { queue in
            let report = Self.report()
            let name = "host.7.ab.1"
            _ = try await queue.worker(name).claim(0, heartbeat: WorkerHeartbeat(report, uptime: 5000))
            let overview = try await QueueOverview.read(queue.client, queue.keys)
            let worker = try #require(overview.workers.first)
            #expect(worker.name == name && worker.leaseLeft > 0 && worker.claims == 0)
            var expected = report
            expected.apps[1].pause = "Bad \"key\""
            expected.obstacles[0].reason = "Redis \"refuses\" claims"
            expected.updatedAt = overview.now
            expected.startedAt = overview.now - 5000
            var read = try #require(worker.report)
            // The times are from two commands.
            #expect(overview.now - read.updatedAt < 5000 && read.updatedAt - read.startedAt == 5000)
            (read.updatedAt, read.startedAt) = (expected.updatedAt, expected.startedAt)
            #expect(read == expected)
        }
    }

    @Test("has a maximum size, and includes the apps that have problems")
    func bounded() throws {
        var report = Self.report()
        report.version = String(repeating: "\u{1}", count: 100_000)
        report.apps = (0..<10_000).map { number in
            var app = WorkerReport.App()
            app.name = "app-\(number)" + String(repeating: "x", count: 1000)
            if number == 9999 { app.failure = String(repeating: "é", count: 10_000) }
            return app
        }
        report.obstacles = (0..<1000).map {
            .init(.other, "\($0)" + String(repeating: "\u{1}", count: 10_000), app: "é")
        }
        let heartbeat = WorkerHeartbeat(report, uptime: 1)
        #expect(heartbeat.members.readableBytes < 60_000)
        var json = ByteBuffer(string: "{")
        json.writeImmutableBuffer(heartbeat.members)
        let read = try #require(WorkerReport(json))
        #expect(read.apps.count == 50 && read.moreApps == 9950)
        #expect(read.obstacles.map(\.reason) == ["0", "1", "2", "3", "4"])
        #expect(read.apps[0].name.hasPrefix("app-9999x"))
    }

    @Test(
        "a text that is not a report is ignored",
        arguments: [
            "", "x", "[]", "null", "{}", #"{"process":""}"#, #"{"process":1}"#, #"{"process":"a","pid":1e300}"#,
            #"{"process":"a","apps":{}}"#, #"{"process":"a","apps":[[]]}"#, "{\"process\":\"a\",\"host\":\"\u{FF}",
            String(repeating: "[", count: 20_000),
        ])
    func garbage(json: String) { #expect(read(json) == nil) }

    @Test("foreign data does no harm: no escapes, no numbers that overflow")
    func hostile() throws {
        let json = """
            {"process":"a","host":"\\u001b[31mred\\u009b\\r\\n","version":"\(String(repeating: "v", count: 5000))",\
            "pid":-5,"lane":9223372036854775807,"done":9223372036854775807,"in_flight":-9223372036854775808,\
            "rate":-1e308,"updated_at":9223372036854775807,"state":"on fire","more_apps":9223372036854775807,\
            "obstacles":[{},{"kind":"of another version","reason":"\\u001b[2J"},{"reason":"x\\u0007","app":"\\u009b"},{},{},{"reason":"sixth"}],\
            "apps":[{"name":"\\u001b]0;x\\u0007","usable":9223372036854775807,"pause":"\\u001b[2J"},{}]}
            """
        let report = try #require(read(json))
        #expect(report.host == "[31mred" && report.version.count == 200)
        #expect(report.processIdentifier == 0 && report.inFlight == 0 && report.rate == 0)
        #expect(report.done < 1 << 45 && report.updatedAt < 1 << 45 && report.lane < 1 << 45)
        #expect(report.state == .running)
        #expect(report.obstacles == [.init(.other, "[2J"), .init(.other, "x", app: "")])
        #expect(report.apps[0].name == "]0;x" && report.apps[0].pause == "[2J")
    }
}

@Suite("Commands to workers", .queue)
struct WorkerCommandTests {
    private let queue = QueueScope.queue

    @Test("reach only their worker, with each heartbeat")
    func claim() async throws {
        let heartbeat = WorkerHeartbeat(WorkerReportTests.report("host.7.ab"), uptime: 1)
        let worker = queue.worker("host.7.ab.0")
        #expect(try await worker.claim(0, heartbeat: heartbeat).command == nil)
        let command = WorkerCommand(.quiet, at: 1234)
        try await command.send(to: "host.7.ab", queue.client, queue.keys)
        #expect(try await worker.claim(0, join: false).command == nil)
        #expect(try await worker.claim(0, join: false, heartbeat: heartbeat).command == command)
        #expect(try await queue.worker("host.7.ab.1").claim(0, heartbeat: heartbeat).command == command)
        let other = WorkerHeartbeat(WorkerReportTests.report("host.8.ab"), uptime: 1)
        #expect(try await queue.worker("host.8.ab.0").claim(0, heartbeat: other).command == nil)
        // The command expires in case the worker has ended.
        let left = try #require(queue.redis.run("PTTL", queue.keys.order("host.7.ab")).number)
        #expect(left > 0 && left <= WorkerCommand.lifetime)
    }

    @Test("a worker that ends leaves only where the jobs are, and one that only takes another name leaves the commands")
    func release() async throws {
        let heartbeat = WorkerHeartbeat(WorkerReportTests.report("host.7.ab"), uptime: 1)
        let worker = queue.worker("host.7.ab.0")
        _ = try await worker.claim(0, heartbeat: heartbeat)
        try await WorkerCommand(.stop, at: 1).send(to: "host.7.ab", queue.client, queue.keys)
        try await worker.release()
        #expect(try Set(queue.everything().keys) == [queue.keys.order("host.7.ab"), queue.keys.source])
        _ = try await worker.claim(0, heartbeat: heartbeat)
        try await worker.release(endOf: "host.7.ab")
        #expect(try Array(queue.everything().keys) == [queue.keys.source])
    }

    @Test("the report of a dead worker is deleted when its jobs are reclaimed")
    func reclaim() async throws {
        let dead = queue.worker("host.7.ab.0")
        _ = try await dead.claim(0, heartbeat: WorkerHeartbeat(WorkerReportTests.report("host.7.ab"), uptime: 1))
        let living = queue.worker("host.8.ab.0")
        _ = try await living.claim(0, heartbeat: WorkerHeartbeat(WorkerReportTests.report("host.8.ab"), uptime: 1))
        try queue.endLease("host.7.ab.0")
        let before = try await QueueOverview.read(queue.client, queue.keys)
        let gone = try #require(before.workers.first { $0.name == "host.7.ab.0" })
        #expect(gone.leaseLeft < 0 && gone.report?.process == "host.7.ab")
        #expect(try await living.reclaim("host.7.ab.0") != nil)
        #expect(try queue.redis.run("HKEYS", queue.keys.workerInfo) == .array(["host.8.ab.0"]))
    }

    @Test(
        "with any other data in their keys, jobs are claimed, released and reclaimed",
        arguments: [["SET", "x"], ["RPUSH", "x"], ["ZADD", "1", "x"]])
    func wrongType(command: [String]) async throws {
        for key in [queue.keys.workerInfo, queue.keys.order("p")] {
            try queue.redis.run(([command[0], key] + command.dropFirst()).map { Array($0.utf8) })
        }
        try queue.push(["a"])
        let heartbeat = WorkerHeartbeat(WorkerReportTests.report("p"), uptime: 1)
        let claimed = try await queue.worker("p.0").claim(5, heartbeat: heartbeat)
        #expect(claimed.texts == ["a"] && claimed.command == nil)
        #expect(try await queue.worker("p.0").release() == 1)
        #expect(try await queue.worker("p.1").claim(5).texts == ["a"])
        try queue.endLease("p.1")
        #expect(try await queue.worker("p.0").reclaim("p.1") == [1, 0])
    }

    @Test(
        "a text that is not a command is ignored",
        arguments: ["", "quiet", "quiet ", "quiet x", "burn 1", "quiet 1 2", " quiet 1"])
    func garbage(text: String) { #expect(WorkerCommand(text) == nil) }
}
