import Foundation
import Operations
import TestSupport
import Testing

extension EndToEnd {
    /// Proves the rules of deploy/helm/apns-worker/files/alerts.yaml with metrics of real workers.
    ///
    /// Each scene brings a worker into the state of an alert. Then promtool gets pages of metrics in this order: the page before the state,
    /// repeated for some minutes; the pages of the state; the last of these pages, repeated for as long as the rule requires; the page
    /// before the state, with the counters of the state.
    @Suite("Alerts")
    struct AlertTests {
        /// A state of a worker, and the alerts that it causes.
        struct Scene: Sendable {
            let name: String
            /// All alerts that must fire, without the prefix of their names.
            let alerts: [String]
            /// Alerts that may fire, depending on the speed of the machine.
            let mayFire: [String]
            /// True if the counters continue to grow as they did between the last two pages.
            let continues: Bool
            /// False if the alerts last until the worker is restarted.
            let ends: Bool
            /// The rules of the binary gateway, if the worker uses one.
            let gateway: [String]?
            let options: [String]
            let play: @Sendable (Stage) async throws -> Void

            init(
                _ name: String, _ alerts: [String], mayFire: [String] = [], continues: Bool = false, ends: Bool = true,
                gateway: [String]? = nil, options: [String] = [],
                _ play: @escaping @Sendable (Stage) async throws -> Void
            ) {
                (self.name, self.alerts, self.mayFire) = (name, alerts, mayFire)
                (self.continues, self.ends) = (continues, ends)
                (self.gateway, self.options, self.play) = (gateway, options, play)
            }
        }

        private static let scenes = workerScenes + redisScenes + appScenes + jobScenes

        @Test("Each alert has a scene")
        func complete() throws {
            #expect(Set(Self.scenes.flatMap(\.alerts)) == Set(try Rules().delays.keys))
            #expect(Set(Self.scenes.map(\.name)).count == Self.scenes.count)
        }

        /// Only root may stop a thread of another program.
        private static let names = scenes.map(\.name).filter { $0 != stuckLoop.name || geteuid() == 0 }

        @Test(
            "An alert fires once its state has lasted long enough, it ends with the state, and no other alert fires",
            arguments: names)
        func alert(name: String) async throws {
            let scene = try #require(Self.scenes.first { $0.name == name })
            let stage = try await Stage(gateway: scene.gateway, options: scene.options)
            defer { stage.end() }
            try await scene.play(stage)
            try await Replay(scene, stage.recording).run()
        }

        // MARK: Workers

