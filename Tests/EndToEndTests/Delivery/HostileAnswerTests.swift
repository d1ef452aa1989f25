import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Answers that APNs gives never or rarely. The server uses Python's h2.
    @Suite("Hostile answers")
    struct HostileAnswerTests {
        /// An answer, for `Tests/Foreign/answer_server.py`.
        struct Answer: Encodable, Sendable {
            var headers: [[String]]?
            var interim: [[String]]?
            var body: String?
            /// The number of times that the body is sent.
            var `repeat`: Int?
            var trailers: [[String]]?
            /// True to answer before the request's body has arrived.
            var early: Bool?

            /// - Parameter more: additional header fields.
            static func status(_ status: String, _ body: String? = nil, more: [[String]] = []) -> Answer {
                Answer(headers: [[":status", status]] + more, body: body)
            }
        }

        private struct Scene {
            let redis: RedisServer
            let server: ForeignServerProcess
            let worker: WorkerProcess

            /// - Parameter answers: the answers by the first two digits of device tokens.
            init(_ answers: [String: Answer], options: [String] = [], environment: [String: String] = [:]) async throws
            {
                redis = try RedisServer()
                let text = String(decoding: try JSONEncoder().encode(answers), as: UTF8.self)
                server = try await ForeignServerProcess(
                    ForeignProgram.python("answer_server.py") + ["--answers", text])
                worker = try WorkerProcess(
                    redis: redis.url, endpoint: server.port, options: options, environment: environment)
            }

            /// Waits until the queue is empty, and expects that the worker did not break HTTP/2.
            func finish() async throws -> (worker: WorkerProcess.Account, queue: QueueContents) {
                let account = try await worker.finish()
                let queue = try QueueContents(redis)
                expectAgreement(account, queue)
                let seen = try await server.stop()
                #expect(seen.violations.isEmpty && seen.changedIDs == 0, "\(seen.violations)")
                return (account, queue)
            }
        }

        private static let unregistered = #"{"reason":"Unregistered"}"#

        @Test("with status 410 mark a token whatever else they contain, with a plausible time")
        func invalidTokens() async throws {
            let before = Int64(Date().timeIntervalSince1970 * 1000) - 1000
            // The worker uses these times unchanged.
            let exact: [String: Int64] = ["a0": 1_700_000_000_123, "a1": 1_700_000_000_000]
            let answers: [String: Answer] = [
                "a0": .status("410", #"{"reason":"Unregistered","timestamp":1700000000123}"#),
                "a1": .status("410", #"{"timestamp":1.7e12,"reason":"ExpiredToken","more":{"reason":"Shutdown"}}"#),
                // Times in the future: no registration of the device could make the token valid again.
                "b0": .status("410", #"{"reason":"Unregistered","timestamp":253402300799000}"#),
                "b1": .status("410", #"{"reason":"Unregistered","timestamp":9223372036854775807}"#),
                "b2": .status("410", #"{"reason":"Unregistered","timestamp":1e300}"#),
                // Times before APNs existed: seconds instead of milliseconds, as in the binary protocol, or garbage.
                "b3": .status("410", #"{"reason":"Unregistered","timestamp":1700000000}"#),
                "b4": .status("410", #"{"reason":"Unregistered","timestamp":0}"#),
                "b5": .status("410", #"{"reason":"Unregistered","timestamp":-1700000000123}"#),
                "b6": .status("410", #"{"reason":"Unregistered","timestamp":"1700000000123"}"#),
                "b7": .status("410", #"{"reason":"Unregistered","timestamp":[1700000000123]}"#),
                "c8": .status(
                    "410", Self.unregistered, more: [["content-length", "25"], ["content-type", "text/plain"]]),
                "c9": Answer(headers: [[":status", "410"]], body: Self.unregistered, early: true),
            ]
            let scene = try await Scene(answers, options: ["--exit-when-done"])
            // Registrations from 2020 do not protect the tokens, because APNs' answer overrides them.
            let tokens = Dictionary(uniqueKeysWithValues: answers.keys.map { ($0, TestJob.token($0, 1)) })
            for token in tokens.values {
                try scene.redis.run("HSET", "push:{shared}:registrations", token, "1600000000000")
            }
            let bad = tokens.values.map { TestJob.text($0) }
            let good = TestJob.many(60, prefix: "0")
            let mixed = zip(bad, good.dropFirst(20)).flatMap { [$0, $1] }
            try scene.redis.push(Array(good.prefix(20)) + mixed + Array(good.dropFirst(20 + bad.count)))
            let (account, queue) = try await scene.finish()
            let after = Int64(Date().timeIntervalSince1970 * 1000) + 1000
            #expect(account.delivered == 60 && account.invalidToken == answers.count && account.dead == 0)
            #expect(queue.invalidTokens == Set(tokens.values))
            for (prefix, token) in tokens {
                let details = try #require(queue.invalidTokenDetails[token])
                if let at = exact[prefix] {
                    #expect(details.at == at, "\(prefix)")
                } else {
                    #expect((before...after).contains(details.at), "\(prefix): \(details)")
                }
            }
        }

        @Test("with status 200 and an apns-id, or no body, deliver, whatever else they contain")
        func delivered() async throws {
            let named = [[":status", "200"], ["apns-id", "x"]]
            let answers: [String: Answer] = [
                "a0": Answer(headers: named, body: #"{"reason":"BadDeviceToken"}"#),
                "a1": Answer(headers: named, body: "x", repeat: 1 << 20),
                "a2": .status(
                    "200", more: [["apns-unique-id", "nonsense"], ["apns-id", "x"], ["retry-after", "never"]]),
                "a3": Answer(interim: [[":status", "103"], ["link", "x"]], body: ""),
                "a4": Answer(headers: named, body: "{}", trailers: [["x", "y"]]),
                "a5": .status("200", more: (0..<100).map { ["x-\($0)", String(repeating: "y", count: 100)] }),
                "a6": Answer(early: true),
                "a7": .status(
                    "200", more: [["set-cookie", "a=b"], ["apns-unique-id", ""], ["apns-unique-id", "x"]]),
            ]
            let scene = try await Scene(answers, options: ["--exit-when-done", "--results", "all"])
            let jobs = answers.keys.sorted().flatMap { TestJob.many(10, prefix: $0) }
            try scene.redis.push(jobs)
            let (account, queue) = try await scene.finish()
            #expect(account.delivered == jobs.count && account.retried == 0 && account.possibleDuplicates == 0)
            #expect(queue.invalidTokens.isEmpty && queue.dead.isEmpty)
            let results = try storedResults(scene.redis)
            #expect(
                results.count == jobs.count && results.allSatisfy { $0["apns_unique_id"] == nil && $0["reason"] == nil }
            )
        }

        @Test("that break HTTP are none, however often they come: their notifications wait or are dropped as uncertain")
        func malformed() async throws {
            let named = [["apns-id", "x"]]
            let answers: [String: Answer] = [
                "a0": .status("0"), "a1": .status("000"), "a2": .status("2000"), "a3": .status("abc"),
                "a4": .status(""), "a5": .status("-200"), "a6": Answer(headers: named),
                "a7": .status("200", more: named + [[":status", "400"]]),
                "a8": .status("200", more: named + [["connection", "close"]]),
                "a9": .status("200", more: named + [["Apns-Id", "x"]]),
                "b0": .status("200", "{}", more: named + [["content-length", "5"]]),
                "b1": .status("200", "{}", more: named + [["content-length", "0"]]),
                "b2": Answer(interim: [[":status", "101"]]),
                "b3": .status("200", more: named + [["content-length", "5"]]),
                "b4": Answer(headers: [[":status", "200"]] + named, body: "{}", trailers: [[":status", "500"]]),
                "b5": .status("410", Self.unregistered, more: [["X-Gone", "y"]]),
                "b6": .status("400", #"{"reason":"BadDeviceToken"}"#, more: [["connection", "close"]]),
            ]
            let scene = try await Scene(answers, options: ["--results", "all"])
            let names = answers.keys.sorted()
            try scene.redis.push(
                TestJob.many(100, prefix: "00") + names.map { TestJob.text(TestJob.token($0, 1)) }
                    + names.map { TestJob.text(TestJob.token($0, 2), #""on_uncertain":"drop","#) }
                    + TestJob.many(100, prefix: "01"))
            try await eventually("each has been repeated") {
                try scene.redis.counted("retried") >= 3 * names.count && scene.redis.counted("dropped") == names.count
            }
            let account = try await scene.worker.stop()
            let queue = try QueueContents(scene.redis)
            #expect(account.delivered == 200 && account.dropped == names.count && account.dead == 0)
            #expect(account.invalidToken == 0 && queue.invalidTokens.isEmpty)
            #expect(queue.retries.count == names.count)
            for (body, _) in queue.retries {
                #expect(String(decoding: body, as: UTF8.self).contains(#""reason":"MalformedAnswer""#))
            }
            let dropped = try storedResults(scene.redis).filter { $0["outcome"] == "dropped" }
            #expect(dropped.count == names.count && dropped.allSatisfy { $0["reason"] == "MalformedAnswer" })
            let seen = try await scene.server.stop()
            #expect(seen.violations.isEmpty && seen.changedIDs == 0 && seen.distinct == 200 + 2 * names.count)
        }

        @Test("that do not come from APNs concern only their app; no job becomes a dead letter")
        func notAPNs() async throws {
            let answers: [String: Answer] = [
                "a0": .status("400", #"{"reason":5}"#), "a1": .status("400", #"{"reason":{"a":1}}"#),
                "a2": .status("403", #"["BadCertificate"]"#), "a3": .status("404", "<html>"), "a4": .status("204"),
                "a5": .status("302", more: [["location", "https://example.com/"]]), "a6": .status("999"),
                "a7": .status("600", #"{"reason":"BadDeviceToken"}"#), "a8": .status("401", #"{"reason":""}"#),
                "a9": .status("400", #"{"reason":"no word at all"}"#),
                "aa": .status("400", #"{"reason":"BadDeviceToken""#), "ac": .status("429", "{"),
                "ab": Answer(headers: [[":status", "400"]], body: #"{"reason":"BadDeviceToken"}"#, repeat: 10_000),
            ]
            let names = answers.keys.sorted()
            let scene = try await Scene(answers, environment: appVariables(names + ["good"]))
            try scene.redis.push(
                names.flatMap { TestJob.many(3, prefix: $0, members: #""app":"\#($0)","max_attempts":1,"#) }
                    + TestJob.many(100, prefix: "00", members: #""app":"good","#))
            try await scene.redis.has(100)
            try await eventually("status names each app") {
                let kinds = try await FleetView(scene.redis.url).kinds
                return names.allSatisfy { kinds.contains("scope_suspected \($0)") }
            }
            let account = try await scene.worker.stop()
            let queue = try QueueContents(scene.redis)
            #expect(account.dead == 0 && account.invalidToken == 0)
            #expect(queue.jobs.count + queue.retries.count == names.count * 3 && queue.invalidTokens.isEmpty)
            #expect(try await scene.server.stop().violations.isEmpty)
        }
    }
}
