import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The dead-letter commands")
    struct DeadCommandTests {
        private let redis: RedisServer

        init() throws { redis = try RedisServer() }

        private func dead(_ arguments: String...) async throws -> CommandLineTests.Output {
            try await redis.apnsWorker(["dead"] + arguments)
        }

        private static let hostile = TestLetter(
            reason: "BadPayload", id: #"id \u001b[31m"#,
            members:
                #","app":"one","status":413,"error":"PayloadTooLarge","detail":"too\nlong","tokens":["ab","cd"],"requeues":2"#,
            original: [0xFF, 0x00, 0x1B] + Array(#"{"payload":"secret"}"#.utf8), seconds: 7200)

        @Test("the list is a table, newest first, with the columns needed to choose")
        func table() async throws {
            try redis.bury((0..<60).map { TestLetter.numbered($0) } + [Self.hostile])
            let list = try await dead("list")
            let lines = list.output.split(separator: "\n")
            #expect(lines.count == 51 && list.errors.contains("there are more"))
            #expect(lines[0].contains(/TIME +AGE +KEY +REASON +APP +ID +ATTEMPTS +ERROR/))
            #expect(lines[1].contains(/Z +1m +[0-9a-f]{10} +UnknownApp +- +job-\d+ +2 +-/), "\(lines[1])")
            let one = try await dead("list", "--reason", "Bad*")
            let line = try #require(one.output.split(separator: "\n").last)
            #expect(
                line.contains(
                    /2h +[0-9a-f]{10} +BadPayload +one +id \[31m +2 +413, PayloadTooLarge, toolong, 2 tokens, requeued 2 times before/
                ),
                "\(line)")
            #expect(!one.output.contains("secret") && !one.output.contains("\u{1B}"))
            #expect(try await dead("list", "--by", "reason").output == "60\tUnknownApp\n1\tBadPayload\n")
            #expect(try await dead("list", "--by", "app,reason").output == "60\t-\tUnknownApp\n1\tone\tBadPayload\n")
            #expect(try await dead("list", "--count", "--reason", "Bad*").output == "1\n")
            try await dead("list", "--app", "nobody").succeeds().reports("none of the 61 dead letters")
        }

        @Test("for programs each dead letter is a line of JSON, and all are listed by default")
        func json() async throws {
            try redis.bury((0..<300).map { TestLetter.numbered($0) } + [Self.hostile])
            try redis.run("ZADD", "push:{default}:dead", "5", "somebody else's")
            let all = try await dead("list", "--json").objects
            #expect(all.count == 302 && Set(all.compactMap { $0["key"] as? String }).count == 302)
            let letter = try #require(all.first { $0["reason"] as? String == "BadPayload" })
            #expect(letter["id"] as? String == "id \u{1B}[31m" && letter["token_count"] as? Int == 2)
            #expect(letter["status"] as? Int == 413 && letter["requeues"] as? Int == 2 && letter["job"] == nil)
            #expect(all.last?["reason"] as? String == "Unreadable")
            let counts = try await dead("list", "--json", "--by", "reason").objects
            #expect(counts.map { $0["count"] as? Int } == [300, 1, 1])
        }

        @Test("one is shown in full, with its job byte for byte")
        func show() async throws {
            try redis.bury([Self.hostile, .numbered(1), .numbered(2)])
            let list = try await dead("list", "--json", "--reason", "BadPayload").objects
            let key = try #require(list.first?["key"] as? String)
            try await dead("show", key).shows(#"{"payload":"secret"}"#).lacks("\u{1B}", "\u{0}").matches(
                /tokens +ab cd\n/)
            // The letter's bytes are not UTF-8.
            let process = try redis.startCommand(["dead", "show", "--raw", key])
            #expect(try await process.wait() == .exited(0))
            #expect(try Data(contentsOf: process.directory.appending(path: "output")) == Data(Self.hostile.original))
            let object = try #require(try await dead("show", "--json", key).objects.first)
            #expect(object["job_base64"] as? String == Data(Self.hostile.original).base64EncodedString())
            let text = try #require(try await dead("show", "--json", "--id", "job-1").objects.first)
            #expect((text["job"] as? String).map { Array($0.utf8) } == TestLetter.numbered(1).original)
            try await dead("show", "0123456789").fails(1, "there are 2 UnknownApp, 1 BadPayload")
            try await dead("show", "--raw", "--id", "job-1", "--id", "job-2").fails("pass the key of one").prints("")
        }

        @Test("delete asks for confirmation or needs --yes, and deletes exactly the selection")
        func delete() async throws {
            try redis.bury((0..<20).map { TestLetter.numbered($0, reason: $0 < 5 ? "Old" : "New") })
            try await dead("delete", "--reason", "Old").fails("pass --yes")
            try await dead("delete", "--reason", "Old", "--dry-run").prints(
                "would have deleted 5 dead letters of queue default: 5 Old\n")
            #expect(try QueueContents(redis).dead.count == 20)
            let deleted = try await dead("delete", "--reason", "Old", "--yes", "--json")
            let object = try #require(try deleted.objects.first)
            #expect(object["action"] as? String == "deleted" && object["count"] as? Int == 5)
            #expect(object["by_reason"] as? [String: Int] == ["Old": 5] && object["queue"] as? String == "default")
            let process = try redis.startOnTerminal("dead delete --all", typing: "nonsense\n")
            #expect(try await process.wait() == .exited(1))
            #expect(process.output.contains("Delete 15 dead letters of queue default permanently (15 New)? [y/N]"))
            #expect(try QueueContents(redis).deadReasons == ["New": 15])
            #expect(try redis.counted("dead_deleted") == 5)
        }
    }
}
