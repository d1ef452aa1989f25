import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Sending a campaign to a list")
    struct CampaignSendTests {
        private static let cursor = "push:{default}:campaign-list:spring"

        /// Writes a job and a list of tokens into the server's folder, and returns the arguments of the command.
        private static func files(
            _ redis: RedisServer, _ list: String, job: String = #"{"alert":"Hello"}"#, name: String = "list"
        ) throws -> [String] {
            let (jobFile, listFile) = (
                redis.directory.appending(path: "job.json"), redis.directory.appending(path: name)
            )
            try Data(job.utf8).write(to: jobFile)
            try Data(list.utf8).write(to: listFile)
            return ["campaign", "send", "spring", "--job", jobFile.path, "--tokens", listFile.path]
        }

        private static func next(_ redis: RedisServer) throws -> Int {
            try redis.run("HGET", cursor, "next").text.flatMap { Int($0) } ?? 0
        }

        @Test("Ctrl-C ends it after a step, and another list does not continue the campaign.")
        func interruption() async throws {
            let redis = try RedisServer()
            let tokens = (0..<1000).map { TestJob.token("d", $0) }
            let arguments = try Self.files(redis, tokens.joined(separator: "\n")) + ["--job-size", "10"]
            let process = try redis.startCommand(arguments + ["--ahead", "20"])
            try await eventually("the queue is full") { try Self.next(redis) == 20 }
            process.send(SIGINT)
            #expect(try await process.wait() == .exited(130))
            #expect(process.errors.contains("repeat the command to continue"), "\(process.errors)")
            _ = try Self.files(redis, tokens.dropLast().joined(separator: "\n"))
            try await redis.apnsWorker(arguments + ["--ahead", "1000"]).fails(1, "was sent to other tokens")
            #expect(try Self.next(redis) == 20)
            _ = try Self.files(redis, tokens.joined(separator: "\n"))
            let result = try await redis.apnsWorker(arguments + ["--ahead", "1000", "--json"]).succeeds()
            let object = try #require(try result.objects.first)
            #expect(object["enqueued"] as? Int == 80 && object["next"] as? Int == 100 && object["jobs"] as? Int == 100)
            #expect(try redis.run("LLEN", "push:{default}:jobs").number == 100)
        }

        @Test(
            "A canary of bad tokens stops the campaign before the rest is sent, and it can continue."
        )
        func canary() async throws {
            let redis = try RedisServer()
            let simulator = try await SimulatorProcess(
                manyTokens: true, options: ["--delay", "5ms", "--control-port", "0"])
            let worker = try WorkerProcess(redis: redis.url, endpoint: simulator.port)
            let tokens = (0..<20_000).map { TestJob.token($0 % 3 == 0 ? "dead" : "a", $0) }
            let arguments =
                try Self.files(redis, tokens.joined(separator: "\n")) + [
                    "--job-size", "50", "--canary", "5%", "--min", "500", "--stop-if", "invalid_token>5%", "--wait",
                    "60s",
                ]
            try await simulator.control("PUT", "/rules", #"{"rules":["prefix=dead,answer=410"]}"#)
            try await redis.apnsWorker(arguments).fails(
                1, "campaign spring was paused by its guard: invalid_token is", "the canary is enqueued",
                "campaign resume spring")
            // A canary of 5 percent has 845 to 1,155 tokens, within five standard deviations, which is 17 to 24 jobs.
            let canary = try Self.next(redis)
            #expect((17...24).contains(canary), "\(canary)")
            #expect(try await simulator.account().requests <= canary * 50)
            try await redis.apnsWorker(arguments).fails(1, "was paused by its guard")
            #expect(try Self.next(redis) == canary)
            try await redis.apnsWorker(["status"]).shows(
                "campaign spring is paused by its guard in default: invalid_token is")

            // Notifications that were in flight during the pause must not pause the campaign again.
            try await eventually("nothing is in flight") { try QueueContents(redis).claims == 0 }
            try await simulator.control("PUT", "/rules", #"{"rules":[]}"#)
            try await redis.apnsWorker(["campaign", "resume", "spring"]).succeeds()
            let result = try await redis.apnsWorker(arguments + ["--json"]).succeeds()
            let object = try #require(result.objects.first)
            #expect(object["next"] as? Int == object["jobs"] as? Int, "\(object)")
            try await eventually("all have ended") {
                let shown = try await redis.apnsWorker(["campaign", "show", "spring", "--json"]).objects.first
                return shown?["left"] as? Int == 0
            }
            _ = try await worker.stop()
            let account = try await simulator.stop()
            #expect(account.requests == tokens.count && account.duplicates == 0, "\(account)")
        }

        @Test("A list is read in memory where no file can be written.")
        func noDirectory() async throws {
            let redis = try RedisServer()
            let (one, two) = (TestJob.token("ab", 1), TestJob.token("ab", 2))
            let arguments = try Self.files(redis, "\(one)\n\(two)\n\(one)\n")
            for directory in ["/proc/none", "/nowhere"] {
                try redis.run("FLUSHALL")
                try await redis.apnsWorker(arguments, environment: ["TMPDIR": directory]).succeeds()
                #expect(try redis.run("HGET", "push:{default}:campaign:spring", "total").text == "2")
            }
        }

        @Test("A table can come from standard input, with a time, a limit and lines without tokens.")
        func table() async throws {
            let redis = try RedisServer()
            var arguments = try Self.files(redis, "")
            arguments[arguments.count - 1] = "-"
            let (one, two) = (TestJob.token("ab", 1), TestJob.token("ab", 2))
            let table = "id,token\n1,\(one)\n2,zz\n3,\"\(two.uppercased())\"\n4,\(one)\n"
            let tomorrow = Int(Date().timeIntervalSince1970) + 86_400
            let options = ["--column", "token", "--at", "\(tomorrow)", "--rate", "50"]
            try await redis.apnsWorker(arguments + options + ["--dry-run"], input: table)
                .fails(1, "line 3: the device token").prints("would have enqueued 1 job on default, with 2 tokens\n")
                .reports("dropped 1 repeated token of 3")
            #expect(try redis.run("LLEN", "push:{default}:jobs").number == 0)
            try await redis.apnsWorker(arguments + options + ["--strict"], input: table).fails(
                1, "nothing was enqueued")
            try await redis.apnsWorker(arguments + options, input: table).fails(1, "limited to 50 per second")
            let job = try jsonObject(redis.run("LINDEX", "push:{default}:jobs", "0").text ?? "")
            #expect(job["id"] as? String == "spring-000001" && job["campaign"] as? String == "spring")
            #expect(job["tokens"] as? [String] == [one, two] && job["send_at"] as? Int == tomorrow)
            #expect(try redis.run("HGET", "push:{default}:campaign:spring", "total").text == "2")
        }

        @Test(
            "Mistakes are reported before anything is enqueued.",
            arguments: [
                (#"{"alert":"x","id":"a"}"#, [], "member id"), (#"{"alert":"x","tokens":[]}"#, [], "member tokens"),
                (#"{"alert":"x","campaign":"autumn"}"#, [], "member campaign"), (#"{"alrt":"x"}"#, [], "payload"),
                (#"{"alert":"x","send_at":1}"#, ["--at", "4102444800"], "send_at"), ("x", [], "--job"),
                (#"{"alert":"x"}"#, ["--at", "30m"], "--at must be"), (#"{"alert":"x"}"#, ["--rate", "0"], "--rate"),
                (#"{"alert":"x"}"#, ["--column", "a", "--member", "b"], "not both"),
                (#"{"alert":"x"}"#, ["--tokens", "/nowhere"], "/nowhere cannot be read"),
                (#"{"alert":"x"}"#, ["--job-size", "0"], "--job-size must be"),
                (#"{"alert":"x"}"#, ["--canary", "1%"], "--canary needs --stop-if"),
                (#"{"alert":"x"}"#, ["--canary", "100%", "--stop-if", "dead>1%"], "below 100%"),
                (#"{"alert":"x"}"#, ["--canary", "50%", "--stop-if", "dead>1%"], "the guard needs 1,000 (--min)"),
                (#"{"alert":"x"}"#, ["--stop-if", "dead"], "--stop-if must be rules"),
                (#"{"alert":"x"}"#, ["--wait", "1m"], "--wait needs --canary"),
                (#"{"alert":"x"}"#, ["--min", "5"], "--min needs --stop-if"),
                (
                    #"{"alert":"x","send_at":4102444800}"#, ["--canary", "1%", "--stop-if", "dead>1%"],
                    "cannot be combined"
                ),
            ])
        func mistakes(_ job: String, _ options: [String], _ part: String) async throws {
            let redis = try RedisServer()
            let arguments = try Self.files(redis, TestJob.token("ab", 1), job: job)
            try await redis.apnsWorker(arguments + options).fails(64, part)
            #expect(try redis.run("LLEN", "push:{default}:jobs").number == 0)
        }

        @Test("A list can be at a URL.")
        func url() async throws {
            let redis = try RedisServer()
            var arguments = try Self.files(redis, TestJob.token("ab", 1), name: "tokens.txt")
            let port = try RedisServer.freePort()
            let server = try ChildProcess(
                "python3", ["-m", "http.server", "\(port)", "--bind", "127.0.0.1", "-d", redis.directory.path])
            defer { server.kill() }
            arguments[arguments.count - 1] = "http://127.0.0.1:\(port)/tokens.txt"
            try await eventually("it listens") { try await redis.apnsWorker(arguments).status == 0 }
            #expect(try redis.run("LLEN", "push:{default}:jobs").number == 1)
            arguments[arguments.count - 1] += "x"
            try await redis.apnsWorker(arguments).fails(1, "the status is 404")
        }

        @Test("A list of two million tokens needs less than 64 MiB of memory.")
        func memory() async throws {
            let redis = try RedisServer()
            let arguments = try Self.files(redis, "")
            let list = URL(filePath: try #require(arguments.last))
            let file = try FileHandle(forWritingTo: list)
            var lines = Data((0..<10_000).map { TestJob.token("e", $0) + "\n" }.joined().utf8)
            let length = lines.count / 10_000
            for part in 0..<200 {
                // Only these digits change, because making new tokens takes seconds.
                let digits = Data(String(part + 0x100, radix: 16).utf8)
                for start in stride(from: 1, to: lines.count, by: length) {
                    lines.replaceSubrange(start..<start + digits.count, with: digits)
                }
                try file.write(contentsOf: lines)
            }
            try file.close()
            let process = try redis.startCommand(arguments)
            try await eventually("the queue is full", within: .seconds(180)) { try Self.next(redis) >= 80 }
            let status = try String(
                contentsOfFile: "/proc/\(process.processIdentifier)/status", encoding: .utf8)
            let peak = try #require(status.firstMatch(of: /VmHWM:\s+(\d+) kB/).flatMap { Int($0.1) })
            #expect(peak < 64 << 10, "\(peak) KiB")
        }
    }
}
