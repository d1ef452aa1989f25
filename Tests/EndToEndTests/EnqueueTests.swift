import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The enqueue command")
    struct EnqueueTests {
        private static let token = TestJob.token("ab", 1)

        private static func enqueue(
            _ arguments: [String], _ redis: RedisServer, environment: [String: String] = [:], input: String? = nil
        ) async throws -> CommandLineTests.Output {
            try await CommandLineTests.run(
                ["enqueue"] + arguments,
                environment: ["APNS_WORKER_REDIS_URL": redis.url].merging(environment) { $1 }, input: input)
        }

        private static func objects(_ text: String) throws -> [[String: Any]] {
            try text.split(separator: "\n").map {
                try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
            }
        }

        private static func jobs(_ redis: RedisServer) throws -> [[String: Any]] {
            try QueueContents(redis).jobs.map {
                try #require(try JSONSerialization.jsonObject(with: Data($0)) as? [String: Any])
            }
        }

        private static func worker(_ redis: RedisServer, _ options: [String] = []) async throws -> WorkerProcess {
            // Without the APNs variables of the other tests' workers.
            let none = ["ENDPOINT", "CA", "KEY", "KEY_ID", "TEAM_ID", "TOPIC"].map { ("APNS_WORKER_\($0)", "") }
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: 1, options: ["--simulate"] + options,
                environment: Dictionary(uniqueKeysWithValues: none))
            try await eventually("the worker has joined") {
                if let ending = worker.process.ending { throw worker.process.failure("ended with \(ending)") }
                return try redis.run("HLEN", "push:{default}:worker-info").number == 1
            }
            return worker
        }

        @Test("gives a job without an ID one, prints it, and keeps the other bytes of the job")
        func ids() async throws {
            let redis = try RedisServer()
            let one = try await Self.enqueue(["--token", Self.token, "--alert", "x"], redis)
            let made = try #require(one.output.firstMatch(of: /^enqueued 1 job on default, id ([0-9a-f]{24})\n$/)?.1)
            #expect(one.errors == "note: no worker claims jobs from queue default\n")
            #expect(try Self.jobs(redis).first?["id"] as? String == String(made))
            let given = try await Self.enqueue(
                ["--token", Self.token, "--alert", "x", "--id", "order-7", "--json"], redis)
            #expect(given.output == #"{"id":"order-7","queue":"default"}"# + "\n")
            let lines = [
                #"  { "token":"ab", "alert": "a b" }"#, #"{"id":"own","token":"ab","alert":"x"}"#, "no json",
                #"{"token":"ab","alert":"é"}"#,
            ]
            try redis.run("DEL", "push:{default}:jobs")
            let many = try await Self.enqueue(["--json"], redis, input: lines.joined(separator: "\n"))
            #expect(many.ending == .exited(1) && many.errors.contains("line 3: the job is not valid JSON"))
            let ids = try Self.objects(many.output).compactMap { $0["id"] as? String }
            #expect(ids.count == 3 && Set(ids).count == 3 && ids[1] == "own")
            let stored = try QueueContents(redis).jobs.map { String(decoding: $0, as: UTF8.self) }
            #expect(
                stored == [
                    #"  {"id":"\#(ids[0])", "token":"ab", "alert": "a b" }"#, lines[1],
                    #"{"id":"\#(ids[2])","token":"ab","alert":"é"}"#,
                ])
            // --unchecked leaves lines unchanged.
            let unchecked = try await Self.enqueue(["--unchecked", "--json"], redis, input: lines[0])
            #expect(unchecked.output == #"{"queue":"default"}"# + "\n")
            #expect(try QueueContents(redis).jobs.last == Array(lines[0].utf8))
        }

        @Test("a job whose ID is null gets one, in both formats")
        func nullID() async throws {
            for (options, job) in [
                ([], #"{"token":"\#(Self.token)","id" : null ,"alert":"x"}"#),
                (
                    ["--format", "sidekiq"],
                    #"{"class":"P","args":[{"token":"\#(Self.token)","alert":"x"}],"jid":null}"#
                ),
            ] {
                let redis = try RedisServer()
                let result = try await Self.enqueue(["--json"] + options, redis, input: job)
                #expect(result.ending == .exited(0), "\(result)")
                let id = try #require(try Self.objects(result.output).first?["id"] as? String)
                let list = options.isEmpty ? "push:{default}:jobs" : "queue:default"
                let stored = try #require(try redis.run("LINDEX", list, "0").text)
                #expect(stored.contains(options.isEmpty ? "\"id\" : \"\(id)\" ," : "\"jid\":\"\(id)\""), "\(stored)")
                let worker = try await Self.worker(redis, ["--exit-when-done"] + options)
                #expect(try await worker.finish().delivered == 1)
            }
        }

        @Test("notes likely mistakes once for each kind, with numbers; --strict refuses them")
        func hints() async throws {
            let redis = try RedisServer()
            let good = #"{"token":"\#(Self.token)","alert":"x"}"#
            let misspelled = #"{"token":"\#(Self.token)","alert":"x","sendAt":1899999999}"#
            let wrong = #"{"token":"\#(Self.token)","alert":{"title":5}}"#
            let lines = [good] + Array(repeating: misspelled, count: 300) + Array(repeating: wrong, count: 250) + [good]
            let input = lines.joined(separator: "\n")
            let result = try await Self.enqueue(["--json"], redis, input: input)
            #expect(result.ending == .exited(1))
            let offset = wrong.utf8.count - 3
            #expect(
                result.errors == """
                    note: no worker claims jobs from queue default
                    line 2: note: unknown member `sendAt`; did you mean `send_at`?
                    line 302: the job's `alert.title` at byte \(offset) must be a string, not a number
                    line 2 and 299 more (3, 4, 5, …): the same
                    line 302 and 249 more (303, 304, 305, …): the same

                    """)
            let objects = try Self.objects(result.output)
            #expect(objects.count { $0["id"] != nil } == 302)
            let notes = objects.filter { $0["line"] != nil }
            #expect(notes.map { $0["lines"] as? Int } == [300, 250])
            #expect(notes.map { $0["hint"] as? String } == ["unknown_member", nil])
            let strict = try await Self.enqueue(["--strict"], redis, input: input)
            #expect(
                strict.ending == .exited(1) && strict.output == "enqueued 2 jobs on default, refused 550\n", "\(strict)"
            )
            let one = try await Self.enqueue(
                ["--token", Self.token, "--payload", #"{"aps":{"badge":"1"}}"#, "--strict"], redis)
            #expect(one.ending == .exited(64) && one.errors.contains("`aps.badge` must be"), "\(one)")
        }

        @Test("reads objects that are written over several lines, and names the first line of a wrong one")
        func pretty() async throws {
            let redis = try RedisServer()
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
            let result = try await Self.enqueue([], redis, input: input)
            #expect(result.output == "enqueued 4 jobs on default, refused 2\n", "\(result)")
            #expect(
                result.errors.contains("line 13: the job is not valid JSON: the text ends in the middle of a value"))
            #expect(result.errors.contains("line 15: the job must be a JSON object; it is an array; push each of its"))
            let alerts = try Self.jobs(redis).map { ($0["alert"] as? String) ?? "object" }
            #expect(alerts == ["object", "x", "y", "z"])
            #expect(try QueueContents(redis).jobs.allSatisfy { !$0.contains(UInt8(ascii: "\n")) })
        }

        @Test("gives a job in Sidekiq's format an ID in its wrapper")
        func sidekiqIDs() async throws {
            let redis = try RedisServer()
            let line = #"{"class":"PushJob","args":[{"token":"ab","alert":"x"}]}"#
            let result = try await Self.enqueue(["--format", "sidekiq", "--json"], redis, input: line)
            let id = try #require(try Self.objects(result.output).first?["id"] as? String)
            let stored = try #require(try redis.run("LINDEX", "queue:default", "0").text)
            #expect(stored == #"{"jid":"\#(id)","class":"PushJob","args":[{"token":"ab","alert":"x"}]}"#)
        }

        @Test("writes the campaign, labels and send time")
        func members() async throws {
            let redis = try RedisServer()
            let flags = ["--token", Self.token, "--alert", "x"]
            let before = Date().timeIntervalSince1970
            let result = try await Self.enqueue(
                flags + ["--campaign", "spring", "--label", "user=4711", "--label", "url=a=b", "--send-at", "30m"],
                redis)
            #expect(result.ending == .exited(0), "\(result.errors)")
            let job = try #require(try Self.jobs(redis).first)
            #expect(job["campaign"] as? String == "spring")
            #expect(job["labels"] as? [String: String] == ["user": "4711", "url": "a=b"])
            let time = try #require(job["send_at"] as? Double)
            #expect(time >= before + 1800 && time <= Date().timeIntervalSince1970 + 1800)
            #expect(job["keep_result"] == nil)
            _ = try await Self.enqueue(flags + ["--send-at", "2030-01-31T12:00:00Z"], redis)
            #expect(try Self.jobs(redis).last?["send_at"] as? Int == 1_896_091_200)
            for (wrong, part) in [
                (["--send-at", "soon"], "--send-at must be"), (["--label", "x"], "name=value"),
                (["--label", "a="], "labels"), (["--campaign", ""], "campaign"), (["--wait", "0s"], "--wait"),
            ] {
                let refused = try await Self.enqueue(flags + wrong, redis)
                #expect(refused.ending == .exited(64) && refused.errors.contains(part), "\(refused.errors)")
            }
            // Flags for one job would have no effect on lines.
            let lines = try await Self.enqueue(["--campaign", "spring"], redis, input: #"{"token":"ab","alert":"x"}"#)
            #expect(lines.ending == .exited(64) && lines.errors.contains("--campaign is for a job given by flags"))
            #expect(try QueueContents(redis).jobs.count == 2)
        }

        @Test("refuses an app that no worker has and a mistyped push type, with the numbers of the lines")
        func mistakes() async throws {
            let redis = try RedisServer()
            let flags = ["--token", Self.token, "--alert", "x"]
            // Nothing is known about apps yet.
            #expect(try await Self.enqueue(flags + ["--app", "shop"], redis).ending == .exited(0))
            let named = try await Self.enqueue(
                flags + ["--app", "nosuch"], redis, environment: ["APNS_WORKER_APPS": "shop,news"])
            #expect(named.ending == .exited(64))
            #expect(named.errors.contains("no worker has an app nosuch; they have news, shop"), "\(named.errors)")
            try redis.run("DEL", "push:{default}:jobs")
            let worker = try await Self.worker(redis)
            let unknown = try await Self.enqueue(flags + ["--app", "defaults"], redis)
            #expect(unknown.ending == .exited(64))
            #expect(
                unknown.errors.contains("no worker has an app defaults; did you mean default?"), "\(unknown.errors)")
            let lines = [
                #"{"id":"a","token":"ab","alert":"x","app":"default"}"#,
                #"{"id":"b","token":"ab","alert":"x","app":"shop"}"#,
                #"{"id":"c","token":"ab","alert":"x","push_type":"allert","topic":"com.example.app"}"#,
                #"{"id":"d","token":"ab","alert":"x","push_type":"hologram","topic":"com.example.app"}"#,
                #"{"id":"e","token":"zz","alert":"x"}"#,
            ]
            let many = try await Self.enqueue(["--json"], redis, input: lines.joined(separator: "\n"))
            #expect(many.ending == .exited(1))
            #expect(many.errors.contains("line 2: no worker has an app shop; they have default"), "\(many.errors)")
            #expect(many.errors.contains("line 3: unknown push type allert; did you mean alert?"))
            #expect(many.errors.contains("line 5: the device token has a character"))
            #expect(try Self.objects(many.output).compactMap { $0["id"] as? String } == ["a", "d"])
            let unchecked = try await Self.enqueue(flags + ["--app", "defaults", "--unchecked"], redis)
            #expect(unchecked.ending == .exited(0) && unchecked.errors.isEmpty)
            try await eventually("it is a dead letter") { try QueueContents(redis).count("dead:UnknownApp") == 1 }
            _ = try await worker.stop()
        }

        @Test("uses default if there are several queues, and notes a paused queue and one without a worker")
        func queues() async throws {
            let redis = try RedisServer()
            let flags = ["--token", Self.token, "--alert", "x"]
            let two = ["APNS_WORKER_QUEUE": "critical,default"]
            let result = try await Self.enqueue(flags, redis, environment: two)
            #expect(result.output.hasPrefix("enqueued 1 job on default, id "), "\(result.errors)")
            let others = try await Self.enqueue(flags, redis, environment: ["APNS_WORKER_QUEUE": "critical,bulk"])
            #expect(others.ending == .exited(64) && others.errors.contains("--queue"))
            let named = try await Self.enqueue(flags + ["--queue", "critical,default"], redis)
            #expect(named.ending == .exited(64))
            let worker = try await Self.worker(redis)
            let quiet = try await Self.enqueue(flags, redis)
            #expect(quiet.errors.isEmpty, "\(quiet.errors)")
            let new = try await Self.enqueue(flags + ["--queue", "newqueue"], redis)
            #expect(new.ending == .exited(0) && new.errors == "note: no worker claims jobs from queue newqueue\n")
            try redis.run("SET", "push:{default}:paused", #"{"reason":"a wrong campaign"}"#)
            let paused = try await Self.enqueue(flags, redis)
            #expect(paused.errors.contains("note: queue default is paused: a wrong campaign"), "\(paused.errors)")
            _ = try await worker.stop()
        }

        @Test(
            "--wait follows the job to its outcome, whatever results the queue keeps",
            arguments: ["", "failures", "off"])
        func wait(_ results: String) async throws {
            let redis = try RedisServer()
            let options = results.isEmpty ? [] : ["--results", results]
            let worker = try await Self.worker(redis, ["--simulate-rule", "prefix=1,answer=BadCollapseId"] + options)
            let good = try await Self.enqueue(["--token", Self.token, "--alert", "x", "--wait", "30s"], redis)
            #expect(good.ending == .exited(0), "\(good.errors)")
            #expect(
                good.output.contains(/\ndelivered in \d+ (ms|s) \(attempt 1, apns-id [0-9a-f-]{36}\)\n$/),
                "\(good.output)")
            let bad = try await Self.enqueue(
                ["--token", TestJob.token("1", 1), "--alert", "x", "--wait", "30s"], redis)
            #expect(bad.ending == .exited(1))
            #expect(
                bad.output.contains(
                    /\ndead after \d+ (ms|s): BadCollapseId \(status 400, attempt 1, apns-id [0-9a-f-]{36}\)\n$/),
                "\(bad.output)")
            // An unreadable job also has an outcome.
            let broken = try await Self.enqueue(
                ["--token", "zz", "--alert", "x", "--wait", "30s", "--unchecked"], redis)
            #expect(
                broken.ending == .exited(1) && broken.output.contains(": MalformedToken (attempt 0)"),
                "\(broken.output)")
            let many = try await Self.enqueue(
                [
                    "--token", Self.token, "--token", TestJob.token("1", 2), "--token", Self.token.uppercased(),
                    "--alert",
                    "x", "--id", "fan", "--wait", "30s", "--json",
                ], redis)
            #expect(many.ending == .exited(1))
            let objects = try Self.objects(many.output)
            #expect(objects.count == 3 && objects[0]["id"] as? String == "fan")
            #expect(Set(objects.dropFirst().compactMap { $0["outcome"] as? String }) == ["delivered", "dead"])
            // Results of other producers' jobs are kept according to the setting.
            let count = try storedResults(redis).count
            #expect(count == 5)
            _ = try await Self.enqueue(["--token", Self.token, "--alert", "x"], redis)
            try await eventually("it is delivered") { try QueueContents(redis).count("delivered") == 3 }
            #expect(try storedResults(redis).count == (results.isEmpty ? 6 : 5))
            _ = try await worker.stop()
        }

        @Test("--wait reports why a job has no outcome yet")
        func noOutcome() async throws {
            let redis = try RedisServer()
            let result = try await Self.enqueue(
                ["--token", Self.token, "--alert", "x", "--id", "a", "--wait", "1s"], redis)
            #expect(result.ending == .exited(1) && result.output == "enqueued 1 job on default, id a\n")
            #expect(
                result.errors.contains(
                    "no outcome of job a within 1 s: queue default has 1 waiting, 0 claimed and 0 later jobs; no worker claims"
                ),
                "\(result.errors)")
        }
    }
}
