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

        /// Flags, and the number of the mixed dead letters that they move; `nil` for wrong usage.
        private static let agreements: [(flags: [String], moved: Int?)] = [
            (["--all", "--yes"], 60), (["--all", "--dry-run"], 0), (["--all"], nil),
            (["--reason=BadPayload", "--reason", "UnknownApp", "--app", "one"], 20),
            (["--app", "two words", "--error", "it's \"so\"", "--keep-attempts"], 30),
            (["--token", "ABC10", "--error", "SHUTDOWN", "--id", "job-10", "--id", "job-11"], 1),
            (["--since", "20m30s", "--first"], 21),
            (["--since", "50m30s", "--until", "10m30s", "--reason", "Bad*", "--limit", "7"], 7),
            (["--reason", "$(touch /tmp/x)`id`"], 0), (["--error", "'); redis.call('FLUSHALL') --"], 0),
        ]

        @Test("both have the same effect on the same dead letters")
        func agreement() async throws {
            let servers = try RequeueTool.allCases.map { ($0, try RedisServer()) }
            for (flags, moved) in Self.agreements {
                var results: [(Output, QueueContents)] = []
                for (tool, redis) in servers {
                    try redis.run("FLUSHALL")
                    try redis.bury(Self.mixed)
                    let result = try await tool.run(flags, redis: redis)
                    results.append((result, try QueueContents(redis)))
                }
                let (command, script) = (results[0], results[1])
                let isNothing = moved == 0 && !flags.contains("--dry-run")
                #expect(command.0.ending == .exited(moved == nil ? 64 : isNothing ? 1 : 0), "\(flags)")
                #expect(command.0.ending == script.0.ending, "\(flags)")
                #expect(command.0.output == script.0.output, "\(flags)")
                if moved != nil { #expect(command.0.errors == script.0.errors, "\(flags)") }
                // The script runs slightly later, and jobs and dead letters contain both times.
                #expect(command.1.jobs.map(Self.withoutTime) == script.1.jobs.map(Self.withoutTime), "\(flags)")
                #expect(command.1.dead.map(\.original) == script.1.dead.map(\.original), "\(flags)")
                #expect(command.1.counters == script.1.counters, "\(flags)")
                #expect(command.1.jobs.count == moved ?? 0 && command.1.dead.count == 60 - (moved ?? 0), "\(flags)")
                let continued = command.1.jobs.count { String(decoding: $0, as: UTF8.self).contains(#""attempt":3,"#) }
                #expect(continued == (flags.contains("--keep-attempts") ? moved : 0), "\(flags)")
            }
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
            // The oldest: 58, 55 and 52.
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
                // A variable without a value.
                (["--all", "--yes", "--queue", "--dry-run"], "--queue"), (["--reason", "--all", "--yes"], "--reason"),
            ] as [([String], String)])
        func mistakes(tool: RequeueTool, flags: ([String], words: String)) async throws {
            let redis = try RedisServer()
            try redis.bury([.numbered(1)])
            let result = try await tool.run(flags.0, redis: redis).fails(64)
            #expect(result.errors.contains(flags.words), "\(result.errors)")
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

        /// Returns the output of the command on a terminal into which an answer is typed.
        private static func onTerminal(_ flags: String, _ redis: RedisServer, answer: String) async throws -> String {
            let program = try BuiltProgram.path("apns-worker")
            let process = try ChildProcess(
                "script", ["-qec", "\(program) requeue \(flags)", "/dev/null"],
                environment: ["APNS_WORKER_REDIS_URL": redis.url], input: Data(answer.utf8))
            try await process.wait()
            return process.output
        }

        @Test("the script of packages works alone, with the command's Lua")
        func alone() async throws {
            let redis = try RedisServer(password: "s3cret")
            try redis.bury([.numbered(1)])
            let folder = try ConfigurationTests.Folder()
            let copy = folder.url.appending(path: "a script").path
            try await CommandLineTests.run(
                [copy], of: DeployFolder.root.appending(path: "scripts/package.d/requeue").path
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
            let folder = try ConfigurationTests.Folder()
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
    }
}
