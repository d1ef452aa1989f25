import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The commands for invalid tokens")
    struct InvalidCommandTests {
        private static func invalid(
            _ arguments: [String], _ url: String, input: String? = nil
        ) async throws -> CommandLineTests.Output {
            try await apnsWorker(url, ["invalid"] + arguments, input: input)
        }

        /// Adds tokens as workers write them. Half of the tokens are marked in a wrong environment.
        private static func fill(_ count: Int, _ redis: RedisServer) throws {
            let tokens = try redis.invalidTokens()
            let now = Int64(Date().timeIntervalSince1970) * 1000
            for number in 0..<count {
                let token = TestJob.token("", number)
                let (reason, environment) =
                    number % 2 == 0 ? ("BadDeviceToken", "sandbox") : ("Unregistered", "production")
                let at = now - (number < count / 2 ? 60_000 : 86_400_000)
                try tokens.add(
                    token,
                    .init(at: at, reason: reason, topic: #"com."example",x"#, environment: environment, source: "apns"))
            }
        }

        private static func members(_ redis: RedisServer) throws -> Set<String> {
            Set(try redis.run("SMEMBERS", "push:{shared}:invalid-tokens").strings())
        }

        @Test("a shard that can't be read hides no other one")
        func unreadableShard() async throws {
            let redis = try RedisServer()
            // The tokens are in the first shard and in the last one.
            try Self.fill(100, redis)
            let now = Int64(Date().timeIntervalSince1970) * 1000
            for number in 0..<3 {
                try redis.invalidTokens().add(TestJob.token("ff", number), .init(at: now, reason: "Unregistered"))
            }
            try await Self.invalid(["reshard", "--to", "4", "--yes"], redis.url).succeeds()
            let keys = try redis.run("KEYS", "push:{*.4.*}:invalid-tokens*").strings()
            let sets = try keys.filter { try redis.run("TYPE", $0) == .status("set") }
            let broken = try #require(try sets.max { try size($0, redis) < size($1, redis) })
            #expect(try size(broken, redis) == 100)
            try redis.run("DEL", broken)
            try redis.run("SET", broken, "x")
            let note = "of 4 of the invalid tokens is not included: "
            for options in [
                ["list", "--format", "tokens"], ["list", "--json"], ["export"], ["list", "--json", "--count"],
            ] {
                let list = try await Self.invalid(options, redis.url).fails(1, note)
                let isCount = options.contains("--count")
                let found =
                    try isCount
                    ? list.objects.compactMap { $0["count"] as? Int }.reduce(0, +)
                    : list.output.split(separator: "\n").count
                #expect(found == 3, "\(options) \(list)")
            }
            // A change needs all shards.
            try await Self.invalid(["remove", "--reason", "Unregistered", "--yes"], redis.url).fails(1, "WRONGTYPE")

            let web = try await WebProcess(redis.url, ["ada": ["--role", "operator"]])
            let answer = try await web.ask("ada", "/api/v1/invalid-tokens")
            #expect((answer.body["invalid_tokens"] as? [Any])?.count == 3, "\(answer)")
            #expect((answer.body["unread"] as? [String])?.first?.contains(note) == true, "\(answer)")
            let page = try await web.ask("ada", "/invalid?reason=Unregistered").text
            #expect(page.contains(note), "\(page)")
        }

        private func size(_ key: String, _ redis: RedisServer) throws -> Int {
            try redis.run("SCARD", key).number ?? 0
        }

        @Test("an operator's command that was killed is completed by the next one, and workers wait for that")
        func killedReshard() async throws {
            let redis = try RedisServer()
            try Self.fill(3000, redis)
            let before = try Self.members(redis)
            let reshard = ["reshard", "--to", "16", "--yes"]
            let counted = try await Self.invalid(["reshard", "--to", "16", "--dry-run"], redis.url)
            counted.prints("would have copied 3,000 tokens\n")
            let killed = try redis.startCommand(["invalid"] + reshard)
            try await eventually("it has begun") {
                try redis.run("GET", "push:{shared}:invalid-tokens:division").text?.hasPrefix("1 16 ") == true
            }
            killed.kill()
            _ = try await killed.wait()
            let advice = "`apns-worker invalid reshard --to 1` or `--to 16` completes it"
            try await Self.invalid(["list"], redis.url).fails(69, advice)
            try await Self.invalid(["remove", TestJob.token("", 0)], redis.url).fails(69, advice)
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis: redis.url, endpoint: simulator.port)
            try redis.push([3000, 3001].map { #"{"token":"\#(TestJob.token("", $0))","alert":"x"}"# })
            try await eventually("the worker waits") { worker.log.contains(advice) }
            try await Self.invalid(reshard, redis.url).succeeds(
                "copied 3,000 tokens; the set is now divided into 16 shards")
            try await redis.has(2)
            _ = try await worker.stop()
            let listed = try await Self.invalid(["list", "--format", "tokens"], redis.url)
            #expect(Set(listed.output.split(separator: "\n").map(String.init)) == before)
            try await Self.invalid(["reshard", "--to", "1", "--yes", "--json"], redis.url).succeeds(
                #""action":"copied""#, #""count":3000"#)
            #expect(try Self.members(redis) == before)
            #expect(try redis.run("KEYS", "push:{shared.*").strings().isEmpty)
        }

        @Test("they are listed and counted, for people and for programs")
        func list() async throws {
            let redis = try RedisServer()
            #expect(try await Self.invalid(["list"], redis.url).errors == "there are no invalid tokens\n")
            try Self.fill(100, redis)
            try redis.run("SADD", "push:{shared}:invalid-tokens", "unknown")
            let table = try await Self.invalid(["list", "--reason", "Unregistered", "--limit", "3"], redis.url)
            let lines = table.output.split(separator: "\n")
            #expect(lines.count == 4 && table.errors.contains("there are more"))
            #expect(lines[0].contains(/TOKEN +SINCE +REASON +SOURCE +ENVIRONMENT +TOPIC/))
            #expect(
                lines[1].contains(
                    /[0-9a-f]{64}  2\d{3}-\d\d-\d\dT[\d:]{8}Z  Unregistered  apns +production +com\."example",x/))
            let count = try await Self.invalid(
                ["list", "--by", "reason,source,environment", "--since", "1h"], redis.url
            ).output
            #expect(
                count.contains(/25 +BadDeviceToken +apns +sandbox/) && count.contains(/25 +Unregistered/), "\(count)")
            let objects = try await Self.invalid(["list", "--json"], redis.url).objects
            #expect(objects.count == 101 && objects.filter { $0["at"] != nil }.count == 100)
            #expect(objects.allSatisfy { $0["topic"] == nil || $0["topic"] as? String == #"com."example",x"# })
            try await Self.invalid(["list", "--source", "nobody"], redis.url).fails()
        }

        @Test("all are exported in each format, and the file is complete or does not exist")
        func export() async throws {
            let redis = try RedisServer()
            try Self.fill(3000, redis)
            let tokens = try await Self.invalid(["export"], redis.url)
            #expect(try Set(tokens.output.split(separator: "\n").map(String.init)) == Self.members(redis))
            #expect(tokens.errors.hasSuffix(" invalid tokens\n"))
            let csv = try await Self.invalid(["list", "--format", "csv", "--environment", "sandbox"], redis.url).output
            let rows = csv.components(separatedBy: "\r\n")
            #expect(rows[0] == "token,since,reason,source,environment,topic,set" && Set(rows).count == 1502)
            #expect(rows[1].hasSuffix(#",BadDeviceToken,apns,sandbox,"com.""example"",x","#))

            let path = redis.directory.appending(path: "tokens.ndjson").path
            let written = try await Self.invalid(["list", "--format", "ndjson", "--output", path], redis.url)
            #expect(written.output.isEmpty && written.errors.hasSuffix("written to \(path)\n"))
            let before = try String(contentsOfFile: path, encoding: .utf8)
            let parsed = try CommandLineTests.Output(ending: .exited(0), output: before, errors: "").objects
            #expect(Set(parsed.compactMap { $0["token"] as? String }).count == 3000)
            try redis.run("DEL", "push:{shared}:invalid-tokens")
            try redis.run("SET", "push:{shared}:invalid-tokens", "something else")
            try await Self.invalid(["list", "--format", "tokens", "--output", path], redis.url).fails()
            #expect(try String(contentsOfFile: path, encoding: .utf8) == before)
            let left = try FileManager.default.contentsOfDirectory(atPath: redis.directory.path)
            #expect(!left.contains { $0.hasSuffix(".tmp") })
            try await Self.invalid(["export", "--output", "/does/not/exist"], redis.url).fails("/does/not/exist")
        }

        @Test("tokens are removed by name, from a file or by a filter, together with their details")
        func remove() async throws {
            let redis = try RedisServer()
            try Self.fill(1000, redis)
            func counts() throws -> [Int?] {
                let set = try redis.run("SCARD", "push:{shared}:invalid-tokens").number
                return [set, try redis.invalidTokens().detailsCount()]
            }
            let named = [TestJob.token("", 1).uppercased(), "<\(TestJob.token("", 3))>", TestJob.token("ff", 1)]
            try await Self.invalid(["remove", "--dry-run"] + named, redis.url).prints("would have removed 2 tokens\n")
            #expect(try counts() == [1000, 1000])
            try await Self.invalid(["remove"] + named, redis.url).prints("removed 2 tokens\n")
            #expect(try counts() == [998, 998])
            let again = try await Self.invalid(["remove"] + named, redis.url)
            #expect(again.ending == .exited(1) && again.errors == "no token matches\n")

            let filter = ["remove", "--environment", "sandbox", "--reason", "BadDeviceToken", "--since", "1h"]
            try await Self.invalid(filter, redis.url).fails("pass --yes")
            try await Self.invalid(filter + ["--dry-run"], redis.url).prints("would have removed 250 tokens\n")
            try await Self.invalid(filter + ["--yes"], redis.url).prints("removed 250 tokens\n")
            #expect(try counts() == [748, 748])
            let left = try Self.members(redis)
            #expect(
                (0..<1000).allSatisfy { left.contains(TestJob.token("", $0)) == ($0 % 2 == 1 && $0 > 3 || $0 >= 500) })

            let file = ["remove", "--from", "-", "--yes"]
            try await Self.invalid(file, redis.url, input: TestJob.token("", 5) + "\nnonsense\n").fails("line 2")
            #expect(try counts() == [748, 748])
            let lines = (0..<700).map { TestJob.token("", $0) }.joined(separator: "\r\n") + "\n\n"
            try await Self.invalid(file + ["--json"], redis.url, input: lines).prints(
                #"{"action":"removed","by_reason":{},"count":448,"dry_run":false,"interrupted":false}"# + "\n")
            #expect(try counts() == [300, 300])
            #expect(
                try await Self.invalid(["remove", "--since", "2099-01-01T00:00Z", "--yes"], redis.url).errors
                    == "no token matches\n")
            try await Self.invalid(["remove", "--all", "--topic", "x"], redis.url).fails()
            try await Self.invalid(["remove", "--all", "--yes"], redis.url).prints("removed 300 tokens\n")
            #expect(try counts() == [0, 0])
        }
    }
}
