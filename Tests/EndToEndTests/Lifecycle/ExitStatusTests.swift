import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Exit statuses, and errors without a usage text")
    struct ExitStatusTests {
        private static let commands = [
            ["status"], ["dead", "list"], ["dead", "delete", "--all", "--yes"], ["requeue", "--reason", "x"],
            ["pause"], ["resume"], ["results"], ["invalid", "list"], ["stop", "--all", "--yes"],
            ["enqueue", "--token", "ab", "--alert", "x"],
        ]

        @Test(
            "an unreachable Redis is reported at once, tried again until --timeout, and exits with 69",
            arguments: commands)
        func unavailable(command: [String]) async throws {
            let port = try RedisServer.refusedPort()
            let result = try await apnsWorker("redis://:s3cret@127.0.0.1:\(port)", command + ["--timeout", "1s"]).fails(
                69
            ).prints("")
            let lines = result.errors.split(separator: "\n")
            try #require(lines.count == 2, "\(result.errors)")
            #expect(lines[0].hasPrefix("waiting up to 1s for Redis: cannot connect to Redis at 127.0.0.1:\(port)"))
            #expect(lines[1] == "Error: cannot connect to Redis at 127.0.0.1:\(port): Connection refused")
        }

        @Test("a Redis that appears while a command waits is used")
        func late() async throws {
            let redis = try RedisServer()
            redis.kill()
            let process = try redis.startCommand(["status", "--timeout", "60s"])
            try await eventually("it says what it waits for") { process.errors.contains("waiting up to 1m for Redis") }
            try redis.start()
            #expect(try await process.wait() == .exited(0))
            #expect(process.output.contains("QUEUE"))
        }

        @Test("a name that does not resolve exits with 69")
        func unresolvable() async throws {
            try await CommandLineTests.run(
                ["status", "--timeout", "1s", "--redis", "redis://no-such-host.invalid"]).fails(
                    69, "no-such-host.invalid"
                ).lacks("Usage")
        }

        @Test("a full Redis exits with 69")
        func full() async throws {
            let redis = try RedisServer(arguments: ["--maxmemory-policy", "noeviction"])
            try redis.bury([.numbered(1)])
            try redis.run("CONFIG", "SET", "maxmemory", "100000")
            for command in [["enqueue", "--token", "ab", "--alert", "x"], ["requeue", "--all", "--yes"]] {
                try await redis.apnsWorker(command).fails(69, "Redis is full: raise its maxmemory").lacks(
                    "user_script", "Usage")
            }
        }

        @Test("a refused login exits with 77 at once", arguments: commands)
        func refused(command: [String]) async throws {
            let redis = try RedisServer(password: "right")
            for url in ["redis://:wrong@127.0.0.1:\(redis.port)", "redis://127.0.0.1:\(redis.port)"] {
                let result = try await apnsWorker(url, command).fails(
                    77
                ).prints("")
                #expect(result.errors.hasPrefix("Error: ") && result.errors.split(separator: "\n").count == 1)
                #expect(!result.errors.contains("wrong@"))
            }
        }

        @Test("a wrong setting exits with 78, a wrong flag with 64, and only wrong flags print a usage text")
        func mistakes() async throws {
            let wrong = try await CommandLineTests.run(["status"], environment: ["APNS_WORKER_LANES": "two"])
            #expect(wrong.errors.hasPrefix("Error: APNS_WORKER_LANES is two"), "\(wrong)")
            let unknown = try await CommandLineTests.run(["status"], environment: ["APNS_WORKER_REDIS": "redis://x"])
                .reports("did you mean APNS_WORKER_REDIS_URL?")
            let missing = try await CommandLineTests.run(["run", "--redis", "redis://127.0.0.1:1"]).reports(
                "APNS_WORKER_TOPIC")
            for result in [wrong, unknown, missing] {
                #expect(result.ending == .exited(78) && !result.errors.contains("Usage"), "\(result)")
            }
            try await CommandLineTests.run(["run", "--lanes", "many"]).fails(64, "--lanes").prints("").lacks("Usage")
            let option = try await CommandLineTests.run(["pause", "--redi=x"])
            #expect(option.errors.hasPrefix("Error: Unknown option '--redi'. Did you mean '--redis'?"), "\(option)")
            #expect(option.ending == .exited(64) && option.errors.contains("Usage"), "\(option)")
        }
    }

    @Suite("status --check, for Nagios")
    struct StatusCheckTests {
        private static func check(_ redis: String, _ options: String...) async throws -> CommandLineTests.Output {
            try await apnsWorker(redis, ["status", "--check"] + options)
        }

        @Test("always prints its line on standard output: OK, WARNING, CRITICAL or UNKNOWN")
        func statuses() async throws {
            let redis = try RedisServer(password: "right")
            let url = "redis://:right@127.0.0.1:\(redis.port)"
            let fine = try await Self.check(url).succeeds().begins("OK: 0 jobs wait in 1 queue")
            try redis.push([TestJob.text("ab")])
            let critical = try await Self.check(url).fails(2).begins("CRITICAL: queue default: 1 job")
            let login = try await Self.check("redis://:wrong@127.0.0.1:\(redis.port)").fails(3).begins(
                "UNKNOWN: Redis at")
            let away = try await Self.check("redis://127.0.0.1:\(RedisServer.refusedPort())", "--timeout", "1s").fails(
                2
            ).begins("CRITICAL: cannot connect to Redis")
            let usage = try await Self.check(url, "--max-age", "old").fails(3).begins("UNKNOWN: --max-age is old")
            for result in [fine, critical, login, away, usage] {
                #expect(result.output.split(separator: "\n").count == 1)
            }
        }

        @Test("A paused queue with jobs that are two hours old is a warning, and a problem with its command.")
        func oldPausedJobs() async throws {
            let redis = try RedisServer()
            let then = Int(Date.now.timeIntervalSince1970) - 7200
            try redis.push(TestJob.many(50, prefix: "a", members: #""enqueued_at":\#(then),"#))
            try await redis.apnsWorker(["pause", "--reason", "wrong template"]).succeeds()
            try await Self.check(redis.url).fails(1).matches(
                /^WARNING: queue default is paused for \d+ m?s \(wrong template\), and its oldest job should have been sent 2 h ago$/
                    .anchorsMatchLineEndings())
            let view = try await FleetView(redis.url)
            #expect(view.kinds == ["queue_paused default"] && view.problems[0].severity == "warning")
            #expect(
                view.problems[0].advice == "`apns-worker resume --queue default --redis \(redis.url)` ends its pause")
            #expect(try await Self.check(redis.url, "--max-age", "3h").ending == .exited(0))
        }

        @Test("dead letters above one per cent of the day's outcomes are a problem, with reasons and a command")
        func deadLetters() async throws {
            let redis = try RedisServer()
            let day = try #require(redis.run("TIME").strings().first.flatMap { Double($0) })
            let date = ISO8601DateFormatter().string(from: Date(timeIntervalSince1970: day)).prefix(10)
            func status(_ delivered: Int, _ large: Int, _ other: Int, _ options: String...) async throws -> Int32? {
                try redis.run(
                    "HSET", "push:{default}:stats:\(date)", "delivered", "\(delivered)", "dead", "\(large + other)",
                    "dead:PayloadTooLarge", "\(large)", "dead:BadTopic", "\(other)")
                let result = try await redis.apnsWorker(["status", "--check"] + options)
                if case .exited(let status) = result.ending { return status }
                return nil
            }
            try redis.bury((0..<12).map { TestLetter.numbered($0, reason: "PayloadTooLarge") })
            #expect(try await status(5000, 11, 1) == 0)
            #expect(try await status(1000, 11, 1) == 1)
            #expect(
                try await Self.check(redis.url).output
                    == "WARNING: queue default: 12 of today's 1,012 notifications became dead letters (PayloadTooLarge 11, BadTopic 1)\n"
            )
            let view = try await FleetView(redis.url)
            #expect(view.kinds == ["dead_letters default"])
            #expect(view.problems[0].advice.contains("apns-worker requeue --queue default --reason BadTopic"))
            // A requeue does not help: the payload stays too large.
            #expect(!view.problems[0].advice.contains("--reason PayloadTooLarge"))
            // Fewer than ten dead letters in a day are not a problem unless --max-dead is given.
            #expect(try await status(20, 2, 0) == 0)
            #expect(try await status(20, 2, 0, "--max-dead-rate", "5%") == 1)
            #expect(try await status(20, 2, 0, "--max-dead-rate", "10%") == 0)
            #expect(try await status(20, 2, 0, "--max-dead", "11") == 1)
            #expect(try await status(20, 2, 0, "--max-dead", "12") == 0)
            // The day's count is not a problem once its dead letters are requeued or deleted.
            try redis.run("DEL", "push:{default}:dead")
            #expect(try await status(1000, 11, 1) == 0)
        }
    }
}
