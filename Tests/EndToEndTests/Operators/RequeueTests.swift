import Foundation
import PushQueue
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Requeueing dead letters, by the command and by the script")
    struct RequeueTests {
        private static let mixed: [TestLetter] = (0..<60).map { number in
            var letter = TestLetter.numbered(number, reason: ["UnknownApp", "BadPayload", "BadTopic"][number % 3])
            letter.seconds = Int64(number) * 60
            letter.members =
                number % 2 == 0 ? #","app":"one","error":"Shutdown""# : #","app":"two words","detail":"it's \"so\"""#
            if number % 5 == 0 { letter.members += #","tokens":["abc\#(number)"]"# }
            return letter
        }

        private static let cancelled: [TestLetter] = (0..<10).map { number in
            let token = Data([0xFB, 0xFF, UInt8(number)] + [UInt8](repeating: 7, count: 29))
            let text =
                [
                    token.base64EncodedString(), token.map { String(format: "%02X", $0) }.joined(),
                    token.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing(
                        "=", with: ""),
                ][number % 3]
            return TestLetter(
                reason: "Cancelled", id: "c-\(number)", members: #","campaign":"spring \#(number % 2)""#,
                original: Array(TestJob.text(text, #""id":"c-\#(number)","campaign":"spring \#(number % 2)","#).utf8),
                seconds: Int64(number) * 60)
        }

        /// Flags, and the number of jobs that they move; `nil` for wrong flags. There are 60 mixed dead letters and 10 cancelled jobs,
        /// one of each kind for each minute. `KEY` is the key of `job-3`. `T…` and `U…` are times 20.5 and 10.5 minutes ago in several
        /// forms.
        private static let agreements: [(flags: [String], moved: Int?)] = filters + tokens + times

        private static let filters: [(flags: [String], moved: Int?)] = [
            (["--all", "--yes"], 60), (["--all", "--dry-run"], 0), (["--all"], nil),
            (["--reason=BadPayload", "--reason", "UnknownApp", "--app", "one"], 20),
            (["--app", "two words", "--error", "it's \"so\"", "--keep-attempts"], 30),
            (["--token", "ABC10", "--error", "SHUTDOWN", "--id", "job-10", "--id", "job-11"], 1),
            (["--since", "50m30s", "--until", "10m30s", "--reason", "Bad*", "--limit", "7"], 7),
            (["--reason", "$(touch /tmp/x)`id`"], 0), (["--error", "'); redis.call('FLUSHALL') --"], 0),
            (["--key", "KEY"], 1), (["--key", "KEY", "--reason", "BadPayload"], 0), (["--key", "12"], nil),
            (["--key", "0123456789"], 0), (["--token", "abcdef01"], nil), (["--token", "abcdef…"], nil),
            // Cancelled jobs have the reason `Cancelled`.
            (["--reason", "Cancelled"], 10), (["--reason", "Cancelled", "--reason", "BadTopic"], 30),
            (["--reason", "Cancelled", "--reason", "BadTopic", "--limit", "25", "--first"], 25),
            (["--reason", "Canc*"], 0), (["--campaign", "spring 0"], 0),
            (["--campaign", "spring 0", "--reason", "Cancelled"], 5), (["--id", "c-3"], 1),
            (["--id", "c-3", "--id", "job-10"], 2), (["--reason", "Cancelled", "--since", "4m30s"], 5),
            (["--reason", "Cancelled", "--dry-run"], 0),
        ]

        /// A filter with a token in any form finds jobs with the token in any other form.
        private static let tokens: [(flags: [String], moved: Int?)] = (0..<3).flatMap { number in
            let token = Data([0xFB, 0xFF, UInt8(number)] + [UInt8](repeating: 7, count: 29))
            let digits = token.map { String(format: "%02x", $0) }.joined()
            let spaced = "<\(digits.prefix(8)) \(digits.dropFirst(8))>"
            let forms: [String] = [token.base64EncodedString(), digits, digits.uppercased(), spaced]
            return forms.map { (flags: ["--token=" + $0], moved: 1) }
        }

        private static let times: [(flags: [String], moved: Int?)] = {
            let valid = ["20m30s", "20m30s0ms", "Tiso", "Toffset", "Tspace", "Tseconds", "Tfraction", "Tms"]
            let wrong = [
                "soon", "1h1h", "5m1h", "1.5h", "-5m", "20m30", "2026-13-01T00:00:00Z", "2026-02-30T00:00Z",
                "2026-01-01T00:00", "2026-01-01", "2026-01-01T24:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00+24",
                "0123456789", "1795279247.", "99999999999999999", "36501d", " ",
            ]
            var rows: [(flags: [String], moved: Int?)] = []
            for time in valid {
                rows.append((["--since", time, "--first"], 21))
                rows.append((["--until", time, "--error", "Shutdown"], 19))
            }
            rows.append((["--since", "Tiso", "--until", "Ums"], 10))
            rows.append((["--since", "Ums", "--until", "Tiso"], nil))
            return rows + wrong.map { (flags: ["--since", $0], moved: nil) }
        }()

        /// Returns the time for a form such as `T` or `U`.
        private static func time(_ text: String) -> String {
            guard let first = text.first, "TU".contains(first) else { return text }
            let seconds = Date().timeIntervalSince1970.rounded(.down) - (first == "T" ? 1230 : 630)
            let date = Date(timeIntervalSince1970: seconds)
            let iso = date.formatted(.iso8601)
            return switch text.dropFirst() {
            case "iso": iso
            case "offset":
                date.addingTimeInterval(5400).formatted(.iso8601).replacing("Z", with: "+01:30")
            case "space": iso.replacing("T", with: " ").replacing("Z", with: ",5-00")
            case "seconds": "\(Int(seconds))"
            case "fraction": "\(Int(seconds)).0625"
            case "ms": "\(Int(seconds) * 1000)"
            default: text
            }
        }

        @Test("both have the same effect on the same dead letters")
        func agreement() async throws {
            let servers = try RequeueTool.allCases.map { ($0, try RedisServer()) }
            for (flags, moved) in Self.agreements {
                var results: [(Output, QueueContents)] = []
                for (tool, redis) in servers {
                    try redis.run("FLUSHALL")
                    try redis.bury(Self.mixed)
                    try redis.bury(Self.cancelled, as: "cancelled")
                    var words = flags.map(Self.time)
                    if let place = words.firstIndex(of: "KEY") {
                        let listed = try await redis.apnsWorker(["dead", "list", "--id", "job-3", "--json"])
                        words[place] = try #require(listed.objects.first?["key"] as? String)
                    }
                    let result = try await tool.run(words, redis: redis)
                    results.append((result, try QueueContents(redis)))
                }
                let (command, script) = (results[0], results[1])
                let isNothing = moved == 0 && !flags.contains("--dry-run")
                #expect(
                    command.0.ending == .exited(moved == nil ? 64 : isNothing ? 1 : 0), "\(flags) \(command.0.errors)")
                #expect(command.0.ending == script.0.ending, "\(flags) \(script.0.errors)")
                #expect(command.0.output == script.0.output, "\(flags)")
                if moved != nil { #expect(command.0.errors == script.0.errors, "\(flags)") }
                // The script runs a little later than the command, and the time is a part of jobs and dead letters.
                #expect(command.1.jobs.map(Self.withoutTime) == script.1.jobs.map(Self.withoutTime), "\(flags)")
                #expect(command.1.dead.map(\.original) == script.1.dead.map(\.original), "\(flags)")
                #expect(command.1.counters == script.1.counters, "\(flags)")
                #expect(command.1.jobs.count == moved ?? 0 && command.1.dead.count == 70 - (moved ?? 0), "\(flags)")
                let continued = command.1.jobs.count { String(decoding: $0, as: UTF8.self).contains(#""attempt":3,"#) }
                #expect(continued == (flags.contains("--keep-attempts") ? moved : 0), "\(flags)")
            }
        }

        @Test("Ctrl-C ends the script while Redis does not answer.", arguments: [SIGINT, SIGTERM])
        func hangingRedis(signal: Int32) async throws {
            let redis = try RedisServer()
            try redis.bury((0..<300).map { TestLetter.numbered($0) })
            let process = try RequeueTool.script.start(["--all", "--yes", "--rate", "20"], redis: redis)
            try await eventually("some are moved") { try QueueContents(redis).jobs.count >= 20 }
            redis.pause()
            defer { redis.resume() }
            process.send(signal)
            #expect(try await process.wait(within: .seconds(30)) == .exited(signal == SIGINT ? 130 : 143))
            #expect(process.output.hasPrefix("requeued "), "\(process.output) \(process.errors)")
        }

        @Test("The script reads the password from the file that the URL names.")
        func passwordFile() async throws {
            let redis = try RedisServer(password: "s3cret@")
            try redis.bury([.numbered(1)])
            let folder = try TemporaryFolder()
            let file = try folder.write("s3cret@\n", as: "pass word")
            let path = file.replacing(" ", with: "%20")
            let url = "redis://127.0.0.1:\(redis.port)?password_file=\(path)"
            try await CommandLineTests.run(
                ["--all", "--yes"], of: RequeueTool.scriptPath, environment: ["APNS_WORKER_REDIS_URL": url]
            ).prints("requeued 1 job of queue default: 1 UnknownApp\n")
            try await CommandLineTests.run(
                ["--all", "--yes"], of: RequeueTool.scriptPath,
                environment: ["APNS_WORKER_REDIS_URL": url + "-no"]
            ).fails(1, "cannot be read")
        }

        private typealias Output = CommandLineTests.Output

        /// Returns a requeued job without the time at which it was requeued.
        private static func withoutTime(_ job: [UInt8]) -> String {
            String(decoding: job, as: UTF8.self).replacing(/"requeued":\d+/, with: "")
        }

        @Test(
            "filters select exactly the matching dead letters, and the summary is by reason",
            arguments: RequeueTool.allCases)
        func chosen(tool: RequeueTool) async throws {
            let redis = try RedisServer()
            try redis.bury(Self.mixed)
            try await tool.run(["--reason", "Bad*", "--dry-run"], redis: redis).prints(
                "would have requeued 40 jobs of queue default: 20 BadPayload, 20 BadTopic\n")
            let nothing = try await tool.run(["--reason", "BadTokem"], redis: redis)
            #expect(
                nothing.errors
                    == "none of the 60 dead letters of queue default matches; there are 20 BadPayload, 20 BadTopic, 20 UnknownApp\n"
            )
            try await tool.run(["--reason", "BadPayload", "--limit", "3"], redis: redis).prints(
                "requeued 3 jobs of queue default: 3 BadPayload\n")
            // The oldest matching letters are 58, 55 and 52.
            #expect(try redis.originals() == [58, 55, 52].map { Self.mixed[$0].original })
            try await tool.run(["--id", "job-1"], redis: redis).prints(
                "requeued 1 job of queue default: 1 BadPayload\n")
            try await tool.run(["--all", "--yes"], redis: redis).succeeds()
            let empty = try await tool.run(["--all", "--yes"], redis: redis)
            #expect(empty.ending == .exited(0) && empty.errors == "queue default has no dead letters\n")
            #expect(try redis.counted("requeued") == 60)
        }

        @Test(
            "mistakes in flags are reported, and nothing is changed", arguments: RequeueTool.allCases,
            [
                ([], "--all"), (["--all", "--reason", "X"], "--all cannot be combined with filters"),
                (["--reason", ""], "--reason is empty"), (["--all", "--limit", "0"], "must be at least 1"),
                (["--all", "--rate", "0"], "--rate must be"),
                (["--all", "--yes", "--queue", "a{b"], "printable ASCII"),
                (["--all", "--yes", "--resaon", "X"], "--resaon"), (["--since", "soon"], "since must be"),
                // A flag without its value.
                (["--all", "--yes", "--queue", "--dry-run"], "--queue"), (["--reason", "--all", "--yes"], "--reason"),
            ] as [([String], String)])
        func mistakes(tool: RequeueTool, flags: ([String], words: String)) async throws {
            let redis = try RedisServer()
            try redis.bury([.numbered(1)])
            try await tool.run(flags.0, redis: redis).fails(64).reports(flags.words)
            #expect(try QueueContents(redis).dead.count == 1)
        }

        @Test("killed in the middle and repeated, it moves each job once", arguments: RequeueTool.allCases)
        func killed(tool: RequeueTool) async throws {
            let redis = try RedisServer()
            let letters = (0..<400).map { TestLetter.numbered($0) }
            try redis.bury(letters)
            for step in 1...2 {
                let process = try tool.start(["--all", "--yes", "--rate", "40"], redis: redis)
                try await eventually("some are moved") { try QueueContents(redis).jobs.count >= step * 50 }
                process.kill()
            }
            #expect(try QueueContents(redis).dead.count > 0)
            try await tool.run(["--all", "--yes"], redis: redis).succeeds()
            let originals = try redis.originals()
            #expect(originals.count == 400 && Set(originals) == Set(letters.map(\.original)))
            #expect(try QueueContents(redis).dead.isEmpty)
        }

        @Test("interrupted, it reports its progress", arguments: RequeueTool.allCases, [SIGINT, SIGTERM])
        func interrupted(tool: RequeueTool, signal: Int32) async throws {
            let redis = try RedisServer()
            try redis.bury((0..<300).map { TestLetter.numbered($0) })
            let process = try tool.start(["--all", "--yes", "--rate", "20"], redis: redis)
            try await eventually("some are moved") { try QueueContents(redis).jobs.count >= 25 }
            process.send(signal)
            #expect(try await process.wait() == .exited(tool == .script && signal == SIGTERM ? 143 : 130))
            let moved = try QueueContents(redis).jobs.count
            #expect(process.output == "requeued \(moved) jobs of queue default: \(moved) UnknownApp\n")
            #expect(process.errors == "the others are still dead letters; repeat the command to continue\n")
            #expect(try QueueContents(redis).dead.count == 300 - moved && moved < 300)
        }

        @Test("a server that cannot be reached or is not the master is reported")
        func refused() async throws {
            let redis = try RedisServer()
            for tool in RequeueTool.allCases {
                redis.stop()
                let result = try await tool.run(["--all", "--yes"], redis: redis)
                #expect(result.ending != .exited(0) && !result.errors.isEmpty)
                try redis.start()
                try redis.bury([.numbered(1)])
                try redis.run("REPLICAOF", "127.0.0.1", "1")
                try await tool.run(["--all", "--yes"], redis: redis).fails("replica")
                try redis.run("REPLICAOF", "NO", "ONE")
            }
        }

        @Test("on a terminal the command moves many only after confirmation")
        func question() async throws {
            let redis = try RedisServer()
            try redis.bury((0..<150).map { TestLetter.numbered($0) })
            let refused = try await Self.onTerminal("--all", redis, answer: "n\n")
            #expect(refused.contains("Requeue 150 jobs to default (150 UnknownApp)? [y/N]"), "\(refused)")
            #expect(refused.contains("nothing was changed"))
            #expect(try QueueContents(redis).dead.count == 150)
            _ = try await Self.onTerminal("--all --limit 100", redis, answer: "")
            #expect(try QueueContents(redis).dead.count == 50)
            try redis.bury((200..<300).map { TestLetter.numbered($0) })
            let agreed = try await Self.onTerminal("--all", redis, answer: "y\n")
            #expect(agreed.contains("requeued 150 jobs"), "\(agreed)")
        }

        /// Returns the output of the command on a terminal. The answer is typed there.
        private static func onTerminal(_ flags: String, _ redis: RedisServer, answer: String) async throws -> String {
            let process = try redis.startOnTerminal("requeue \(flags)", typing: answer)
            try await process.wait()
            return process.output
        }

        @Test("the script of packages works alone, with the command's Lua")
        func alone() async throws {
            let redis = try RedisServer(password: "s3cret")
            try redis.bury([.numbered(1)])
            let folder = try TemporaryFolder()
            let copy = folder.path("a script")
            try await CommandLineTests.run(
                [copy], of: Repository.path("scripts/package.d/requeue")
            ).succeeds()
            let lua = String(decoding: QueueScript.pageDeadLetters.source, as: UTF8.self)
            for script in [RequeueTool.scriptPath, copy] {
                #expect(try await CommandLineTests.run(["--lua"], of: script).output == lua)
            }
            var environment = ["APNS_WORKER_REDIS_URL": "redis://127.0.0.1:\(redis.port)"]
            try await CommandLineTests.run(["--all", "--yes"], of: copy, environment: environment).fails(
                1, "REDISCLI_AUTH")
            environment["REDISCLI_AUTH"] = "s3cret"
            try await CommandLineTests.run(["--all", "--yes"], of: copy, environment: environment).prints(
                "requeued 1 job of queue default: 1 UnknownApp\n")
            #expect(try QueueContents(redis).dead.isEmpty)
        }

        @Test("the script passes the password of a URL to redis-cli in its environment, not in its arguments")
        func secret() async throws {
            let folder = try TemporaryFolder()
            let program = try folder.write("#!/bin/sh\nprintf '%s\\n' \"$REDISCLI_AUTH\" \"$*\" >&2\n", as: "redis-cli")
            try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: program)
            let result = try await CommandLineTests.run(
                ["--all", "--yes"], of: RequeueTool.scriptPath,
                environment: [
                    "PATH": "\(folder.url.path):/usr/bin:/bin",
                    "APNS_WORKER_REDIS_URL": "rediss://us%65r:s3%40%25t@redis.internal:6380/3",
                ])
            #expect(result.errors.hasPrefix("s3@%t\n--user user -u rediss://redis.internal:6380/3 --raw EVAL "))
            #expect(result.errors.components(separatedBy: "s3").count == 2)
            #expect(result.ending == .exited(1) && result.errors.hasSuffix("requeue: redis-cli got no answer\n"))
        }

        @Test("both work in a Cluster and behind Sentinels")
        func topologies() async throws {
            let cluster = try await RedisCluster()
            let owner = try cluster.owner(ofSlot: cluster.slot(of: "push:{default}:jobs"))
            let other = try #require(cluster.nodes.first { $0 !== owner })
            let set = try await RedisSentinelSet()
            try await set.failOver()
            let master = try set.master()
            for (server, url, client) in [
                (owner, cluster.url, "redis-cli -c -p \(other.port)"), (master, set.url, "redis-cli -p \(master.port)"),
            ] {
                try server.bury((0..<500).map { TestLetter.numbered($0) })
                func run(_ arguments: String...) async throws -> CommandLineTests.Output {
                    try await apnsWorker(url, arguments)
                }
                try await run("dead", "list", "--by", "reason").prints("500\tUnknownApp\n")
                try await run("requeue", "--all", "--yes", "--limit", "200").prints(
                    "requeued 200 jobs of queue default: 200 UnknownApp\n")
                try await CommandLineTests.run(
                    ["--all", "--yes", "--limit", "299", "--redis-cli", client], of: RequeueTool.scriptPath
                ).prints("requeued 299 jobs of queue default: 299 UnknownApp\n")
                try await run("dead", "delete", "--all", "--yes").prints(
                    "deleted 1 dead letter of queue default: 1 UnknownApp\n")
                #expect(try QueueContents(server).jobs.count == 499)
            }
            try owner.bury([.numbered(1)])
            try await CommandLineTests.run(
                ["--all", "--yes", "--redis-cli", "redis-cli -p \(other.port)"], of: RequeueTool.scriptPath
            ).fails(1, "add -c")
        }
    }
}
