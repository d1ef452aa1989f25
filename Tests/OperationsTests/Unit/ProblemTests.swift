import FoundationEssentials
import PushQueue
import Redis
import Testing

@testable import Operations

@Suite("Problems of a fleet")
struct ProblemTests {
    private static let now: Int64 = 1_795_000_000_000

    private static func server(_ address: String, _ fields: [String: String], refusal: String? = nil)
        -> ServerStatus
    {
        let well = [
            "redis_version": "7.0.15", "used_memory": "100", "maxmemory": "1000", "maxmemory_policy": "noeviction",
            "aof_enabled": "1", "role": "master",
        ]
        let lines = well.merging(fields) { $1 }.map { "\($0.key):\($0.value)\r\n" }
        return .init(
            found: QueueServer(
                address: address, info: .success(ServerInfo(lines.joined())),
                writeRefusal: refusal.map { RedisServerError(text: $0) }), queues: [])
    }

    private static func queue(_ name: String, _ change: (inout QueueStatus) -> Void) -> QueueStatus {
        var queue = QueueStatus(name: name)
        change(&queue)
        return queue
    }

    private static func worker(_ name: String, _ change: (inout WorkerStatus) -> Void) -> WorkerStatus {
        var worker = WorkerStatus(name: name)
        (worker.state, worker.lanes, worker.leaseLeftMs) = (.running, 1, 1000)
        change(&worker)
        return worker
    }

    private static func app(_ name: String, _ change: (inout AppStatus) -> Void) -> AppStatus {
        var app = AppStatus(name: name)
        (app.endpoints, app.lanes) = (["apns:443"], 2)
        change(&app)
        return app
    }

    private static func pause(_ reason: String) -> PauseStatus {
        .init(PauseRecord(reason: reason, since: now - 60_000))
    }

    /// A fleet in which everything is wrong.
    private static let status: FleetStatus = {
        var status = FleetStatus()
        (status.at, status.redis, status.prefix) = (now, "redis:6379", "push")
        var cluster = server("cluster:1", [:])
        cluster.found.clusterSize = 3
        status.servers = [
            server("old:1", ["redis_version": "5.0.1"]), cluster, server("replica:1", ["role": "slave"]),
            server("full:1", ["used_memory": "1000"]), server("nearly:1", ["used_memory": "950"]),
            server("refuses:1", [:], refusal: "MISCONF Redis is configured to save"),
            server("evicts:1", ["maxmemory_policy": "allkeys-lru"]),
        ]
        (status.sharedError, status.searchError) = ("timed out", "timed out")
        status.wrongKeys = [WrongKey(key: "push:{q}:dead", found: "string", expected: "hash")]
        status.largeKeys = [LargeKey(key: "push:{q}:jobs", bytes: 500 << 20, limit: 512 << 20)]
        status.queues = [
            queue("unreadable") { $0.error = "LOADING" },
            queue("no worker's") { ($0.waiting, $0.oldestAgeMs) = (2, 700_000) },
            queue("paused") { ($0.waiting, $0.oldestAgeMs, $0.paused) = (1, 800_000, pause("stop")) },
            queue("quiet") { $0.waiting = 1 },
            queue("slow") {
                ($0.waiting, $0.oldestAgeMs) = (1, 900_000)
                $0.differentApps = [.init(workers: ["w1"], apps: ["a"]), .init(workers: ["w2"], apps: ["b"])]
                ($0.dead, $0.today) = (50, ["dead": 50, "dead:BadPayload": 50, "delivered": 50])
                $0.stoppedCampaigns = ["spring": .init(reason: "dead is 2%", since: now - 5000)]
            },
        ]
        status.workers = [
            worker("gone") { ($0.state, $0.leaseLeftMs, $0.queues, $0.claimed) = (.gone, -20_000, ["slow"], 3) },
            worker("blocked") { ($0.queues, $0.ownObstacles) = (["slow"], ["no key"]) },
            worker("silent") { $0.latenessMs = 30_000 },
            worker("deaf") { $0.failoverWatch = "NOPERM" },
            worker("resting") { ($0.state, $0.queues) = (.quiet, ["quiet"]) },
        ]
        status.apps = [
            app("refused") { $0.paused = pause("InvalidProviderToken") },
            app("unanswered") { $0.lanesUnanswered = 2 },
            app("erring") { ($0.serverError, $0.lanesWithServerErrors) = ("503 ServiceUnavailable", 1) },
            app("unconnected") { $0.state = .unconnected },
        ]
        return status
    }()

