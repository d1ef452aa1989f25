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

    private static func pause(_ reason: String) -> PauseRecord {
        .init(reason: reason, since: now - 60_000)
    }

    private static func report(
        _ process: String, _ app: String, _ change: (inout WorkerReport) -> Void
    ) -> WorkerReport {
        var report = WorkerReport()
        var own = WorkerReport.App()
        (own.name, own.endpoint) = (app, "10.0.0.7:443")
        (report.process, report.apps) = (process, [own])
        change(&report)
        return report
    }

    /// Each scope as a lane reports it.
    private static let scopes: [ScopeRecord] = [
        .init(.job, "order-7", .slow, app: "shop", reason: "400", status: 400, failures: 90, since: now - 7000),
        .init(
            .campaign, "bad", .slow, app: "shop", reason: "BadDeviceToken", status: 400, failures: 250,
            notifications: 250, since: now - 6000, jobs: ["b-1"], othersDelivered: 620),
        .init(
            .topic, "com.example.other alert", .slow, app: "shop", reason: "TopicDisallowed", status: 400, failures: 70,
            notifications: 71, since: now - 5000, jobs: ["o-1", "o-2"], othersDelivered: 1),
        .init(
            .app, "shop", .slow, app: "shop", reason: "DeviceTokenNotForTopic", status: 400, failures: 60,
            since: now - 4000),
        .init(
            .credential, "KEY123", .slow, app: "shop", reason: "InvalidProviderToken", status: 403, failures: 80,
            since: now - 3000),
        .init(.endpoint, "10.0.0.7:443", .slow, reason: "NoAnswer", failures: 64, since: now - 2000),
        .init(
            .app, "shop", .suspected, app: "shop", reason: "400", status: 400, failures: 3, since: now - 1000,
            jobs: ["order-7", "order-8", "order-9"], othersDelivered: 9),
    ]

    /// A fleet with every problem.
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
        status.resharding = TokenDivision(shards: 16, incomplete: 1, since: now - 60_000)
        status.wrongKeys = [WrongKey(key: "push:{q}:dead", found: "string", expected: "hash")]
        status.badRegistrations = "a time is not in milliseconds since 1970 (1 of 1 sampled registration)"
        status.largeKeys = [LargeKey(key: "push:{q}:jobs", bytes: 500 << 20, limit: 512 << 20)]
        status.queues = [
            queue("unreadable") { $0.error = "LOADING" },
            queue("no worker's") { ($0.waiting, $0.oldestAgeMs) = (2, 700_000) },
            queue("paused") { ($0.waiting, $0.oldestAgeMs, $0.paused) = (1, 8_000_000, pause("stop")) },
            queue("quiet") { $0.waiting = 1 },
            queue("old list") { $0.today = ["delivered": 70, "invalid_token": 300] },
            queue("slow") {
                ($0.waiting, $0.oldestAgeMs) = (1, 900_000)
                $0.differentApps = [.init(workers: ["w1"], apps: ["a"]), .init(workers: ["w2"], apps: ["b"])]
                ($0.dead, $0.today) = (50, ["dead": 50, "dead:BadPayload": 50, "delivered": 50])
                $0.stoppedCampaigns = ["spring": ("dead is 2%", now - 5000)]
                $0.damagedCommands = ["campaign:summer", "id:order-7"]
            },
        ]
        status.workers = [
            worker("gone") { ($0.state, $0.leaseLeftMs, $0.queues, $0.claimed) = (.gone, -20_000, ["slow"], 3) },
            worker("blocked") {
                $0.queues = ["slow"]
                $0.ownObstacles = WorkerReport.Obstacle.Kind.allCases.map { .init($0, "no \($0)") }
            },
            worker("silent") { $0.latenessMs = 30_000 },
            worker("deaf") { $0.failoverWatch = "NOPERM" },
            worker("stubborn") { $0.refusedReload = "worker.yaml:5: unknown setting" },
            worker("resting") { ($0.state, $0.queues) = (.quiet, ["quiet"]) },
        ]
        status.apps = [
            app("unconnected") { $0.state = .unconnected },
            app("forgotten") {
                ($0.state, $0.paused) = (.paused, .init(reason: "deploy", since: now - 7_200_000))
            },
            app("blocked") { ($0.state, $0.blocked) = (.blocked, "the certificate is for another topic") },
            app("old") { ($0.tokenIssuedAt, $0.certificateExpiresAt) = (now - 3_400_000, now + 10 * 86_400_000) },
            app("older") { $0.certificateExpiresAt = now + 3 * 86_400_000 },
            app("stale") { $0.credentialProblem = "the changed file cannot be used: it is empty" },
        ]
        status.scopes = ScopeStatus.scopes([
            report("w1", "shop") { $0.scopes = scopes },
            report("w2", "shop") { $0.scopes = scopes.filter { $0.scope == .campaign } },
        ])
        return status
    }()

    private static let problems = status.findProblems()

    /// The kinds that a status can have.
    private static let measured = Problem.table.filter(\.isInStatus).map(\.name)

    @Test("an app that an operator has paused is paused, whatever its lanes report, and also if none reports it")
    func pausedApp() {
        let pauses = ["shop": PauseRecord(reason: "a new key")]
        let apps = AppStatus.apps([], names: ["other"], pauses: pauses)
        #expect(apps.map(\.name) == ["other", "shop"] && apps.map(\.state) == [.unknown, .paused])
        #expect(apps.map(\.reason) == [nil, "a new key"])
    }

    @Test(
        "Each kind is found in a fleet's status, with a remedy or the reason for which no command helps.",
        arguments: measured)
    private func kinds(name: String) throws {
        let found = Self.problems.filter { $0.kind.name == name }
        #expect(!found.isEmpty, "the fleet above has every kind")
        for problem in found {
            #expect(!problem.subject.isEmpty && problem.message.count > 10)
            #expect(!problem.remedies.isEmpty || !problem.hint.isEmpty)
            #expect(!problem.advice.isEmpty && !problem.advice.contains("; ;"))
            #expect(problem.advice.count(where: { $0 == "`" }).isMultiple(of: 2))
        }
    }

    @Test("A well fleet has no problem.")
    func noProblem() {
        var status = FleetStatus()
        status.at = Self.now
        status.servers = [Self.server("well:1", [:])]
        status.queues = [
            Self.queue("q") { ($0.waiting, $0.oldestAgeMs) = (5, 599_000) },
            Self.queue("held") { ($0.waiting, $0.oldestAgeMs, $0.paused) = (5, 3_599_000, Self.pause("stop")) },
            Self.queue("just paused") { ($0.waiting, $0.paused) = (5, Self.pause("stop")) },
        ]
        status.workers = [Self.worker("w") { $0.queues = ["q"] }]
        status.apps = [
            Self.app("a") {
                ($0.state, $0.tokenIssuedAt) = (.connected, Self.now - 3_200_000)
                $0.certificateExpiresAt = Self.now + 22 * 86_400_000
            },
            Self.app("b") { ($0.state, $0.paused) = (.paused, Self.pause("by hand")) },
        ]
        #expect(status.findProblems().map(\.message) == [])
    }

    @Test("The table has each kind once, and each has a condition, a first step and a measure.")
    func table() {
        let table = Problem.table
        #expect(Set(table.map(\.name)).count == table.count)
        let alerts = table.compactMap(\.alert).map(\.name)
        #expect(Set(alerts).count == alerts.count && alerts.allSatisfy { $0.hasPrefix("ApnsWorker") })
        for kind in table {
            #expect(!kind.condition.isEmpty && !kind.condition.hasSuffix("."), "\(kind.name)")
            #expect(
                kind.action.hasSuffix(".") && kind.action.first?.isLowercase == false, "\(kind.name): \(kind.action)")
            #expect(kind.find != nil || kind.alert != nil, "\(kind.name)")
            if let alert = kind.alert { #expect(!alert.summary.isEmpty && !alert.description.isEmpty) }
        }
    }

    @Test("Each kind that a worker or a server can report has a row.")
    func reported() {
        for name in WorkerReport.Obstacle.Kind.allCases.map(\.rawValue)
            + QueueServer.Finding.Kind.allCases.map(\.rawValue)
        {
            #expect(Problem.kind(name) != nil, "\(name)")
        }
    }

    @Test(
        "A slow scope is named with its numbers and the command that ends it.",
        arguments: [
            (
                "job_slow", "job order-7: 90 notifications are answered 400 without a reason",
                "`apns-worker jobs show --id order-7` shows it"
            ),
            (
                "campaign_slow",
                "campaign bad: 500 of 500 tokens are of another environment (BadDeviceToken); 1,240 others of the app were "
                    + "delivered in that time", "`apns-worker campaign cancel bad` ends it"
            ),
            (
                "topic_slow",
                "topic com.example.other alert: 70 of 71 notifications are answered 400 TopicDisallowed (o-1, o-2, …); 1 other of "
                    + "the app was delivered in that time",
                "check the topic of these jobs, and their push type; `apns-worker jobs show --id o-1 --id o-2` shows them"
            ),
            (
                "app_slow",
                "app shop: 60 tokens are of another topic (DeviceTokenNotForTopic); only on 1 of 2 lanes (w1, at "
                    + "10.0.0.7:443)",
                "check its topic and environment; `apns-worker check` tests each step; `apns-worker resume --app shop` "
                    + "probes at once"
            ),
            (
                "credential_slow",
                "credential KEY123: 80 notifications are answered 403 InvalidProviderToken; only on 1 of 2 lanes (w1, at "
                    + "10.0.0.7:443)",
                "fix the key, its key ID or team ID, or the certificate; `apns-worker check` tests each step; "
                    + "`apns-worker resume --app shop` probes at once"
            ),
            (
                "endpoint_slow",
                "endpoint 10.0.0.7:443: 64 notifications got no answer: NoAnswer; only on 1 of 2 lanes (w1)",
                "check the proxy, load balancer or firewall in front of it, and Apple's status page; `apns-worker check` "
                    + "tests each step"
            ),
            (
                "scope_suspected",
                "app shop: 3 jobs are answered 400 without a reason (order-7, order-8, order-9); 9 others were delivered in "
                    + "that time; only on 1 of 2 lanes (w1, at 10.0.0.7:443)",
                "nothing is slowed down; look at the reason and the jobs; `apns-worker jobs show --id order-7 --id order-8 "
                    + "--id order-9` shows them; `apns-worker resume --app shop` probes at once"
            ),
        ])
    func scopes(kind: String, message: String, advice: String) throws {
        let found = Self.problems.filter { $0.kind.name == kind }
        #expect(found.map(\.message) == [message])
        #expect(found.map(\.advice) == [advice])
    }

    @Test("Equal records of all lanes are one problem without a place, since the earliest, and slow if one is.")
    func summed() throws {
        func record(_ state: ScopeRecord.State, _ failures: Int, _ age: Int64, _ job: String) -> ScopeRecord {
            .init(
                .app, "shop", state, app: "shop", reason: "Forbidden", status: 403, failures: failures,
                since: Self.now - age, jobs: [job], othersDelivered: 2)
        }
        let scopes = ScopeStatus.scopes([
            Self.report("w1", "shop") { $0.scopes = [record(.slow, 60, 9000, "a")] },
            Self.report("w2", "shop") { $0.scopes = [record(.suspected, 5, 8000, "b")] },
            // The lane of this report does not have the app.
            Self.report("w3", "news") { _ in },
        ])
        let scope = try #require(scopes.first)
        #expect(scopes.count == 1 && scope.state == .slow && scope.failures == 65 && scope.othersDelivered == 4)
        #expect(
            scope.since == Self.now - 9000 && scope.jobs == ["a", "b"] && (scope.lanes, scope.lanesTotal) == (2, 2))
        #expect(
            scope.message
                == "app shop: 65 notifications are answered 403 Forbidden (a, b, …); 4 others were delivered in that time"
        )
    }

    @Test(
        "The limits of ages apply to queues at work and to paused ones.",
        arguments: [(nil, []), (60_000, ["too_old q", "queue_paused held"])] as [(Int64?, [String])])
    func ages(limit: Int64?, expected: [String]) {
        var status = FleetStatus()
        status.at = Self.now
        status.workers = [Self.worker("w") { $0.queues = ["q", "held"] }]
        status.queues = [
            Self.queue("q") { ($0.waiting, $0.oldestAgeMs) = (1, 61_000) },
            Self.queue("held") { ($0.waiting, $0.oldestAgeMs, $0.paused) = (1, 61_000, Self.pause("stop")) },
        ]
        var limits = ProblemLimits()
        limits.age = limit
        #expect(status.findProblems(limits).map { "\($0.kind.name) \($0.subject)" } == expected)
    }

    @Test("critical problems come first")
    func order() {
        let kinds = Self.problems.map(\.isCritical)
        #expect(kinds == kinds.filter { $0 } + kinds.filter { !$0 })
    }

    @Test(
        "a problem has the commands that fix it",
        arguments: [
            ("paused", [.resumeQueue("paused")], "`apns-worker resume --queue paused` ends its pause"),
            (
                "quiet", [.unquiet],
                "let the quiet workers work, or start another worker; `apns-worker quiet --all --undo` does the former"
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
            ("paused", 4_400_000), ("bad", 6000), ("gone", 20_000), ("silent", 30_000),
            ("spring", 5000),
        ] as [(String, Int64)])
    func since(subject: String, age: Int64) throws {
        #expect(try #require(Self.problems.first { $0.subject == subject }).since == Self.now - age)
    }

    @Test("the age of a queue's oldest job does not say since when it has no worker")
    func unknownBeginning() throws {
        let problem = try #require(Self.problems.first { $0.kind.name == "no_worker" && $0.subject == "no worker's" })
        #expect(problem.since == nil)
    }

    @Test(
        "the command to send dead letters again has a reason that dead letters have",
        arguments: [
            (["dead:other": 70, "dead:UnknownApp": 30], "UnknownApp"), (["dead:other": 100], nil), ([:], nil),
            // A requeue for this reason would fail again, because the jobs themselves are wrong.
            (["dead:MalformedToken": 70, "dead:UnknownApp": 30], "UnknownApp"),
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
        let problem = try #require(status.findProblems().first { $0.kind.name == "dead_letters" })
        #expect(problem.remedies.last == .requeue(queue: "q", reason: expected))
    }

    @Test(
        "many invalid tokens are a problem from a share on, which can be set",
        arguments: [
            (nil, 99, false), (nil, 100, true),
            (0.5, 300, true), (0.9, 300, false), (0.01, 5, true),
        ] as [(Double?, Int, Bool)])
    func invalidTokens(share: Double?, invalid: Int, isProblem: Bool) {
        var (status, limits) = (FleetStatus(), ProblemLimits())
        limits.invalidShare = share
        (status.at, status.queues) = (
            Self.now, [Self.queue("q") { $0.today = ["delivered": 200, "invalid_token": invalid] }]
        )
        #expect(status.findProblems(limits).map(\.kind.name) == (isProblem ? ["invalid_tokens"] : []))
    }

    @Test("mistakes of jobs are not to be sent again, and what was sent again is not a problem any more")
    func curedDeadLetters() throws {
        func problem(_ dead: Int, _ today: [String: Int], _ reasons: [String: Int]) -> Problem? {
            var status = FleetStatus()
            status.at = Self.now
            status.queues = [
                Self.queue("q") { ($0.dead, $0.today, $0.deadReasons) = (dead, today, reasons) }
            ]
            return status.findProblems().first { $0.kind.name == "dead_letters" }
        }
        let wrong = try #require(
            problem(30, ["dead": 30, "dead:MalformedToken": 30, "delivered": 10], ["MalformedToken": 30]))
        #expect(wrong.remedies == [.listDeadLetters(queue: "q")] && wrong.hint.contains("correct the producer"))
        // A bad deploy made 30,000 dead letters. Most were requeued and delivered.
        let today = ["dead": 30_000, "dead:UnknownApp": 29_000, "dead:BadPayload": 1000, "delivered": 29_000]
        let left = try #require(problem(1000, today, ["BadPayload": 1000]))
        #expect(left.message.contains("1,000 of today's") && left.message.contains("BadPayload 1,000"))
        #expect(!left.message.contains("UnknownApp") && left.remedies == [.listDeadLetters(queue: "q")])
        #expect(problem(9, today, ["BadPayload": 9]) == nil && problem(0, today, [:]) == nil)
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
        for problem in Self.status.findProblems(.init(), access) {
            let (json, words) = (problem.json(), problem.advice)
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
        total: Int? = 1000, _ counters: [String: Int], state: CampaignStatus.State? = nil, finished: Bool = false
    ) -> CampaignStatus {
        var counts = CampaignCounts(name: "c", total: total, startedAt: now - 60_000, updatedAt: now)
        counts.counters = counters
        if finished { counts.finishedAt = now }
        var status = CampaignStatus(counts, nil, queue: "q", now: now)
        if let state { status.state = state }
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
        #expect(Self.status(["delivered": 1], state: .paused).isUnfinished)
        #expect(Self.status(total: nil, ["delivered": 1]).isUnfinished, "it has a rate")
        #expect(!Self.status(["delivered": 1000]).isUnfinished)
        #expect(!Self.status(["delivered": 1], state: .cancelled).isUnfinished)
        #expect(!Self.status(["delivered": 1], finished: true).isUnfinished)
        var ended = Self.status(["delivered": 1000])
        ended.slow(by: "queue q is paused")
        #expect(ended.state == .running, "nothing of it is left to be slowed")
    }

    @Test("its state is that of its command or, without one, of its notifications, and a stopped one has no rate")
    func states() {
        func state(_ fill: (inout JobCommands.Command) -> Void, finished: Bool = false) -> CampaignStatus {
            var counts = CampaignCounts(name: "c", total: 1000, startedAt: Self.now - 60_000, updatedAt: Self.now)
            counts.counters = ["delivered": 500]
            if finished { counts.finishedAt = Self.now }
            var command = JobCommands.Command()
            fill(&command)
            return CampaignStatus(counts, command, queue: "q", now: Self.now)
        }
        let all: [(CampaignStatus, CampaignStatus.State)] = [
            (state { _ in }, .running), (state({ _ in }, finished: true), .finished),
            (state { ($0.state, $0.by) = (.paused, "ann") }, .paused),
            (state { ($0.state, $0.by) = (.paused, CampaignGuard.person) }, .stopped),
            (state { $0.state = .cancelled }, .cancelled),
            (state({ $0.state = .cancelled }, finished: true), .cancelled),
        ]
        for (status, expected) in all {
            #expect(status.state == expected && (status.deliveredPerSecond != nil) == expected.isOn)
            #expect((status.leftMs != nil) == (expected == .running))
            var later = status
            later.outcomes["delivered"] = 600
            later.ended = 600
            later.compare(with: status, after: 1000)
            #expect((later.deliveredPerSecond != nil) == expected.isOn, "what is in flight still ends")
            later.slow(by: "queue q is paused")
            #expect(later.state == (expected == .running ? .slowed : expected) && later.leftMs == nil)
            #expect(later.page(now: Self.now)[0].contains("slowed: queue q is paused") == (expected == .running))
        }
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
        let text = status.json()
        #expect(text.contains(#""guard_levels":[{"#) && text.contains(#""limit_percent":2"#), "\(text)")
    }
}
