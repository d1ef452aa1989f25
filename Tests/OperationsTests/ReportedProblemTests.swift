import NIOCore
import PushQueue
import Testing

@testable import Operations

/// Problems that workers report in their heartbeats, as `status` finds them in Redis.
@Suite("Problems that workers report", .scene)
struct ReportedProblemTests {
    private var scene: OperatorScene { SceneScope.scene }

    /// Writes the heartbeat of a lane, which has a lease.
    private static func write(
        _ process: String, to scene: OperatorScene, _ change: (inout WorkerReport) -> Void
    ) throws {
        var report = WorkerReportTests.report(process)
        (report.obstacles, report.lane) = ([], 0)
        report.apps = report.apps.prefix(1).map { $0 }
        change(&report)
        let now = Moment.now
        var json = ByteBuffer(string: "{\"started_at\":\(now - 1000),\"updated_at\":\(now),")
        json.writeImmutableBuffer(WorkerHeartbeat(report, uptime: 1).members)
        try scene.run("ZADD", "push:{default}:workers", "\(now + 60_000)", process + ".0")
        try scene.run("HSET", "push:{default}:worker-info", process + ".0", String(buffer: json))
    }

    private static func problems(_ scene: OperatorScene) async throws -> [String] {
        try await StatusReader(scene.fleet).read(scene.fleet.queues().keys).problems.map {
            "\($0.kind.name) \($0.subject) \($0.kind.severity)"
        }
    }

    @Test("The slow and suspected scopes of two workers are one problem each, and a scope of another version is none.")
    func scopes() async throws {
        for (process, failures) in [("host.1.a", 300), ("host.2.b", 200)] {
            try Self.write(process, to: scene) { report in
                report.scopes = [
                    .init(
                        .campaign, "spring", .slow, app: "shop", reason: "BadDeviceToken", status: 400,
                        failures: failures, since: 1_795_000_000_000, othersDelivered: 620),
                    .init(
                        .credential, "KEY", .suspected, app: "shop", reason: "InvalidProviderToken", status: 403,
                        failures: 2, since: 1_795_000_000_000),
                ]
            }
        }
        let lane = "host.2.b.0"
        let report = try #require(try scene.run("HGET", "push:{default}:worker-info", lane).text)
        try scene.run(
            "HSET", "push:{default}:worker-info", lane,
            report.replacing(#""scopes":["#, with: #""scopes":[{"scope":"galaxy","name":"x","state":"slow"},"#))
        #expect(
            try await Self.problems(scene) == ["campaign_slow spring warning", "scope_suspected KEY warning"])
        let status = try await StatusReader(scene.fleet).read(scene.fleet.queues().keys)
        #expect(
            status.problems[0].message
                == "campaign spring: 500 tokens are of another environment (BadDeviceToken); 1,240 others of the app were "
                + "delivered in that time")
        // A suspected credential is not called faulty.
        #expect(!status.problems[1].advice.contains("fix") && status.problems[1].since == 1_795_000_000_000)
        let json = status.json()
        #expect(
            json.contains(#""scopes":[{"apps":["shop"],"endpoints":["api.push.apple.com:443"],"failures":500,"#))
    }

    @Test("Each reason why a worker is not ready is a problem of its own kind; an unknown one is not dropped.")
    func obstacles() async throws {
        try Self.write("host.1.a", to: scene) { report in
            report.obstacles = [
                .init(.redisRefuses, "Redis refuses claims: WRONGTYPE"),
                .init(.redisRefuses, "Redis refuses turns"),
                .init(.nothingSent, "the app shop is paused", app: "shop"), .init(.other, "the moon is full"),
            ]
        }
        #expect(
            try await Self.problems(scene) == [
                "redis_refuses_requests host.1.a critical", "worker_not_ready host.1.a critical",
            ])
        let status = try await StatusReader(scene.fleet).read(scene.fleet.queues().keys)
        #expect(
            status.problems[0].message
                == "worker host.1.a is not ready: Redis refuses claims: WRONGTYPE; Redis refuses turns")
    }

    @Test("An old job, and old jobs of a paused queue, are problems by default.")
    func oldJobs() async throws {
        try Self.write("host.1.a", to: scene) { _ in }
        let then = Int(Moment.now / 1000) - 7200
        try scene.push(OperatorScene.job("a", #","enqueued_at":\#(then)"#))
        #expect(try await Self.problems(scene) == ["too_old default warning"])
        let now = Moment.now
        try scene.run("SET", "push:{default}:paused", "{\"reason\":\"maintenance\",\"since\":\(now)}")
        #expect(try await Self.problems(scene) == ["queue_paused default warning"])
    }
}