    private static let problems: [Problem] = {
        var limits = ProblemLimits()
        limits.age = 600_000
        return Diagnosis(status, limits).problems
    }()

    @Test(
        "each kind has an object, and a remedy or the reason for which no command helps",
        arguments: Problem.Kind.allCases)
    private func kinds(kind: Problem.Kind) throws {
        let found = Self.problems.filter { $0.kind == kind }
        #expect(!found.isEmpty, "the fleet above has every kind")
        for problem in found {
            #expect(!problem.subject.isEmpty && problem.message.count > 10)
            #expect(!problem.remedies.isEmpty || !problem.hint.isEmpty)
            #expect(!problem.advice.isEmpty && !problem.advice.contains("; ;"))
            #expect(problem.advice.count(where: { $0 == "`" }).isMultiple(of: 2))
        }
    }

    @Test("critical problems come first")
    func order() {
        let kinds = Self.problems.map(\.kind.isCritical)
        #expect(kinds == kinds.filter { $0 } + kinds.filter { !$0 })
    }

    @Test(
        "a problem has the commands that fix it",
        arguments: [
            (
                "refused", [.resumeApp("refused")],
                "fix its key, key ID, team ID, topic or environment; `apns-worker resume --app refused` probes at once"
            ),
            ("paused", [.resumeQueue("paused")], "`apns-worker resume --queue paused` ends its pause"),
            (
                "quiet", [.unquiet],
                "let the quiet workers work, or start another; `apns-worker quiet --all --undo` does the former"
            ),
            (
                "unanswered", [.check],
                "check the proxy, load balancer or firewall in front of it, and Apple's status page; `apns-worker check` tests each step"
            ),
            (
                "spring", [.showCampaign("spring"), .resumeCampaign("spring"), .cancelCampaign("spring")],
                "`apns-worker campaign show spring` has the numbers; `apns-worker campaign resume spring` continues; `apns-worker campaign cancel spring` ends it"
            ),
            ("gone", [.startWorker(queues: ["slow"])], "start a worker on slow: it reclaims the jobs"),
        ] as [(String, [Remedy], String)])
    func remedies(subject: String, remedies: [Remedy], advice: String) throws {
        let problem = try #require(Self.problems.first { $0.subject == subject })
        #expect(problem.remedies == remedies && problem.advice == advice, "\(problem)")
    }

    @Test(
        "a problem says since when it exists, where Redis knows",
        arguments: [
            ("refused", 60_000), ("paused", 200_000), ("gone", 20_000), ("silent", 30_000), ("spring", 5000),
        ] as [(String, Int64)])
    func since(subject: String, age: Int64) throws {
        #expect(try #require(Self.problems.first { $0.subject == subject }).since == Self.now - age)
    }

    @Test("the age of a queue's oldest job does not say since when it has no worker")
    func unknownBeginning() throws {
        let problem = try #require(Self.problems.first { $0.kind == .noWorker && $0.subject == "no worker's" })
        #expect(problem.since == nil)
    }

    @Test(
        "the command to send dead letters again has a reason that dead letters have",
        arguments: [
            (["dead:other": 70, "dead:BadPayload": 30], "BadPayload"), (["dead:other": 100], nil), ([:], nil),
        ] as [([String: Int], String?)])
    func requeuedReason(reasons: [String: Int], expected: String?) throws {
        var status = FleetStatus()
        (status.at, status.queues) = (
            Self.now,
            [
                Self.queue("q") { queue in
                    (queue.dead, queue.today) = (100, reasons.merging(["dead": 100]) { $1 })
                }
            ]
        )
        let problem = try #require(Diagnosis(status).problems.first { $0.kind == .deadLetters })
        #expect(problem.remedies.last == .requeue(queue: "q", reason: expected))
    }

