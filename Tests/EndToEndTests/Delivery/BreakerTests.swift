import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Bad jobs beside good jobs, and the app `other` with a fault beside the app `good`.
    @Suite("One bad thing beside good ones")
    struct BreakerTests {
        static let apps = [
            "APNS_WORKER_APPS": "good, other", "APNS_WORKER_APPS_GOOD_TOPIC": "com.example.app",
            "APNS_WORKER_APPS_OTHER_TOPIC": "com.example.other",
        ]

        static func jobs(_ count: Int, _ app: String, prefix: String) -> [String] {
            TestJob.many(count, prefix: prefix, members: #""app":"\#(app)","#)
        }

        /// A class of bad jobs, with APNs' answer to it. Each class has its own app.
        private struct Class {
            let rule: String
            /// Additional members of the bad jobs.
            var members = #""campaign":"bad","#
            var count = 100
            /// The kind of the problem that `status` reports.
            var culprit: String?
            /// The counter of bad jobs that have ended.
            var end: String?
        }

        private static let classes: [String: Class] = [
            "key": Class(rule: "answer=InvalidProviderToken", culprit: "campaign_slow"),
            "scope": Class(rule: "answer=Forbidden", culprit: "campaign_slow"),
            "environment": Class(rule: "answer=BadDeviceToken", culprit: "campaign_slow"),
            "tokens": Class(rule: "answer=DeviceTokenNotForTopic", culprit: "campaign_slow"),
            "topic": Class(
                rule: "answer=TopicDisallowed", members: #""topic":"com.example.mistaken","#, culprit: "topic_slow"),
            "reason": Class(rule: "answer=418,reason=QuiteNew", culprit: "campaign_slow"),
            "proxy": Class(rule: "answer=404,body=text", culprit: "campaign_slow"),
            "gone": Class(rule: "answer=410", end: "invalid_token"),
            "nothing": Class(rule: "answer=BadTopic,body=empty", count: 5, culprit: "scope_suspected"),
            "busy": Class(rule: "answer=503", culprit: "campaign_slow"),
            "broken": Class(rule: "answer=500,body=text", culprit: "campaign_slow"),
            "throttled": Class(rule: "answer=429"),
            "mistake": Class(rule: "answer=BadCollapseId", end: "dead:BadCollapseId"),
            "silence": Class(rule: "answer=silence", count: 5),
            "cut": Class(rule: "answer=drop,accept=false", count: 3),
        ]

        @Test("fifteen classes of bad jobs, each in an app of one worker, stop none of the good ones, and have a name")
        func classes() async throws {
            let names = Self.classes.keys.sorted()
            func prefix(_ name: String) -> String { String(format: "b%02x", names.firstIndex(of: name) ?? 0) }
            let (redis, simulator) = try await startServers(
                rules: names.map { "prefix=\(prefix($0)),\(Self.classes[$0]?.rule ?? "")" })
            let worker = try WorkerProcess(redis, simulator, ["--retry-cap", "1h"], environment: appVariables(names))
            var good = 0
            /// Pushes a good job of each app, and waits until they are delivered.
            func pushGoodOnes() async throws {
                try redis.push(names.map { TestJob.text(TestJob.token("a0", good), #""app":"\#($0)","#) })
                good += names.count
                try await redis.has(good)
            }
            for _ in 0..<10 { try await pushGoodOnes() }
            for name in names {
                guard let bad = Self.classes[name] else { continue }
                let members = #""app":"\#(name)","# + bad.members.replacing("bad", with: "bad-\(name)")
                try redis.push(TestJob.many(bad.count, prefix: prefix(name), members: members))
            }
            for _ in 0..<30 { try await pushGoodOnes() }
            for (name, bad) in Self.classes {
                if let culprit = bad.culprit {
                    try await eventually("status names the culprit of \(name)") {
                        try await pushGoodOnes()
                        return try await FleetView(redis.url).kinds.contains {
                            $0.hasPrefix("\(culprit) ") && ($0.contains("bad-\(name)") || $0.contains("mistaken"))
                        }
                    }
                }
                if let end = bad.end {
                    try await eventually("the bad ones of \(name) end") { try redis.counted(end) >= bad.count }
                }
            }
            let kinds = try await FleetView(redis.url).kinds
            let wide = ["app_slow", "credential_slow", "endpoint_slow", "nothing_sent", "worker_not_ready"]
            #expect(kinds.allSatisfy { kind in !wide.contains { kind.hasPrefix($0) } }, "\(kinds)")
            let queue = try QueueContents(redis)
            // Some tokens of each list are marked, because the last good jobs prove that the topic is right.
            #expect(queue.invalidTokens.count <= 100 + 2 * 16, "\(queue.invalidTokens.count)")
            #expect(worker.lines(of: "not_ready").isEmpty, "\(worker.log)")
            worker.process.kill()
        }

        @Test("a refused credential makes no dead letter and few requests; other apps continue, and a new one is used")
        func credential() async throws {
            let (redis, simulator) = try await startServers()
            let folder = try TemporaryFolder()
            func key(_ name: String) throws -> String {
                try folder.write(String(contentsOfFile: TestCertificates.path(name), encoding: .utf8), as: "key.p8")
            }
            let environment = Self.apps.merging([
                "APNS_WORKER_APPS_OTHER_KEY": try key("server-key.pem"), "APNS_WORKER_APPS_OTHER_KEY_ID": "ABC123DEFG",
            ]) { $1 }
            let worker = try WorkerProcess(redis, simulator, environment: environment)
            try redis.push(Self.jobs(200, "other", prefix: "c") + Self.jobs(2000, "good", prefix: "a"))
            try await redis.has(2000)
            try await worker.logs("scope_slow", "InvalidProviderToken")
            _ = try key("AuthKey_ABC123DEFG.p8")
            try await redis.has(2200)
            _ = try await worker.stop()
            let queue = try QueueContents(redis)
            #expect(queue.isSettled && queue.dead.isEmpty)
            #expect(try await simulator.stop().distinctTokens == 2200)
        }

        @Test("an app that an operator paused sends nothing until it is resumed, and its notifications may expire")
        func byHand() async throws {
            let (redis, simulator) = try await startServers()
            try await redis.apnsWorker(["pause", "--app", "other", "--reason", "maintenance"]).succeeds().begins(
                "app other is paused: maintenance\n")
            let soon = Int(Date().timeIntervalSince1970) + 20
            let brief = #""app":"other","expiration":\#(soon),"#
            try redis.push(
                TestJob.many(50, prefix: "e", members: brief) + [#"{\#(brief)"tokens":["aa","bb"],"payload":{}}"#]
                    + Self.jobs(100, "other", prefix: "b") + Self.jobs(100, "good", prefix: "a"))
            let worker = try WorkerProcess(redis, simulator, environment: Self.apps)
            try await redis.has(100)
            #expect(try redis.counted("deferred:AppPaused") > 0)
            // Jobs of a paused app are not deferred beyond their expiration.
            try await redis.has(52, "expired")
            #expect(try await simulator.account().accepted == 100)
            try await redis.apnsWorker(["resume", "--app", "other"]).succeeds().begins(
                "app other is resumed; it was paused: maintenance")
            // A deferred job is due within a minute.
            try await redis.has(200)
            let (account, _, _) = try await redis.stop(worker, simulator)
            #expect(account.expired == 52 && account.dead == 0)
        }
    }
}
