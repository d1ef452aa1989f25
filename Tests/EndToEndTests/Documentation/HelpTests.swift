import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Help")
    struct HelpTests {
        private static func lines(_ arguments: String...) async throws -> [Substring] {
            let result = try await CommandLineTests.run(arguments)
            #expect(result.ending == .exited(0) && result.errors.isEmpty, "\(result)")
            return result.output.split(separator: "\n", omittingEmptySubsequences: false)
        }

        @Test("--help shows a command's own options and the best-known settings, and --help-hidden all settings")
        func options() async throws {
            let pause = try await Self.lines("pause", "--help")
            #expect(pause.count < 50, "\(pause.joined(separator: "\n"))")
            for option in ["--reason <text>", "--redis <", "--queue <", "--config <", "`apns-worker help settings`"] {
                #expect(pause.contains { $0.contains(option) }, "\(option)")
            }
            #expect(!pause.contains { $0.contains("--job-class") })
            let run = try await Self.lines("run", "--help")
            for option in ["--exit-when-done", "--job-class", "--gateway-frame"] {
                #expect(run.contains { $0.contains(option) }, "\(option)")
            }
            for wrong in ["<redis>", "<lease>", "<ca>", "<config>", "<proxy>"] {
                #expect(!run.contains { $0.contains(wrong) }, "\(wrong) has no meaning")
            }
            for command in [["feedback"], ["check"], ["channels", "list"]] {
                try await CommandLineTests.run(command + ["--help"]).shows("--key <file>", "apns-worker help settings")
                    .lacks("--gateway-frame")
                #expect(try await CommandLineTests.run(command + ["--help-hidden"]).output.contains("--gateway-frame"))
            }
        }

        @Test("--help states each default once", arguments: [["feedback"], ["jobs", "show"], ["run"], ["web"]])
        func defaults(command: [String]) async throws {
            let text = try await CommandLineTests.run(command + ["--help"]).succeeds().output
            #expect(text.contains("default: "))
            #expect(text.firstMatch(of: /default: [^)]*\)\s+\(default/) == nil, "\(text)")
        }

        @Test(
            "topics",
            arguments: [
                ("settings", ["--redis <url>", "APNS_WORKER_KEY_BASE64", "--gateway-frame"]),
                ("jobs", ["  token\n", "  send_at\n", "  payload\n"]),
                (
                    "json",
                    ["DeadLetter (`dead list`, `dead show`): A dead letter.", "  token_count ", "  oldest_age_ms "]
                ),
                ("exit-codes", ["69 ", "77 ", "78 ", "CRITICAL"]),
                ("environment", ["APNS_WORKER_REDIS_URL\n", "APNS_WORKER_CONFIG", "NO_COLOR"]),
            ])
        func topics(name: String, words: [String]) async throws {
            let result = try await CommandLineTests.run(["help", name]).succeeds()
            for word in words { #expect(result.output.contains(word), "\(word)") }
            #expect(result.output.split(separator: "\n").allSatisfy { $0.count <= 130 })
        }

        @Test("help on a command is its --help")
        func command() async throws {
            #expect(try await Self.lines("help", "pause") == Self.lines("pause", "--help"))
            #expect(try await Self.lines("help", "dead", "list") == Self.lines("dead", "list", "--help"))
            let root = try await Self.lines("help")
            #expect(root == (try await Self.lines("--help")))
            #expect(root.contains { $0.contains("settings, jobs, json, exit-codes, environment") }, "\(root)")
        }

        @Test(
            "an unknown command is reported with a suggestion",
            arguments: [
                (["runn"], "run"), (["dead", "lst"], "list"), (["stauts", "--json"], "status"),
                (["help", "resme"], "resume"),
                (["help", "setings"], "help settings"), (["invalid", "remov", "ab"], "remove"),
            ])
        func unknown(arguments: [String], meant: String) async throws {
            try await CommandLineTests.run(arguments).fails(64, "did you mean `\(meant)`?").prints("")
        }

        @Test("without a terminal the progress is an occasional line without escape codes")
        func progress() async throws {
            let (redis, simulator) = try await startServers()
            try redis.push(TestJob.many(50))
            let worker = try WorkerProcess(redis, simulator, ["--progress", "--exit-when-done"])
            _ = try await worker.finish()
            #expect(worker.log.contains("progress 100 %  50/50 settled"), "\(worker.log)")
            #expect(!worker.log.contains("\u{1B}") && !worker.log.contains("\r"))
        }
    }
}