        private static let workerScenes: [Scene] = [
            Scene("a worker sends, and few notifications fail", [], continues: true, options: ["--lanes", "2"]) {
                stage in
                try await stage.rule("prefix=dead,answer=410")
                try await stage.rule("prefix=beef,answer=429")
                try await stage.record("it works", times: 1) { _ in true }
                try stage.redis.push(TestJob.many(180, prefix: "a") + ["no job"])
                try stage.redis.push(TestJob.many(10, prefix: "dead") + TestJob.many(10, prefix: "beef"))
                try await stage.record("they have ended", times: 1) { page in
                    stage.count("delivered", page) == 200 && stage.count("invalid_token", page) == 10
                        && stage.count("retried", page) >= 10 && stage.count("dead", page) == 1
                }
            },
            Scene("the only worker was killed", ["None"]) { stage in
                stage.worker.process.kill()
                stage.recording.pages = [[:], [:]]
            },
            Scene("a worker crashes again and again", ["Restarting"]) { stage in
                for _ in 0..<4 {
                    stage.worker.process.kill()
                    try await stage.start()
                    try await stage.record("it is ready", times: 1) { $0.isReady }
                }
            },
            stuckLoop,
            Scene(
                "a worker was killed with claims, one of which had been reclaimed five times",
                ["Poison", "JobsReclaimed"]
            ) { stage in
                try await stage.rule("answer=silence")
                let poison = TestJob.text(TestJob.token("b", 1))
                try stage.redis.push(
                    TestJob.many(8, prefix: "a") + [#"{"apns_worker":1,"reclaims":5,"job":\#(poison)}"#])
                try await stage.meets("they are in flight") { $0["in_flight"] == 9 }
                let first = stage.worker
                try await stage.start(as: "b")
                stage.recording.before.merge(try await stage.meets("it is ready") { $0.isReady }) { $1 }
                first.process.kill()
                try await stage.simulator.control("DELETE", "/rules")
                try await stage.record("the claims are reclaimed") {
                    $0["claims_reclaimed_total"] == 8 && $0["claims_poisoned_total"] == 1
                }
            },
            Scene("the clock of the worker is an hour ahead", ["ProviderTokenOld"]) { stage in
                let clock = try TestClock()
                try await stage.restart(environment: clock.environment)
                try await stage.meets("it is ready") { $0.isReady }
                try clock.set(by: 3600)
                // By Redis' clock the token is young, so the worker does not replace it.
                try await stage.record("the token seems old") { $0["provider_token_age_seconds"] > 3300 }
            },
            Scene("a worker has hundreds of apps", ["MetricsDropped"], ends: false) { stage in
                let apps = (0..<450).map { "  many\($0): {topic: com.example.many\($0), min_connections: 0}\n" }
                let folder = try TemporaryFolder("apps:\n" + apps.joined())
                try await stage.restart(options: ["--config", folder.file], environment: ["APNS_WORKER_TOPIC": ""])
                // Parsing so many series would take long.
                try await stage.record("series are missing", omitting: "app=\"many") {
                    $0.value("apns_worker_metric_series_dropped_total") ?? 0 > 0
                }
            },
        ]

        private static let stuckLoop = Scene(
            "an event loop is stuck", ["LoopStuck", "NotReady"], options: ["--lanes", "2"]
        ) { stage in
            let tracer = try ChildProcess("python3", ["-c", trace, "\(try stage.firstLoop())"])
            // The worker can't end while its thread is stopped.
            defer { tracer.kill() }
            try await tracer.until("the thread is stopped") { tracer.output.contains("stopped") }
            try await stage.record("it is stuck") { $0.value("apns_worker_lanes_stuck") == 1 }
        }

        private static let trace = """
            import ctypes, os, signal, sys
            ptrace = ctypes.CDLL(None, use_errno=True).ptrace
            ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
            PTRACE_ATTACH = 16
            if ptrace(PTRACE_ATTACH, int(sys.argv[1]), None, None) != 0:
                sys.exit(os.strerror(ctypes.get_errno()))
            print("stopped", flush=True)
            signal.pause()
            """

        // MARK: Redis

        /// Fills Redis up to a share of its limit.
        private static func fill(_ stage: Stage, percent: Int) async throws {
            try await stage.restart { try stage.redis.fill(percent: percent) }
            try await stage.record("it is seen") { $0["redis_memory_max_bytes"] > 0 }
        }

        private static let redisScenes: [Scene] = [
            Scene("Redis has crashed", ["RedisUnavailable", "NotReady"], mayFire: ["LeaseOverdue"]) { stage in
                stage.redis.kill()
                try await stage.record("it is missed") { $0["redis_up"] == 0 && $0.isUnready }
            },
            Scene("Redis has become a replica", ["RedisUnavailable", "NotReady"], mayFire: ["LeaseOverdue"]) { stage in
                try stage.redis.run("REPLICAOF", "127.0.0.1", "\(RedisServer.refusedPort())")
                // The worker reconnects to find the new master.
                try await stage.record("another master is missed") { $0["redis_up"] == 0 && $0.isUnready }
            },
            Scene("Redis does not answer for longer than a lease", ["RedisUnavailable", "NotReady", "LeaseOverdue"]) {
                stage in
                try await stage.simulator.control("PUT", "/delay", #"{"delay":"3s"}"#)
                try stage.redis.push(TestJob.many(50, prefix: "a"))
                try await stage.meets("some are in flight") { $0["in_flight"] > 0 }
                stage.redis.pause()
                try await stage.record("the lease is over") {
                    $0["lease_age_seconds"] > $0["lease_seconds"] && $0["redis_up"] == 0 && $0.isUnready
                }
            },
            Scene(
                "Redis refuses the settlements of thousands of jobs", ["SettlementsWait", "NotReady"],
                // The first answers are late, because the simulator was stopped.
                mayFire: ["LeaseOverdue", "RedisRefusesWrites", "Slow"],
                options: ["--max-streams", "10000", "--max-connections", "1"]
            ) { stage in
                try await stage.simulator.process.pause()
                try stage.redis.push(TestJob.many(9000, prefix: "a"))
                try await stage.meets("most are claimed") { $0["jobs_claimed_total"] > 6000 }
                try stage.redis.run("CONFIG", "SET", "min-replicas-to-write", "1")
                stage.simulator.process.send(SIGCONT)
                try await stage.record("their settlements wait") { $0["settlements_waiting"] > 5000 && $0.isUnready }
            },
            Scene("a key in Redis has a wrong type", ["NotReady", "Problem"]) { stage in
                try await stage.rule("answer=410")
                try stage.redis.run("SET", "push:{shared}:invalid-tokens", "this is no set")
                try stage.redis.push(TestJob.many(3, prefix: "a"))
                try await stage.record("it is reported") {
                    $0["problems", ["event": "redis_refused"]] > 0 && $0.isUnready
                }
            },
            Scene("Redis has too few replicas", ["RedisRefusesWrites", "NotReady"]) { stage in
                try await stage.restart { try stage.redis.run("CONFIG", "SET", "min-replicas-to-write", "1") }
                try await stage.record("it is seen") { $0["redis_writes_refused"] == 1 && $0.isUnready }
            },
            Scene("Redis is full", ["RedisFull", "RedisNearlyFull"]) { stage in
                try await stage.restart { try stage.redis.run("CONFIG", "SET", "maxmemory", "100000") }
                try await stage.record("it is seen") { $0["redis_writes_refused"] == 1 }
            },
            Scene("Redis is nearly full", ["RedisNearlyFull"]) { try await fill($0, percent: 94) },
            Scene("Redis is filled fast", ["RedisNearlyFull"]) { try await fill($0, percent: 60) },
            Scene("Redis evicts keys", ["RedisEvicts"]) { stage in
                try await stage.restart {
                    try stage.redis.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
                    try stage.redis.run("CONFIG", "SET", "maxmemory", "1gb")
                }
                try await stage.record("it is seen") { $0["redis_evicts"] == 1 }
            },
        ]

        // MARK: APNs

        private static let appScenes: [Scene] = [
            // The worker tries a refused key again on a new connection, which may not be open yet.
            Scene("APNs refuses the key", ["AppRefused", "NotReady"], mayFire: ["NoConnection"]) { stage in
                try await stage.rule("answer=InvalidProviderToken")
                try stage.redis.push(TestJob.many(200, prefix: "a"))
                try await stage.record("the credential is refused") {
                    $0["app_state", ["state": "refused"]] == 1 && $0.isUnready
                }
            },
            Scene("APNs answers with server errors", ["EndpointUnavailable", "NotReady"]) { stage in
                try await stage.rule("answer=503")
                try stage.redis.push(TestJob.many(200, prefix: "a"))
                try await stage.record("it is seen") {
                    $0["app_state", ["state": "unavailable"]] == 1 && $0.isUnready
                }
            },
            Scene("no server listens at the endpoint of the only app", ["NoConnection", "NotReady"], continues: true) {
                stage in
                // A lane that cannot connect claims nothing, so the jobs stay in Redis.
                try await stage.restart {
                    stage.simulator.process.kill()
                    try stage.redis.push(oldJobs(50, age: 5))
                }
                for _ in 0..<2 {
                    let before = stage.recording.sum("apns_worker_connection_failures_total")
                    try await stage.record("it fails to connect", times: 1) { page in
                        page["connection_failures_total"] > before && page["queue_oldest_seconds"] > 0 && page.isUnready
                    }
                }
            },
            Scene("no server listens at the endpoint of an app that has no jobs", [], continues: true) { stage in
                try await stage.restart(environment: withOtherApp())
                for _ in 0..<2 {
                    let before = stage.recording.sum("apns_worker_connection_failures_total")
                    try await stage.record("it fails to connect", times: 1) { page in
                        page["connection_failures_total"] > before && page.isReady
                    }
                }
            },
            Scene("no server listens at the endpoint of one of two apps", ["NoConnection"], continues: true) { stage in
                try await stage.restart(environment: withOtherApp())
                // The lane claims the jobs of the other app, because it can send for the first app, and defers them.
                try stage.redis.push(TestJob.many(50, prefix: "a", members: #""app":"other","#))
                for _ in 0..<2 {
                    let before = stage.recording.sum("apns_worker_notifications_total")
                    try await stage.record("they are deferred", times: 1) { page in
                        page["notifications_total", ["reason": "NoConnection"]] > before && page.isReady
                    }
                }
            },
            Scene(
                "the gateway drops notifications that had counted as delivered", ["GatewayPacketLate"],
                gateway: ["prefix=bad,answer=8,delay=3s"], options: ["--gateway-barrier", "off"]
            ) { stage in
                try stage.redis.push([TestJob.text(TestJob.token("bad", 1))] + TestJob.many(10, prefix: "a"))
                try await stage.record("its packet comes") { $0["gateway_dropped_after_confirmation_total"] > 0 }
            },
            Scene("APNs answers after six seconds", ["Slow"], continues: true) { stage in
                try await stage.record("it works", times: 1) { _ in true }
                try await stage.simulator.control("PUT", "/delay", #"{"delay":"6s"}"#)
                try stage.redis.push(TestJob.many(5, prefix: "a"))
                try await stage.record("they are delivered", times: 1) { stage.count("delivered", $0) == 25 }
            },
            Scene("connections are lost with requests in flight", ["PossibleDuplicates"]) { stage in
                try await stage.simulator.control("PUT", "/delay", #"{"delay":"60s"}"#)
                try stage.redis.push(TestJob.many(150, prefix: "a"))
                try await stage.meets("they are in flight") { $0["in_flight"] == 150 }
                try await stage.simulator.control("PUT", "/delay", #"{"delay":null}"#)
                try await stage.simulator.control("POST", "/faults/drop")
                try await stage.record("they are sent again") {
                    $0["possible_duplicates_total"] > 100 && stage.count("delivered", $0) == 170
                }
            },
            Scene("the certificate is another app's", ["AppBlocked", "NotReady"], ends: false, gateway: []) { stage in
                try await stage.restart(environment: ["APNS_WORKER_TOPIC": "com.other.app"])
                try await stage.record("it is blocked") { $0["app_state", ["state": "blocked"]] == 1 && $0.isUnready }
            },
            Scene("the certificate expires in ten days", ["CertificateExpires"]) { stage in
                try await useCertificate(days: 10, stage)
            },
            Scene("the certificate expires in five days", ["CertificateExpires", "CertificateExpiresSoon"]) { stage in
                try await useCertificate(days: 5, stage)
            },
        ]

        /// Returns the variables of a second app. No server listens at its endpoint.
        private static func withOtherApp() throws -> [String: String] {
            [
                "APNS_WORKER_APPS": "default, other", "APNS_WORKER_APPS_OTHER_TOPIC": "com.example.other",
                "APNS_WORKER_APPS_OTHER_ENDPOINT": "localhost:\(try RedisServer.refusedPort())",
            ]
        }

        private static func useCertificate(days: Int, _ stage: Stage) async throws {
            let workshop = try OpenSSLWorkshop()
            try workshop.certificate("app", subject: "/UID=com.example.app/CN=Apple Push Services: com.example.app")
            try workshop.openssl(
                "x509", "-req", "-in", "app.csr", "-CA", try TestCertificates.path("ca.pem"), "-CAkey",
                try TestCertificates.path("ca-key.pem"), "-set_serial", "1", "-sha256", "-days", "\(days)", "-extfile",
                "app.ext", "-out", "app.pem")
            try await stage.restart(
                environment: [
                    "APNS_WORKER_CERTIFICATE": workshop.path("app.pem"),
                    "APNS_WORKER_CERTIFICATE_KEY": workshop.path("app-key.pem"), "APNS_WORKER_KEY": "",
                    "APNS_WORKER_KEY_ID": "", "APNS_WORKER_TEAM_ID": "",
                ])
            try await stage.record("it is ready") { $0["certificate_days_left"] == Double(days - 1) && $0.isReady }
        }

        // MARK: Jobs

        private static let jobScenes: [Scene] = [
            Scene("a quiet worker does not claim an old job", ["QueueOld", "NotReady"]) { stage in
                try await stage.restart()
                stage.worker.process.send(SIGTSTP)
                try await eventually("it is quiet") {
                    try await MetricsTests.get(stage.port, "/readyz").body.contains("the worker is quiet")
                }
                try stage.redis.push(oldJobs(1, age: 400))
                try await stage.record("the job is seen") { $0["queue_oldest_seconds"] > 300 }
            },
            Scene("an operator has paused the queue", ["QueuePaused"]) { stage in
                try await stage.restart {
                    try await stage.redis.apnsWorker(["pause", "--reason", "maintenance"]).succeeds()
                    try stage.redis.push(oldJobs(1, age: 4000))
                }
                try await stage.record("it is seen") {
                    $0["queue_paused"] == 1 && $0["queue_oldest_seconds"] > 3600 && $0.isReady
                }
            },
            Scene("the guard of a campaign has paused it", ["CampaignStopped"]) { stage in
                try await stage.rule("prefix=dead,answer=410")
                try await stage.redis.apnsWorker(
                    ["campaign", "guard", "spring", "--stop-if", "invalid_token>5%", "--min", "5", "--force"]
                ).succeeds()
                try stage.redis.push(TestJob.many(8, prefix: "dead", members: #""campaign":"spring","#))
                try await stage.record("it is seen") { $0["campaigns_stopped"] == 1 }
            },
            Scene("a producer makes a mistake", ["DeadLetters"]) { stage in
                try stage.redis.push(brokenJobs)
                try await stage.record("they are dead") { stage.count("dead", $0) == 150 }
            },
            Scene("a new worker made dead letters before its first scrape", ["DeadLetters"]) { stage in
                _ = try await stage.worker.stop()
                try stage.redis.push(brokenJobs)
                try await stage.start(as: "b")
                try await stage.record("they are dead") { stage.count("dead", $0) == 150 }
            },
            Scene("most tokens are invalid", ["InvalidTokens"]) { stage in
                try await stage.rule("prefix=dead,answer=410")
                try stage.redis.push(TestJob.many(150, prefix: "dead") + TestJob.many(100, prefix: "a"))
                try await stage.record("they are known") {
                    stage.count("invalid_token", $0) == 150 && stage.count("delivered", $0) == 120
                }
            },
            Scene("devices get too many notifications", ["Retries"]) { stage in
                try await stage.rule("answer=429")
                try stage.redis.push(TestJob.many(150, prefix: "a"))
                try await stage.record("they are retried") { stage.count("retried", $0) >= 150 }
            },
        ]

        private static let brokenJobs = (0..<150).map {
            #"{"id":"job-\#($0)","token":"\#(TestJob.token("a", $0))","alert":"x","sound":7}"#
        }

        private static func oldJobs(_ count: Int, age: Int) -> [String] {
            let time = Int(Date.now.timeIntervalSince1970) - age
            return TestJob.many(count, prefix: "a", members: #""enqueued_at":\#(time),"#)
        }
    }
}

extension Exposition {
    fileprivate subscript(_ name: String, _ labels: [String: String] = [:]) -> Double {
        sum("apns_worker_\(name)", labels)
    }

    fileprivate var isReady: Bool { value("apns_worker_ready") == 1 }
    fileprivate var isUnready: Bool { value("apns_worker_ready") == 0 }
}

extension EndToEnd.AlertTests {
    /// The values of a scrape's series, with the label `instance` that Prometheus adds.
    typealias Page = [String: Double]

    struct Recording {
        /// The time of the first page in seconds since 1970.
        var start = 0.0
        /// The page before the state.
        var before: Page = [:]
        /// The pages of the state. If a worker does not answer, its series are missing.
        var pages: [Page] = []

        /// Returns the sum of a metric's series in the last page.
        func sum(_ name: String) -> Double {
            (pages.last ?? [:]).reduce(0) { $1.key.hasPrefix(name + "{") ? $0 + $1.value : $0 }
        }
    }

    private struct Rules {
        static let prefix = "ApnsWorker"
        /// The seconds for which an alert's state must last, by the alert's name without the prefix.
        let delays: [String: Int]
        let metrics: Set<String>

        init() throws {
            let rules = try DeployFolder.yaml(AlertRules.path).list("groups/0/rules")
            var (delays, metrics): ([String: Int], Set<String>) = ([:], [])
            for rule in rules {
                let name = try rule.text("alert")
                try #require(name.hasPrefix(Self.prefix), "\(name)")
                delays[String(name.dropFirst(Self.prefix.count))] = try Self.seconds((try? rule.text("for")) ?? "0s")
                metrics.formUnion(
                    try rule.text("expr").matches(of: /\b(?:apns_worker|process)_[a-z_]+/).map { String($0.0) })
            }
            (self.delays, self.metrics) = (delays, metrics)
        }

        private static func seconds(_ duration: String) throws -> Int {
            let match = try #require(duration.wholeMatch(of: /(\d+)([smh])/), "\(duration)")
            let number = try #require(Int(match.1))
            return number * (match.2 == "h" ? 3600 : match.2 == "m" ? 60 : 1)
        }
    }

    final class Stage {
        let redis: RedisServer
        let simulator: SimulatorProcess
        private(set) var worker: WorkerProcess
        private(set) var port = 0
        var recording = Recording()
        private var instance = "a"
        private var workers: [WorkerProcess] = []
        private let options: [String]
        private let metrics: Set<String>

        /// Starts all programs, and records a page once the worker has sent some jobs.
        init(gateway rules: [String]?, options: [String]) async throws {
            metrics = try Rules().metrics
            redis = try RedisServer()
            let limits = ["--control-port", "0", "--max-streams", "10000"]
            simulator = try await SimulatorProcess(
                gateway: rules, options: limits + ["--client-ca", try TestCertificates.path("ca.pem")])
            self.options = options
            worker = try Self.worker(redis, simulator, options)
            try await join()
            try redis.push(TestJob.many(20, prefix: "c"))
            // The worker reads the condition of Redis some time after its start.
            recording.before = try await meets("the worker works") { page in
                page.isReady && count("delivered", page) == 20
                    && page.names.contains("apns_worker_redis_writes_refused")
            }
            recording.start = Date.now.timeIntervalSince1970
        }

        private static func worker(
            _ redis: RedisServer, _ simulator: SimulatorProcess, _ options: [String],
            _ environment: [String: String] = [:]
        ) throws -> WorkerProcess {
            let options = ["--admin-port", "0"] + options
            if let gateway = simulator.gatewayPort {
                return try WorkerProcess(
                    redis: redis.url, gateway: gateway, confirmAfter: 300, options: options, environment: environment)
            }
            return try WorkerProcess(redis, simulator, options, environment: environment)
        }

        private func join() async throws {
            workers.append(worker)
            port = try await worker.adminPort()
            try await worker.logs("started")
        }

        func rule(_ rule: String) async throws {
            try await simulator.control("POST", "/rules", "{\"rule\":\"\(rule)\"}")
        }

        func end() {
            for worker in workers { worker.process.kill() }
            simulator.process.kill()
            redis.kill()
        }

        /// Starts another worker, and records its pages from now on.
        /// - Parameter instance: the name of the worker for Prometheus; by default the name of the previous worker.
        func start(
            as instance: String? = nil, options: [String] = [], environment: [String: String] = [:]
        ) async throws {
            self.instance = instance ?? self.instance
            worker = try Self.worker(redis, simulator, self.options + options, environment)
            try await join()
        }

        /// Stops the worker, calls a function, and starts the worker again. A running worker would see changes late: it reads the
        /// condition of Redis every 30 s, and the contents of a queue every 10 s.
        func restart(
            options: [String] = [], environment: [String: String] = [:], _ change: () async throws -> Void = {}
        ) async throws {
            _ = try await worker.stop()
            // The new worker must not use the old worker's reading of the queue.
            try redis.run("DEL", "push:{default}:gauges")
            try await change()
            try await start(options: options, environment: environment)
        }

        func count(_ outcome: String, _ page: Exposition) -> Double { page["outcomes_total", ["outcome": outcome]] }

        /// - Parameter omitted: lines with this text are ignored.
        @discardableResult
        func meets(
            _ what: String, omitting omitted: String? = nil, _ condition: (Exposition) throws -> Bool
        ) async throws -> Page {
            var last: Exposition?
            try await eventually(what) {
                var text = try await EndToEnd.MetricsTests.get(port, "/metrics").body
                if let omitted {
                    text = text.split(separator: "\n").filter { !$0.contains(omitted) }.map { $0 + "\n" }.joined()
                }
                let page = try Exposition(text)
                last = page
                return try condition(page)
            }
            return series(of: try #require(last))
        }

        func record(
            _ what: String, times: Int = 2, omitting omitted: String? = nil,
            _ condition: (Exposition) throws -> Bool
        ) async throws {
            for _ in 0..<times { recording.pages.append(try await meets(what, omitting: omitted, condition)) }
        }

        private func series(of page: Exposition) -> Page {
            func escaped(_ value: String) -> String {
                value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
            }
            var series: Page = [:]
            for sample in page.families.values.flatMap(\.samples) where metrics.contains(sample.name) {
                let labels = sample.labels.sorted { $0.key < $1.key }.map { ",\($0.key)=\"\(escaped($0.value))\"" }
                series["\(sample.name){instance=\"\(instance)\"\(labels.joined())}"] = sample.value
            }
            return series
        }

        func firstLoop() throws -> Int {
            let folder = "/proc/\(worker.process.processIdentifier)/task"
            let threads = try FileManager.default.contentsOfDirectory(atPath: folder).compactMap { Int($0) }
            // The first thread is the lane's. The event loop of the admin port starts later.
            return try #require(
                threads.sorted().first {
                    let name = try? String(contentsOfFile: "\(folder)/\($0)/comm", encoding: .utf8)
                    return name?.hasPrefix("NIO-ELT-") == true
                })
        }
    }

    private struct Replay {
        /// The seconds between two scrapes, and also between two evaluations of the rules.
        private static let step = 30
        /// The time when the state begins, in seconds.
        private static let begin = 11 * step

        private let scene: Scene
        private let recording: Recording
        private let delays: [String: Int]
        /// The time when the last page of the state is read.
        private let last: Int
        /// The time when the state ends.
        private let end: Int
        /// The time from which no rule looks back at the state.
        private let over: Int

        init(_ scene: Scene, _ recording: Recording) throws {
            self.scene = scene
            self.recording = recording
            delays = try Rules().delays
            last = Self.begin + (recording.pages.count - 1) * Self.step
            // A state without an alert lasts for two hours.
            let longest = try scene.alerts.map { [delays] in try #require(delays[$0], "\($0)") }.max() ?? 7200
            end = last + longest + 2 * Self.step
            over = end + 3600 + 2 * Self.step
        }

        func run() async throws {
            let folder = try TemporaryFolder(file)
            let tool = try ChildProcess("promtool", ["test", "rules", folder.file])
            #expect(try await tool.wait() == .exited(0), "\(scene.name): \(tool.output)\(tool.errors)")
            #expect(tool.output.contains("SUCCESS"))
        }

        private var file: String {
            """
            rule_files: ['\(DeployFolder.url(AlertRules.path).path)']
            evaluation_interval: \(Self.step)s
            tests:
              - interval: \(Self.step)s
                input_series:
            \(series.map { "      - {series: '\($0)', values: '\($1)'}" }.joined(separator: "\n"))
                promql_expr_test:
            \(checks.joined(separator: "\n"))

            """
        }

        /// The series and their values, in promtool's notation.
        private var series: [(name: String, values: String)] {
            let pages = Array(repeating: recording.before, count: Self.begin / Self.step) + recording.pages
            return Set(pages.flatMap(\.keys)).sorted().map { name in
                (name, values(of: name, in: pages).joined(separator: " "))
            }
        }

        private func values(of name: String, in pages: [Page]) -> [String] {
            let values = pages.map { $0[name] }
            var texts = values.indices.map { index in
                if let value = values[index] { return text(value, name) }
                // If a series of the previous page is missing, the series has ended.
                return index > 0 && values[index - 1] != nil ? "stale" : "_"
            }
            let rest = end / Self.step + 1 - pages.count
            let isCounter = name.contains(/^[a-z_]+_(total|bucket)\{/)
            var left: Double?
            if let last = values[values.count - 1] {
                let growth = scene.continues && isCounter ? max(0, last - (values[values.count - 2] ?? 0)) : 0
                // In promtool's notation, a+bxn is a, and n more values.
                texts[texts.count - 1] = "\(text(last, name))+\(text(growth))x\(rest)"
                if isCounter { left = last + growth * Double(rest) }
            } else {
                texts.append("_x\(rest)")
            }
            guard let value = left ?? recording.before[name] else { return texts + ["stale"] }
            return texts + ["\(text(value, name))x\((over - end) / Self.step)"]
        }

        private func text(_ value: Double, _ name: String = "") -> String {
            // In promtool, the time begins at 0.
            let isTime = name.hasPrefix("process_start_time_seconds")
            let value = isTime ? value - recording.start + Double(Self.begin) : value
            return value == value.rounded() ? String(format: "%.0f", value) : String(format: "%.3f", value)
        }

        private var checks: [String] {
            let firing = #"alertstate="firing""#
            func never(_ alerts: String, until time: Int) -> String {
                check("max by (alertname) (max_over_time(ALERTS{\(firing)\(alerts)}[\(time)s]))", time, "")
            }
            var checks = [never("", until: Self.begin - Self.step)]
            for alert in scene.alerts {
                let (name, delay) = (#"alertname="\#(Rules.prefix)\#(alert)""#, delays[alert] ?? 0)
                checks.append(never(",\(name)", until: Self.begin + delay - Self.step))
                checks.append(
                    check(
                        "max by (alertname) (ALERTS{\(firing),\(name)})", last + delay + 2 * Self.step,
                        "{labels: '{\(name)}', value: 1}"))
            }
            let expected = (scene.alerts + scene.mayFire).map { Rules.prefix + $0 }.joined(separator: "|")
            checks.append(never(#",alertname!~"\#(expected)""#, until: over))
            if scene.ends { checks.append(check("max by (alertname) (ALERTS{\(firing)})", over, "")) }
            return checks
        }

        private func check(_ expression: String, _ time: Int, _ samples: String) -> String {
            "      - {expr: '\(expression)', eval_time: \(time)s, exp_samples: [\(samples)]}"
        }
    }
}
