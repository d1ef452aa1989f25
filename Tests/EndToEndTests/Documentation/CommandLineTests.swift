import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The commands")
    struct CommandLineTests {
        struct Output {
            let ending: ChildProcess.Ending
            let output: String
            let errors: String

            /// The exit status; `nil` if a signal ended the program.
            var status: Int32? { if case .exited(let status) = ending { status } else { nil } }

            /// The JSON object of each line.
            var objects: [[String: Any]] { get throws { try jsonObjects(output) } }
        }

        static func run(
            _ arguments: [String], of program: String = "apns-worker", environment: [String: String] = [:],
            input: String? = nil
        ) async throws -> Output {
            let process = try ChildProcess(
                program.hasPrefix("/") ? program : BuiltProgram.path(program), arguments, environment: environment,
                input: input.map { Data($0.utf8) })
            let ending = try await process.wait()
            return Output(ending: ending, output: process.output, errors: process.errors)
        }

        private static func object(_ job: [UInt8]) throws -> NSDictionary {
            try #require(JSONSerialization.jsonObject(with: Data(job)) as? NSDictionary)
        }

        /// Returns a job without its time, and the time.
        private static func enqueued(_ job: [UInt8]?) throws -> (job: NSDictionary, at: Double) {
            let all = try object(try #require(job))
            let time = try #require(all["enqueued_at"] as? Double)
            let rest = try #require(all.mutableCopy() as? NSMutableDictionary)
            rest.removeObject(forKey: "enqueued_at")
            return (rest, time)
        }

        @Test("schema prints the JSON Schema of a job")
        func schema() async throws {
            let result = try await Self.run(["schema"])
            #expect(result.ending == .exited(0) && result.errors.isEmpty)
            let schema = try Self.object(Array(result.output.utf8))
            #expect(schema["$schema"] as? String == "https://json-schema.org/draft/2020-12/schema")
        }

        @Test("enqueue makes a job from flags")
        func flags() async throws {
            let redis = try RedisServer()
            let token = TestJob.token("ab", 1)
            let before = Date().timeIntervalSince1970
            try await redis.apnsWorker([
                "enqueue", "--token", token, "--token", TestJob.token("cd", 2), "--alert", "Say \"hé\"", "--id", "x",
                "--topic", "com.example.app", "--push-type", "alert", "--priority", "5", "--expiration", "1h",
                "--collapse-id", "c", "--max-attempts", "3", "--app", "default", "--unique-for", "1h30m",
                "--fair", "tenant 17", "--fair-per-second", "50", "--urgent",
            ]).succeeds().prints("enqueued 1 job on default, id x\n")
            let (job, time) = try Self.enqueued(QueueContents(redis).jobs.first)
            #expect(time >= before - 0.001 && time <= Date().timeIntervalSince1970)
            #expect(
                job == [
                    "id": "x", "tokens": [token, TestJob.token("cd", 2)], "app": "default", "topic": "com.example.app",
                    "push_type": "alert", "priority": 5, "expiration": "3600s", "collapse_id": "c", "max_attempts": 3,
                    "unique_for": "5400s", "fair": "tenant 17", "fair_per_second": 50, "urgent": true,
                    "alert": "Say \"hé\"",
                ] as NSDictionary)
        }

        @Test("enqueue makes a job of short forms from flags")
        func shortForms() async throws {
            let redis = try RedisServer()
            try await Self.run([
                "enqueue", "--redis", redis.url, "--channel", "YQ==", "--truncate", "--collapse-duplicates",
                "--title", "T", "--subtitle", "S", "--body", "B\n", "--loc-key", "%@", "--loc-arg", "a",
                "--loc-arg", "b", "--title-loc-key", "t", "--title-loc-arg", "c", "--launch-image", "i", "--badge", "0",
                "--sound", "default", "--critical", "--volume", "0.5", "--thread-id", "t", "--category", "c",
                "--content-available", "--mutable-content", "--target-content-id", "w",
                "--interruption-level", "time-sensitive", "--relevance-score", "75", "--filter-criteria", "f",
                "--event", "update", "--content-state", #"{"score":[1,2]}"#, "--timestamp", "1900000000",
                "--stale-date", "2030-01-31T12:00:00Z", "--dismissal-date", "1900000001.5",
                "--attributes-type", "A", "--attributes", "{}", "--input-push-token", "--input-push-channel",
                "Yg==", "--content-changed", "--url-arg", "u", "--mdm", "m", "--custom", #"{"k":null}"#,
            ]).succeeds()
            let (job, _) = try Self.enqueued(QueueContents(redis).jobs.first)
            #expect(
                job == [
                    "id": job["id"] ?? "", "channel": "YQ==", "truncate": true, "collapse_duplicates": true,
                    "alert": [
                        "title": "T", "subtitle": "S", "body": "B\n", "loc_key": "%@", "loc_args": ["a", "b"],
                        "title_loc_key": "t", "title_loc_args": ["c"], "launch_image": "i",
                    ] as [String: Any], "badge": 0,
                    "sound": ["name": "default", "critical": 1, "volume": 0.5] as [String: Any],
                    "thread_id": "t", "category": "c", "content_available": true, "mutable_content": true,
                    "target_content_id": "w", "interruption_level": "time-sensitive", "relevance_score": 75,
                    "filter_criteria": "f", "event": "update", "content_state": ["score": [1, 2]],
                    "timestamp": 1_900_000_000, "stale_date": 1_896_091_200, "dismissal_date": 1_900_000_001.5,
                    "attributes_type": "A", "attributes": [String: Any](), "input_push_token": true,
                    "input_push_channel": "Yg==", "content_changed": true, "url_args": ["u"], "mdm": "m",
                    "custom": ["k": NSNull()],
                ] as NSDictionary)
        }

        @Test("enqueue --timestamp now is the time of the command, in whole seconds")
        func timestampNow() async throws {
            let redis = try RedisServer()
            let before = Int(Date().timeIntervalSince1970)
            try await redis.apnsWorker(["enqueue", "--token", "ab", "--event", "end", "--timestamp", "now"]).succeeds()
            let after = Int(Date().timeIntervalSince1970)
            let job = try Self.object(try #require(QueueContents(redis).jobs.first))
            #expect((before...after).contains(try #require(job["timestamp"] as? Int)))
        }

        @Test("enqueue --first puts the job first, and --queue and --prefix name the list")
        func order() async throws {
            let redis = try RedisServer()
            let line = TestJob.text(TestJob.token("a", 1))
            for (flags, lines) in [([], ["1", "2"]), (["--first"], ["3", "4"])] {
                let input = lines.map { #"{"number":\#($0),"# + line.dropFirst() }.joined(separator: "\n")
                try await Self.run(["enqueue", "--redis", redis.url] + flags, input: input).prints(
                    "enqueued 2 jobs on default\n")
            }
            let numbers = try QueueContents(redis).jobs.map { try Self.object($0)["number"] as? Int }
            #expect(numbers == [3, 4, 1, 2])

            try await redis.apnsWorker([
                "enqueue", "--prefix", "p", "--queue", "q", "--token", "ab", "--payload", #"{"a": 1}"#,
            ]).succeeds().begins("enqueued 1 job on q, id ")
            let text = try #require(try redis.run("LINDEX", "p:{q}:jobs", "0").text)
            // The payload must be unchanged.
            let job = /{"id":"[0-9a-f]{24}","token":"ab","enqueued_at":\d+(\.\d{1,3})?,"payload":{"a": 1}}/
            #expect(text.wholeMatch(of: job) != nil, "\(text)")
        }

        @Test("enqueue keeps lines unchanged, reports the numbers of those that are not jobs, and exits with 1")
        func lines() async throws {
            let redis = try RedisServer()
            let good = (0..<2500).map { TestJob.text(TestJob.token("a", $0), #""id":"\#($0)","#) }
            var lines = good
            lines.insert(#"{"token":"ab"}"#, at: 1)
            lines.insert(#"{"token":"a-b","alert":"x"}"#, at: 2)
            lines.insert(#"{"token":"ab","alert":"\#(String(repeating: "x", count: 5000))"}"#, at: 3)
            lines.insert("", at: 7)
            lines.insert("not json", at: 1702)
            let result = try await Self.run(
                ["enqueue", "--redis", redis.url], input: lines.joined(separator: "\n") + "\n"
            ).fails(1).prints("enqueued 2500 jobs on default, refused 4\n")
            let errors = result.errors.split(separator: "\n")
            try #require(errors.count == 5, "\(result.errors)")
            #expect(errors[0] == "note: no worker claims jobs from queue default")
            #expect(errors[2].hasPrefix("line 3: the device token has a separator at 1"))
            #expect(errors[3].hasPrefix("line 4: the payload has 5020 bytes; APNs accepts 4096"))
            #expect(errors[1].hasPrefix("line 2: the job has no `payload`"))
            #expect(errors.last?.hasPrefix("line 1703: the job is not valid JSON") == true)
            #expect(try QueueContents(redis).jobs == good.map { Array($0.utf8) })

            try await Self.run(["enqueue", "--unchecked", "--redis", redis.url], input: "not json\n").succeeds().prints(
                "enqueued 1 job on default\n")
            #expect(try QueueContents(redis).jobs.last == Array("not json".utf8))
        }

        @Test(
            "errors come with a suggestion",
            arguments: [
                ("enqueue --token ab", "--payload or --alert"), ("enqueue --alert x", "--token"),
                ("enqueue --token ab --payload {", "payload is not valid JSON"),
                ("enqueue --token ab --alert x --priority 7", "1, 5 or 10"),
                ("enqueue --token xyz --alert x", "not hexadecimal"),
                ("enqueue --token ab --alert \(String(repeating: "x", count: 5000))", "the payload has 5020 bytes"),
                ("enqueue --token ab --alert x --payload {}", "--payload or --alert"),
                ("enqueue --token ab --alert x --title t", "--body"),
                ("enqueue --token ab --channel YQ== --alert x", "--channel, and not both"),
                ("enqueue --channel no~base64 --event end", "base64"),
                ("enqueue --token ab --badge=-1", "at least 0"), ("enqueue --token ab --badge many", "--badge"),
                ("enqueue --token ab --critical --alert x", "--sound"),
                ("enqueue --token ab --sound x --volume 2", "--volume"),
                ("enqueue --token ab --interruption-level loud", "time-sensitive"),
                ("enqueue --token ab --relevance-score nan", "--relevance-score"),
                ("enqueue --token ab --timestamp soon", "--timestamp"),
                ("enqueue --token ab --stale-date now", "--stale-date"),
                ("enqueue --token ab --custom {", "`custom` is not valid JSON"),
                (#"enqueue --token ab --custom {"aps":{}}"#, "without `aps`"),
                ("enqueue --token ab --alert x --expiration soon", "--expiration"),
                ("enqueue --token ab --alert x --id x --unique-for 31d", "--unique-for"),
                ("enqueue --token ab --alert x --id x --unique-for 60", "--unique-for"),
                ("enqueue --token ab --alert x --unique-for 1h", "--id"),
                ("enqueue --redis http://x --token ab --alert x", "redis://"),
                ("enqueue --queue {q} --token ab --alert x", "queue name"), ("pause --reason \n", "--reason"),
                ("pause --queue {q} --reason x", "queue name"), ("run --topic a", "--key"),
                ("run --topic a --key ./none --key-id ABC123DEFG --team-id TEAM123456", "./none"),
                ("run --topic a --key /dev/null", "--key-id"), ("run --unknown", "--unknown"), ("fly", "fly"),
                ("run --topic a --key ./x --certificate ./y", "both"),
            ])
        func refuses(_ command: String, _ words: String) async throws {
            try await Self.run(
                command.split(separator: " ").map(String.init),
                environment: ["APNS_WORKER_REDIS_URL": "redis://127.0.0.1:1"]
            ).fails(words).prints("")
        }
    }
}
