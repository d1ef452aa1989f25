import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Several queues")
    struct QueuesTests {
        /// Returns the number of deliveries of each queue.
        private func delivered(_ redis: RedisServer, _ queues: [String]) throws -> [Int] {
            try queues.map { try QueueContents(redis, queue: $0).count("delivered") }
        }

        @Test("share the worker by their weights while all have jobs, and all are emptied")
        func weighted() async throws {
            let redis = try RedisServer()
            let record = redis.directory.appending(path: "record")
            let simulator = try await SimulatorProcess(options: ["--delay", "20ms±5ms", "--record", record.path])
            let queues = ["critical", "default", "bulk"]
            for (index, queue) in queues.enumerated() {
                try redis.push(TestJob.many(3000, prefix: "\(index)"), queue: queue)
            }
            let worker = try WorkerProcess(
                redis, simulator,
                [
                    "--queue", "critical:6,default:3,bulk:1", "--max-connections", "1", "--max-streams", "100",
                    "--exit-when-done",
                ])
            #expect(try await worker.finish().delivered == 9000)
            for queue in queues {
                let contents = try QueueContents(redis, queue: queue)
                #expect(contents.isSettled && contents.workers.isEmpty && contents.count("delivered") == 3000)
            }
            let accepted = try await simulator.stop()
            #expect(accepted.accepted == 9000 && accepted.duplicates == 0)

            let order = try String(contentsOf: record, encoding: .utf8).split(separator: "\n").map { line in
                try #require(line.firstMatch(of: /"token":"([012])/).flatMap { Int($0.1) })
            }
            var sent = [0, 0, 0]
            for queue in order where sent[0] < 2500 { sent[queue] += 1 }
            // The weights are exact, except for jobs in flight.
            #expect(abs(sent[1] - 1250) < 300 && abs(sent[2] - 417) < 300, "\(sent)")
        }

        @Test("in strict order, wait for the queues before them")
        func strict() async throws {
            let (redis, simulator) = try await startServers(simulator: ["--delay", "20ms±5ms"])
            for (index, queue) in ["first", "second"].enumerated() {
                try redis.push(TestJob.many(2000, prefix: "\(index)"), queue: queue)
            }
            let worker = try WorkerProcess(
                redis, simulator,
                [
                    "--queue", "first,second", "--queue-order", "strict", "--max-connections", "1", "--max-streams",
                    "100", "--exit-when-done",
                ])
            var seen = [0, 0]
            try await eventually("the second queue has its turn") {
                // The second queue must be read first. Otherwise its deliveries could seem to come before those of the first.
                let second = try delivered(redis, ["second"])[0]
                seen = [try delivered(redis, ["first"])[0], second]
                return second > 0
            }
            #expect(seen[0] >= 2000 - 100, "\(seen)")
            #expect(try await worker.finish().delivered == 4000)
        }

        @Test(
            "with the same name are refused, and so are invalid weights",
            arguments: ["a,a", "a:0", "a:b", "a:", "a,,b"])
        func refused(queues: String) async throws {
            try await CommandLineTests.run(["run", "--topic", "a", "--queue", queues]).fails("--queue")
        }

        private static let token = String(repeating: "ab", count: 32)

        /// Returns a Redis with the queues `ok` and `bad`. `ok` has one of everything. The same keys of `bad` have the wrong type.
        private static func withUnreadableQueue() throws -> RedisServer {
            let redis = try RedisServer()
            let job = #"{"id":"kept","token":"\#(token)"}"#
            let letter = #"{"v":1,"reason":"X","at":1795000000000,"claim":"w:1.a","attempts":1,"id":"kept"}"#
            try redis.run("RPUSH", "push:{ok}:jobs", job)
            try redis.run("ZADD", "push:{ok}:dead", "1795000000000", letter + "\n" + job)
            try redis.run(
                "XADD", "push:{ok}:results", "*", "results",
                #"[{"outcome":"dead","reason":"X","notifications":[\#n{"id":"kept","token":"\#(token)"}]}]"#)
            try redis.run("HSET", "push:{ok}:campaign:sale", "total", "5", "delivered", "2")
            try redis.run("ZADD", "push:{ok}:campaigns", "1", "sale")
            for key in ["retry", "dead", "results", "campaigns", "campaign:sale", "job-commands"] {
                try redis.run("SET", "push:{bad}:\(key)", "x")
            }
            return redis
        }

        /// Commands, and the text that each prints about the queue `ok`.
        private static let ofUnreadable: [(command: [String], expected: String)] = [
            (["jobs", "list"], "kept"), (["jobs", "list", "--count", "--by", "queue"], "1\tok"),
            (["jobs", "show", "--id", "kept"], "kept"), (["jobs", "export"], "kept"), (["device", token], "kept"),
            (["dead", "list"], "kept"), (["dead", "list", "--json"], "kept"),
            (["dead", "list", "--json", "--limit", "1"], "kept"), (["dead", "list", "--count"], "1"),
            (["dead", "list", "--by", "queue,app"], "1\tok"),
            (["dead", "show", "--id", "kept"], "kept"), (["dead", "show", "--id", "kept", "--raw"], "kept"),
            (["results"], "kept"), (["results", "--newest-first", "--json"], "kept"),
            (["campaign", "list"], "sale"), (["campaign", "list", "--json"], "sale"),
            (["campaign", "show", "sale"], "campaign sale, queue ok"),
            (["campaign", "show", "sale", "--json"], "sale"),
            (["campaign", "report", "sale"], "a queue could not be read"),
            (["campaign", "report", "sale", "--json"], #""partial":true"#),
            (["campaign", "report", "sale", "--html"], "a queue could not be read"),
        ]

        @Test(
            "one that can't be read hides no other one",
            arguments: ofUnreadable)
        func unreadable(command: [String], expected: String) async throws {
            let redis = try Self.withUnreadableQueue()
            let partly = try await redis.apnsWorker(command + ["--queue", "bad,ok"])
            partly.ends(1, expected)
            #expect(partly.errors.contains("queue bad is not included: ") && !partly.errors.contains("queue ok is"))
            let none = try await redis.apnsWorker(command + ["--queue", "bad"])
            none.fails(1, "WRONGTYPE").prints("")
        }

        @Test("one that can't be read is missing on a page of the dashboard, which names it, and hides no other one")
        func unreadableOnPages() async throws {
            let redis = try Self.withUnreadableQueue()
            let web = try await WebProcess(redis.url, ["ada": ["--role", "operator"]])
            for (path, expected) in [
                ("/jobs", "kept"), ("/dead", "kept"), ("/campaigns", "sale"),
                ("/campaigns/sale", "the total is unknown"),
                ("/search?q=kept", "dead letter"), ("/devices/\(Self.token)", "kept"),
            ] {
                let page = try await web.ask("ada", path)
                #expect(page.status == 200, "\(path) \(page)")
                for text in ["ueue bad is not included: ", expected] {
                    #expect(page.text.contains(text), "\(path) \(page)")
                }
                #expect(!page.text.contains("ueue ok is not included"), "\(path)")
            }
            for path in ["/", "/queues", "/redis", "/jobs?queue=ok"] {
                #expect(try await web.ask("ada", path).status == 200, "\(path)")
            }
            for (path, list) in [
                ("jobs", "jobs"), ("dead-letters", "dead_letters"), ("results", "results"), ("campaigns", "campaigns"),
                ("campaigns/sale", "campaigns"),
            ] {
                let answer = try await web.ask("ada", "/api/v1/\(path)")
                let notes = answer.body["unread"] as? [String]
                #expect(answer.status == 200 && (answer.body[list] as? [Any])?.count == 1, "\(path) \(answer)")
                #expect(notes?.count == 1 && notes?[0].hasPrefix("queue bad is not included: ") == true, "\(answer)")
            }
            let device = try await web.ask("ada", "/api/v1/devices/\(Self.token)")
            #expect(device.body["partial"] as? Bool == true, "\(device)")
            let whole = try await web.ask("ada", "/api/v1/jobs?queue=ok")
            #expect(whole.status == 200 && whole.body["unread"] == nil, "\(whole)")
            #expect(try await web.ask("ada", "/api/v1/jobs?queue=bad").status == 503)
        }

        @Test(
            "a name with a comma or a weight is refused where it names one queue",
            arguments: [("a,b", "a comma separates"), ("a:5", "a number behind a colon is a weight")])
        func misread(name: String, reason: String) async throws {
            let (redis, sentence) = (try RedisServer(), "a queue can't be named \(name): \(reason)")
            let folder = try TemporaryFolder("queues: {'\(name)': {weight: 2}}")
            try await redis.apnsWorker(["jobs", "list", "--config", folder.file]).fails(78, "queues: \(sentence)")
            try await redis.apnsWorker(["jobs", "move", "--all", "--to-queue", name, "--yes"]).fails(sentence)
            try await redis.apnsWorker(["web-user", "shop", "--role", "producer", "--token", "--queue", name])
                .fails(64, "--queue: \(sentence)")
            try await RequeueTool.script.run(["--all", "--yes", "--queue", name], redis: redis).fails(64, sentence)
        }

        @Test("a name that ends like a weight is refused in a list, too, and the queue is not another one's")
        func weightBehindName() async throws {
            let redis = try RedisServer()
            try redis.run("RPUSH", "push:{a}:jobs", #"{"id":"kept","token":"ab"}"#)
            try await redis.apnsWorker(["jobs", "list", "--queue", "a:5"]).succeeds("kept")
            for command in [["jobs", "list"], ["dead", "list"], ["status"], ["enqueue", "--token", "ab"]] {
                try await redis.apnsWorker(command + ["--queue", "a:5:1"])
                    .fails("a queue can't be named a:5: a number behind a colon is a weight")
            }
        }
    }
}
