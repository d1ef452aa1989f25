import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Importing invalid tokens")
    struct InvalidAddTests {
        private static func add(
            _ arguments: [String], _ redis: RedisServer, input: String? = nil
        ) async throws -> CommandLineTests.Output {
            try await redis.apnsWorker(["invalid", "add"] + arguments, input: input)
        }

        private static func details(_ token: String, _ redis: RedisServer) throws -> StoredInvalidToken {
            try #require(try redis.invalidTokens().details()[token])
        }

        private static func count(_ redis: RedisServer) throws -> Int? {
            try redis.run("SCARD", "push:{shared}:invalid-tokens").number
        }

        @Test("accepts a file, standard input or arguments, in batches, and reports lines that are not tokens")
        func sources() async throws {
            let redis = try RedisServer()
            let tokens = (0..<1800).map { TestJob.token("ab", $0) }
            var lines = tokens
            lines.insert("not a token", at: 2)
            lines.insert("", at: 700)
            lines.insert("<\(TestJob.token("CD", 1).uppercased())>", at: 1500)
            let file = redis.directory.appending(path: "tokens")
            try lines.joined(separator: "\r\n").write(to: file, atomically: true, encoding: .utf8)
            let first = try await Self.add(["--from", file.path], redis).fails(1).prints(
                "added 1,801 tokens, 1 refused\n")
            #expect(
                first.errors.split(separator: "\n").count == 1 && first.errors.hasPrefix("line 3: the device token"))
            #expect(try Self.count(redis) == 1801)
            // The command can be repeated.
            try await Self.add(["--json"], redis, input: tokens.joined(separator: "\n")).succeeds().prints(
                #"{"added":0,"known":1800,"refused":0,"registered":0}"# + "\n")
            try await Self.add(["--from", "-"], redis, input: TestJob.token("ef", 1)).prints("added 1 token\n")
            let named = try await Self.add([TestJob.token("ef", 2), "zz", TestJob.token("ef", 1)], redis).fails(1)
                .prints("added 1 token, 1 already present, 1 refused\n")
            #expect(named.errors.hasPrefix("token 2: "))
            #expect(try Self.count(redis) == 1803)
        }

        @Test("stores the details, and skips devices that have registered since")
        func details() async throws {
            let redis = try RedisServer()
            let (token, other) = (TestJob.token("ab", 1), TestJob.token("ab", 2))
            try redis.run("HSET", "push:{shared}:registrations", other, "1795000000000")
            try await Self.add(
                [
                    token, other, "--reason", "Unregistered", "--topic", "com.example.app", "--environment", "Sandbox",
                    "--at", "1790000000",
                ], redis
            ).succeeds().prints("added 1 token, 1 registered since\n")
            let known = try Self.details(token, redis)
            #expect(
                known
                    == .init(
                        at: 1_790_000_000_000, day: known.day, reason: "Unregistered", topic: "com.example.app",
                        environment: "sandbox", source: "import"))
            let bare = TestJob.token("ab", 3)
            _ = try await Self.add([bare], redis)
            let unknown = try Self.details(bare, redis)
            #expect(
                unknown.facts.topic == nil && unknown.facts.environment == nil && unknown.facts.reason == "Imported")
            let list = try await CommandLineTests.run(["invalid", "list", "--source", "import", "--redis", redis.url])
            #expect(list.output.split(separator: "\n").count == 3, "\(list.errors)")
        }

        @Test(
            "mistakes are reported before anything is added",
            arguments: [
                (["--from", "/nowhere"], "/nowhere cannot be read"), (["ab", "--from", "x"], "not both"),
                (["ab", "--at", "2100-01-01T00:00:00Z"], "in the past"), (["ab", "--at", "soon"], "--at must be"),
                (["ab", "--reason", "a b"], "--reason must have"), (["ab", "--topic", ""], "--topic is empty"),
            ])
        func mistakes(_ arguments: [String], _ part: String) async throws {
            let redis = try RedisServer()
            try await Self.add(arguments, redis).fails(64, part)
            #expect(try Self.count(redis) == 0)
        }
    }
}
