import TestSupport
import Testing

extension EndToEnd {
    @Suite("Mixed jobs")
    struct MixedJobsTests {
        private static let rules = [
            "prefix=dead,answer=410", "prefix=bad0,answer=BadDeviceToken", "prefix=5030,answer=503,times=1",
            "prefix=4290,answer=429,times=2", "prefix=5000,answer=500,times=1,body=text",
        ]

        @Test("worker, Redis and simulator agree on 2,000 mixed jobs, to the job")
        func accounts() async throws {
            let (redis, simulator) = try await startServers(rules: Self.rules)
            let good = TestJob.many(900, prefix: "a") + TestJob.many(50, prefix: "b", members: #""expiration":"1h","#)
            let temporary =
                TestJob.many(200, prefix: "5030") + TestJob.many(100, prefix: "4290")
                + TestJob.many(100, prefix: "5000")
            let gone = TestJob.many(100, prefix: "dead") + TestJob.many(50, prefix: "bad0")
            // Two valid tokens, an unregistered one, and a malformed one.
            let fannedOut = (0..<100).map { number in
                let tokens = ["c1", "c2", "dead1"].map { "\"\(TestJob.token($0, number))\"" }.joined(separator: ",")
                let more = number % 2 == 0 ? #","not a token""# : ""
                return #"{"tokens":[\#(tokens)\#(more)],"payload":{"aps":{"alert":"all"}}}"#
            }
            let allMalformed = (0..<20).map { #"{"tokens":["x","y"],"payload":{},"number":\#($0)}"# }
            let tooLarge = (0..<60).map {
                #"{"token":"\#(TestJob.token("f", $0))","payload":\#(TestJob.payload(bytes: 4097))}"#
            }
            let malformed = (0..<80).map { #"{"token":"\#(TestJob.token("f", $0))","payload":{"aps":{}"# }
            let withoutPayload = (0..<40).map { #"{"token":"\#(TestJob.token("f", $0))"}"# }
            let malformedToken = (0..<50).map { TestJob.text("not hex \($0)") }
            let expired = TestJob.many(50, prefix: "e", members: #""expiration":1000000000,"#)
            let background = (0..<100).map {
                #"{"token":"\#(TestJob.token("f", $0))","payload":{"aps":{"content-available":1}}}"#
            }
            let jobs =
                [good, temporary, gone, fannedOut, allMalformed, tooLarge, malformed, withoutPayload, malformedToken]
                + [expired, background]
            var generator = SeededGenerator(seed: 7)
            let all = jobs.flatMap { $0 }.shuffled(using: &generator)
            #expect(all.count == 2000)
            try redis.push(all)

            let worker = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            let queue = try QueueContents(redis)
            let account = try await simulator.stop()

            expectAgreement(worker, queue, account)
            #expect(worker.delivered == 950 + 400 + 200 + 100)
            #expect(worker.invalidToken == 150 + 100)
            #expect(worker.expired == 50)
            // A token refused before anything else is known about the app is tried again.
            let held = queue.count("retried:BadDeviceToken")
            #expect(worker.retried == 200 + 100 * 2 + 100 + held && held < 50)
            #expect(worker.possibleDuplicates == 0)
            #expect(worker.dead == 50 + 40 + 60 + 80 + 40 + 50)
            #expect(
                queue.deadReasons == [
                    "MalformedToken": 50 + 50 + 20, "PayloadTooLarge": 60, "MalformedJSON": 80, "MissingPayload": 40,
                ])
            for (reason, count) in [
                ("MalformedToken", 50 + 50 + 40), ("PayloadTooLarge", 60), ("MalformedJSON", 80),
                ("MissingPayload", 40),
            ] { #expect(queue.count("dead:\(reason)") == count, "Redis counts otherwise: \(reason)") }
            #expect(queue.count("retried:ServiceUnavailable") == 200)
            #expect(queue.count("retried:TooManyRequests") == 200)
            #expect(queue.count("retried:HTTP500") == 100)

            #expect(account.accepted == worker.delivered && account.duplicates == 0)
            #expect(account.requests == worker.delivered + worker.invalidToken + worker.retried)
            #expect(account.distinctTokens == worker.delivered)
            let taken = Set(account.acceptedByToken.keys)
            #expect(taken.isSuperset(of: (0..<900).map { TestJob.token("a", $0) }))
            #expect(taken.isSuperset(of: (0..<100).map { TestJob.token("c2", $0) }))
            let invalid = (0..<100).flatMap { [TestJob.token("dead", $0), TestJob.token("dead1", $0)] }
            #expect(queue.invalidTokens == Set(invalid + (0..<50).map { TestJob.token("bad0", $0) }))
        }
    }
}
