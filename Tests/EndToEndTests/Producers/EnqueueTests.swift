import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The enqueue command")
    struct EnqueueTests {
        private static let token = TestJob.token("ab", 1)
        private static let flags = ["--token", token, "--alert", "x"]

        private let redis: RedisServer

        init() throws { redis = try RedisServer() }

        private func enqueue(
            _ arguments: [String], environment: [String: String] = [:], input: String? = nil
        ) async throws -> CommandLineTests.Output {
            try await redis.apnsWorker(["enqueue"] + arguments, environment: environment, input: input)
        }

        private func jobs() throws -> [[String: Any]] {
            try QueueContents(redis).jobs.map { try jsonObject(String(decoding: $0, as: UTF8.self)) }
        }

        private func worker(_ options: [String] = []) async throws -> WorkerProcess {
            let worker = try WorkerProcess.simulating(redis, options)
            try await worker.process.until("the worker has joined") {
                try redis.run("HLEN", "push:{default}:worker-info").number == 1
            }
            return worker
        }

        @Test("gives a job without an ID one, prints it, and keeps the other bytes of the job")
        func ids() async throws {
            let one = try await enqueue(Self.flags)
            let made = try #require(one.output.firstMatch(of: /^enqueued 1 job on default, id ([0-9a-f]{24})\n$/)?.1)
            #expect(one.errors == "note: no worker claims jobs from queue default\n")
            #expect(try jobs().first?["id"] as? String == String(made))
            try await enqueue(Self.flags + ["--id", "order-7", "--json"]).prints(
                #"{"id":"order-7","queue":"default"}"# + "\n")
            let lines = [
                #"  { "token":"ab", "alert": "a b" }"#, #"{"id":"own","token":"ab","alert":"x"}"#, "no json",
                #"{"token":"ab","alert":"é"}"#,
            ]
            try redis.run("DEL", "push:{default}:jobs")
            let many = try await enqueue(["--json"], input: lines.joined(separator: "\n")).fails(
                1, "line 3: the job is not valid JSON")
            let ids = try many.objects.compactMap { $0["id"] as? String }
            #expect(ids.count == 3 && Set(ids).count == 3 && ids[1] == "own")
            let stored = try QueueContents(redis).jobs.map { String(decoding: $0, as: UTF8.self) }
            #expect(
                stored == [
                    #"  {"id":"\#(ids[0])", "token":"ab", "alert": "a b" }"#, lines[1],
                    #"{"id":"\#(ids[2])","token":"ab","alert":"é"}"#,
                ])
            // --unchecked leaves lines unchanged.
            try await enqueue(["--unchecked", "--json"], input: lines[0]).prints(#"{"queue":"default"}"# + "\n")
            #expect(try QueueContents(redis).jobs.last == Array(lines[0].utf8))
        }

        @Test(
            "a job whose ID is null gets one, in both formats",
            arguments: [
                ([], #"{"token":"\#(token)","id" : null ,"alert":"x"}"#, "push:{default}:jobs", #""id" : "ID" ,"#),
                (
                    ["--format", "sidekiq"],
                    #"{"class":"P","args":[{"token":"\#(token)","alert":"x"}],"jid":null}"#, "queue:default",
                    #""jid":"ID""#
                ),
            ] as [([String], String, String, String)])
        func nullID(options: [String], job: String, list: String, member: String) async throws {
            let result = try await enqueue(["--json"] + options, input: job).succeeds()
            let id = try #require(try result.objects.first?["id"] as? String)
            let stored = try #require(try redis.run("LINDEX", list, "0").text)
            #expect(stored.contains(member.replacing("ID", with: id)), "\(stored)")
            #expect(try await WorkerProcess.simulating(redis, ["--exit-when-done"] + options).finish().delivered == 1)
        }

        @Test("notes likely mistakes once for each kind, with numbers; --strict refuses them")
        func hints() async throws {
            let good = #"{"token":"\#(Self.token)","alert":"x"}"#
            let misspelled = #"{"token":"\#(Self.token)","alert":"x","sendAt":1899999999}"#
            let wrong = #"{"token":"\#(Self.token)","alert":{"title":5}}"#
            let lines = [good] + Array(repeating: misspelled, count: 300) + Array(repeating: wrong, count: 250) + [good]
            let input = lines.joined(separator: "\n")
            let result = try await enqueue(["--json"], input: input).fails(1)
            let offset = wrong.utf8.count - 3
            #expect(
                result.errors == """
                    note: no worker claims jobs from queue default
                    line 2: note: unknown member `sendAt`; did you mean `send_at`?
                    line 302: the job's `alert.title` at byte \(offset) must be a string, not a number
                    line 2 and 299 more (3, 4, 5, …): the same note
                    line 302 and 249 more (303, 304, 305, …): the same note

                    """)
            let objects = try result.objects
            #expect(objects.count { $0["id"] != nil } == 302)
            let notes = objects.filter { $0["line"] != nil }
            #expect(notes.map { $0["lines"] as? Int } == [300, 250])
            #expect(notes.map { $0["hint"] as? String } == ["unknown_member", nil])
            try await enqueue(["--strict"], input: input).fails(1).prints(
                "enqueued 2 jobs on default, refused 550\n")
            try await enqueue(["--token", Self.token, "--payload", #"{"aps":{"badge":"1"}}"#, "--strict"]).fails(
                64, "`aps.badge` must be")
        }

        @Test("reads objects that are written over several lines, and names the first line of a wrong one")
        func pretty() async throws {
            let input = """
                {
                  "token": "\(Self.token)",
                  "alert": {
                    "title": "a"
                  },
                  "custom": {"a": [
                    {"b": 1}
                  ]}
                }
                {"token":"\(Self.token)","alert":"x"}
                { "token": "\(Self.token)",
                  "alert": "y" }
                {"token":"\(Self.token)","alert":"cut
                {"token":"\(Self.token)","alert":"z"}
                [{"token":"\(Self.token)","alert":"x"}]
                """
            try await enqueue([], input: input).reports(
                "line 13: the job is not valid JSON: the text ends in the middle of a value",
                "line 15: the job must be a JSON object; it is an array; push each of its"
            ).prints("enqueued 4 jobs on default, refused 2\n")
            let alerts = try jobs().map { ($0["alert"] as? String) ?? "object" }
            #expect(alerts == ["object", "x", "y", "z"])
            #expect(try QueueContents(redis).jobs.allSatisfy { !$0.contains(UInt8(ascii: "\n")) })
        }

        @Test("gives a job in Sidekiq's format an ID in its wrapper")
        func sidekiqIDs() async throws {
            let job = #""class":"PushJob","args":[{"token":"ab","alert":"x"}]}"#
            let result = try await enqueue(["--format", "sidekiq", "--json"], input: "{" + job)
            let id = try #require(try result.objects.first?["id"] as? String)
            #expect(try redis.run("LINDEX", "queue:default", "0").text == #"{"jid":"\#(id)",\#(job)"#)
        }

        @Test("writes the campaign, labels and send time")
        func members() async throws {
            let before = Date().timeIntervalSince1970
            try await enqueue(
                Self.flags + ["--campaign", "spring", "--label", "user=4711", "--label", "url=a=b", "--send-at", "30m"]
            ).succeeds()
            let job = try #require(try jobs().first)
            #expect(job["campaign"] as? String == "spring")
            #expect(job["labels"] as? [String: String] == ["user": "4711", "url": "a=b"])
            let time = try #require(job["send_at"] as? Double)
            #expect(time >= before + 1800 && time <= Date().timeIntervalSince1970 + 1800)
            #expect(job["keep_result"] == nil)
            _ = try await enqueue(Self.flags + ["--send-at", "2030-01-31T12:00:00Z"])
            #expect(try jobs().last?["send_at"] as? Int == 1_896_091_200)
            for (wrong, part) in [
                (["--send-at", "soon"], "--send-at must be"), (["--label", "x"], "name=value"),
                (["--label", "a="], "labels"), (["--campaign", ""], "campaign"), (["--wait", "0s"], "--wait"),
            ] {
                try await enqueue(Self.flags + wrong).fails(64, part)
            }
            // A flag for one job can't apply to lines, so it is refused.
            try await enqueue(["--campaign", "spring"], input: #"{"token":"ab","alert":"x"}"#).fails(
                64, "--campaign is for a job given by flags")
            #expect(try QueueContents(redis).jobs.count == 2)
        }

        @Test("refuses an app that no worker has and a mistyped push type, with the numbers of the lines")
        func mistakes() async throws {
            // Any app is accepted, because no worker has reported its apps yet.
            #expect(try await enqueue(Self.flags + ["--app", "shop"]).ending == .exited(0))
            try await enqueue(
                Self.flags + ["--app", "nosuch"], environment: ["APNS_WORKER_APPS": "shop,news"]
            ).fails(64, "no worker has an app nosuch; they have news, shop")
            try redis.run("DEL", "push:{default}:jobs")
            let worker = try await worker()
            try await enqueue(Self.flags + ["--app", "defaults"]).fails(
                64, "no worker has an app defaults; did you mean default?")
            let lines = [
                #"{"id":"a","token":"ab","alert":"x","app":"default"}"#,
                #"{"id":"b","token":"ab","alert":"x","app":"shop"}"#,
                #"{"id":"c","token":"ab","alert":"x","push_type":"allert","topic":"com.example.app"}"#,
                #"{"id":"d","token":"ab","alert":"x","push_type":"hologram","topic":"com.example.app"}"#,
                #"{"id":"e","token":"zz","alert":"x"}"#,
            ]
            let many = try await enqueue(["--json"], input: lines.joined(separator: "\n")).fails(
                1, "line 2: no worker has an app shop; they have default",
                "line 3: unknown push type allert; did you mean alert?", "line 5: the device token has a character")
            #expect(try many.objects.compactMap { $0["id"] as? String } == ["a", "d"])
            let unchecked = try await enqueue(Self.flags + ["--app", "defaults", "--unchecked"])
            #expect(unchecked.ending == .exited(0) && unchecked.errors.isEmpty)
            try await redis.has(1, "dead:UnknownApp")
            _ = try await worker.stop()
        }

        @Test("uses default if there are several queues, and notes a paused queue and one without a worker")
        func queues() async throws {
            let two = ["APNS_WORKER_QUEUE": "critical,default"]
            try await enqueue(Self.flags, environment: two).begins("enqueued 1 job on default, id ")
            try await enqueue(Self.flags, environment: ["APNS_WORKER_QUEUE": "critical,bulk"]).fails(64, "--queue")
            try await enqueue(Self.flags + ["--queue", "critical,default"]).fails(64)
            let worker = try await worker()
            let quiet = try await enqueue(Self.flags)
            #expect(quiet.errors.isEmpty, "\(quiet.errors)")
            let new = try await enqueue(Self.flags + ["--queue", "newqueue"])
            #expect(new.ending == .exited(0) && new.errors == "note: no worker claims jobs from queue newqueue\n")
            try redis.run("SET", "push:{default}:paused", #"{"reason":"a wrong campaign"}"#)
            let paused = try await enqueue(Self.flags)
            #expect(paused.errors.contains("note: queue default is paused: a wrong campaign"), "\(paused.errors)")
            _ = try await worker.stop()
        }

        @Test(
            "--wait follows the job to its outcome, whatever results the queue keeps",
            arguments: ["", "failures", "off"])
        func wait(_ results: String) async throws {
            let options = results.isEmpty ? [] : ["--results", results]
            let worker = try await worker(["--simulate-rule", "prefix=1,answer=BadCollapseId"] + options)
            try await enqueue(Self.flags + ["--wait", "30s"]).succeeds().matches(
                /\ndelivered in \d+ (ms|s) \(attempt 1, apns-id [0-9a-f-]{36}\)\n$/)
            try await enqueue(["--token", TestJob.token("1", 1), "--alert", "x", "--wait", "30s"]).fails(1).matches(
                /\ndead after \d+ (ms|s): BadCollapseId \(status 400, attempt 1, apns-id [0-9a-f-]{36}\)\n$/)
            // An unreadable job also has an outcome.
            try await enqueue(["--token", "zz", "--alert", "x", "--wait", "30s", "--unchecked"]).ends(
                1, ": MalformedToken (attempt 0)")
            let many = try await enqueue(
                [
                    "--token", Self.token, "--token", TestJob.token("1", 2), "--token", Self.token.uppercased(),
                    "--alert",
                    "x", "--id", "fan", "--wait", "30s", "--json",
                ]).fails(1)
            let objects = try many.objects
            #expect(objects.count == 3 && objects[0]["id"] as? String == "fan")
            #expect(Set(objects.dropFirst().compactMap { $0["outcome"] as? String }) == ["delivered", "dead"])
            // Results of jobs without --wait are kept as the worker is configured.
            let count = try storedResults(redis).count
            #expect(count == 5)
            _ = try await enqueue(Self.flags)
            try await redis.has(3)
            #expect(try storedResults(redis).count == (results.isEmpty ? 6 : 5))
            _ = try await worker.stop()
        }

        @Test("--wait reports why a job has no outcome yet")
        func noOutcome() async throws {
            try await enqueue(Self.flags + ["--id", "a", "--wait", "1s"]).fails(
                1,
                "no outcome of job a within 1 s: queue default has 1 waiting, 0 claimed and 0 later jobs; no worker claims"
            ).prints("enqueued 1 job on default, id a\n")
        }
    }
}
