import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// `check --jobs-from`: what would become of another system's jobs. A migration begins with it.
    @Suite("Counting what would happen to jobs")
    struct JobsFromTests {
        private static func check(
            _ redis: RedisServer, _ arguments: [String], _ more: [String: String] = [:], input: String? = nil
        ) async throws -> CommandLineTests.Output {
            try await redis.apnsWorker(["check", "--jobs-from"] + arguments, environment: more, input: input)
        }

        /// Returns the variables of a Redis user who can only read.
        private static func reader(_ redis: RedisServer) throws -> [String: String] {
            try redis.run(
                "ACL", "SETUSER", "reader", "on", ">s3cret", "~*", "+@read", "+@connection", "+info", "+role", "+time")
            return ["APNS_WORKER_REDIS_URL": redis.url.replacing("redis://", with: "redis://reader:s3cret@")]
        }

        private static func contents(_ redis: RedisServer) throws -> [String: RedisValue] {
            let keys = try redis.run("KEYS", "*").elements?.compactMap(\.text) ?? []
            return try Dictionary(uniqueKeysWithValues: keys.map { ($0, try redis.run("DUMP", $0)) })
        }

        private static func row(_ result: CommandLineTests.Output, _ reason: String) throws -> [String: Any]? {
            try result.objects.first { $0["reason"] as? String == reason }
        }

        @Test("a list of Sidekiq is read in pages and left as it is; each job counts once, with an example per reason")
        func sidekiq() async throws {
            let redis = try RedisServer()
            func job(_ argument: String, _ number: Int) -> String {
                #"{"class":"PushJob","args":[\#(argument)],"jid":"j\#(number)","queue":"push","retry":true}"#
            }
            let token = TestJob.token("a", 1)
            for number in 0..<250 {
                try redis.run("RPUSH", "queue:push", job(#"{"token":"\#(token)","alert":"Secret text"}"#, number))
            }
            for number in 250..<253 {
                try redis.run(
                    "RPUSH", "queue:push", job(#"{"token":"\#(token)","alert":"x","pushtype":"alert"}"#, number))
            }
            try redis.run("RPUSH", "queue:push", job(#"{"token":"not-a-token","alert":"x"}"#, 253))
            let before = try Self.contents(redis)
            let environment = try Self.reader(redis)
            let result = try await Self.check(redis, ["queue:push", "--format", "sidekiq"], environment).fails(1).shows(
                "254 jobs from queue:push: 250 would be sent, 3 would be sent differently, 1 would not be sent",
                "253 notifications would be sent", "1     not sent          MalformedToken  index 253  ",
                "3     sent differently  unknown_member  index 250  unknown member `pushtype`; did you mean `push_type`?"
            )
            #expect(
                !result.output.contains(token) && !result.output.contains("Secret") && !result.output.contains("not-a"))
            #expect(try Self.contents(redis) == before)
            // Sidekiq keeps scheduled and retried jobs in sorted sets.
            try redis.run("ZADD", "schedule", "1896091200.5", job(#"{"token":"\#(token)","alert":"x"}"#, 1))
            let scheduled = try await Self.check(redis, ["schedule", "--format", "sidekiq", "--json"], environment)
                .succeeds()
            let total = try scheduled.objects.first { $0["jobs"] as? Int == 1 && $0["from"] != nil }
            #expect(total?["sent"] as? Int == 1 && total?["not_sent"] as? Int == 0, "\(scheduled)")
        }

        @Test("the lines of a file or of standard input are read without Redis")
        func file() async throws {
            let redis = try RedisServer()
            let path = redis.directory.appending(path: "jobs.ndjson").path
            let token = TestJob.token("a", 1)
            let jobs = #"{"class":"P","args":[{"token":"\#(token)","alert":"x"}],"jid":"1"}"# + "\n\nnonsense\n"
            try jobs.write(toFile: path, atomically: true, encoding: .utf8)
            let away = ["APNS_WORKER_REDIS_URL": "redis://127.0.0.1:1"]
            for (source, input) in [(path, nil), ("-", jobs)] as [(String, String?)] {
                let result = try await Self.check(
                    redis, [source, "--format", "sidekiq", "--json"], away, input: input
                ).fails(1)
                let total = try result.objects.first { $0["from"] != nil }
                #expect(total?["jobs"] as? Int == 2 && total?["sent"] as? Int == 1, "\(result)")
                #expect(try Self.row(result, "MalformedJSON")?["example"] as? String == "line 3", "\(result)")
            }
            try await Self.check(redis, ["-"], away, input: "").fails(1, "standard input contains no jobs")
        }

        @Test("a source that cannot be read is an error with its exit status")
        func errors() async throws {
            let redis = try RedisServer()
            try redis.run("SET", "text", "x")
            for (arguments, status, words) in [
                (["none"], 1, "none is neither a file nor a key in Redis"),
                (["text"], 1, "the key text holds a string"),
                (["none", "--no-redis"], 64, "none cannot be read"),
                (["-", "--job", "-"], 64, "--jobs-from cannot be combined with --job"),
                (["none", "--redis", "redis://127.0.0.1:1"], 69, "127.0.0.1:1"),
            ] as [([String], Int32, String)] {
                try await Self.check(redis, arguments).ends(status).reports(words)
            }
        }
    }
}