    @Test(
        "a name cannot add words or commands to the command to copy",
        arguments: [
            ("news", "news"), ("spring sale", "'spring sale'"), ("x; rm -rf /", "'x; rm -rf /'"), ("", "''"),
            ("it's", #"'it'\''s'"#), ("$(id)`id`", "'$(id)`id`'"), ("é", "'é'"),
        ])
    func quoted(name: String, word: String) {
        #expect(FleetAccess().command(["stop"], name) == "apns-worker stop \(word)")
        #expect(Remedy.resumeApp(name).command(.init()) == "apns-worker resume --app \(word)")
    }

    @Test(
        "a name that looks like a flag is none",
        arguments: [
            (.resumeCampaign("-x"), "campaign resume -- -x"), (.resumeApp("-x"), "resume --app=-x"),
            (.resumeQueue("-x"), "resume --queue=-x"), (.listDeadLetters(queue: "-x"), "dead list --queue=-x"),
            (.requeue(queue: "-x", reason: "-y z"), "requeue --queue=-x '--reason=-y z'"),
            (.startWorker(queues: ["-x", "y"]), "run --queue=-x,y"),
            (.requeue(queue: "q", reason: nil), "requeue --queue q --all"),
        ] as [(Remedy, String)])
    func dashes(remedy: Remedy, command: String) {
        #expect(remedy.command(.init()) == "apns-worker " + command)
    }

    @Test(
        "a command acts on the same fleet wherever it is copied, and has no secret",
        arguments: [
            ([], "apns-worker campaign resume c", "apns-worker campaign resume -- -c"),
            (
                [("--redis", "URL", "redis://r:1/2"), ("--prefix", "PREFIX", "my push")],
                "apns-worker campaign resume c --redis redis://r:1/2 --prefix 'my push'",
                "apns-worker campaign resume --redis redis://r:1/2 --prefix 'my push' -- -c"
            ),
            (
                [("--redis", "URL", "rediss://me:secret@r:1"), ("--prefix", "PREFIX", "-p")],
                "URL=${URL:?} apns-worker campaign resume c --prefix=-p",
                "URL=${URL:?} apns-worker campaign resume --prefix=-p -- -c"
            ),
            (
                [("--redis", "URL", "redis://r?password_file=/etc/p"), (nil, "CA", "text")],
                "CA=${CA:?} apns-worker campaign resume c --redis 'redis://r?password_file=/etc/p'",
                "CA=${CA:?} apns-worker campaign resume --redis 'redis://r?password_file=/etc/p' -- -c"
            ),
        ] as [([FleetAccess.Value], String, String)])
    func access(settings: [FleetAccess.Value], command: String, dashed: String) {
        let access = FleetAccess(settings)
        #expect(Remedy.resumeCampaign("c").command(access) == command)
        #expect(Remedy.resumeCampaign("-c").command(access) == dashed)
    }

    @Test("the advice and the commands of all problems have what reaches their fleet")
    func accessOfProblems() throws {
        let access = FleetAccess([("--prefix", "APNS_WORKER_PREFIX", "other")])
        for problem in Diagnosis(Self.status, .init(), access).problems {
            let (json, words) = (try JSONLine.text(problem), problem.advice)
            #expect(words.split(separator: "`apns-worker").dropFirst().allSatisfy { $0.contains(" --prefix other") })
            #expect(json.ranges(of: "\"apns-worker").count == problem.remedies.count, "\(json)")
            #expect(json.ranges(of: "--prefix other").count >= problem.remedies.count, "\(json)")
        }
    }
}

@Suite("The state of a campaign")
struct CampaignStateTests {
    private static let now: Int64 = 1_795_000_060_000

    private static func status(
        total: Int? = 1000, _ counters: [String: Int], state: String = "running", finished: Bool = false
    ) -> CampaignStatus {
        var counts = CampaignCounts(name: "c", total: total, startedAt: now - 60_000, updatedAt: now)
        counts.counters = counters
        if finished { counts.finishedAt = now }
        var status = CampaignStatus(counts, nil, queue: "q", now: now)
        status.state = state
        return status
    }

