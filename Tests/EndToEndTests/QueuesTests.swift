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
            // Exact except for jobs in flight.
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
                // In the opposite order, deliveries of the second queue could appear to precede those of the first.
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

        @Test(
            "one that can't be read hides no other one",
            arguments: [
                ["jobs", "list"], ["jobs", "list", "--count", "--by", "queue"], ["jobs", "show", "--id", "kept"],
                ["jobs", "export"], ["device", String(repeating: "ab", count: 32)],
            ])
        func unreadable(command: [String]) async throws {
            let redis = try RedisServer()
            try redis.run("RPUSH", "push:{ok}:jobs", #"{"id":"kept","token":"\#(String(repeating: "ab", count: 32))"}"#)
            try redis.run("SET", "push:{bad}:retry", "x")
            let partly = try await redis.apnsWorker(command + ["--queue", "bad,ok"])
            partly.ends(1, command.contains("--count") ? "ok" : "kept")
            #expect(partly.errors.contains("queue bad is not included: ") && !partly.errors.contains("queue ok"))
            try await redis.apnsWorker(command + ["--queue", "bad"]).fails(1, "WRONGTYPE")
        }

        @Test(
            "a name with a comma or a weight is refused where it names one queue",
            arguments: [("a,b", "a comma separates"), ("a:5", "a number behind a colon is a weight")])
        func misread(name: String, reason: String) async throws {
            let (redis, sentence) = (try RedisServer(), "a queue can't be named \(name): \(reason)")
            let file = FileManager.default.temporaryDirectory.appending(path: "queues-\(UUID().uuidString).yaml")
            defer { try? FileManager.default.removeItem(at: file) }
            try Data("queues: {'\(name)': {weight: 2}}".utf8).write(to: file)
            try await redis.apnsWorker(["jobs", "list", "--config", file.path]).fails(78, "queues: \(sentence)")
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
