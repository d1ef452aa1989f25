import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Ten situations of an operator on call, with real programs. The operator finds the cause with at most two commands, or two pages of
    /// the dashboard, and cures it with one command.
    @Suite("Scenes of an operator on call")
    struct OnCallSceneTests {
        /// A worker and its operator. Counts the commands and the pages.
        private final class Operator {
            let redis: RedisServer
            let worker: WorkerProcess
            private let simulator: SimulatorProcess
            private let web: WebProcess
            private(set) var commands = 0
            private(set) var pages = 0

            init(_ environment: [String: String] = [:], rules: [String] = []) async throws {
                (redis, simulator) = try await startServers(rules: rules)
                web = try await WebProcess(redis.url, ["ann": ["--role", "operator"]])
                worker = try WorkerProcess(redis, simulator, environment: environment)
            }

            /// Gives a command.
            func ask(_ arguments: String...) async throws -> String {
                commands += 1
                let result = try await redis.apnsWorker(arguments)
                return result.output + result.errors
            }

            /// Opens a page, and returns its header and text.
            func open(_ path: String) async throws -> String {
                pages += 1
                let page = try await web.ask("ann", path, nil, ["Accept: text/html"])
                return page.head + page.text.replacing(/<[^>]*>/, with: "")
            }

            /// Checks that the operator found the cause with few commands and pages, and sets the counts to 0.
            func found(commands most: Int = 2, pages: Int = 2, _ location: SourceLocation = #_sourceLocation) {
                #expect(commands <= most && self.pages <= pages, sourceLocation: location)
                (commands, self.pages) = (0, 0)
            }
        }

        private static func job(_ id: String, _ members: String = "", token: Int = 1) -> String {
            TestJob.text(TestJob.token("0d", token), #""id":"\#(id)","# + members)
        }

        @Test("a: nothing is sent, because a deploy paused the queue")
        func pausedQueue() async throws {
            let person = try await Operator()
            let (redis, worker) = (person.redis, person.worker)
            _ = try await apnsWorker(redis.url, "pause", "--reason", "deploy 1742")
            let hours = Int(Date().timeIntervalSince1970) - 7200
            try redis.push([Self.job("a", #""enqueued_at":\#(hours),"#)])
            try await eventually("it is old") { try await FleetView(redis.url).kinds.contains("queue_paused default") }
            #expect(try await person.ask("status").contains("queue default is paused"))
            let page = try await person.open("/")
            #expect(page.contains("queue default is paused") && page.contains("deploy 1742") && page.contains("resume"))
            person.found(commands: 1, pages: 1)
            _ = try await person.ask("resume", "--queue", "default")
            try await redis.has(1)
            #expect(person.commands == 1)
            _ = try await worker.stop()
        }

        @Test("b: a wrong campaign goes out, and after its cancel no number reads as if it went on")
        func wrongCampaign() async throws {
            let person = try await Operator()
            let (redis, worker) = (person.redis, person.worker)
            _ = try await apnsWorker(redis.url, "campaign", "limit", "spring", "--per-second", "20")
            try redis.run("HSET", "push:{default}:campaign:spring", "total", "2000")
            try redis.push((0..<2000).map { Self.job("c\($0)", #""campaign":"spring","#, token: $0) })
            try await eventually("it goes out") { try redis.counted("delivered") >= 20 }
            #expect(try await person.ask("campaign", "list").contains("spring"))
            let running = try await person.open("/campaigns")
            #expect(running.contains("spring") && running.contains("running"))
            person.found(commands: 1, pages: 1)
            _ = try await person.ask("campaign", "cancel", "spring", "--yes")
            #expect(person.commands == 1)
            try await eventually("it has ended") { try redis.counted("cancelled") > 0 }
            let shown = try await person.ask("campaign", "show", "spring")
            #expect(
                shown.contains(": cancelled") && !shown.contains("delivered per second")
                    && !shown.contains("time left"), "\(shown)")
            let page = try await person.open("/campaigns/spring")
            #expect(
                page.contains("cancelled") && page.contains("nothing has ended lately")
                    && !page.contains("at this rate"))
            _ = try await worker.stop()
        }

        @Test(
            "c: did a device get a push? Deliveries that are not kept are not denied.", arguments: ["all", "failures"])
        func oneDevice(results: String) async throws {
            let person = try await Operator(["APNS_WORKER_RESULTS": results])
            let (redis, worker) = (person.redis, person.worker)
            let device = TestJob.token("0d", 7)
            try redis.push([Self.job("order-1742", token: 7)])
            try await redis.has(1)
            let (shown, page) = (try await person.ask("device", device), try await person.open("/devices/\(device)"))
            let (found, search) = (
                try await person.ask("results", "--id", "order-1742"), try await person.open("/search?q=order-1742")
            )
            if results == "all" {
                #expect(shown.contains("delivered") && page.contains("Its last push was delivered"))
                // The search leads to the page of the device.
                #expect(found.contains("delivered") && search.contains("/devices/"))
            } else {
                let gap = "deliveries are not kept"
                #expect(shown.contains(gap) && found.contains(gap) && !shown.contains("nothing"))
                #expect(
                    page.contains("No push to it is recorded. Deliveries are not kept")
                        && !page.contains("Nothing is known"))
                #expect(search.contains("only if its result is kept"))
            }
            person.found()
            _ = try await worker.stop()
        }

        @Test("d: a key was revoked, and the same with one odd answer", arguments: [true, false])
        func revokedKey(isRevoked: Bool) async throws {
            let one = isRevoked ? "" : "prefix=\(TestJob.token("0d", 7)),times=1,"
            let person = try await Operator(rules: ["\(one)answer=InvalidProviderToken"])
            let (redis, worker) = (person.redis, person.worker)
            try redis.push((0..<30).map { Self.job("k\($0)", token: $0) })
            if isRevoked {
                try await eventually("it is a problem") {
                    try await FleetView(redis.url).problems.contains { $0.message.contains("InvalidProviderToken") }
                }
                let (status, page) = (try await person.ask("status"), try await person.open("/"))
                #expect(status.contains("InvalidProviderToken") && page.contains("InvalidProviderToken"), "\(status)")
            } else {
                try await eventually("the others are delivered") { try redis.counted("delivered") >= 29 }
                let status = try await person.ask("status", "--check")
                #expect(!status.contains("CRITICAL") && !status.contains("revoked"), "\(status)")
            }
            person.found(commands: 1, pages: 1)
            _ = try await worker.stop()
        }

        @Test("e: the queue grows faster than it is sent")
        func backlog() async throws {
            let person = try await Operator(["APNS_WORKER_MAX_PER_SECOND": "5"])
            let (redis, worker) = (person.redis, person.worker)
            let ago = Int(Date().timeIntervalSince1970) - 1200
            try redis.push((0..<3000).map { Self.job("j\($0)", #""enqueued_at":\#(ago),"#, token: $0) })
            try await eventually("it is late") { try await FleetView(redis.url).kinds.contains("too_old default") }
            let (status, page) = (try await person.ask("status"), try await person.open("/"))
            #expect(status.contains("the oldest job should have been sent") && status.contains("start more workers"))
            #expect(page.contains("The oldest job should have been sent") && page.contains("By campaign"))
            person.found(commands: 1, pages: 1)
            _ = try await worker.stop()
        }

        @Test("f: one tenant floods, also while a limit defers its jobs")
        func flood() async throws {
            let person = try await Operator()
            let (redis, worker) = (person.redis, person.worker)
            let limited = #""fair":"acme","fair_per_second":1,"labels":{"plan":"free"},"#
            try redis.push(
                (0..<500).map { Self.job("f\($0)", limited, token: $0) } + [Self.job("other", #""fair":"blue","#)])
            try await eventually("most are deferred") { try QueueContents(redis).retries.count > 450 }
            let counted = try await person.ask("jobs", "list", "--by", "fair,state")
            #expect(counted.contains(/4\d\d\tacme\tdeferred\n/), "\(counted)")
            let page = try await person.open("/jobs?by=fair")
            #expect(page.contains("acme") && page.contains("counted of"))
            person.found(commands: 1, pages: 1)
            #expect(try await person.ask("jobs", "list", "--by", "label.plan").contains("\tfree\n"))
            #expect(try await person.ask("jobs", "cancel", "--fair", "acme", "--yes").contains("cancelled 4"))
            _ = try await worker.stop()
        }

        @Test("g: Redis is nearly full")
        func fullRedis() async throws {
            let person = try await Operator()
            let (redis, worker) = (person.redis, person.worker)
            try redis.push([Self.job("a")])
            try await redis.has(1)
            try redis.fill(percent: 95)
            try await eventually("it is a problem") {
                try await FleetView(redis.url).problems.contains { $0.kind.hasPrefix("redis_") }
            }
            let (status, page) = (try await person.ask("status"), try await person.open("/"))
            #expect(status.contains("maxmemory") && page.contains("maxmemory"), "\(status)")
            person.found(commands: 1, pages: 1)
            _ = try await worker.stop()
        }

        @Test("h: dead letters of mixed reasons after a bad deploy, and after their cure")
        func deadLetters() async throws {
            let person = try await Operator()
            let (redis, worker) = (person.redis, person.worker)
            try redis.push(
                (0..<300).map { Self.job("u\($0)", #""app":"shpo","#, token: $0) }
                    + (0..<40).map { #"{"id":"t\#($0)","token":"not a token","alert":"x"}"# })
            try await eventually("they are dead") { try QueueContents(redis).dead.count == 340 }
            let (status, page) = (try await person.ask("status"), try await person.open("/"))
            for text in [status, page] {
                #expect(text.contains("UnknownApp 300, MalformedToken 40") && text.contains("requeue"))
                #expect(text.contains("--reason UnknownApp") && !text.contains("--reason MalformedToken"))
            }
            person.found(commands: 1, pages: 1)
            _ = try await worker.stop()
            #expect(try await person.ask("requeue", "--reason", "UnknownApp").contains("requeued 300 jobs"))
            #expect(person.commands == 1)
            // Once the letters are requeued, the advice disappears.
            let after = try await person.ask("status")
            #expect(!after.contains("--reason UnknownApp") && after.contains("MalformedToken 40"), "\(after)")
        }

        @Test("i: a worker hangs")
        func hangingWorker() async throws {
            let person = try await Operator(["APNS_WORKER_LEASE": "300s"])
            let (redis, worker) = (person.redis, person.worker)
            try redis.push([Self.job("a")])
            try await redis.has(1)
            try await worker.process.pause()
            try await eventually("it is silent") {
                try await FleetView(redis.url).problems.contains { $0.kind == "worker_silent" }
            }
            let (status, page) = (try await person.ask("status"), try await person.open("/"))
            #expect(status.contains("heartbeat") && page.contains("heartbeat"), "\(status)")
            person.found(commands: 1, pages: 1)
            worker.process.send(SIGCONT)
            _ = try await worker.stop()
        }

        @Test("j: invalid tokens explode")
        func invalidTokens() async throws {
            let person = try await Operator(rules: ["prefix=0d,answer=410"])
            let (redis, worker) = (person.redis, person.worker)
            try redis.push((0..<150).map { Self.job("i\($0)", token: $0) } + TestJob.many(200, prefix: "a"))
            try await eventually("they ended") {
                try redis.counted("invalid_token") == 150 && redis.counted("delivered") == 200
            }
            let (status, page) = (try await person.ask("status"), try await person.open("/"))
            for text in [status, page] { #expect(text.contains("350 tokens that were sent to are invalid"), "\(text)") }
            let by = try await person.ask("invalid", "list", "--by", "reason,topic,environment")
            #expect(by.contains(/150 +Unregistered +com.example.app/), "\(by)")
            person.found(commands: 2, pages: 1)
            _ = try await worker.stop()
        }
    }
}
