import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("apns-worker run --simulate")
    struct SimulateTests {
        private typealias Object = [String: Any]

        /// Returns the control port from the log.
        private func control(_ worker: WorkerProcess) async throws -> Int {
            var port: Int?
            try await worker.process.until("the log names the control port") {
                let line = worker.lines(of: "simulation_started").first
                port = line?.firstMatch(of: #/ control=\S+:(\d+)/#).flatMap { Int($0.1) }
                return port != nil
            }
            return try #require(port)
        }

        private func ask(_ port: Int, _ path: String) async throws -> Object {
            try jsonObject(try await RawConnection.request(path, port: port).body)
        }

        /// Waits until the simulator has received this many notifications, and returns them.
        private func notifications(_ port: Int, _ count: Int) async throws -> [Object] {
            var all: [Object] = []
            try await eventually("the simulator receives \(count)") {
                all = try #require(try await ask(port, "/notifications")["notifications"] as? [Object])
                return all.count >= count
            }
            #expect(all.count == count)
            return all
        }

        @Test(
            "sends jobs to its own simulator, which lists what it received, over both transports",
            arguments: ["http2", "gateway"])
        func whole(_ transport: String) async throws {
            let redis = try RedisServer()
            let record = redis.directory.appending(path: "record").path
            let worker = try WorkerProcess.simulating(
                redis, ["--transport", transport, "--gateway-confirm-after", "50", "--simulate-record", record])
            let port = try await control(worker)
            try await redis.apnsWorker(["enqueue", "--token", TestJob.token("ab", 1), "--alert", "Grüße 😀"]).succeeds()
            let notification = try #require(try await notifications(port, 1).first)
            #expect(notification["transport"] as? String == transport)
            #expect(notification["token"] as? String == TestJob.token("ab", 1))
            #expect(notification["topic"] as? String == "com.example.app")
            #expect((notification["payload"] as? [String: [String: String]])?["aps"]?["alert"] == "Grüße 😀")
            #expect(notification["accepted"] as? Bool == true)
            let health = try await ask(port, "/health")
            #expect((health["gateway_port"] != nil) == (transport == "gateway"))
            #expect((health["feedback_port"] != nil) == (transport == "gateway"))
            let account = try await worker.stop()
            #expect(account.delivered == 1 && account.retried == 0)
            let contents = try QueueContents(redis)
            #expect(contents.isSettled && contents.count("delivered") == 1)
            let recorded = try jsonObjects(String(contentsOfFile: record, encoding: .utf8))
            let first = try #require(recorded.first)
            #expect(NSDictionary(dictionary: first) == NSDictionary(dictionary: notification))
            // A drain may send the gateway an invalid item, to find out what it accepted.
            #expect(recorded.dropFirst().allSatisfy { $0["accepted"] as? Bool == false && transport == "gateway" })
            let end = try #require(worker.lines(of: "simulation_stopped").last)
            #expect(end.contains("accepted=1") && end.contains("by_gateway=1") == (transport == "gateway"))
        }

        @Test("has rules for the gateway, too, and its feedback service reports the tokens they matched")
        func gatewayRules() async throws {
            let redis = try RedisServer()
            let worker = try WorkerProcess.simulating(
                redis,
                [
                    "--transport", "gateway", "--gateway-confirm-after", "50", "--simulate-gateway-rule",
                    "prefix=dead,answer=8", "--simulate-gateway-rule", "prefix=90,answer=feedback",
                ])
            let port = try await control(worker)
            try redis.push([TestJob.text(TestJob.token("dead", 1)), TestJob.text(TestJob.token("90", 2))])
            try await eventually("both are settled") {
                let contents = try QueueContents(redis)
                return contents.isSettled && contents.count("delivered") == 1
            }
            let waiting = try #require(try await ask(port, "/feedback")["records"] as? [Object])
            #expect(waiting.compactMap { $0["token"] as? String } == [TestJob.token("90", 2)])
            let rules = try await ask(port, "/gateway-rules")["rules"] as? [String]
            #expect(rules == ["prefix=dead,answer=8", "prefix=90,answer=feedback"])
            let account = try await worker.stop()
            #expect(account.delivered == 1 && account.invalidToken == 1)
        }

        @Test("serves several apps with different transports at once, whatever their other settings")
        func apps() async throws {
            let redis = try RedisServer()
            let worker = try WorkerProcess.simulating(
                redis, ["--gateway-confirm-after", "50"],
                environment: [
                    "APNS_WORKER_APPS": "shop,news", "APNS_WORKER_APPS_SHOP_TOPIC": "com.example.shop",
                    "APNS_WORKER_APPS_NEWS_TOPIC": "com.example.news", "APNS_WORKER_APPS_NEWS_TRANSPORT": "gateway",
                    // The worker must not read these files, which do not exist.
                    "APNS_WORKER_KEY": "/nowhere/key.p8", "APNS_WORKER_CA": "/nowhere/ca.pem",
                    "HTTPS_PROXY": "http://127.0.0.1:1",
                ])
            let port = try await control(worker)
            try redis.push([
                TestJob.text(TestJob.token("aa", 1), #""app":"shop","#),
                TestJob.text(TestJob.token("bb", 2), #""app":"news","#),
            ])
            let all = try await notifications(port, 2)
            let ways = all.compactMap { "\($0["transport"] ?? "") \($0["topic"] ?? "")" }
            #expect(Set(ways) == ["http2 com.example.shop", "gateway com.example.news"])
            #expect(try await worker.stop().delivered == 2)
        }

        @Test("can be repeated at once, and run twice at the same time on one Redis")
        func again() async throws {
            let redis = try RedisServer()
            // The first run leaves a provider token in Redis, signed with a key that the next run does not have.
            for _ in 0..<2 {
                try redis.push(TestJob.many(20))
                let worker = try WorkerProcess.simulating(redis, ["--exit-when-done"])
                let account = try await worker.finish()
                #expect(account.delivered == 20 && account.deferred == 0 && account.retried == 0)
                #expect(!worker.log.replacing("invalid_token=", with: "").contains("token"), "\(worker.log)")
            }
        }

        @Test("fails at the end if its recording could not be written, and says that it is a simulation")
        func fullDisk() async throws {
            let redis = try RedisServer()
            try redis.push(TestJob.many(500))
            let worker = try WorkerProcess.simulating(
                redis, ["--exit-when-done", "--log-level", "error", "--simulate-record", "/dev/full"])
            #expect(try await worker.process.wait() == .exited(1))
            #expect(worker.lines(of: "simulation_record_failed").contains { $0.contains("/dev/full") })
            // The line is logged at any level, so that a simulation is not mistaken for the real service.
            #expect(worker.lines(of: "simulation_started").count == 1)
            #expect(try redis.counted("delivered") == 500)
        }

        @Test(
            "is refused with settings that contradict it",
            arguments: [
                (["--simulate", "--endpoint", "sandbox"], "and --simulate cannot be combined"),
                (["--simulate-rule", "answer=410"], "--simulate-rule needs --simulate"),
                (["--simulate-record", "x"], "--simulate-record needs --simulate"),
                (["--simulate-no-lines"], "--simulate-no-lines needs --simulate"),
                (["--simulate", "--simulate-rule", "answer=maybe"], "rule 'answer=maybe': answer: must be"),
                (
                    ["--simulate", "--simulate-gateway-rule", "answer=8"],
                    "--simulate-gateway-rule has no effect, because no app uses the gateway"
                ),
                (
                    ["--simulate", "--transport", "gateway", "--simulate-rule", "answer=410"],
                    "--simulate-rule has no effect, because all apps use the gateway"
                ), (["--simulate", "--simulate-record", "/nowhere/file"], "--simulate-record: cannot record to"),
                (["--simulate", "--topic", "a b"], "--topic names the topic a b; a topic is"),
            ])
        func refused(_ options: [String], _ words: String) async throws {
            let result = try await CommandLineTests.run(["run"] + options).fails(words)
            #expect([.exited(64), .exited(78)].contains(result.ending), "\(result.errors)")
        }
    }
}
