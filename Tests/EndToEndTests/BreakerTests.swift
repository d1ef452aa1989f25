import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Two apps in one worker, `good` and `other`, and the effect of a fault of one of them.
    @Suite("Paused apps")
    struct BreakerTests {
        static let apps = [
            "APNS_WORKER_APPS": "good, other", "APNS_WORKER_APPS_GOOD_TOPIC": "com.example.app",
            "APNS_WORKER_APPS_OTHER_TOPIC": "com.example.other",
            // Probes are frequent, so that the test sees them.
            "APNS_WORKER_PAUSE": "500", "APNS_WORKER_PAUSE_CAP": "1000",
        ]

        static func jobs(_ count: Int, _ app: String, prefix: String) -> [String] {
            TestJob.many(count, prefix: prefix, members: #""app":"\#(app)","#)
        }

        static func pause(_ app: String, _ redis: RedisServer) throws -> [String: Any]? {
            guard let text = try redis.run("GET", "push:{shared}:apps:\(app):paused").text else { return nil }
            return try #require(JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        }

        @Test("a refused credential pauses its app for the fleet; other apps continue, and a new credential is used")
        func credential() async throws {
            let (redis, simulator) = try await startServers()
            let folder = try ConfigurationTests.Folder()
            func key(_ name: String) throws -> String {
                try folder.write(String(contentsOfFile: TestCertificates.path(name), encoding: .utf8), as: "key.p8")
            }
            let environment = Self.apps.merging([
                "APNS_WORKER_APPS_OTHER_KEY": try key("server-key.pem"), "APNS_WORKER_APPS_OTHER_KEY_ID": "ABC123DEFG",
            ]) { $1 }
            let workers = try (0..<2).map { _ in try WorkerProcess(redis, simulator, environment: environment) }
            try redis.push(Self.jobs(1, "other", prefix: "b"))
            try await eventually("the app is paused") { try Self.pause("other", redis) != nil }
            let pause = try #require(try Self.pause("other", redis))
            #expect(pause["reason"] as? String == "InvalidProviderToken")
            for member in ["since", "until", "pause", "by"] { #expect(pause[member] != nil, "\(member)") }

            try redis.push(Self.jobs(200, "other", prefix: "c") + Self.jobs(2000, "good", prefix: "a"))
            try await redis.has(2000)
            try await eventually("those of the paused app are put off") {
                let queue = try QueueContents(redis)
                return queue.jobs.isEmpty && queue.retries.count + queue.claims == 201
            }
            // Two workers with up to a thousand streams each have sent only a few requests.
            #expect((try await simulator.account().answers["403 InvalidProviderToken"] ?? 0) < 20)
            for worker in workers {
                try await worker.logs("app_paused", "InvalidProviderToken")
            }

            _ = try key("AuthKey_ABC123DEFG.p8")
            try await redis.has(2201)
            try await eventually("nothing is paused any more") { try Self.pause("other", redis) == nil }
            for worker in workers { _ = try await worker.stop() }
            #expect(workers.allSatisfy { $0.lines(of: "credential_replaced").count == 1 })
            let queue = try QueueContents(redis)
            #expect(queue.isSettled && queue.dead.isEmpty && queue.count("retried") == 0)
            #expect(try await simulator.stop().distinctTokens == 2201)
        }

        @Test("a worker in the wrong environment marks few of 40,000 tokens, and continues once it is corrected")
        func wrongEnvironment() async throws {
            let redis = try RedisServer()
            let wrong = try await SimulatorProcess(rules: ["answer=BadDeviceToken"], manyTokens: true)
            try redis.push(TestJob.many(40_000))
            let options = ["--lanes", "2", "--pause", "500", "--pause-cap", "500"]
            let workers = try (0..<2).map { _ in
                try WorkerProcess(redis: redis.url, endpoint: wrong.port, options: options)
            }
            try await eventually("the app is paused") { try Self.pause("default", redis) != nil }
            let reason = try #require(try Self.pause("default", redis)?["reason"] as? String)
            #expect(reason.hasPrefix("BadDeviceToken"))
            // Probes continue and get the same answer.
            let before = try await wrong.account().requests
            try await eventually("probes are made") { try await wrong.account().requests >= before + 5 }
            for worker in workers { _ = try await worker.stop() }
            let queue = try QueueContents(redis)
            #expect(queue.invalidTokens.isEmpty, "\(queue.invalidTokens.count) tokens were marked")
            #expect(queue.dead.isEmpty && queue.jobs.count + queue.retries.count == 40_000 - queue.invalidTokens.count)
            #expect(try await wrong.stop().requests < 8000)

            let right = try await SimulatorProcess(manyTokens: true)
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: right.port, options: options + ["--exit-when-done"])
            let account = try await worker.finish()
            #expect(account.delivered == 40_000 - queue.invalidTokens.count)
        }

        @Test("when all tokens are refused at once, at most two per lane are marked")
        func suddenly() async throws {
            let (redis, simulator) = try await startServers(rules: ["prefix=b,answer=DeviceTokenNotForTopic"])
            let worker = try WorkerProcess(redis, simulator)
            try redis.push(TestJob.many(500, prefix: "a"))
            try await redis.has(500)
            try redis.push(TestJob.many(500, prefix: "b"))
            try await eventually("the app is paused") { try Self.pause("default", redis) != nil }
            _ = try await worker.stop()
            let queue = try QueueContents(redis)
            #expect(queue.invalidTokens.count <= 2)
            #expect(queue.jobs.count + queue.retries.count + queue.invalidTokens.count == 500 && queue.dead.isEmpty)
        }

        @Test("a single bad token is marked, although nothing else is known about the app")
        func single() async throws {
            let result = try await AnswerTests.deliver(
                [TestJob.text(TestJob.token("b", 1))], rules: ["answer=BadDeviceToken"])
            #expect(result.queue.invalidTokens == [TestJob.token("b", 1)])
            #expect(result.worker.invalidToken == 1 && result.worker.retried == 2 && result.simulator.requests == 3)
        }

        @Test("with --max-bad-tokens 100 every BadDeviceToken is accepted")
        func believing() async throws {
            let result = try await AnswerTests.deliver(
                TestJob.many(300), rules: ["answer=BadDeviceToken"], options: ["--max-bad-tokens", "100"])
            #expect(result.queue.invalidTokens.count == 300 && result.simulator.requests == 300)
        }

        @Test("an app that an operator paused sends nothing until it is resumed, and its notifications may expire")
        func byHand() async throws {
            let (redis, simulator) = try await startServers()
            let paused = try await redis.apnsWorker(["pause", "--app", "other", "--reason", "maintenance"]).succeeds()
                .output
            #expect(paused.hasPrefix("app other is paused: maintenance\n"), "\(paused)")
            let soon = Int(Date().timeIntervalSince1970) + 20
            let brief = #""app":"other","expiration":\#(soon),"#
            try redis.push(
                TestJob.many(50, prefix: "e", members: brief) + [#"{\#(brief)"tokens":["aa","bb"],"payload":{}}"#]
                    + Self.jobs(100, "other", prefix: "b") + Self.jobs(100, "good", prefix: "a"))
            let worker = try WorkerProcess(redis, simulator, environment: Self.apps)
            try await redis.has(100)
            #expect(try redis.counted("deferred:AppPaused") > 0)
            // They are not deferred beyond their expiration.
            try await redis.has(52, "expired")
            #expect(try await simulator.account().accepted == 100)
            let resumed = try await redis.apnsWorker(["resume", "--app", "other"]).succeeds().output
            #expect(resumed.hasPrefix("app other is resumed; it was paused: maintenance"), "\(resumed)")
            // A deferred job is due within a minute.
            try await redis.has(200)
            let account = try await worker.stop()
            expectAgreement(account, try QueueContents(redis), try await simulator.stop())
            #expect(account.expired == 52 && account.dead == 0)
        }
    }
}
