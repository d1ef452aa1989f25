import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Jobs from Sidekiq and Resque")
    struct SidekiqTests {
        private static let options = ["--queue", "push", "--format", "sidekiq"]

        private func job(_ argument: String, id: String? = nil, more: String = "") -> String {
            let jid = id.map { #","jid":"\#($0)""# } ?? ""
            return #"{"retry":true,"queue":"push","class":"PushJob","args":[\#(argument)]\#(jid)\#(more)}"#
        }

        private func push(_ jobs: [String], _ redis: RedisServer, to list: String = "queue:push") throws {
            for job in jobs { try redis.run("LPUSH", list, job) }
        }

        @Test("are sent, retried and kept as dead letters with their original bytes")
        func whole() async throws {
            let (redis, simulator) = try await startServers(rules: [
                "prefix=5,answer=429", "prefix=4,answer=BadCollapseId",
            ])
            let good = (0..<300).map { job(TestJob.text(TestJob.token("a", $0)), id: "jid-\($0)") }
            let refused = job(TestJob.text(TestJob.token("4", 1)), id: "refused")
            let busy = job(TestJob.text(TestJob.token("5", 1)), id: "busy", more: #","x":"é\u00e9" "#)
            let never = job(TestJob.text(TestJob.token("5", 2))).replacing(#""retry":true"#, with: #""retry":false"#)
            let other = #"{"class":"MailJob","args":[{"to":"somebody"}],"jid":"mail"}"#
            let native = TestJob.text(TestJob.token("a", 999))
            try push(good + [refused, busy, never, other, native], redis)
            let worker = try WorkerProcess(
                redis, simulator, Self.options + ["--job-class", "PushJob", "--max-attempts", "3"])
            // A failure spends an attempt only if APNs accepts other notifications at the same time.
            var more = 0
            try await eventually("all others have ended") {
                guard try QueueContents(redis, queue: "push").dead.count < 5 else { return true }
                more += 1
                try push([job(TestJob.text(TestJob.token("99", more)), id: "more-\(more)")], redis)
                return false
            }
            try await eventually("they are delivered, too") { try QueueContents(redis, queue: "push").isSettled }
            let account = try await worker.stop()
            let queue = try QueueContents(redis, queue: "push")
            #expect(account.delivered == 300 + more && queue.isSettled)
            #expect(try redis.run("EXISTS", "queue:push") == .integer(0))
            let letters = Dictionary(
                uniqueKeysWithValues: queue.dead.map { (String(decoding: $0.original, as: UTF8.self), $0) })
            #expect(letters.count == 5)
            #expect(letters[refused]?.attempts == 1)
            #expect(letters[busy]?.attempts == 3 && letters[never]?.attempts == 1)
            #expect(letters[other]?.reason == "OtherClass" && letters[other]?.detail?.contains("MailJob") == true)
            #expect(letters[native]?.reason == "NotSidekiqJob")
            #expect(letters[native]?.detail?.contains(#"{"class":"PushJob","args":[{"#) == true)
            #expect(try await simulator.stop().distinctTokens >= 300)
        }

        @Test("are claimed in the order of their list, and wake a waiting worker")
        func order() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, Self.options)
            for number in 1...3 {
                try await eventually("the worker waits") {
                    (try redis.run("CLIENT", "LIST").text ?? "").contains("cmd=blmove")
                }
                try push([job(TestJob.text(TestJob.token("a", number)))], redis)
                try await eventually("it is delivered") { try await simulator.account().accepted == number }
            }
            _ = try await worker.stop()
            #expect(try QueueContents(redis, queue: "push").isSettled)
        }

        @Test("in an escaped text, for thousands of devices, are split and sent to each once")
        func split() async throws {
            let (redis, simulator) = try await startServers()
            let tokens = (0..<2500).map { "\\\"\(TestJob.token("b", $0))\\\"" }.joined(separator: ",")
            try push([job("\"{\\\"tokens\\\":[\(tokens)],\\\"alert\\\":\\\"\\u00e9 to all\\\"}\"", id: "big")], redis)
            let worker = try WorkerProcess(redis, simulator, Self.options + ["--exit-when-done"])
            #expect(try await worker.finish().delivered == 2500)
            let queue = try QueueContents(redis, queue: "push")
            #expect(queue.isSettled && queue.dead.isEmpty && queue.count("split") == 1)
            let accepted = try await simulator.stop()
            #expect(accepted.distinctTokens == 2500 && accepted.duplicates == 0 && accepted.distinctIDs == 2500)
        }

        @Test("are claimed together with others by one worker whose file sets the format of each queue")
        func file() async throws {
            let (redis, simulator) = try await startServers()
            let path = redis.directory.appending(path: "worker.yaml")
            let text = """
                queues:
                  push:
                    format: sidekiq
                    job_class: PushJob
                  old:
                    format: resque
                    list: shop:queue:old
                  plain:
                    format: resque
                  default:
                    weight: 3
                """
            try text.write(to: path, atomically: true, encoding: .utf8)
            try push([job(TestJob.text(TestJob.token("a", 1)))], redis)
            try redis.run("RPUSH", "shop:queue:old", job(TestJob.text(TestJob.token("b", 1))))
            let bare = #"{"class":"PushJob","args":[\#(TestJob.text(TestJob.token("d", 1)))]}"#
            try redis.run("RPUSH", "resque:queue:plain", bare)
            try redis.push([TestJob.text(TestJob.token("c", 1))])
            let worker = try WorkerProcess(redis, simulator, ["--config", path.path, "--exit-when-done"])
            #expect(try await worker.finish().delivered == 4, "\(worker.log)")
            #expect(try await simulator.stop().distinctTokens == 4)
        }

        @Test("can be enqueued and checked by the commands")
        func commands() async throws {
            let redis = try RedisServer()
            let format = ["APNS_WORKER_FORMAT": "sidekiq"]
            let one = try await redis.apnsWorker(
                ["enqueue", "--token", "abcd", "--alert", "hé", "--job-class", "Shop::PushJob"], environment: format)
            let id = one.output.firstMatch(of: /^enqueued 1 job on default, id ([0-9a-f]{24})\n$/).map { String($0.1) }
            let lines = [job(#"{"token":"ab","alert":"x"}"#), #"{"token":"ab","alert":"x"}"#].joined(separator: "\n")
            try await redis.apnsWorker(["enqueue"], environment: format, input: lines).prints(
                "enqueued 1 job on default, refused 1\n"
            ).reports("line 2: the job does not have the queue's format")
            let list = try redis.run("LRANGE", "queue:default", "0", "-1").strings()
            // The first enqueued job is the last in the list.
            let written = try #require(list.last)
            #expect(list.count == 2 && written.hasPrefix(#"{"class":"Shop::PushJob","queue":"default","args":[{"#))
            #expect(try id != nil && jsonObject(written)["jid"] as? String == id)
            try await CommandLineTests.run(
                ["check", "--job", "-", "--format", "sidekiq", "--no-redis", "--no-connect"], input: written
            ).shows("it would be sent to 1 device")
            try await CommandLineTests.run(["check", "--job", "-", "--no-redis", "--no-connect"], input: written).shows(
                "--format sidekiq")
        }

        @Test("in a Cluster must be in a list of the queue's slot, which is checked at the start")
        func cluster() async throws {
            let cluster = try await RedisCluster()
            let simulator = try await SimulatorProcess()
            let topic = ["APNS_WORKER_TOPIC": "com.example.app"]
            try await apnsWorker(cluster.url, ["run"] + Self.options, environment: topic).fails(
                "--list 'queue:{push}'")
            let list = "queue:{push}"
            let owner = try cluster.owner(ofSlot: cluster.slot(of: list))
            try push([job(TestJob.text(TestJob.token("d", 1)))], owner, to: list)
            let worker = try WorkerProcess(
                redis: cluster.url, endpoint: simulator.port,
                options: Self.options + ["--list", list, "--exit-when-done"])
            #expect(try await worker.finish().delivered == 1)
        }

        @Test(
            "need flags that fit together",
            arguments: [
                (["--format", "celery"], "native, sidekiq or resque"), (["--job-class", "A"], "--job-class"),
                (["--queue", "a,b", "--list", "x"], "several"), (["--format", "sidekiq", "--list", "a b"], "--list"),
            ])
        func flags(flags: [String], words: String) async throws {
            try await CommandLineTests.run(["run", "--topic", "a"] + flags).fails(words)
        }
    }
}