    @Test("its end is projected from the rate at which notifications end, not only from those delivered")
    func projection() throws {
        // 600 of 1000 in a minute: 400 need 40 s more.
        let status = Self.status(["delivered": 300, "invalid_token": 300])
        #expect(
            status.deliveredPerSecond == 5 && status.leftMs == 40_000
                && status.endsAt(now: Self.now) == Self.now + 40_000)
        var later = Self.status(["delivered": 310, "invalid_token": 310])
        later.compare(with: status, after: 2000)
        #expect(later.deliveredPerSecond == 5 && later.endsAt(now: Self.now) == Self.now + 38_000)
        var idle = status
        idle.compare(with: status, after: 2000)
        #expect(idle.deliveredPerSecond == nil && idle.endsAt(now: Self.now) == nil)
        #expect(Self.status(total: nil, ["delivered": 5]).endsAt(now: Self.now) == nil)
    }

    @Test("its rate is that since its beginning, and of a second at least", arguments: [(64, 760.0), (10_000, 76)])
    func age(milliseconds: Int64, rate: Double) {
        let begun = Self.now - milliseconds
        var counts = CampaignCounts(name: "c", total: nil, startedAt: begun, updatedAt: begun + 60)
        counts.counters = ["delivered": 760]
        #expect(CampaignStatus(counts, nil, queue: "q", now: Self.now).deliveredPerSecond == rate)
    }

    @Test("a projected end beyond all times does not overflow")
    func farEnd() {
        var status = Self.status(["delivered": 1])
        status.leftMs = .max
        #expect(status.endsAt(now: Self.now) == .max)
    }

    @Test("a campaign is unfinished while something of it is left")
    func unfinished() {
        #expect(Self.status(["delivered": 1]).isUnfinished)
        #expect(Self.status(["delivered": 1], state: "paused").isUnfinished)
        #expect(Self.status(total: nil, ["delivered": 1]).isUnfinished, "it has a rate")
        #expect(!Self.status(["delivered": 1000]).isUnfinished)
        #expect(!Self.status(["delivered": 1], state: "cancelled").isUnfinished)
        #expect(!Self.status(["delivered": 1], finished: true).isUnfinished)
    }

    @Test("a guard's levels count from its base, and retries count among all only for their own rules")
    func levels() throws {
        let rules = try #require(
            CampaignGuard(
                #"{"rules":[["dead",2],["retried",20],["invalid_token",0]],"min":10,"base":{"ended":100,"dead":5,"retried":50}}"#
            ))
        let levels = rules.levels(["dead": 6, "retried": 150, "invalid_token": 0], ended: 200)
        #expect(
            levels == [
                .init(counter: "dead", limitPercent: 2, percent: 1, of: 100),
                .init(counter: "retried", limitPercent: 20, percent: 50, of: 200),
                .init(counter: "invalid_token", limitPercent: 0, percent: 0, of: 100),
            ])
        #expect(levels.map(\.part) == [0.5, 1, 0])
        #expect(rules.levels([:], ended: 0).map(\.percent) == [0, 0, 0], "counters that began again")
        let stopped = try #require(CampaignGuard(#"{"rules":[["dead",2]],"min":10,"stopped_at":1,"reason":"x"}"#))
        #expect(stopped.levels(["dead": 6], ended: 200) == [.init(counter: "dead", limitPercent: 2, percent: 0, of: 0)])
    }

    @Test("the JSON of a guarded campaign has how near each limit is")
    func levelsInJSON() throws {
        var counts = CampaignCounts(name: "c", total: 10, startedAt: Self.now, updatedAt: Self.now)
        counts.guard = CampaignGuard(try #require(CampaignGuard.rules("dead>2%")), minimum: 10)
        let status = CampaignStatus(counts, nil, queue: "q", now: Self.now)
        let text = String(decoding: try JSONEncoder().encode(status), as: UTF8.self)
        #expect(text.contains(#""guardLevels":[{"#) && text.contains(#""limitPercent":2"#), "\(text)")
    }
}
