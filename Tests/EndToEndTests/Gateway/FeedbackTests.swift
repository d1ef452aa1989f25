import Foundation
import NIOCore
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Feedback")
    struct FeedbackTests {
        @Test("is written to the set with its time, topic and source, and summarized in a line")
        func drain() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<2500))
            let first = try await scene.run().succeeds()
            #expect(first.output.hasPrefix("default: 2500 records: 2500 added, 0 already known; "), "\(first.output)")
            #expect(first.errors.isEmpty)
            let queue = try QueueContents(scene.redis)
            #expect(try scene.has(0..<2500))
            #expect(queue.invalidTokenDetails.count == 2500)
            let seventh = try #require(queue.invalidTokenDetails[FeedbackScene.token(7)])
            #expect(
                seventh
                    == .init(
                        at: 1_700_000_007_000, day: seventh.day, reason: "Feedback", topic: "com.example.app",
                        environment: "production", source: "feedback"))
            #expect(abs(seventh.day - Int(Date().timeIntervalSince1970) / 86_400) <= 1)
            let second = try await scene.run("--batch", "1", "--log-level", "debug").succeeds()
            #expect(second.output.hasPrefix("default: 2500 records: 0 added, 2500 already known; "))
            for event in ["feedback_connecting", "feedback_connected", "feedback_written", "feedback_ended"] {
                #expect(second.errors.contains(#""event":"\#(event)""#), "\(event)")
            }
        }

        @Test("suppresses notifications, unless the device has registered since, which is then remembered")
        func suppresses() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<3))
            let simulator = try await SimulatorProcess()
            // The records are years old. With 0, their tokens do not expire.
            let forever = ["APNS_WORKER_INVALID_TOKENS_DAYS": "0"]
            let endpoint = forever.merging(["APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)"]) { $1 }
            try await scene.run(environment: endpoint).succeeds()
            try scene.redis.push([
                TestJob.text(FeedbackScene.token(0)),
                TestJob.text(FeedbackScene.token(1), #""registered_at":1700000005,"#),
                TestJob.text(FeedbackScene.token(2), #""registered_at":1700000001,"#),
            ])
            let account = try await WorkerProcess(
                scene.redis, simulator, ["--exit-when-done"], environment: forever
            ).finish()
            #expect(account.suppressed == 2 && account.delivered == 1)
            #expect(try scene.invalidTokens == [FeedbackScene.token(0), FeedbackScene.token(2)])
            // The service reports the records again. A producer has recorded a later registration of their tokens.
            let registrations = "push:{shared}:registrations"
            #expect(try scene.redis.run("HGETALL", registrations).pairs() == [FeedbackScene.token(1): "1700000005000"])
            try scene.redis.run("DEL", "push:{shared}:invalid-tokens")
            try scene.redis.run("HSET", registrations, FeedbackScene.token(2), "1700000002001")
            let words = "default: 3 records: 1 added, 0 already known, 2 skipped, registered since; "
            let again = try await scene.run(environment: endpoint).succeeds()
            #expect(again.output.hasPrefix(words), "\(again.output)")
            #expect(try scene.invalidTokens == [FeedbackScene.token(0)])
        }

        @Test(
            "that breaks off is written up to that point, and the exit status reports it",
            arguments: [
                ("cut", "in the middle of a tuple, after 35 bytes"), ("reset", "broke"),
                ("silence", "sent nothing for 5 s"), ("nonsense", "byte 11400"),
            ])
        func badEnds(how: String, words: String) async throws {
            let scene = try await FeedbackScene(script: { peer in
                peer.send(FeedbackScene.bytes(0..<300))
                if how == "nonsense" { peer.send([UInt8](repeating: 0xFF, count: 10)) }
                guard how == "cut" else { return }
                peer.send(FeedbackScene.bytes(300..<301).dropLast(3))
                peer.hangUp()
            })
            let process = try scene.start("--timeout", how == "silence" ? "5s" : "60s")
            try await scene.has(300)
            if how == "reset" { scene.server.peers.forEach { $0.reset() } }
            #expect(try await process.wait() == .exited(1))
            #expect(process.output.hasPrefix("default: 300 records: 300 added, "), "\(process.output)")
            #expect(process.errors.hasPrefix("default: FAILED: "), "\(process.errors)")
            #expect(process.errors.contains("localhost:\(scene.server.port) "))
            #expect(process.errors.contains(words), "\(process.errors)")
            #expect(process.output.contains("35 bytes of an incomplete record") == (how == "cut"))
        }

        @Test("of one app is read whatever the services of other apps do")
        func apps() async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<100))
            let silent = try await FeedbackServer.start { $0.send(FeedbackScene.bytes(200..<210)) }
            let nobody = try RedisServer.refusedPort()
            let certificate = try TestCertificates.path("client.pem")
            let workshop = try OpenSSLWorkshop()
            try workshop.certificate("good", subject: "/UID=com.example.good/CN=Apple Push Services: com.example.good")
            let apps = [
                "GOOD_CERTIFICATE": workshop.path("good.pem"), "GOOD_CERTIFICATE_KEY": workshop.path("good-key.pem"),
                "GOOD_TOPIC": "com.example.good", "GOOD_ENDPOINT": "sandbox", "SILENT_CERTIFICATE": certificate,
                "SILENT_FEEDBACK_ENDPOINT": "localhost:\(silent.port)", "GONE_CERTIFICATE": certificate,
                "GONE_FEEDBACK_ENDPOINT": "localhost:\(nobody)", "BROKEN_CERTIFICATE": "/does/not/exist.pem",
                "KEYED_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
            ]
            var environment = Dictionary(uniqueKeysWithValues: apps.map { ("APNS_WORKER_APPS_\($0)", $1) })
            environment["APNS_WORKER_APPS"] = "good,silent,gone,broken,keyed"
            environment["APNS_WORKER_CERTIFICATE"] = ""
            environment["APNS_WORKER_TEAM_ID"] = "TEAM123456"
            let result = try await scene.run("--timeout", "5s", environment: environment).fails(1)
            let lines = result.output.split(separator: "\n")
            #expect(lines.count == 2, "\(result.output)")
            #expect(lines.first?.hasPrefix("good: 100 records: 100 added") == true)
            #expect(lines.last?.hasPrefix("silent: 10 records: 10 added") == true)
            #expect(result.errors.contains("silent: FAILED: localhost:\(silent.port) does not respond"))
            #expect(result.errors.contains("gone: FAILED: cannot connect to localhost:\(nobody)"), "\(result.errors)")
            #expect(result.errors.contains("broken: FAILED: ") && result.errors.contains("/does/not/exist.pem"))
            #expect(!result.errors.contains("keyed"))
            let details = try QueueContents(scene.redis).invalidTokenDetails
            #expect(details[FeedbackScene.token(1)]?.facts.topic == "com.example.good")
            #expect(details[FeedbackScene.token(1)]?.facts.environment == "sandbox")
            #expect(details.count == 110)

            // --app selects the only app that is read. An app with a key can't be selected.
            let chosen = try await scene.run("--app", "good", environment: environment).succeeds()
            #expect(chosen.output.hasPrefix("good: 100 records: 0 added, 100 already known"))
            try await scene.run("--app", "keyed", environment: environment).fails(78, "signing key")
            let onlyKeyed = [
                "APNS_WORKER_CERTIFICATE": "", "APNS_WORKER_KEY": "x.p8", "APNS_WORKER_TEAM_ID": "TEAM123456",
            ]
            try await scene.run(environment: onlyKeyed.merging(["APNS_WORKER_KEY_ID": "ABC123DEFG"]) { $1 }).fails(
                78, "no app has a certificate")
        }

        @Test("is read at an interval despite failures, until the process is stopped")
        func interval() async throws {
            let rounds = Counter()
            let scene = try await FeedbackScene(script: { peer in
                let round = rounds.next()
                if round == 2 { return peer.reset() }
                FeedbackScene.sending((round * 10)..<(round * 10 + 10))(peer)
            })
            let process = try scene.start("--interval", "1s", "--quiet")
            try await scene.has(30)
            process.send(SIGTERM)
            #expect(try await process.wait() == .exited(0), "\(process.errors)")
            #expect(process.output.contains("default: 10 records: 10 added"))
            #expect(process.errors.contains("FAILED"))
        }

        @Test("without records is reported, but not with --quiet, and starts no command")
        func quiet() async throws {
            let scene = try await FeedbackScene(script: { $0.hangUp() })
            #expect(try await scene.run().succeeds().output.hasPrefix("default: 0 records: 0 added, 0 already known; "))
            for result in [
                try await scene.run("--quiet").succeeds(), try await scene.run("--quiet", "--json").succeeds(),
            ] {
                #expect(result.output.isEmpty && result.errors.isEmpty, "\(result)")
            }
            let result = try await scene.run("--exec", "exit 3", "--json").succeeds()
            #expect(try FeedbackScene.Report(result.output).exec == nil)
        }

        @Test("on a terminal shows its progress and leaves a line")
        func progress() async throws {
            let gate = Gate()
            let scene = try await FeedbackScene(script: FeedbackScene.halves(gate, 0..<20, 20..<20))
            let terminal = try ChildProcess(
                "script",
                ["--quiet", "--return", "--command", "\(BuiltProgram.path("apns-worker")) feedback", "/dev/null"],
                environment: scene.environment)
            try await eventually("it is shown") { terminal.output.contains("default: 20 records read") }
            gate.open()
            #expect(try await terminal.wait() == .exited(0))
            #expect(terminal.output.contains("default: 20 records: 20 added, 0 already known"), "\(terminal.output)")
        }

        @Test(
            "wrong settings are usage errors",
            arguments: [
                (["--feedback-endpoint", "a b"], "a b"), (["--app", "nobody"], "unknown app nobody"),
                (["--batch", "0"], "--batch"), (["--timeout", "soon"], "--timeout"),
                (["--interval", "0s"], "--interval"), (["--redis-patience", "5"], "--redis-patience"),
                (["--list", "--json"], "--list and --json"),
                (["--spill", "/does/not/exist/file"], "/does/not/exist/file"), (["--exec", " "], "--exec"),
                (["--from", "x", "--list"], "--from"),
                (["--certificate", "/does/not/exist.pem"], "/does/not/exist.pem"),
            ])
        func mistakes(flags: [String], words: String) async throws {
            let environment = try FeedbackScene.environment(RedisServer(), 1)
            try await CommandLineTests.run(["feedback"] + flags, environment: environment)
                .fails(["--certificate", "--feedback-endpoint"].contains(flags[0]) ? 78 : 64, words)
        }
    }
}
