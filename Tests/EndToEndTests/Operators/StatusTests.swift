import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Status")
    struct StatusTests {
        @Test("an empty Redis: the page shows it, no problem is reported, and nothing is written")
        func fresh() async throws {
            let redis = try RedisServer()
            let view = try await FleetView(redis.url)
            #expect(view.queues.map(\.name) == ["default"] && view.workers.isEmpty && view.apps.isEmpty)
            #expect(view.problems.isEmpty && view.notes.isEmpty && view.invalid_tokens == 0)
            try await apnsWorker(redis.url, "status").succeeds("No worker has a lease.")
            try await apnsWorker(redis.url, "status", "--check").succeeds()
            #expect(try redis.run("DBSIZE") == 0)
        }

        @Test("jobs wait without a worker: reported first, and --check exits with 2")
        func noWorker() async throws {
            let redis = try RedisServer()
            try redis.push(TestJob.many(3), queue: "typo")
            let view = try await FleetView(redis.url)
            #expect(view.kinds == ["no_worker typo"] && view.queues.map(\.name) == ["typo"])
            let page = try await apnsWorker(redis.url, "status")
            let lines = page.output.split(separator: "\n")
            #expect(lines[1].hasPrefix("! queue typo: 3 jobs wait, and no worker claims them"), "\(page.output)")
            #expect(!page.output.contains("\u{1B}"))
            #expect(lines.allSatisfy { $0.count <= 80 }, "\(page.output)")
            try await apnsWorker(redis.url, "status", "--check").fails(2).begins("CRITICAL: queue typo")
            // With --queue, `status` reports only the problems of that queue.
            #expect(try await FleetView(redis.url, "--queue", "other").problems.isEmpty)
        }

        @Test("a worker with several lanes and queues is one line, which disappears after its drain")
        func workers() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=ee,answer=silence", "prefix=dd,answer=413"])
            let workers = try (0..<2).map { _ in
                try WorkerProcess(redis, simulator, ["--lanes", "2", "--queue", "a,b", "--drain-timeout", "1000"])
            }
            try redis.push(TestJob.many(20), queue: "a")
            try redis.push(TestJob.many(5, prefix: "dd"), queue: "b")
            try redis.push(TestJob.many(7, prefix: "ee"), queue: "a")
            try await eventually("all that is seen") {
                let view = try await FleetView(redis.url)
                return view.workers.count == 2 && view.workers.allSatisfy { $0.lanes == 2 }
                    && view.workers.reduce(0) { $0 + $1.in_flight } == 7
                    && view.workers.reduce(0) { $0 + $1.done } == 25
                    && view.queues.reduce(0) { $0 + ($1.today["delivered"] ?? 0) } == 20
            }
            let view = try await FleetView(redis.url)
            let worker = try #require(view.worker(workers[0]))
            #expect(worker.state == "running" && worker.lanes_total == 2 && worker.queues == ["a", "b"])
            #expect(worker.version == "0.1.0" && worker.redis == "single" && worker.lease_left_ms > 0)
            #expect(worker.name.hasPrefix("\(worker.host).\(worker.pid).") && worker.started_at ?? 0 > 0)
            let b = try view.queue("b")
            #expect(b.dead == 5 && b.dead_reasons == ["PayloadTooLarge": 5] && b.today["dead:PayloadTooLarge"] == 5)
            #expect(try view.queue("a").claimed == 7 && view.queue("a").workers == 4)
            let app = try #require(view.apps.first)
            #expect(app.name == "default" && app.state == "connected" && app.lanes == 4 && app.connections >= 4)
            #expect(app.endpoints == ["localhost:\(simulator.port)"])
            #expect(view.problems.isEmpty, "\(view.problems)")
            let page = try await apnsWorker(redis.url, "status").output
            #expect(page.split(separator: "\n").allSatisfy { $0.count <= 80 }, "\(page)")
            #expect(page.contains("PayloadTooLarge 5") && page.contains(" running"), "\(page)")

            for worker in workers { _ = try await worker.stop() }
            #expect(try await FleetView(redis.url).workers.isEmpty)
            #expect(try !QueueContents(redis, queue: "a").keys.contains { $0.contains("info") || $0.contains("order") })
        }

        @Test("refused and paused apps are shown with the reason")
        func pauses() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=bb,answer=InvalidProviderToken"])
            let worker = try WorkerProcess(
                redis, simulator,
                environment: BreakerTests.apps)
            try redis.push(BreakerTests.jobs(1, "other", prefix: "bb"))
            try await eventually("the refusal is seen") {
                try await FleetView(redis.url).kinds == ["scope_suspected other"]
            }
            let user = ["USER": "ana"]
            let pause = try await redis.apnsWorker(["pause", "--reason", "moon", "--json"], environment: user)
            struct Change: Decodable {
                let queue, app: String?
                let paused, before: FleetView.Pause?
            }
            let change = try JSONDecoder().decode(Change.self, from: Data(pause.output.utf8))
            #expect(change.queue == "default" && change.paused?.reason == "moon" && change.before == nil)
            #expect(change.paused?.by?.hasPrefix("ana@") == true && change.paused?.since ?? 0 > 0)
            try await redis.apnsWorker(["pause", "--reason", "sun"], environment: user).shows(
                "it was paused before: moon, since 20")
            let app = try await redis.apnsWorker(
                ["pause", "--app", "goood", "--reason", "x"], environment: user
            ).fails(1).prints("")
            #expect(
                app.errors
                    == "Error: unknown app goood; did you mean good? Known: good, other. --force continues anyway\n")

            let view = try await FleetView(redis.url)
            let queue = try view.queue("default")
            #expect(queue.paused?.reason == "sun" && queue.paused?.since == change.paused?.since)
            let other = try #require(view.apps.first { $0.name == "other" })
            #expect(other.state == "connected" && other.paused == nil && other.endpoints.count == 1)
            try await apnsWorker(redis.url, "status").shows("  paused for", "by ana@", "InvalidProviderToken")

            try await redis.apnsWorker(["pause", "--app", "other", "--reason", "rain"], environment: user).succeeds()
            try await eventually("it is paused") { try await FleetView(redis.url).apps.last?.state == "paused" }
            let resumed = try await redis.apnsWorker(["resume", "--app", "other", "--json"], environment: user)
            let ended = try JSONDecoder().decode(Change.self, from: Data(resumed.output.utf8))
            #expect(ended.app == "other" && ended.paused == nil && ended.before?.reason == "rain")
            try await redis.apnsWorker(["resume"], environment: user).begins(
                "queue default is resumed; it was paused: sun, since 20")
            _ = try await worker.stop()
        }

        @Test("jobs in a list with a configured name are counted automatically, because workers report the name")
        func otherList() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, ["--queue", "push", "--format", "sidekiq"])
            try redis.run("SET", "push:{push}:paused", "lunch")
            try await eventually("it is there") { try await FleetView(redis.url).worker(worker) != nil }
            for number in 0..<3 { try redis.run("LPUSH", "queue:push", "job \(number)") }
            let queue = try await FleetView(redis.url).queue("push")
            #expect(queue.waiting == 3 && queue.paused?.reason == "lunch")
            _ = try await worker.stop()
        }

        @Test("the age of the oldest job is shown, and --max-age makes it a problem")
        func age() async throws {
            let redis = try RedisServer()
            let old = Int(Date().timeIntervalSince1970) - 3600
            try redis.push([TestJob.text("ab", #""enqueued_at":\#(old),"#)])
            let view = try await FleetView(redis.url)
            #expect(try (3_590_000..<4_000_000).contains(view.queue("default").oldest_age_ms ?? 0))
            #expect(try await FleetView(redis.url, "--max-age", "30m").kinds.contains("too_old default"))
            #expect(try await !FleetView(redis.url, "--max-age", "2h").kinds.contains("too_old default"))
        }

        @Test("--watch refreshes, survives an outage, and exits with 0 on SIGINT")
        func watch() async throws {
            let redis = try RedisServer()
            let watch = try redis.startCommand(["status", "--watch", "100ms"])
            try await eventually("several pages are there") { watch.output.components(separatedBy: "QUEUE").count > 3 }
            // On a pipe, the command prints pages without escape codes.
            #expect(!watch.output.contains("\u{1B}"))
            redis.kill()
            try await eventually("it tells of the outage") { watch.output.contains("showing the previous state") }
            try redis.start()
            let seen = watch.output.count
            try await eventually("it goes on") {
                watch.output.dropFirst(seen).components(separatedBy: "\n\n").last { $0.contains("UTC") }
                    .map { !$0.contains("previous state") } ?? false
            }
            watch.send(SIGINT)
            #expect(try await watch.wait() == .exited(0))
        }

        @Test("--watch redraws in place, fits the terminal, and leaves it unchanged")
        func terminal() async throws {
            let redis = try RedisServer()
            for number in 0..<20 { try redis.push([TestJob.text("ab")], queue: "queue-\(number)") }
            let file = redis.directory.appending(path: "watch")
            let command = """
                stty rows 16 cols 70; echo $$ > \(file.path); \
                exec \(try BuiltProgram.path("apns-worker")) status --watch 100ms --redis \(redis.url)
                """
            let terminal = try ChildProcess("script", ["-qec", command, "/dev/null"], environment: ["TERM": "xterm"])
            let home = "\u{1B}[H"
            try await eventually("it is drawn again and again") {
                terminal.output.components(separatedBy: home).count > 5
            }
            let process = try #require(pid_t(try String(contentsOf: file, encoding: .utf8).dropLast()))
            #expect(kill(process, SIGINT) == 0)
            #expect(try await terminal.wait() == .exited(0))

            // The terminal adds a carriage return before each line feed.
            let output = String(String.UnicodeScalarView(terminal.output.unicodeScalars.filter { $0 != "\r" }))
            let frames = output.components(separatedBy: home)
            #expect(frames[0] == "\u{1B}[?1049h\u{1B}[?25l")
            #expect(frames.last?.hasSuffix("\u{1B}[J\u{1B}[?25h\u{1B}[?1049l") == true)
            for frame in frames.dropFirst() {
                let page = try #require(frame.components(separatedBy: "\u{1B}[J").first)
                // The program erases the rest of a longer old line, and prints no line feed after the last line, because that would
                // scroll.
                let lines = page.components(separatedBy: "\n")
                #expect(lines.count == 16 && lines.allSatisfy { $0.hasSuffix("\u{1B}[K") })
                let bare = lines.map { $0.replacing(/\u{1B}\[[0-9;]*[A-Za-z]/, with: "") }
                #expect(bare.allSatisfy { $0.count <= 70 }, "\(bare)")
                #expect(bare.last?.wholeMatch(of: /… \d+ more lines/) != nil, "\(bare)")
                // The list of problems leaves space for the table.
                #expect(bare.contains { $0.hasPrefix("! same problem for 18 more: queue-") }, "\(bare)")
                #expect(bare.contains { $0.hasPrefix("QUEUE ") } && bare.contains { $0.hasPrefix("queue-0 ") })
            }
        }
    }
}
