import Foundation
import NIOCore
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Output of feedback")
    struct FeedbackOutputTests {
        @Test("--list prints each record with its outcome, and the summary goes to standard error")
        func list() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<3))
            try scene.redis.run("SADD", "push:{shared}:invalid-tokens", FeedbackScene.token(1))
            try scene.redis.run("HSET", "push:{shared}:registrations", FeedbackScene.token(2), "1900000000000")
            let result = try await scene.run("--list").succeeds()
            let records = try FeedbackScene.Record.all(result.output)
            #expect(records.map(\.outcome) == ["added", "known", "registered_since"])
            #expect(
                records[0]
                    == .init(
                        token: FeedbackScene.token(0), at: 1_700_000_000_000, app: "default", topic: "com.example.app",
                        environment: "production", source: "feedback", outcome: "added"))
            #expect(result.errors.hasPrefix("default: 3 records: 1 added, 1 already known, 1 skipped"))
            #expect(!result.errors.contains(FeedbackScene.token(0)))
        }

        @Test("--json prints one object")
        func json() async throws {
            let scene = try await FeedbackScene(script: { peer in
                peer.send(FeedbackScene.bytes(0..<5).dropLast(1))
                peer.hangUp()
            })
            let result = try await scene.run("--json").fails(1)
            let report = try FeedbackScene.Report(result.output)
            let app = try #require(report.apps.first)
            #expect(report.apps.count == 1 && app.app == "default" && !report.ok && report.exec == nil)
            #expect(app.records == 4 && app.added == 4 && app.known == 0 && app.registeredSince == 0)
            #expect(app.incompleteBytes == 37 && app.spilled == 0)
            #expect(app.error?.contains("in the middle of a tuple") == true)
        }

        @Test(
            "--exec starts its command once, writes all records to its standard input, and passes no variable unasked")
        func exec() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<5000))
            let file = { (name: String) in scene.redis.directory.appending(path: name) }
            let command =
                "echo started >> '\(file("starts").path)'; env > '\(file("environment").path)'; "
                + "cat >> '\(file("records").path)'"
            let result = try await scene.run(
                "--exec", command, "--json", "--batch", "100", "--exec-env", "WANTED", "--exec-env", "MISSING",
                environment: ["SECRET": "s3cret", "WANTED": "value", "HTTPS_PROXY": "", "LANG": "C.UTF-8", "TZ": "UTC"]
            ).succeeds()
            let report = try FeedbackScene.Report(result.output)
            #expect(report.exec?.status == 0 && report.ok)
            #expect(try String(contentsOf: file("starts"), encoding: .utf8) == "started\n")
            let records = try FeedbackScene.Record.all(String(contentsOf: file("records"), encoding: .utf8))
            let isWhole = records.map(\.token) == (0..<5000).map(FeedbackScene.token)
            #expect(isWhole)
            let text = try String(contentsOf: file("environment"), encoding: .utf8)
            let names = Set(text.split(separator: "\n").map { String($0.prefix { $0 != "=" }) })
            // Shells add PWD, SHLVL and _.
            #expect(names.isSubset(of: ["PATH", "HOME", "LANG", "TZ", "WANTED", "PWD", "SHLVL", "_"]), "\(names)")
            #expect(names.isSuperset(of: ["PATH", "LANG", "TZ", "WANTED"]))
            #expect(text.contains("WANTED=value\n") && !text.contains("s3cret") && !text.contains("redis://"))
        }

        @Test(
            "a command that fails, exits early or reads nothing loses no record, and the exit status reports it",
            arguments: [
                ("cat > /dev/null; exit 3", "ended with status 3"), ("exit 0", "did not read all"),
                ("read line; kill -9 $$", "signal 9 ended it"),
                ("exec sleep 600", "the reader has read nothing for 3 s"),
                ("/does/not/exist", "ended with status 127"),
            ])
        func badCommands(command: String, words: String) async throws {
            // These records are larger than a pipe's buffer.
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<4000))
            let process = try scene.start("--exec", command, "--timeout", "3s")
            let ending = try await process.wait()
            #expect(ending == .exited(1))
            let isSleeper = command.contains("sleep")
            #expect(process.errors.contains(isSleeper ? "was killed" : words), "\(process.errors)")
            #expect(process.errors.contains("--exec: FAILED: "))
            #expect(process.output.hasPrefix("default: 4000 records: 4000 added"), "\(process.output)")
            #expect(try scene.has(0..<4000))
        }

        @Test("a reader of --list that exits early loses no record")
        func listWithoutReader() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<4000))
            let program = try BuiltProgram.path("apns-worker")
            let shell = try ChildProcess(
                "/bin/bash", ["-c", "set -o pipefail; '\(program)' feedback --list | head -n 1"],
                environment: scene.environment)
            #expect(try await shell.wait() == .exited(1))
            #expect(try FeedbackScene.Record.all(shell.output).count == 1)
            #expect(
                shell.errors.contains("--list: FAILED: standard output: the reader has closed it"), "\(shell.errors)")
            #expect(try scene.has(0..<4000))
        }
    }
}
